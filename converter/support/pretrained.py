"""Load and save weights: the package's own, or the original Hugging Face safetensors through the weight map.

The model is built without memory, then each leaf is read from disk (with a mesh, each device's part only), cast to the
storage dtype and placed. Nothing here needs torch.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Protocol

import jax
import numpy as np
from flax import nnx

from .axis_layout import Index
from .model_leaves import Leaf, leaves
from .settings import run_config
from .source_writer import SHARD_BYTES, WAIVED, copy_side_files, write_source
from .tensor_files import (
    CheckpointError,
    FolderWriter,
    TensorFolder,
    TensorSpec,
    plan_shards,
    require_none,
    spec_of,
)
from .weight_map import Row, WeightMap, any_number, resize_row

__all__ = ["Leaf", "Weights", "leaves", "load_pretrained", "save_pretrained"]

MAP = "weights.json"
WEIGHTS = "weights"
_ALIGNMENT = 64  # bytes; what XLA asks of a buffer on a CPU


_Parts = dict[tuple[int, ...], str]  # dotted name of the leaf at each place of a variable's stacked axes


class _Reader(Protocol):
    """Where leaves come from; `check` raises CheckpointError listing everything that is missing, odd or left over."""

    def check(self, wanted: Mapping[str, Leaf]) -> None: ...

    def read(self, fqn: str, index: Index) -> np.ndarray: ...


def load_pretrained(cls: type, folder: str | Path, *, mesh: Any = None, **overrides: Any) -> Any:
    """Build `cls` from `folder/config.json` and fill it with the folder's weights.

    `folder` is a converted package's root (it has `weights/`) or a Hugging Face folder of this architecture.
    `overrides` replace configuration fields (`weight_dtype="bfloat16"`, `scan_layers=False`…); with `mesh`, each leaf
    is placed by its logical axes and only the parts that this process needs are read.

    Raises:
        CheckpointError: files missing or damaged, or names and shapes that do not fit; all of them are listed.
    """
    folder = Path(folder)
    if not (folder / "config.json").is_file():
        raise CheckpointError(f"{folder}: no config.json; expected a converted package's root or a Hugging Face folder")
    model = cls.abstract(_config_class(cls).from_json(folder / "config.json", **overrides))
    Weights(model, folder, mesh=mesh).fill()
    _refuse_unfilled(model)
    return model


class Weights:
    """The weights of an abstract model, which can be filled in and taken out again part by part.

    A model that is larger than memory runs with one layer filled at a time. `folder` and `mesh` as in
    `load_pretrained`, and so are the errors.
    """

    def __init__(self, model: nnx.Module, folder: str | Path, *, mesh: Any = None):
        wanted, folder, self.mesh = leaves(model), Path(folder), mesh
        self.reader: _Reader = _OwnWeights(folder / WEIGHTS) if (folder / WEIGHTS).is_dir() else _SourceWeights(folder)
        self.reader.check(wanted)
        self.parts = {id(variable): (variable, parts) for variable, parts in _by_variable(wanted.values())}
        self.shapes = {key: variable.get_value() for key, (variable, _) in self.parts.items()}

    def fill(self, variables: Iterable[nnx.Variable] | None = None) -> None:
        """Read the weights of these variables (all of them by default); other variables are left alone."""
        keys = self.parts.keys() if variables is None else map(id, variables)
        for key in keys:
            if key in self.parts:
                variable, parts = self.parts[key]
                variable.set_value(_place(variable, parts, self.reader.read, self.mesh))

    def empty(self, variables: Iterable[nnx.Variable]) -> None:
        """Give back the memory of these variables' weights."""
        for key in map(id, variables):
            if key in self.parts:
                self.parts[key][0].set_value(self.shapes[key])


