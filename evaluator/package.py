"""An emitted package as the checks see it: its modules, its configuration, models built from it, their outputs by name.

The contract is docs/interfaces.md section 4; nothing of the converter is imported.
"""

import contextlib
import functools
import hashlib
import importlib
import inspect
import json
import pkgutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from maxcode.evaluator.ledger import Row, fitted
from maxcode.evaluator.machine import room_for_weights

CACHES = frozenset({"cache", "past_key_values", "cache_params"})  # outputs that are state, not a result


class PackageError(Exception):
    """The folder holds no package that keeps the contract."""


def find_package(folder: str | Path) -> Path:
    """The folder of the one Python package (config.py, modeling.py) at or below `folder`, two levels deep."""
    folder = Path(folder).resolve()
    for pattern in (".", "*", "*/*"):
        found = sorted(p.parent for p in folder.glob(f"{pattern}/modeling.py") if (p.parent / "__init__.py").exists())
        found = [p for p in found if (p / "config.py").exists()]
        if len(found) == 1:
            return found[0]
        if found:
            raise PackageError(f"{folder}: several packages, {[p.name for p in found]}; name one of them")
    raise PackageError(
        f"{folder}: no package (a folder with __init__.py, config.py, modeling.py) there or two levels below"
    )


class DoesNotFit(Exception):  # noqa: N818 (no fault of the package)
    """The model's weights are larger than what memory is left."""


class Package:
    """The imported package; `source` is the Hugging Face folder with config.json and the source's weights."""

    def __init__(self, folder: str | Path, source: str | Path):
        self.path, self.source = find_package(folder), Path(source)
        self.root, self.name = self.path.parent, self.path.name
        if str(self.root) not in sys.path:
            sys.path.insert(0, str(self.root))
        self.module = importlib.import_module(self.name)
        if Path(self.module.__file__).resolve().parent != self.path:
            raise PackageError(
                f"{self.name!r} imports from {self.module.__file__}, expected {self.path}; rename the package"
            )
        for attribute in ("Config", "Model"):
            if not hasattr(self.module, attribute):
                raise PackageError(f"{self.path / '__init__.py'}: {attribute!r} is not exported")
        self._models: dict[Any, nnx.Module] = {}

    def modules(self) -> list[ModuleType]:
        """Every module of the package, imported."""
        names = [m.name for m in pkgutil.walk_packages([str(self.path)], f"{self.name}.")]
        return [self.module, *(importlib.import_module(name) for name in names)]

    def submodule(self, name: str) -> ModuleType | None:
        """`<pkg>.<name>`, or None where the package has no such file."""
        return importlib.import_module(f"{self.name}.{name}") if (self.path / f"{name}.py").exists() else None

    def weight_map(self) -> dict[str, Any]:
        for folder in (self.source, self.root, self.path):  # the source's own: made for its sizes
            if (folder / "weights.json").exists():
                return json.loads((folder / "weights.json").read_text())
        raise PackageError(f"{self.root}: no weights.json beside or in {self.name}")

    def rows(self, model: nnx.Module) -> list[Row]:
        """The weight map's rows for `model`, which may be smaller than the one that was converted."""
        rows, names = Row.all(self.weight_map()), self.submodule("pretrained")
        table = self.source / "tensors.json"
        if names is None or not table.exists():
            return rows
        shapes = {name: tuple(facts["shape"]) for name, facts in json.loads(table.read_text())["tensors"].items()}
        return fitted(rows, names.leaves(model), shapes)

    def lift(self) -> None:
        """Rebind the name `float32` to float64 everywhere (design section 4, `exact`); needs x64. Not undone."""
        if not jax.config.jax_enable_x64:
            raise RuntimeError("lifting needs jax_enable_x64; run this check in the x64 group")
        for module in self.modules():
            if hasattr(module, "float32"):
                module.float32 = jnp.float64
                _lift_defaults(module)

    def build(self, **overrides: Any) -> nnx.Module:
        """The model with the source's weights; one instance per set of overrides."""
        key = tuple(sorted(overrides.items()))
        if key not in self._models:
            self._models.clear()  # one model in memory at a time
            self._models[key] = self.fresh(**overrides)
        return self._models[key]

    def fresh(self, **overrides: Any) -> nnx.Module:
        """A model of its own, for a check that changes it. Raises DoesNotFit."""
        size, room = self.size(**overrides), room_for_weights()
        if size > room:
            raise DoesNotFit(f"{size / 2**30:.1f} GiB of weights, {room / 2**30:.1f} GiB of memory left for them")
        return self.module.Model.from_pretrained(str(self.source), **overrides)

    def delivered(self, **overrides: Any) -> nnx.Module | None:
        """The model with the weights that lie beside the package, as its users load them; None where none do.

        None too for a source of another size than the one that was converted.
        """
        if not (self.root / "weights").is_dir() or (self.source / "weights.json").exists():
            return None
        self._models.clear()
        return self.module.Model.from_pretrained(str(self.root), **overrides)

    def size(self, **overrides: Any) -> int:
        """Bytes of the weights of the model that `build` would give; 0 where no model without memory can be built."""
        return self._count * jnp.dtype(overrides.get("weight_dtype", "float32")).itemsize

    @functools.cached_property
    def _count(self) -> int:
        """Values in all parameters, the same for every dtype and whether layers are scanned or not."""
        if not hasattr(self.module.Model, "abstract"):
            return 0
        parameters = nnx.state(self.module.Model.abstract(self.config()), nnx.Param)
        return sum(leaf.size for leaf in jax.tree.leaves(parameters))

    def config(self, **overrides: Any) -> Any:
        return self.module.Config.from_json(self.source / "config.json", **overrides)

    def has_run_field(self, name: str) -> bool:
        return name in getattr(self.module.Config, "__dataclass_fields__", {})

    def overrides(self, dtype: str, **more: Any) -> dict[str, Any]:
        """Run fields that the configuration has, for a model computed and stored in `dtype`."""
        wanted = {"dtype": dtype, "weight_dtype": dtype, "matmul_precision": "highest", **more}
        return {name: value for name, value in wanted.items() if self.has_run_field(name)}


