"""What every layer stands on: modules, parameters, buffers, constants, and their initial values."""

import contextlib
import contextvars
import hashlib
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax.core import Tracer
from jaxtyping import Array

_ABSTRACT: contextvars.ContextVar[bool] = contextvars.ContextVar("abstract_parameters", default=False)


class Module(nnx.Module):
    """Base of every converted class: `training` is a static attribute, False until `train()`."""

    training = False
    aliases: tuple[str, ...] = ()  # attributes that share a variable whose home is elsewhere (tied weights)

    @classmethod
    def from_config(cls, config: Any, *, rngs: nnx.Rngs) -> Self:
        """Build with random weights."""
        build: Any = cls
        return build(config, rngs=rngs)

    @classmethod
    def abstract(cls, config: Any) -> Self:
        """Build without weights: leaves are `jax.ShapeDtypeStruct`, constants are computed."""
        with abstract_parameters():
            return cls.from_config(config, rngs=nnx.Rngs(0))

    @classmethod
    def from_pretrained(cls, folder: Any, *, mesh: Any = None, **overrides: Any) -> Self:
        """Load the package's own weights, or the original safetensors, from `folder` (see pretrained.py)."""
        from .pretrained import load_pretrained

        return load_pretrained(cls, folder, mesh=mesh, **overrides)

    def __setattr__(self, name: str, value: Any) -> None:
        """As nnx's, but what was None may become a layer: constructors say None first, a layer on a condition."""
        if value is not None and name in vars(self) and vars(self)[name] is None:
            delattr(self, name)  # nnx remembers of an attribute whether it held arrays
        super().__setattr__(name, value)

    def get_submodule(self, target: str) -> Any:
        """Return the module at a dotted path, items of containers by number or key; "" is the module itself."""
        found: Any = self
        for part in target.split(".") if target else ():
            found = getattr(found, part) if hasattr(found, part) else found[int(part) if part.isdigit() else part]
        return found

    def train(self, mode: bool = True) -> Self:  # type: ignore[override]  # torch's, not nnx's
        """Set `training` on this module and all below it; returns the module."""
        every: Iterator[Any] = iter_modules(self)
        for module in every:
            module.training = mode
        return self

    def eval(self) -> Self:  # type: ignore[override]  # torch's, not nnx's
        """Switch dropout off and batch statistics to the stored ones, here and below."""
        return self.train(False)

    def parameters(self) -> Iterator[nnx.Param]:
        """Yield every parameter once."""
        seen: set[int] = set()
        for module in iter_modules(self):
            for value in vars(module).values():
                if isinstance(value, nnx.Param) and id(value) not in seen:
                    seen.add(id(value))
                    yield value


class Buffer(nnx.Variable):
    """A persistent, untrained array: batch statistics, router biases."""

    def __init__(self, value: Any, *, config: Any = None, **metadata: Any):
        super().__init__(_stored(value, config), **metadata)


def given(**values: Any) -> dict[str, Any]:
    """The keywords that are not None, for a call of modules of which only some take them."""
    return {name: value for name, value in values.items() if value is not None}


class Leaf:
    """A stored parameter that reads as an array in the layer's compute dtype (`layer.bias`), or None.

    The variable itself stands in `vars(layer)` and in the module's state under the same name.
    """

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, layer: Any, owner: type | None = None) -> Any:
        if layer is None:
            return self
        try:
            variable = vars(layer)[self._name]
        except KeyError:
            raise AttributeError(f"{type(layer).__name__} has no {self._name!r} yet") from None
        return variable[...].astype(layer.dtype) if isinstance(variable, nnx.Variable) else variable

    def __set__(self, layer: Any, value: Any) -> None:
        vars(layer)[self._name] = value

    def __delete__(self, layer: Any) -> None:
        del vars(layer)[self._name]


class Constant:
    """A static array: hashable, no leaf of the state, recomputed by the constructor. Read it as `self.x[...]`."""

    def __init__(self, value: Any):
        # Built under a trace (nnx.eval_shape, jit) the value is a tracer: fine within that trace, unreadable after it.
        traced = isinstance(value, Tracer)
        self._value = value if traced else np.asarray(value)
        content = b"" if traced else self._value.tobytes()
        self._identity = (self._value.shape, str(self._value.dtype), hashlib.sha256(content).digest())

    shape = property(lambda self: self._value.shape)
    dtype = property(lambda self: self._value.dtype)
    ndim = property(lambda self: self._value.ndim)

    def __getitem__(self, index: Any) -> Array:
        return jnp.asarray(self._value)[index]

    def __jax_array__(self) -> Array:
        return jnp.asarray(self._value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Constant) and self._identity == other._identity

    def __hash__(self) -> int:
        return hash(self._identity)

    def __repr__(self) -> str:
        return f"constant({self._value.dtype}{list(self._value.shape)})"


def constant(value: Any, *, config: Any = None) -> Constant:
    """Wrap an array as a static attribute; with `config`, a floating one in the dtype that the model computes in."""
    if config is not None and jnp.issubdtype(value.dtype, jnp.floating):
        value = value.astype(compute_dtype(config))
    return Constant(value)


@dataclass(frozen=True)
class Initial:
    """A parameter's shape and how to draw its first value: `draw(key, dtype) -> array`."""

    shape: tuple[int, ...]
    draw: Callable[[Any, Any], Array]
    random: bool = True