def save_pretrained(
    model: nnx.Module, folder: str | Path, format: str = "jax", *, side_files: str | Path | None = None
) -> None:
    """Write the weights of `model` (trained, say), with configuration and tokenizer files, into `folder`.

    `format="jax"` writes `weights/` in JAX names and the leaves' dtypes; `format="hf"` writes the source's names,
    layouts and dtypes, which PyTorch loads. `side_files` is the folder whose configuration and tokenizer files are
    copied; by default the package's root.

    Raises:
        CheckpointError: the weight map does not name exactly the model's leaves, or their shapes differ.
    """
    found, folder = leaves(model), Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    if format == "jax":
        specs = {fqn: spec_of(leaf) for fqn, leaf in found.items()}
        with FolderWriter(folder / WEIGHTS, plan_shards(specs, SHARD_BYTES)) as out:
            for fqn, leaf in found.items():
                out.write(fqn, leaf.read())
    elif format == "hf":
        weight_map = _weight_map(None)
        rows = _rows_for(weight_map, found, None)
        waived = _package_root() / WAIVED if set(rows) == set(weight_map.rows) else None  # of this size only
        write_source(weight_map, rows, folder, lambda fqn: found[fqn].read(), waived=waived)
    else:
        raise ValueError(f"save_pretrained: format is {format!r}, expected 'jax' or 'hf'")
    copy_side_files(Path(side_files) if side_files is not None else _package_root(), folder)
    _write_changed_config(run_config(model), folder / "config.json")


class _OwnWeights:
    """`weights/` of a converted package: leaves under their own names."""

    def __init__(self, folder: Path):
        self.files = TensorFolder(folder)

    def check(self, wanted: Mapping[str, Leaf]) -> None:
        """Raise CheckpointError listing missing, unexpected and wrongly shaped tensors."""
        entries = self.files.entries
        shapes = {fqn: entries[fqn].shape for fqn in wanted if fqn in entries}
        _require_fit(self.files.folder, wanted, shapes, unused=entries.keys() - wanted.keys())

    def read(self, fqn: str, index: Index) -> np.ndarray:
        """The part `index` of a leaf."""
        return self.files.read(fqn, index)


class _SourceWeights:
    """An original Hugging Face folder, read through the weight map."""

    def __init__(self, folder: Path):
        self.files = TensorFolder(folder)
        self.weight_map = _weight_map(folder)
        self.rows: dict[str, Row] = {}

    def check(self, wanted: Mapping[str, Leaf]) -> None:
        """Raise CheckpointError listing missing, unexpected and wrongly shaped tensors."""
        stored = {name: TensorSpec(entry.dtype, entry.shape) for name, entry in self.files.entries.items()}
        self.rows = {row.target: row for row in _rows_for(self.weight_map, wanted, stored)}
        absent, shapes, used = [], {}, set()
        for fqn, row in self.rows.items():
            names = {part.name for part in row.piece.stored()}
            absent += sorted(names - stored.keys())
            used |= names
            if names <= stored.keys():
                shapes[fqn] = row.shape
        unused = {name for name in stored.keys() - used if not self.weight_map.leaves_out(name)}
        _require_fit(self.files.folder, wanted, shapes, unused, absent)

    def read(self, fqn: str, index: Index) -> np.ndarray:
        """The part `index` of a leaf, put together from the stored tensors."""
        return self.rows[fqn].piece.gather(self.files.read, index)


def _require_fit(
    where: Path,
    wanted: Mapping[str, Leaf],
    shapes: Mapping[str, tuple[int, ...]],
    unused: Iterable[str],
    absent: Iterable[str] = (),
) -> None:
    wrong = [
        f"{fqn}: stored {shape}, the model has {wanted[fqn].shape}"
        for fqn, shape in shapes.items()
        if shape != wanted[fqn].shape
    ]
    without = wanted.keys() - shapes.keys() if not absent else ()
    require_none(
        {"missing": [*without, *absent], "unexpected": unused, "shapes that do not fit the configuration": wrong},
        str(where),
    )


def _rows_for(weight_map: WeightMap, wanted: Mapping[str, Leaf], stored: Mapping[str, TensorSpec] | None) -> list[Row]:
    """One row per leaf; where the model has other sizes than the converted one, a row of a like-named leaf serves."""
    exact = {row.target: row for row in weight_map.rows}
    alike = {any_number(row.target): row for row in reversed(weight_map.rows)}
    rows = []
    for fqn, leaf in wanted.items():
        row = exact.get(fqn) or alike.get(any_number(fqn))
        if row is not None:
            rows.append(resize_row(row, fqn, leaf.shape, stored))
    missing = wanted.keys() - {row.target for row in rows}
    require_none({"leaves that the weight map does not name": missing}, MAP)
    return rows


