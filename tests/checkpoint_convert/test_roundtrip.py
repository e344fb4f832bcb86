"""From a checkpoint to a package and back: bytes, ledger, loading both ways, sharded and scanned, and refusals."""

import importlib
import itertools
import json
import os
import subprocess
import sys

import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import load_file

from maxcode.checkpoint_convert.convert import convert_weights, to_hf
from maxcode.checkpoint_convert.mapping import Leaf, build_map
from maxcode.checkpoint_convert.source_tensors import SourceTensors
from maxcode.converter.support.tensor_files import CheckpointError, TensorFolder, TensorSpec
from tests.checkpoint_convert import toy

NAMES = itertools.count()


def stored_specs(folder):
    return {name: TensorSpec(entry.dtype, entry.shape) for name, entry in TensorFolder(folder).entries.items()}


class Case:
    """One converted toy: source folder, package root, the imported package, weight map."""

    def __init__(self, root, fused):
        self.state = toy.state_dict()
        self.tensors = toy.checkpoint(self.state) if fused else dict(self.state)
        self.source = toy.write_source(root / "source", self.tensors)
        self.root = root / "out"
        self.package = toy.write_package(self.root, f"toy_package_{next(NAMES)}")
        model = self.package.Model.abstract(self.package.Config.from_json(self.root / "config.json"))
        leaves = [Leaf.from_json(leaf.to_json()) for leaf in self.leaves(model).values()]
        self.about = SourceTensors.from_json(toy.tensors_json(self.state, fused=fused))
        self.map = build_map(self.about, toy.RULES.get, leaves, stored_specs(self.source))
        self.map, self.report = convert_weights(self.source, self.map, self.root, max_shard_bytes=2000)
        (self.root / "tokenizer.json").write_text("{}")

    def leaves(self, model):
        return self.support.leaves(model)

    @property
    def support(self):
        return importlib.import_module(f"{self.package.__name__}.pretrained")

    def expected(self):
        """Leaf name -> array, straight from the state dict."""
        out = {}
        for name, array in self.state.items():
            if name == "embed.weight":
                out["embed.embedding"] = array
            elif name.endswith(("_proj.weight", "dense.weight")):
                out[name.replace(".weight", ".kernel")] = array.T
            else:
                out[name] = array
        return out


@pytest.fixture(scope="module", params=[False, True], ids=["plain", "fused"])
def case(request, tmp_path_factory):
    return Case(tmp_path_factory.mktemp("case"), request.param)


def check_model(case, model, dtype=np.float32):
    found = case.leaves(model)
    expected = case.expected()
    assert found.keys() == expected.keys()
    for name, leaf in found.items():
        want = expected[name].astype(dtype if expected[name].dtype != np.int64 else np.int32)
        assert leaf.dtype == want.dtype, name
        np.testing.assert_array_equal(leaf.read(), want, err_msg=name)


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


@pytest.mark.parametrize("where", ["package", "source"])
@pytest.mark.parametrize("overrides", [{}, {"scan_layers": False}, {"weight_dtype": "bfloat16"}])
def test_from_pretrained(case, where, overrides):
    folder = case.root if where == "package" else case.source
    model = case.package.Model.from_pretrained(folder, **overrides)
    dtype = ml_dtypes.bfloat16 if overrides.get("weight_dtype") == "bfloat16" else np.float32
    check_model(case, model, dtype)
    assert any(leaf.index for leaf in case.leaves(model).values()) == overrides.get("scan_layers", True)


def test_scanned_model_computes_what_the_unscanned_does(case):
    ids = jnp.arange(5)
    logits = [case.package.Model.from_pretrained(case.root, scan_layers=scan)(ids) for scan in (True, False)]
    np.testing.assert_allclose(*logits, rtol=1e-5, atol=1e-5)


