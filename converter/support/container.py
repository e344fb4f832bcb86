"""Containers whose items are attributes named as in the source ("0", "1", … or their keys): paths stay the same."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Self

import jax.numpy as jnp
from flax import nnx

from .module import Module, compute_dtype


class _Container(Module):
    """Items in order; `_names` is the order, because attributes come back sorted from nnx.merge."""

    def __init__(self, items: Mapping[str, Any] | None = None):
        self._names: tuple[str, ...] = ()
        for name, item in (items or {}).items():
            self._set(name, item)

    def _set(self, name: str, item: Any) -> None:
        if name not in self._names:
            if hasattr(self, name):
                raise KeyError(
                    f"{type(self).__name__}: the key {name!r} is a name of the container itself; choose another"
                )
            self._names = (*self._names, name)
        setattr(self, name, item)

    def _remove(self, name: str) -> Any:
        item = vars(self)[name]
        delattr(self, name)
        self._names = tuple(other for other in self._names if other != name)
        return item

    def __len__(self) -> int:
        return len(self._names)

    def _stored(self) -> list[Any]:
        return [vars(self)[name] for name in self._names]

    def _items(self) -> list[Any]:
        return [self._read(item) for item in self._stored()]

    def _read(self, item: Any) -> Any:
        """What an item is to a reader; parameters read as arrays."""
        return item


class _Ordered(_Container):
    """A container indexed by position."""

    def __init__(self, items: Iterable[Any] | None = None):
        super().__init__({str(i): item for i, item in enumerate(items or ())})

    def __iter__(self) -> Iterator[Any]:
        return iter(self._items())

    def __getitem__(self, index: int | slice) -> Any:
        return type(self)(self._stored()[index]) if isinstance(index, slice) else self._items()[index]

    def __setitem__(self, index: int, item: Any) -> None:
        setattr(self, self._names[index], item)

    def append(self, item: Any) -> Self:
        """Add an item at the end."""
        self._set(str(len(self)), item)
        return self

    def extend(self, items: Iterable[Any]) -> Self:
        """Add items at the end."""
        for item in items:
            self.append(item)
        return self

    def insert(self, index: int, item: Any) -> None:
        """Add an item before position `index`."""
        items = self._stored()
        items.insert(index, item)
        self._replace(items)

    def pop(self, index: int = -1) -> Any:
        """Remove and return an item; the later ones move up."""
        items = self._stored()
        item = items.pop(index)
        self._replace(items)
        return item

    def _replace(self, items: list[Any]) -> None:
        for name in self._names:
            self._remove(name)
        self.extend(items)


class ModuleList(_Ordered):
    """A list of modules."""


class ParameterList(_Ordered):
    """A list of parameters, which read as arrays in the compute dtype where there is a configuration."""

    def __init__(self, values: Iterable[Any] | None = None, *, config: Any = None, rngs: nnx.Rngs | None = None):
        self.dtype = None if config is None else compute_dtype(config)
        super().__init__(values)

    def __getitem__(self, index: int | slice) -> Any:
        part = super().__getitem__(index)
        if isinstance(index, slice):
            part.dtype = self.dtype
        return part

    def _read(self, item: Any) -> Any:
        return _as_array(item, self.dtype)


class Sequential(_Ordered):
    """Modules called one after the other; made from modules, or from one mapping of named modules."""

    def __init__(self, *modules: Any):
        if len(modules) == 1 and isinstance(modules[0], Mapping):
            _Container.__init__(self, modules[0])
        else:
            super().__init__(modules)

    def __getitem__(self, index: int | slice) -> Any:
        if isinstance(index, slice):
            return Sequential({name: vars(self)[name] for name in self._names[index]})
        return self._items()[index]

    def __call__(self, input: Any) -> Any:
        """Pass the input through the modules in order."""
        for module in self._items():
            input = module(input)
        return input


class _Keyed(_Container):
    """A container indexed by key."""

    def __init__(self, items: Mapping[str, Any] | Iterable[tuple[str, Any]] | None = None):
        given: Any = items or {}
        super().__init__(dict(given))

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __contains__(self, key: object) -> bool:
        return key in self._names

    def __getitem__(self, key: str) -> Any:
        if key not in self._names:
            raise KeyError(f"{type(self).__name__} has no {key!r}; it has {list(self._names)}")
        return self._read(vars(self)[key])

    def __setitem__(self, key: str, item: Any) -> None:
        self._set(key, item)

    def get(self, key: str, default: Any = None) -> Any:
        """Return an item, or `default`."""
        return self[key] if key in self._names else default

    def keys(self) -> tuple[str, ...]:
        """Return the keys in order."""
        return self._names

    def values(self) -> list[Any]:
        """Return the items in order."""
        return self._items()

    def items(self) -> list[tuple[str, Any]]:
        """Return (key, item) pairs in order."""
        return list(zip(self._names, self._items(), strict=True))

    def update(self, items: Mapping[str, Any] | Iterable[tuple[str, Any]]) -> None:
        """Add or replace items."""
        for key, item in dict(items).items():
            self._set(key, item)

    def pop(self, key: str) -> Any:
        """Remove and return an item."""
        return self._remove(key)


class ModuleDict(_Keyed):
    """A mapping of modules."""


class ParameterDict(_Keyed):
    """A mapping of parameters, which read as arrays in the compute dtype where there is a configuration."""

    def __init__(
        self,
        parameters: Mapping[str, Any] | Iterable[tuple[str, Any]] | None = None,
        *,
        config: Any = None,
        rngs: nnx.Rngs | None = None,
    ):
        self.dtype = None if config is None else compute_dtype(config)
        super().__init__(parameters)

    def _read(self, item: Any) -> Any:
        return _as_array(item, self.dtype)


def _as_array(item: Any, dtype: Any) -> Any:
    """A variable's array, a floating one in `dtype` if given; anything else as it is."""
    if not isinstance(item, nnx.Variable):
        return item
    value = item[...]
    return value.astype(dtype) if dtype is not None and jnp.issubdtype(value.dtype, jnp.floating) else value
