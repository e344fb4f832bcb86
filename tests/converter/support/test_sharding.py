"""Logical axes on meshes; the numbers on 8 simulated devices are those of one."""

import os
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import PartitionSpec

from maxcode.converter.support.sharding import constrain, make_mesh, spec_for

SIZES = {"data": 1, "fsdp": 2, "sequence": 2, "tensor": 2, "expert": 1}

EIGHT_DEVICES = """
from types import SimpleNamespace
import jax, jax.numpy as jnp, numpy as np
from flax import nnx
from maxcode.converter.support.layers import Linear, Module
from maxcode.converter.support.sharding import constrain, make_mesh, shard_model, shardings_for
from maxcode.converter.support.stack import LayerStack

config = SimpleNamespace(dtype="float32", weight_dtype="float32", scan_layers=True)

class Block(Module):
    def __init__(self, *, rngs):
        self.up = Linear(16, 32, axes=("embed", "mlp"), config=config, rngs=rngs)
        self.down = Linear(32, 16, axes=("mlp", "embed"), config=config, rngs=rngs)

    def __call__(self, x):
        x = constrain(x, "activation_batch", "activation_length", "activation_embed")
        h = constrain(jnp.tanh(self.up(x)), "activation_batch", "activation_length", "activation_mlp")
        return x + self.down(h)

class Net(Module):
    def __init__(self, config, *, rngs):
        self.layers = LayerStack(lambda layer_idx, *, rngs: Block(rngs=rngs), 4, config=config, rngs=rngs)
        self.head = Linear(16, 9, axes=("embed", "vocab"), config=config, rngs=rngs)  # 9: vocab does not divide

    def __call__(self, x):
        return self.head(self.layers.run(lambda i, layer, x: layer(x), x))

net = Net(config, rngs=nnx.Rngs(0))
graph, state = nnx.split(net)
x = jnp.linspace(-1, 1, 8 * 6 * 16).reshape(8, 6, 16)
loss = lambda state, x: (nnx.merge(graph, state)(x) ** 2).mean()
plain = jax.jit(jax.value_and_grad(loss))(state, x)

def compare(mesh):
    wanted = shardings_for(Net.abstract(config), mesh)
    assert jax.tree.structure(wanted) == jax.tree.structure(state)
    model = shard_model(Net(config, rngs=nnx.Rngs(0)), mesh)
    placed = nnx.state(model)
    assert all(a.sharding == b for a, b in zip(jax.tree.leaves(placed), jax.tree.leaves(wanted), strict=True))
    with jax.set_mesh(mesh):
        step = jax.jit(jax.value_and_grad(loss), in_shardings=(wanted, None), out_shardings=(None, wanted))
        compiled = step.lower(placed, x).compile()
        sharded = compiled(placed, x)
    assert "all-reduce" in compiled.as_text()
    for a, b in zip(jax.tree.leaves(sharded), jax.tree.leaves(plain), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6, err_msg=str(mesh))
    return model

assert len(jax.devices()) == 8
mesh = make_mesh(data=-1, fsdp=2, tensor=2)
assert mesh.shape["data"] == 2
net = compare(mesh)
kernel = net.layers.periods[0].up.kernel[...]
assert kernel.shape == (4, 16, 32) and kernel.addressable_shards[0].data.shape == (4, 8, 16), kernel.sharding
assert net.head.kernel[...].addressable_shards[0].data.shape == (8, 9)
for sizes in ({"data": 8}, {"fsdp": 4, "tensor": 2}, {"fsdp": 2, "sequence": 2, "tensor": 2}, {"tensor": 8}):
    compare(make_mesh(**sizes))
print("same")
"""


def test_sharded_equals_unsharded():
    env = os.environ | {"XLA_FLAGS": "--xla_force_host_platform_device_count=8", "JAX_PLATFORMS": "cpu"}
    root = Path(__file__).parents[3]
    env["PYTHONPATH"] = f"{root}{os.pathsep}{env.get('PYTHONPATH', '')}"
    done = subprocess.run([sys.executable, "-c", EIGHT_DEVICES], env=env, capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "same", done.stderr


@pytest.mark.parametrize(
    ("shape", "axes", "spec"),
    [
        ((8, 6), ("embed", "mlp"), (("fsdp", "sequence"), "tensor")),
        ((6, 6), ("embed", "mlp"), ("fsdp", "tensor")),  # 6 is not divisible by 4
        ((5, 7), ("embed", "mlp"), (None, None)),
        ((4, 4), ("mlp", "vocab"), ("tensor", None)),  # an axis divides one dimension only
        ((4, 4, 4), ("layers", None, "unheard of"), (None, None, None)),
        ((4, 8), ("activation_batch", "activation_length"), ("fsdp", "sequence")),
    ],
)
def test_logical_axes_become_mesh_axes(shape, axes, spec):
    assert spec_for(shape, axes, SIZES) == PartitionSpec(*spec)


def test_constraints_without_a_mesh_do_nothing():
    x = jnp.ones((2, 3))
    assert constrain(x, "activation_batch", None) is x
    with pytest.raises(ValueError, match="1 axis names"):
        constrain(x, "activation_batch")


def test_meshes_that_cannot_be():
    assert make_mesh(data=-1).size == len(jax.devices())
    with pytest.raises(ValueError, match="unknown axes"):
        make_mesh(pipeline=2)
    with pytest.raises(ValueError, match="do not multiply"):
        make_mesh(tensor=3 * len(jax.devices()))
    with pytest.raises(ValueError, match="do not multiply"):
        make_mesh(tensor=-1, data=-1)