def full(shape: Sequence[int], value: float) -> Initial:
    """Constant initial value."""
    return Initial(tuple(shape), lambda key, dtype: jnp.full(shape, value, dtype), random=False)


def normal(shape: Sequence[int], std: float = 1.0) -> Initial:
    """Normal initial values with mean 0."""
    return Initial(tuple(shape), lambda key, dtype: std * jax.random.normal(key, shape, dtype))


def uniform(shape: Sequence[int], bound: float) -> Initial:
    """Uniform initial values in [-bound, bound)."""
    return Initial(tuple(shape), lambda key, dtype: jax.random.uniform(key, shape, dtype, -bound, bound))


def weight_initial(shape: Sequence[int], fan_in: int, config: Any) -> Initial:
    """Normal of the configuration's `initializer_range`, else torch's default for linear and convolution weights.

    The default, Kaiming uniform with a = sqrt(5), is uniform in 1/sqrt(fan_in).
    """
    std = getattr(config, "initializer_range", None)
    return normal(shape, std) if std is not None else uniform(shape, 1 / math.sqrt(fan_in) if fan_in else 0.0)


def bias_initial(size: int, fan_in: int, config: Any) -> Initial:
    """Zeros when the configuration has an `initializer_range`, else torch's uniform in 1/sqrt(fan_in)."""
    if getattr(config, "initializer_range", None) is not None or not fan_in:
        return full((size,), 0.0)
    return uniform((size,), 1 / math.sqrt(fan_in))


def param(value: Any, axes: Sequence[str | None] | None = None, config: Any = None, *, rngs: Any = None) -> Any:
    """Make an `nnx.Param` stored in `config.weight_dtype`, with one logical axis name (or None) per dimension.

    `value` is an array or an `Initial` (`normal(shape, std)`, `full(shape, 0.0)`…); the latter allocates nothing when
    the model is built abstractly, and draws from `rngs` otherwise.

    Raises:
        ValueError: the number of axis names is not the number of dimensions.
    """
    stored = _stored(value, config, rngs)
    axes = (None,) * len(stored.shape) if axes is None else tuple(axes)
    if len(axes) != len(stored.shape):
        raise ValueError(f"param: {len(axes)} axis names {axes!r} for shape {stored.shape}; give one per dimension")
    return nnx.Param(stored, out_sharding=axes, eager_sharding=False)


def _stored(value: Any, config: Any = None, rngs: Any = None) -> Any:
    """Return the value as it is kept: floats in the storage dtype, a ShapeDtypeStruct in abstract mode."""
    if isinstance(value, Initial):
        dtype = weight_dtype(config)
        if _ABSTRACT.get():
            return jax.ShapeDtypeStruct(value.shape, dtype)
        wide = jnp.promote_types(dtype, jnp.float32)
        return value.draw(_draw_key(value, rngs), wide).astype(dtype)
    if isinstance(value, jax.ShapeDtypeStruct):
        return value
    floating = config is not None and jnp.issubdtype(jnp.result_type(value), jnp.floating)
    if _ABSTRACT.get():
        return jax.ShapeDtypeStruct(jnp.shape(value), weight_dtype(config) if floating else jnp.result_type(value))
    return jnp.asarray(value, weight_dtype(config) if floating else None)


def _draw_key(initial: Initial, rngs: Any) -> Array | None:
    if not initial.random:
        return None
    if rngs is None:
        raise ValueError(f"param: random initial values of shape {initial.shape} need `rngs=`")
    return rngs.params()


@contextlib.contextmanager
def abstract_parameters() -> Iterator[None]:
    """Inside the block, constructors make parameters and buffers as shapes only."""
    token = _ABSTRACT.set(True)
    try:
        yield
    finally:
        _ABSTRACT.reset(token)


def is_abstract() -> bool:
    """Say whether parameters are made as shapes only."""
    return _ABSTRACT.get()


def compute_dtype(config: Any) -> jnp.dtype:
    """Return the dtype that layers compute in."""
    return jnp.dtype(getattr(config, "dtype", None) or "float32")


def weight_dtype(config: Any) -> jnp.dtype:
    """Return the dtype that floating parameters are stored in."""
    return jnp.dtype(getattr(config, "weight_dtype", None) or "float32")


def matmul_precision(config: Any) -> str | None:
    """Return the `precision` argument for dots."""
    precision = getattr(config, "matmul_precision", None)
    return None if precision == "default" else precision


def iter_modules(root: Any) -> Iterator[nnx.Module]:
    """Yield the modules at and below `root`, each once, in the order of their attributes."""
    seen: set[int] = set()
    pending = [root]
    while pending:
        node = pending.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        if isinstance(node, nnx.Module):
            yield node
        pending.extend(reversed(children(node)))


def children(node: Any) -> list[Any]:
    """Return the modules and containers directly below a module or container."""
    if isinstance(node, nnx.Module):
        values = [value for name, value in vars(node).items() if not name.startswith("_pytree__")]
    elif isinstance(node, dict):
        values = list(node.values())
    else:
        values = list(node)
    return [value for value in values if isinstance(value, (nnx.Module, list, tuple, dict, nnx.List))]
