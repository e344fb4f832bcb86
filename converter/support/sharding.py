"""Sharding: logical axis names -> mesh axes, meshes, constraints on activations, placement of parameters.

mesh = make_mesh(data=2, fsdp=2, tensor=2)
shard_model(model, mesh)
with jax.set_mesh(mesh):
    y = jax.jit(forward)(...)
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import jax
from flax import nnx
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array

from .stack_layers import AXES

MESH_AXES = ("data", "fsdp", "sequence", "tensor", "expert")

# Names and meaning as in MaxText. A name that is missing here, like None, is not divided.
LOGICAL_AXIS_RULES: dict[str, tuple[str, ...]] = {
    "activation_batch": ("data", "fsdp", "expert"),
    "activation_length": ("sequence",),
    # The residual stream is whole along "tensor". Divided, it is reduced and scattered after each row-parallel product,
    # and XLA's partitioner (jaxlib 0.10) drops that sum where the batch is divided by two axes and the kernel by one of
    # them: on 2x2x2 devices, constrain(h @ w2) to (("data", "fsdp"), None, "tensor") with w2 on ("tensor", "fsdp").
    "activation_embed": (),
    "activation_heads": ("tensor",),
    "activation_kv_heads": ("tensor",),
    "activation_mlp": ("tensor",),
    "activation_vocab": ("tensor",),
    "activation_exp": ("expert",),
    "embed": ("fsdp", "sequence"),
    "mlp": ("tensor",),
    "heads": ("tensor",),
    "q_heads": ("tensor",),
    "kv_heads": ("tensor",),
    "vocab": ("tensor",),
    "exp": ("expert",),
    "kv": (),
    "norm": (),
    "layers": (),
}

M = TypeVar("M", bound=nnx.Module)


def make_mesh(devices: Sequence[Any] | None = None, **sizes: int) -> Mesh:
    """Make a mesh over all devices: `make_mesh(fsdp=4, tensor=2)`; one size may be -1 (what is left).

    Raises:
        ValueError: an unknown axis, or sizes whose product is not the number of devices.
    """
    unknown = set(sizes) - set(MESH_AXES)
    if unknown:
        raise ValueError(f"make_mesh: unknown axes {sorted(unknown)}; the mesh axes are {MESH_AXES}")
    devices = jax.devices() if devices is None else list(devices)
    shape = [sizes.get(axis, 1) for axis in MESH_AXES]
    if shape.count(-1) == 1:
        shape[shape.index(-1)] = len(devices) // -math.prod(shape)
    if min(shape) < 1 or math.prod(shape) != len(devices):
        raise ValueError(f"make_mesh: sizes {sizes} do not multiply to {len(devices)} devices")
    return jax.make_mesh(shape, MESH_AXES, axis_types=(AxisType.Auto,) * len(MESH_AXES), devices=devices)


def spec_for(shape: Sequence[int], axes: Sequence[str | None], sizes: Mapping[str, int]) -> PartitionSpec:
    """Choose mesh axes (of the given sizes) for every dimension of an array with these logical axes.

    A mesh axis divides one dimension at most, the first that asks for it; a dimension that the axes do not divide
    evenly is left whole along the last of them, or altogether.
    """
    used: set[str] = set()
    entries: list[Any] = []
    for size, axis in zip(shape, axes, strict=True):
        wanted = [m for m in LOGICAL_AXIS_RULES.get(axis or "", ()) if sizes.get(m, 1) > 1 and m not in used]
        while wanted and size % math.prod([sizes[m] for m in wanted]):
            wanted.pop()
        used.update(wanted)
        entries.append(None if not wanted else wanted[0] if len(wanted) == 1 else tuple(wanted))
    return PartitionSpec(*entries)


def constrain(x: Array, *logical_axes: str | None) -> Array:
    """Say how an activation is divided, one logical axis name (or None) per dimension; a no-op without a mesh.

    Raises:
        ValueError: the number of names is not the number of dimensions.
    """
    if len(logical_axes) != x.ndim:
        raise ValueError(f"constrain: {len(logical_axes)} axis names {logical_axes} for shape {x.shape}")
    mesh = jax.sharding.get_abstract_mesh()
    if mesh.empty or mesh.size == 1:
        return x
    return jax.lax.with_sharding_constraint(x, spec_for(x.shape, logical_axes, dict(mesh.shape)))


def sharding_of(variable: nnx.Variable, mesh: Mesh) -> NamedSharding:
    """Return the placement of one variable by its logical axes; without names it is replicated."""
    shape = variable.get_raw_value().shape
    axes = variable.get_metadata().get(AXES) or (None,) * len(shape)
    return NamedSharding(mesh, spec_for(shape, axes, dict(mesh.shape)))


def shardings_for(model: nnx.Module, mesh: Mesh) -> nnx.State:
    """Return the model's state (of a concrete or abstract model) with shardings in place of arrays.

    It has the tree structure of `nnx.state(model)`, as `jax.jit(..., in_shardings=, out_shardings=)` wants it.
    """

    def place(leaf: Any) -> Any:
        if isinstance(leaf, nnx.Variable):
            return leaf.replace(sharding_of(leaf, mesh))
        return NamedSharding(mesh, PartitionSpec())

    return jax.tree.map(place, nnx.state(model), is_leaf=lambda leaf: isinstance(leaf, nnx.Variable))


def shard_model(model: M, mesh: Mesh) -> M:
    """Move a model's arrays to their places on the mesh; returns the model."""
    placed = jax.device_put(nnx.state(model), shardings_for(model, mesh))
    nnx.update(model, placed)
    return model
