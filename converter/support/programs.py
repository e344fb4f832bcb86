"""Compiled programs that outlive their process: a later start neither traces nor compiles.

JAX's persistent cache keeps what the compiler made, but to find it a program has to be traced and lowered again, which
takes most of a second start. A `Program` also keeps the lowered module (`jax.export`, StableHLO: no pickle), under a
digest of everything that shapes it: the package's source files, the model's configuration and structure, the
arguments' shapes, the versions and settings of JAX. What cannot be exported runs as an ordinary `jax.jit`.
"""

import contextlib
import hashlib
import importlib
import inspect
import json
import os
import re
import tempfile
import threading
from collections.abc import Callable, Iterable, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import flax
import jax
from flax import nnx

from .cache import Cache, EncoderDecoderCache
from .settings import run_config

_SETTINGS = (
    "jax_default_matmul_precision",
    "jax_default_prng_impl",
    "jax_enable_x64",
    "jax_numpy_dtype_promotion",
    "jax_numpy_rank_promotion",
    "jax_threefry_partitionable",
)


_ADDRESS = re.compile(r" at 0x[0-9a-f]+")  # differs from process to process


class Program:
    """A jitted function; with `identity` its lowered module is kept on disk.

    Args:
      identity: what the function is made of, besides its arguments: see `identify`. None keeps nothing.
      static: names of its static keyword arguments (their `repr` has to tell them apart).
      donate: positions of the arguments whose buffers it may reuse.
    """

    def __init__(
        self, function: Callable[..., Any], *, identity: str | None, static: Sequence[str], donate: Sequence[int] = ()
    ):
        self._function, self._identity = function, identity
        self._static, self._donate = tuple(static), tuple(donate)
        self._jitted = jax.jit(function, static_argnames=self._static, donate_argnums=self._donate)
        self._ready: dict[Any, Callable[..., Any]] = {}

    def __call__(self, *arguments: Any, **static: Any) -> Any:
        """Call the function, reading its module from disk or writing it there when the shapes are new."""
        if self._identity is None:
            return self._jitted(*arguments, **static)
        leaves, tree = jax.tree.flatten(arguments)
        shapes = tuple((jax.numpy.shape(x), str(jax.dtypes.result_type(x)), _is_weak(x)) for x in leaves)
        key = tree, shapes, tuple(sorted(static.items()))
        if key not in self._ready:
            digest = _digest([self._identity, self._function.__name__, str(tree), repr(shapes), repr(key[2])])
            self._ready[key] = self._prepare(digest, arguments, static)
        return self._ready[key](*arguments)

    def _prepare(self, digest: str, arguments: Any, static: dict[str, Any]) -> Callable[..., Any]:
        folder = _folder()
        if folder is None or _spread(arguments):
            return lambda *given: self._jitted(*given, **static)
        path = folder / digest
        exported = _read(path)
        if exported is None:
            try:
                exported = jax.export.export(self._jitted)(*arguments, **static)
                # Compiled from the bytes, here and later, so that both find the same entry of JAX's own cache.
                exported = _write(path, bytes(exported.serialize()))
            except (ImportError, ValueError, NotImplementedError, TypeError):  # no flatbuffers, or no stable form
                return lambda *given: self._jitted(*given, **static)
        return jax.jit(exported.call, donate_argnums=self._donate)


def import_ahead() -> None:
    """Start to import, beside other work, what running a kept module needs: JAX registers LAPACK through scipy then."""
    threading.Thread(target=importlib.import_module, args=("scipy.linalg",)).start()


def identify(model: nnx.Module, graph: Any) -> str:
    """Digest of all that shapes the programs of `model`: sources of its package, configuration, structure, JAX."""
    config = run_config(model)
    described = json.dumps(config.to_dict(), sort_keys=True, default=repr) if hasattr(config, "to_dict") else ""
    devices = jax.devices()
    return _digest(
        [
            *_sources(Path(__file__).parent, Path(inspect.getfile(type(model)))),
            described,
            _ADDRESS.sub("", repr(config)),
            _ADDRESS.sub("", repr(graph)),
            jax.__version__,
            metadata.version("jaxlib"),
            flax.__version__,
            devices[0].platform,
            devices[0].device_kind,
            str(len(devices)),
            *(f"{name}={getattr(jax.config, name, None)}" for name in _SETTINGS),
            os.environ.get("MAXCODE_DEBUG_CHECKS", ""),
        ]
    )


def _sources(package: Path, model: Path) -> Iterable[bytes]:
    for path in sorted({*package.rglob("*.py"), model}):
        yield path.name.encode()
        yield path.read_bytes()


def _digest(parts: Iterable[str | bytes]) -> str:
    found = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        found.update(len(data).to_bytes(8, "little") + data)
    return found.hexdigest()


def _folder() -> Path | None:
    """Beside JAX's own persistent cache; None where that is off or no local folder."""
    settings: Any = jax.config
    place = settings.jax_compilation_cache_dir
    if not place or not settings.jax_enable_compilation_cache or "://" in str(place):
        return None
    return Path(place) / "modules"


def _read(path: Path) -> Any:
    """The kept module, or None: no such file, or one that this version of JAX does not take."""
    with contextlib.suppress(ImportError, OSError, ValueError, TypeError, KeyError):
        data = path.read_bytes()
        sum_, body = data[:32], bytearray(data[32:])
        return jax.export.deserialize(body) if hashlib.sha256(body).digest() == sum_ else None
    return None


def _write(path: Path, body: bytes) -> Any:
    """Keep the module, whole or not at all; a folder that cannot be written keeps nothing."""
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
            file.write(hashlib.sha256(body).digest() + body)
        Path(file.name).replace(path)
    return jax.export.deserialize(bytearray(body))


def _spread(tree: Any) -> bool:
    """Whether any array lies on several devices: an exported module would have to be told how."""
    return any(isinstance(x, jax.Array) and len(x.sharding.device_set) > 1 for x in jax.tree.leaves(tree))


def _is_weak(leaf: Any) -> bool:
    return bool(getattr(leaf, "weak_type", isinstance(leaf, (int, float))))


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list) else value


for _kind in (Cache, EncoderDecoderCache):
    jax.export.register_pytree_node_serialization(
        _kind,
        serialized_name=f"{__package__}.{_kind.__name__}",
        serialize_auxdata=lambda aux: json.dumps(aux).encode(),
        deserialize_auxdata=lambda data: _tuples(json.loads(bytes(data))),
    )
