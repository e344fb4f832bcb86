"""Every form of target, every option that does not fit, every damaged file: a clear error before any heavy import."""

import json
import shutil

import pytest

from maxcode.errors import MaxCodeError
from maxcode.options import parse_arguments, parse_json, parse_overrides
from maxcode.targets import Target, TargetOptions, default_output, package_name, parse_target, validate
from tests.maxcode import damage


def test_transformers_targets():
    target = parse_target("transformers:bert", TargetOptions(full_size=True, overrides={"hidden_size": 8}, seed=3))
    assert (target.kind, target.type, target.class_name, target.weights) == ("transformers", "bert", None, "noise")
    assert (target.full_size, target.overrides, target.seed) == (True, {"hidden_size": 8}, 3)
    assert parse_target("transformers:bert:BertModel").class_name == "BertModel"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("transformers:berd", "did you mean .*'bert'"),
        ("transformers:bert:BertModle", "did you mean .*'BertModel'"),
        ("transformers:a:b:c", "too many colons"),
        ("./nothing", "no such file or folder"),
        ("/nothing/at/all", "no such file or folder"),
        ("a/b/c", "no such file or folder"),
        ("gone.gguf", "no such file or folder"),
        ("gone.py:Net", "no such file"),
        ("not a module:Net", "neither a file nor a module name"),
        ("pkg.mod:not a class", "no class name"),
        ("", "is empty"),
    ],
)
def test_unknown_names(text, message):
    with pytest.raises(MaxCodeError, match=message):
        parse_target(text)


def test_a_path_wins_over_a_hub_id(hf_folder, monkeypatch):
    monkeypatch.chdir(hf_folder.parent)
    assert parse_target("hf").kind == "folder"
    assert parse_target("hg").kind == "hub"
    assert parse_target("org/name-1.5B", TargetOptions(revision="abc")).revision == "abc"


def test_gguf_by_file_and_by_folder(tmp_path):
    path = damage.write_gguf(tmp_path / "m.gguf")
    for text in (path, tmp_path):
        target = parse_target(str(text))
        assert (target.kind, target.path, target.gguf_file) == ("gguf", str(tmp_path), "m.gguf")
        validate(target)
    damage.write_gguf(tmp_path / "n.gguf")
    with pytest.raises(MaxCodeError, match="holds 2 GGUF files"):
        parse_target(str(tmp_path))


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda data: b"GGML" + data[4:], "starts with b'GGML'"),
        (lambda data: data[:-64], "truncated|cannot be read"),
        (lambda data: data[:20], "cannot be read"),
    ],
)
def test_damaged_gguf(tmp_path, spoil, message):
    path = damage.write_gguf(tmp_path / "m.gguf")
    path.write_bytes(spoil(path.read_bytes()))
    with pytest.raises(MaxCodeError, match=message):
        validate(parse_target(str(path)))


def test_gguf_of_unknown_architecture(tmp_path):
    path = damage.write_gguf(tmp_path / "m.gguf", "llamo")
    with pytest.raises(MaxCodeError, match="'llamo' is not known to transformers .*'llama'"):
        validate(parse_target(str(path)))


def test_module_file(net_file):
    target = parse_target(f"{net_file}:Plain", TargetOptions(inputs=[{"shape": [1, 2]}]))
    validate(target)
    assert (target.kind, target.path, target.class_name, target.module) == ("module", str(net_file), "Plain", None)
    with pytest.raises(MaxCodeError, match="no class is named.*:Net, .*:Plain"):
        parse_target(str(net_file))


@pytest.mark.parametrize(
    ("class_name", "init", "inputs", "message"),
    [
        ("Nett", [1], [1], "no class 'Nett' .did you mean 'Net'"),
        ("Net", None, [1], "__init__: arguments missing: width.*--init"),
        ("Net", [1, 2, 3], [1], "3 values for 2 arguments"),
        ("Net", {"widht": 1}, [1], "arguments missing: width"),
        ("Net", {"width": 1, "dept": 1}, [1], "no argument named dept .did you mean 'depth'"),
        ("Net", [1], None, "forward: arguments missing: x.*get_inputs"),
        ("Net", [1], {"y": 1}, "arguments missing: x"),
        ("Net", [1], {"x": 1}, None),
        ("Net", {"width": 1}, [1, 2], None),
        ("Plain", None, [1], None),
    ],
)
def test_module_arguments(net_file, class_name, init, inputs, message):
    target = parse_target(f"{net_file}:{class_name}", TargetOptions(init=init, inputs=inputs))
    if message is None:
        validate(target)
        return
    with pytest.raises(MaxCodeError, match=message):
        validate(target)


def test_the_files_own_functions_serve(net_file):
    net_file.write_text(
        net_file.read_text() + "\n\ndef get_init_inputs():\n    return [1]\n\n\ndef get_inputs():\n    return [1]\n"
    )
    validate(parse_target(f"{net_file}:Net"))


def test_syntax_error_names_the_line(tmp_path):
    path = tmp_path / "bad.py"
    path.write_text("x = 1\nclass Net(:\n")
    with pytest.raises(MaxCodeError, match="line 2"):
        validate(parse_target(f"{path}:Net"))