def _by_variable(found: Iterable[Leaf]) -> list[tuple[nnx.Variable, _Parts]]:
    grouped: dict[int, tuple[nnx.Variable, _Parts]] = {}
    for leaf in found:
        grouped.setdefault(id(leaf.variable), (leaf.variable, {}))[1][leaf.index] = leaf.fqn
    return list(grouped.values())


def _place(
    variable: nnx.Variable,
    parts: _Parts,
    read: Callable[[str, Index], np.ndarray],
    mesh: Any,
) -> jax.Array:
    """The variable's array: whole on the default device, or each device's part where there is a mesh."""
    spec = variable.get_value()
    dtype = np.dtype(spec.dtype)

    def block(index: Index) -> np.ndarray:
        bounded = tuple(slice(*part.indices(length)) for part, length in zip(index, spec.shape, strict=True))
        out = _aligned([part.stop - part.start for part in bounded], dtype)
        stacked = len(next(iter(parts)))
        for place in np.ndindex(out.shape[:stacked]):
            name = parts[tuple(part.start + at for part, at in zip(bounded, place))]
            values = read(name, bounded[stacked:])
            out[place] = values
            if values.dtype.kind in "iu" and values.dtype != dtype and not np.array_equal(out[place], values):
                raise CheckpointError(f"{name}: {values.dtype} values do not fit into {dtype}; enable jax_enable_x64")
        return out

    if mesh is None:
        return jax.device_put(block((slice(None),) * len(spec.shape)), may_alias=True)
    from .sharding import sharding_of

    # devices that hold the same part (replicated axes) share one read
    parts_read: dict[tuple, np.ndarray] = {}

    def part_of(index: Any) -> np.ndarray:
        key = tuple((part.start, part.stop) for part in index)
        if key not in parts_read:
            parts_read[key] = block(index)
        return parts_read[key]

    return jax.make_array_from_callback(spec.shape, sharding_of(variable, mesh), part_of)


def _aligned(shape: list[int], dtype: np.dtype) -> np.ndarray:
    """An empty array that a CPU device can take over without a copy."""
    size = math.prod(shape) * dtype.itemsize
    raw = np.empty(size + _ALIGNMENT, np.uint8)
    start = -raw.ctypes.data % _ALIGNMENT
    return raw[start : start + size].view(dtype).reshape(shape)


def _write_changed_config(config: Any, path: Path) -> None:
    """Keep the copied configuration file where it says what the model is; else write the model's own."""
    if config is None:  # a plain module keeps its arguments, not a configuration
        return
    described = type(config).from_json(path, **config.run_fields()) if path.is_file() else None
    if described != config:
        config.to_json(path)


def _refuse_unfilled(model: nnx.Module) -> None:
    state = nnx.to_flat_state(nnx.state(model))
    abstract = [
        ".".join(map(str, path)) for path, value in state if isinstance(value.get_value(), jax.ShapeDtypeStruct)
    ]
    require_none({"variables that no weight fills": abstract}, type(model).__name__)


def _config_class(cls: type) -> Any:
    """The class's own `config_class`, else the package's `Config`."""
    import importlib

    own = getattr(cls, "config_class", None)
    return own if own is not None else importlib.import_module(__package__ or "").Config


def _package_root() -> Path:
    return Path(__file__).resolve().parent.parent


def _weight_map(folder: Path | None) -> WeightMap:
    """`weights.json` of the folder to load, of the package's root, or inside an installed package."""
    places = [_package_root(), Path(__file__).resolve().parent]
    places = places if folder is None else [folder, *places]
    found = next((place / MAP for place in places if (place / MAP).is_file()), None)
    if found is None:
        raise CheckpointError(f"{MAP}: not found in {[str(place) for place in places]}; convert again")
    return WeightMap.load(found)
