"""From a checkpoint to a package and back: bytes, ledger, resuming, and refusals."""

import json

import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import load_file

from maxcode.checkpoint_convert.convert import convert_weights, to_hf
from maxcode.converter.support.tensor_files import CheckpointError, TensorFolder
from tests.checkpoint_convert import toy


@pytest.fixture(scope="module", params=[False, True], ids=["plain", "fused"])
def case(request, tmp_path_factory):
    return toy.Case(tmp_path_factory.mktemp("case"), request.param)


def test_package_weights_hold_every_leaf_in_stored_dtype(case):
    files = TensorFolder(case.root / "weights")
    expected = case.expected()
    assert files.entries.keys() == expected.keys()
    for name, array in expected.items():
        assert files.read(name).dtype == array.dtype
        np.testing.assert_array_equal(files.read(name), array)
    assert len(case.report.files) > 1
    assert case.report.source_tensors == len(case.tensors)
    assert case.report.tied == (("head.weight", "embed.weight"),)


def test_to_hf_is_byte_identical(case, tmp_path):
    report = to_hf(case.root, tmp_path / "hf")
    assert (report.changed, report.source_tensors) == ((), len(case.tensors))
    assert (tmp_path / "hf" / "model.safetensors").stat().st_size <= (
        case.source / "model.safetensors"
    ).stat().st_size + 8
    back = load_file(tmp_path / "hf" / "model.safetensors")
    assert back.keys() == case.tensors.keys()
    for name, array in case.tensors.items():
        assert (back[name].dtype, back[name].shape) == (array.dtype, array.shape)
        assert back[name].tobytes() == array.tobytes(), name
    assert (tmp_path / "hf" / "tokenizer.json").exists()
    assert json.loads((tmp_path / "hf" / "config.json").read_text()) == toy.CONFIG


def test_resumes_after_an_interruption(case, tmp_path):
    started = []

    def stop(name, done, total):
        started.append(name)
        if done > total / 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        convert_weights(case.source, case.map, tmp_path, max_shard_bytes=500, progress=stop)
    assert not (tmp_path / "weights.json").exists()
    _, report = convert_weights(case.source, case.map, tmp_path, max_shard_bytes=500)
    assert 0 < len(report.resumed) < len(report.files)
    _, fresh = convert_weights(case.source, case.map, tmp_path / "fresh", max_shard_bytes=500)
    assert fresh.resumed == ()
    written = {path.name: path.read_bytes() for path in (tmp_path / "weights").iterdir()}
    assert written == {path.name: path.read_bytes() for path in (tmp_path / "fresh" / "weights").iterdir()}
    assert (tmp_path / "weights.json").read_bytes() == (tmp_path / "fresh" / "weights.json").read_bytes()


def test_shards_of_another_conversion_are_not_kept(case, tmp_path):
    convert_weights(case.source, case.map, tmp_path, max_shard_bytes=500)
    other = toy.write_source(tmp_path / "source", {n: np.ones_like(a) for n, a in case.tensors.items()})
    _, report = convert_weights(other, case.map, tmp_path, max_shard_bytes=2000)
    assert report.resumed == ()
    assert len(list((tmp_path / "weights").glob("*.safetensors"))) == len(report.files)
    assert (TensorFolder(tmp_path / "weights").read("embed.embedding") == 1).all()


def test_refuses_weights_that_do_not_fit(case, tmp_path):
    tensors = dict(case.tensors)
    tensors["stray.one"] = tensors["stray.two"] = np.zeros(2, np.float32)
    del tensors["scale"]
    tensors["embed.weight"] = np.zeros((3, 6), ml_dtypes.bfloat16)
    source = toy.write_source(tmp_path, tensors)
    with pytest.raises(ValueError, match="do not fit") as error:
        case.package.Model.from_pretrained(source)
    assert all(word in str(error.value) for word in ("scale", "stray.one", "stray.two", "embed.embedding", "(3, 6)"))
    with pytest.raises(CheckpointError) as error:
        convert_weights(source, case.map, tmp_path / "out")
    assert all(word in str(error.value) for word in ("scale", "stray.one", "stray.two", "embed.weight"))
    assert not (tmp_path / "out" / "weights").exists()


def test_to_hf_refuses_what_is_no_package(case, tmp_path):
    with pytest.raises(CheckpointError, match=r"weights\.json"):
        to_hf(case.source, tmp_path / "out")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "file").write_text("kept")
    with pytest.raises(CheckpointError, match="not empty"):
        to_hf(case.root, tmp_path / "mine")
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["file"]