def test_importable_modules(tmp_path, monkeypatch, net_file):
    package = tmp_path / "some_pkg"
    package.mkdir()
    (package / "__init__.py").write_text("raise RuntimeError('must not be imported')")
    shutil.copy(net_file, package / "mod.py")
    monkeypatch.chdir(tmp_path)
    validate(parse_target("some_pkg.mod:Plain", TargetOptions(inputs=[1])))
    with pytest.raises(MaxCodeError, match="no class 'Flat'"):
        validate(parse_target("some_pkg.mod:Flat"))
    with pytest.raises(MaxCodeError, match=r"no module named 'some_pkg\.gone'"):
        validate(parse_target("some_pkg.gone:Net"))
    validate(parse_target("torch.nn:Linear", TargetOptions(init=[2, 2], inputs=[1])))  # bound by a star import


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("transformers:bert", {"init": [1]}, "--init: does not apply"),
        ("transformers:bert", {"revision": "x"}, "--revision: does not apply"),
        ("org/name", {"full_size": True}, "--full-size: does not apply"),
        ("a.b:C", {"overrides": {"x": 1}}, "--set: does not apply.*--init"),
        ("a.b:C", {"trust_remote_code": True}, "--trust-remote-code: does not apply"),
    ],
)
def test_options_that_do_not_fit(text, options, message):
    with pytest.raises(MaxCodeError, match=message):
        parse_target(text, TargetOptions(**options))


def test_sound_folder(hf_folder):
    validate(parse_target(str(hf_folder)))


@pytest.mark.parametrize(
    ("inflict", "message"),
    [
        (damage.truncate, "truncated"),
        (damage.lengthen_header, "truncated or another format"),
        (damage.garble_header, "damaged safetensors header"),
        (damage.lose_shard, "missing shards: .*model-2"),
        (damage.lose_tensor, "'b'"),
        (damage.garble_index, "weight_map"),
        (damage.pickle_only, "--allow-pickle"),
        (lambda folder: (folder / "model.safetensors").unlink(), "no weights in it.*--no-weights"),
        (lambda folder: (folder / "config.json").unlink(), "no config.json"),
        (lambda folder: (folder / "config.json").write_text("{,"), "not JSON"),
        (lambda folder: (folder / "config.json").write_text("[]"), "no model_type"),
        (lambda folder: (folder / "config.json").write_text('{"model_type": "bret"}'), "did you mean"),
        (
            lambda folder: (folder / "config.json").write_text('{"model_type": "own", "auto_map": {}}'),
            "--trust-remote-code",
        ),
    ],
)
def test_damaged_folder(hf_folder, inflict, message):
    inflict(hf_folder)
    with pytest.raises(MaxCodeError, match=message) as caught:
        validate(parse_target(str(hf_folder)))
    assert caught.value.exit_status == 2
    assert caught.value.do


def test_pickle_is_taken_when_allowed(hf_folder):
    damage.pickle_only(hf_folder)
    validate(parse_target(str(hf_folder), TargetOptions(allow_pickle=True)))


def test_weights_are_not_asked_for_when_not_wanted(hf_folder):
    (hf_folder / "model.safetensors").unlink()
    validate(parse_target(str(hf_folder)), with_weights=False)


def test_target_json_holds_every_field_of_the_contract():
    record = json.loads(parse_target("transformers:bert").to_json())
    assert {"text", "kind", "module", "class_name", "config_module", "config_class", "config", "path", "gguf_file",
            "revision", "init", "inputs", "seed", "allow_pickle", "trust_remote_code", "weights", "overrides",
            "full_size", "type", "training"} == set(record)  # fmt: skip
    assert Target(**record) == parse_target("transformers:bert")


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("Qwen3-0.6B", "qwen3_0_6b"),
        ("7b", "m_7b"),
        ("class", "class_model"),
        ("weights", "weights_model"),
        ("json", "json_model"),
        ("--", "model"),
        ("a b", "a_b"),
    ],
)
def test_package_names(text, name):
    assert package_name(text) == name


def test_default_output():
    assert str(default_output(Target("org/My-Model", "hub"))) == "my_model"
    assert str(default_output(Target("x", "gguf", path="/a/b", gguf_file="M.Q4.gguf"))) == "m_q4"


def test_json_options(tmp_path):
    path = tmp_path / "inputs.json"
    path.write_text('{"x": [1]}')
    assert parse_arguments("--inputs", f"@{path}") == {"x": [1]}
    assert parse_arguments("--inputs", None) is None
    assert parse_overrides(["a.b=3", "a.b=4", "c=null"]) == {"a.b": 4, "c": None}
    assert parse_json("--init", "[1, 2]") == [1, 2]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: parse_arguments("--init", "[1,"), "--init: not JSON.*line 1 column"),
        (lambda: parse_arguments("--init", "3"), "is one value"),
        (lambda: parse_arguments("--inputs", "@/no/such.json"), "cannot read the file"),
        (lambda: parse_overrides(["a.b"]), "is not NAME=JSON"),
        (lambda: parse_overrides(["a-b=1"]), "is not NAME=JSON"),
        (lambda: parse_overrides(["a=text"]), """--set 'a="text"'"""),
    ],
)
def test_json_options_that_are_wrong(call, message):
    with pytest.raises(MaxCodeError, match=message):
        call()


TRAINER = """
import torch
class Net(torch.nn.Module):
    def forward(self, x): return x
class Trainer:
    def fit(self):
        self.loss.backward(); self.optimizer.step()
def train(model):
    pass
"""


@pytest.mark.parametrize(("name", "entry"), [("", None), (":train", "train"), (":Trainer", "Trainer")])
def test_a_file_that_trains_is_a_training_program(tmp_path, name, entry):
    (tmp_path / "run.py").write_text(TRAINER)
    target = parse_target(f"{tmp_path / 'run.py'}{name}")
    assert target.training == {"file": str(tmp_path / "run.py"), "entry": entry}
    assert default_output(target).name == (entry or "run").lower()
    validate(target)


def test_a_model_in_a_file_that_trains_is_a_model(tmp_path):
    (tmp_path / "run.py").write_text(TRAINER)
    target = parse_target(f"{tmp_path / 'run.py'}:Net")
    assert target.training is None
    assert target.class_name == "Net"