def to_jax(tree: Any) -> Any:
    """Numpy arrays of an input tree as jax arrays (int64 becomes int32 without x64), the rest as it is."""
    if isinstance(tree, dict):
        return {name: to_jax(value) for name, value in tree.items()}
    if isinstance(tree, list | tuple):
        return type(tree)(to_jax(value) for value in tree)
    return jnp.asarray(tree) if isinstance(tree, np.ndarray) else tree


def cast_floats(tree: Any, dtype: Any) -> Any:
    """Floating arrays of an input tree in `dtype`."""

    def cast(x: Any) -> Any:
        is_array = isinstance(x, np.ndarray | jax.Array)
        return x.astype(dtype) if is_array and jnp.issubdtype(x.dtype, jnp.floating) else x

    return jax.tree.map(cast, tree)


def accepted(model: nnx.Module | type, inputs: dict[str, Any]) -> dict[str, Any]:
    """Inputs without those that ask for nothing (None, a flag that is False) and that the JAX call does not have."""
    call = (model if isinstance(model, type) else type(model)).__call__
    parameters = inspect.signature(call).parameters
    open_ = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    return {k: v for k, v in inputs.items() if open_ or k in parameters or not (v is None or v is False)}


def named_outputs(output: Any, prefix: str = "") -> dict[str, Any]:
    """Arrays of an output structure by dotted name; caches and None left out. A bare array is named `output`."""
    if output is None:
        return {}
    if hasattr(output, "shape") and hasattr(output, "dtype"):
        return {prefix or "output": output}
    if isinstance(output, dict):
        items = list(output.items())
    elif isinstance(output, list | tuple):
        items = list(zip(getattr(output, "_fields", range(len(output))), output, strict=True))
    elif hasattr(output, "__dataclass_fields__"):
        items = [(name, getattr(output, name)) for name in output.__dataclass_fields__]
    else:
        return {}  # a number, a string, an opaque state
    named: dict[str, Any] = {}
    for name, value in items:
        if str(name) not in CACHES:
            named |= named_outputs(value, f"{prefix}.{name}" if prefix else str(name))
    return named