ON_A_MESH = """
import importlib, sys
import jax, numpy as np
root, package, folder = sys.argv[1:]
sys.path.insert(0, root)
package = importlib.import_module(package)
read = []
files = importlib.import_module(f"{package.__name__}.tensor_files")
whole = files.TensorFolder.read
files.TensorFolder.read = lambda self, name, index=None: read.append(whole(self, name, index)) or read[-1]
mesh = jax.sharding.Mesh(np.array(jax.devices()).reshape(2, 2), ("fsdp", "tensor"))
sharded = package.Model.from_pretrained(folder, mesh=mesh)
largest = max(array.size for array in read)
leaves = importlib.import_module(f"{package.__name__}.pretrained").leaves
plain = package.Model.from_pretrained(folder)
for (name, a), b in zip(leaves(sharded).items(), leaves(plain).values()):
    np.testing.assert_array_equal(a.read(), b.read(), err_msg=name)
    assert a.variable.get_value().sharding.mesh == mesh, name
spec = sharded.layers.periods[0].experts.down_proj.get_value().sharding.spec
assert spec == jax.sharding.PartitionSpec(None, None, "fsdp", "tensor"), spec
assert largest <= 3 * 16 * 6 // 4, largest  # the largest leaf of one layer, cut over four devices
assert not {"torch", "transformers", "maxcode"} & set(sys.modules)
"""


@pytest.mark.parametrize("where", ["package", "source"])
def test_mesh_places_and_reads_only_parts(case, where):
    folder = case.root if where == "package" else case.source
    env = os.environ | {"XLA_FLAGS": "--xla_force_host_platform_device_count=4", "JAX_PLATFORMS": "cpu"}
    command = [sys.executable, "-c", ON_A_MESH, str(case.root), case.package.__name__, str(folder)]
    result = subprocess.run(command, env=env, capture_output=True, text=True, timeout=120, check=False)
    assert result.returncode == 0, result.stderr[-3000:]


def test_to_hf_is_byte_identical(case, tmp_path):
    report = to_hf(case.root, tmp_path / "hf")
    assert report.changed == ()
    back = load_file(tmp_path / "hf" / "model.safetensors")
    assert back.keys() == case.tensors.keys()
    for name, array in case.tensors.items():
        assert (back[name].dtype, back[name].shape) == (array.dtype, array.shape)
        assert back[name].tobytes() == array.tobytes(), name
    assert (tmp_path / "hf" / "tokenizer.json").exists()
    assert json.loads((tmp_path / "hf" / "config.json").read_text()) == toy.CONFIG


@pytest.mark.parametrize("scan", [True, False])
def test_saved_models_load_again(case, tmp_path, scan):
    model = case.package.Model.from_pretrained(case.root, scan_layers=scan)
    case.support.save_pretrained(model, tmp_path / "hf", "hf")
    back = load_file(tmp_path / "hf" / "model.safetensors")
    assert {name: array.tobytes() for name, array in back.items()} == {
        name: array.tobytes() for name, array in case.tensors.items()
    }
    case.support.save_pretrained(model, tmp_path / "jax", "jax")
    check_model(case, case.package.Model.from_pretrained(tmp_path / "jax", scan_layers=not scan))
    with pytest.raises(ValueError, match="expected 'jax' or 'hf'"):
        case.support.save_pretrained(model, tmp_path / "no", "torch")


def test_trained_weights_are_exported_and_reported(case, tmp_path):
    model = case.package.Model.from_pretrained(case.root)
    model.scale.set_value(jnp.float32(2.5))
    case.support.save_pretrained(model, tmp_path / "hf", "hf")
    assert load_file(tmp_path / "hf" / "model.safetensors")["scale"] == ml_dtypes.bfloat16(2.5)


def test_more_layers_than_converted_load_through_the_map(case, tmp_path):
    state = toy.state_dict(seed=1, layers=9)
    fused = case.tensors.keys() != case.state.keys()
    source = toy.write_source(tmp_path, toy.checkpoint(state) if fused else state)
    model = case.package.Model.from_pretrained(source, layers=9)
    other = Case.__new__(Case)
    other.state, other.package = state, case.package
    check_model(other, model)


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
    files = TensorFolder(tmp_path / "weights")
    for name, array in case.expected().items():
        np.testing.assert_array_equal(files.read(name), array)


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
