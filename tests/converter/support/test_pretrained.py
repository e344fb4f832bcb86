"""Loading a package's own weights and original checkpoints, scanned, sharded, resized; saving both ways."""

import os
import subprocess
import sys

import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import load_file

from tests.checkpoint_convert import toy
from tests.checkpoint_convert.toy import Case, check_model


@pytest.fixture(scope="module", params=[False, True], ids=["plain", "fused"])
def case(request, tmp_path_factory):
    return toy.Case(tmp_path_factory.mktemp("case"), request.param)


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
mesh = importlib.import_module(f"{package.__name__}.sharding").make_mesh(fsdp=2, tensor=2)
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
    source = toy.write_source(tmp_path, toy.checkpoint(state) if case.fused else state)
    model = case.package.Model.from_pretrained(source, layers=9)
    other = Case.__new__(Case)
    other.state, other.package = state, case.package
    check_model(other, model)


def test_integers_that_do_not_fit_are_refused(case, tmp_path):
    tensors = dict(case.tensors) | {"layers.1.steps": np.array(1 << 40, np.int64)}
    with pytest.raises(ValueError, match=r"layers\.1\.steps: int64 values do not fit into int32"):
        case.package.Model.from_pretrained(toy.write_source(tmp_path, tensors))


def test_changed_configuration_is_saved(case, tmp_path):
    source = toy.write_source(tmp_path / "source", toy.state_dict(layers=9))
    if case.fused:
        pytest.skip("one case is enough")
    model = case.package.Model.from_pretrained(source, layers=9)
    case.support.save_pretrained(model, tmp_path / "out")
    assert case.package.Config.from_json(tmp_path / "out" / "config.json") == model.config
    check_model(case_of(case, toy.state_dict(layers=9)), case.package.Model.from_pretrained(tmp_path / "out"))


def case_of(case, state):
    other = Case.__new__(Case)
    other.state, other.package = state, case.package
    return other
