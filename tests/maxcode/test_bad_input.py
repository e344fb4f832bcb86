"""Bad input through the command line: exit status 2, a message with what to do, and earlier output as it was."""

import json

import pytest

from maxcode.output import write_marker
from tests.maxcode import damage


def folder(inflict):
    """A target maker: the sound folder, damaged."""

    def make(hf_folder, net_file):
        inflict(hf_folder)
        return [hf_folder]

    return make


def gguf_of(architecture):
    def make(hf_folder, net_file):
        return [damage.write_gguf(hf_folder.parent / "m.gguf", architecture)]

    return make


CASES = {
    "unknown hub id": (lambda hf, net: ["nobody/nothing"], "check the spelling and the network"),
    "folder without weights": (folder(lambda hf: (hf / "model.safetensors").unlink()), "--no-weights"),
    "truncated shard": (folder(damage.truncate), "download or copy the file again"),
    "corrupt shard": (folder(damage.garble_header), "download or copy the file again"),
    "missing shard": (folder(damage.lose_shard), "download or copy the file again"),
    "pickle": (folder(damage.pickle_only), "--allow-pickle"),
    "unknown GGUF architecture": (gguf_of("llamo"), "use the original safetensors folder"),
    "unknown class": (lambda hf, net: [f"{net}:Ned"], "check the name"),
    "class that needs arguments": (lambda hf, net: [f"{net}:Net"], "give --init"),
    "forward that needs arguments": (lambda hf, net: [f"{net}:Plain"], "give --inputs"),
    "unknown option": (lambda hf, net: [hf, "--fast"], "--help"),
    "unknown type": (lambda hf, net: ["transformers:berd"], "check the spelling"),
    "gap choice of a later release": (lambda hf, net: [hf, "--on-gap", "agent"], "leave it out"),
}


@pytest.mark.parametrize(("make", "do"), CASES.values(), ids=CASES)
def test_bad_input_loses_nothing(run_cli, tmp_path, hf_folder, net_file, make, do):
    arguments = make(hf_folder, net_file)
    place = tmp_path / "out"
    place.mkdir()
    write_marker(place, {})
    (place / "earlier").write_text("kept")
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    done = run_cli("convert", *arguments, "-o", place, "--json", HF_HUB_OFFLINE="1")
    assert done.returncode == 2, done.stderr
    record = json.loads(done.stdout)
    assert record["status"] == "error"
    assert do.lower() in record["checks"][0]["detail"].lower()
    assert "Traceback" not in done.stderr
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before