def split_static(model: nnx.Module | type, inputs: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Inputs that hold arrays (traced), and those that a compiled call closes over (static), of those it accepts.

    Static are plain Python values, and arrays whose values decide shapes: the model's `host_arguments`.
    """
    inputs, closed = accepted(model, inputs), set(getattr(model, "host_arguments", ()))

    def is_traced(value: Any) -> bool:
        return any(isinstance(leaf, np.ndarray | jax.Array) for leaf in jax.tree.leaves(value))

    traced = {k: v for k, v in inputs.items() if k not in closed and is_traced(v)}
    return traced, {k: to_jax(v) for k, v in inputs.items() if k not in traced}


def static_key(static: dict[str, Any]) -> str:
    """What tells static inputs of one compiled call from those of another."""

    def content(leaf: Any) -> Any:
        if not isinstance(leaf, np.ndarray | jax.Array):
            return leaf
        return str(leaf.dtype), leaf.shape, hashlib.sha256(np.asarray(leaf).tobytes()).hexdigest()

    return repr(jax.tree.map(content, sorted(static.items())))


def new_cache(model: nnx.Module, inputs: dict[str, Any], batch: int, length: int) -> Any:
    """A cache of `length` positions; a model with an encoder is told how many positions that has."""
    encoder = inputs.get("input_ids", inputs.get("inputs_embeds"))
    takes_encoder = "decoder_input_ids" in inspect.signature(type(model).__call__).parameters
    if not takes_encoder or encoder is None:
        return model.init_cache(batch, length)
    if "encoder_length" in inspect.signature(model.init_cache).parameters:
        return model.init_cache(batch, length, encoder_length=encoder.shape[1])
    package = type(model).__module__.partition(".")[0]
    return importlib.import_module(f"{package}.cache").init_cache(model, batch, length, encoder_length=encoder.shape[1])


class Runner:
    """A jitted forward of one model over its split state: `runner(inputs) -> {output name: array}`."""

    def __init__(self, model: nnx.Module):
        self.model = model
        self.graph, self.state = nnx.split(model)
        self.traces = 0
        self._compiled: dict[str, Callable[..., Any]] = {}

    def function(self, static: dict[str, Any]) -> Callable[..., Any]:
        """The jitted `(state, traced inputs) -> outputs` for these static inputs."""
        key = static_key(static)
        if key not in self._compiled:

            def forward(state, traced):
                self.traces += 1  # Python runs only while tracing
                return named_outputs(nnx.merge(self.graph, state)(**traced, **static))

            self._compiled[key] = jax.jit(forward)
        return self._compiled[key]

    def __call__(self, inputs: dict[str, Any]) -> dict[str, np.ndarray]:
        traced, static = split_static(self.model, inputs)
        outputs = self.function(static)(self.state, to_jax(traced))
        return {name: np.asarray(value) for name, value in outputs.items()}


def resolve(model: Any, path: str) -> Any:
    """The object at a dotted fqn: attributes, list positions, dictionary keys."""
    node = model
    for part in path.split("."):
        try:
            node = _step(node, part)
        except (AttributeError, IndexError, KeyError, TypeError) as error:
            raise PackageError(f"{path!r}: the model has no {part!r} in {type(node).__name__}") from error
    return node


def _step(node: Any, part: str) -> Any:
    if part.isdigit() and hasattr(node, "__getitem__"):
        return node[int(part)]
    if isinstance(node, dict):
        return node[part]
    if not hasattr(node, part) and hasattr(node, "__getitem__"):
        return node[part]
    return getattr(node, part)


def variable(model: nnx.Module, path: str) -> Any:
    """The nnx variable at an fqn; a class may keep it under `_name`, with a view of it as `name`."""
    parent, _, name = path.rpartition(".")
    owner = resolve(model, parent) if parent else model
    stored = vars(owner) if hasattr(owner, "__dict__") else {}
    found = next((stored[n] for n in (name, f"_{name}") if isinstance(stored.get(n), nnx.Variable)), None)
    return resolve(model, path) if found is None else found


def value_of(leaf: Any) -> Any:
    """The array in an nnx variable (or the array itself)."""
    return leaf[...] if isinstance(leaf, nnx.Variable) else leaf


def children(module: Any) -> Iterator[tuple[str, Any]]:
    """Direct sub-modules by the source's name; stacks and lists by position."""
    if not isinstance(module, dict) and hasattr(module, "__getitem__") and hasattr(module, "__len__"):
        with contextlib.suppress(TypeError, KeyError):
            yield from ((str(i), module[i]) for i in range(len(module)))
            return
    items = module.items() if isinstance(module, dict) else vars(module).items()
    for name, value in items:
        if isinstance(value, nnx.Module | nnx.List | nnx.Dict) or _holds_modules(value):
            yield str(name), value


def _holds_modules(value: Any) -> bool:
    values = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ()
    return any(isinstance(v, nnx.Module) for v in values)


def walk(module: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Every module below `module`, itself included, by fqn."""
    yield prefix, module
    for name, child in children(module):
        yield from walk(child, f"{prefix}.{name}" if prefix else name)


def _lift_defaults(module: ModuleType) -> None:
    """Defaults that were bound to `float32` when the module was imported (`def table(n, dtype=float32)`)."""
    owners = [module, *(c for c in vars(module).values() if isinstance(c, type) and c.__module__ == module.__name__)]
    for owner in owners:
        for function in vars(owner).values():
            function = inspect.unwrap(getattr(function, "__func__", function))
            if inspect.isfunction(function) and function.__module__ == module.__name__:
                function.__defaults__ = tuple(map(_lifted, function.__defaults__ or ())) or None
                keywords = function.__kwdefaults__ or {}
                function.__kwdefaults__ = {k: _lifted(value) for k, value in keywords.items()} or None


def _lifted(default: Any) -> Any:
    return jnp.float64 if default is jnp.float32 else default
