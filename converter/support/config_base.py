"""Configurations: frozen, hashable dataclasses that can be static attributes of a module.

A class marked `@config_class` declares its fields as a dataclass does. Its `__post_init__` may assign attributes and
change lists and dictionaries in place; when it returns, the values are checked (`validate_*` methods) and frozen:
lists become `FrozenList`, dictionaries `FrozenDict`, and assignment raises.
"""

import contextlib
import copy
import dataclasses
import functools
import json
import math
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn, Self, TypeVar, cast, dataclass_transform

_INTERNAL = ("_frozen", "_hash", "_extra_keys")
_FLOATS = {"Infinity": float("inf"), "-Infinity": float("-inf"), "NaN": float("nan")}


def _refuse(self, *args, **kwargs) -> NoReturn:
    raise TypeError(f"values of a configuration are frozen, this {type(self).__name__} too; use config.replace(...)")


class FrozenList(list):
    """A list that cannot be changed and can be hashed; equal to a list of the same values."""

    def __hash__(self) -> int:  # type: ignore[override]  # frozen, so hashable
        return hash(tuple(self))

    def __reduce__(self):
        return FrozenList, (list(self),)

    def __getitem__(self, index):
        value = super().__getitem__(index)
        return FrozenList(value) if isinstance(index, slice) else value

    __setitem__ = __delitem__ = __iadd__ = __imul__ = _refuse
    append = extend = insert = pop = remove = clear = sort = reverse = _refuse


class FrozenDict(dict):
    """A dictionary that cannot be changed and can be hashed; equal to a dict of the same items."""

    def __hash__(self) -> int:  # type: ignore[override]  # frozen, so hashable
        return hash(frozenset(self.items()))

    def __reduce__(self):
        return FrozenDict, (dict(self),)

    __setitem__ = __delitem__ = __ior__ = _refuse
    update = setdefault = pop = popitem = clear = _refuse


def freeze(value: Any, run: Mapping[str, Any] | None = None) -> Any:
    """`value` with every list, dictionary and set inside replaced by an immutable, hashable one.

    Configurations inside take the run fields `run` and are frozen in place.
    """
    if isinstance(value, Config):
        value._finish(run)
        return value
    if isinstance(value, dict):
        return FrozenDict((key, freeze(item, run)) for key, item in value.items())
    if isinstance(value, list | tuple):
        kind = FrozenList if isinstance(value, list) else tuple
        return kind(freeze(item, run) for item in value)
    return frozenset(value) if isinstance(value, set) else value


def thaw(value: Any) -> Any:
    """A copy of `value` that can be changed; the inverse of `freeze`."""
    if isinstance(value, Config):
        return value._draft()
    if isinstance(value, dict):
        return {key: thaw(item) for key, item in value.items()}
    if isinstance(value, list):
        return list(map(thaw, value))
    return tuple(map(thaw, value)) if isinstance(value, tuple) else value


Class = TypeVar("Class", bound=type)


@dataclass_transform(kw_only_default=True)
def config_class(cls: Class) -> Class:
    """Make `cls` a frozen dataclass that its own `__post_init__` may still fill, with a property per alias."""
    cls = dataclasses.dataclass(frozen=True, init=False, eq=False, kw_only=True)(cls)
    # instead of dataclass's own, which would forbid assignments in __post_init__ too
    for name, method in (("__setattr__", _set_while_building), ("__delattr__", _delete_while_building)):
        setattr(cls, name, method)
    for name, target in cls.attribute_map.items():
        if name != target:
            setattr(cls, name, _alias(name))
    return cls


def filled_in() -> Any:
    """The default of a field that `__post_init__` fills in where it is left at None: no reader ever sees None."""
    return dataclasses.field(default=None)


def _set_while_building(self, name: str, value: Any) -> None:
    if vars(self).get("_frozen"):
        raise dataclasses.FrozenInstanceError(f"cannot assign to {name!r}; use config.replace({name}=...)")
    object.__setattr__(self, self.attribute_map.get(name, name), value)


def _delete_while_building(self, name: str) -> None:
    if vars(self).get("_frozen"):
        raise dataclasses.FrozenInstanceError(f"cannot delete {name!r}")
    object.__delattr__(self, self.attribute_map.get(name, name))


_depth = threading.local()


@contextlib.contextmanager
def _building() -> Iterator[bool]:
    """Yields whether no other configuration is under construction around this one."""
    outer = getattr(_depth, "value", 0)
    _depth.value = outer + 1
    try:
        yield outer == 0
    finally:
        _depth.value = outer


def _alias(name: str) -> property:
    def read(self):
        target = self.attribute_map.get(name)
        if target is None and name not in vars(self):  # a subclass dropped the alias
            raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")
        return vars(self)[name] if target is None else getattr(self, target)

    return property(read, doc=f"Another name of the field that `attribute_map` gives for `{name}`.")


@config_class
class Config:
    """How to run a model. Subclasses add the source's fields; all arguments are keywords.

    Raises:
        TypeError: on missing or unknown names.
        ValueError: from the source's own `validate_*` checks.
    """

    attribute_map: ClassVar[dict[str, str]] = {}  # alias -> field
    tags_tuples: ClassVar[bool] = True  # whether JSON tells tuples from lists; Hugging Face's does not

    dtype: str = "float32"  # compute
    weight_dtype: str = "float32"  # storage
    matmul_precision: str = "default"  # default | high | highest
    scan_layers: bool = True
    remat_policy: str = "none"  # none | full | minimal
    attention: str = "eager"  # eager (the source's own) | dot_product
    experts: str = "auto"  # auto | ragged | blocked | dense

    def __init__(self, **values: Any):
        for field in dataclasses.fields(self):
            if field.name in values:
                value, factory = thaw(values.pop(field.name)), cast("Any", field.default_factory)
                if isinstance(value, dict) and _is_config_class(factory):
                    value = factory(**value)
            elif field.default_factory is not dataclasses.MISSING:
                value = field.default_factory()
            elif field.default is not dataclasses.MISSING:
                value = thaw(field.default)
            else:
                raise TypeError(f"{type(self).__name__} needs a value for {field.name!r}")
            setattr(self, field.name, value)
        with _building() as is_outermost:
            self.__post_init__(**values)
        for check in self._checks():
            check()
        if is_outermost:  # until then a configuration may change those that it holds
            self._finish()

    def __post_init__(self, **unknown: Any):
        if unknown:
            known = sorted({field.name for field in dataclasses.fields(self)} | set(self.attribute_map))
            raise TypeError(f"{type(self).__name__} has no field {', '.join(unknown)}; it has {', '.join(known)}")

    def _checks(self) -> Iterator[Callable[[], None]]:
        names = (name for name in dir(type(self)) if name.startswith("validate_"))
        return (functools.partial(getattr(type(self), name), self) for name in names)

    def _finish(self, run: Mapping[str, Any] | None = None) -> None:
        """Freeze, and hand the run fields down to the configurations inside."""
        if not vars(self).get("_frozen"):
            self.__dict__.update(run or {})
            run = self.run_fields()
            self.__dict__.update({name: freeze(value, run) for name, value in vars(self).items()})
            self.__dict__["_frozen"] = True

    def run_fields(self) -> dict[str, Any]:
        """The fields that say how to run, not what the model is."""
        return {name: getattr(self, name) for name in RUN_FIELDS}

    if TYPE_CHECKING:  # __post_init__ and the source's JSON may add attributes

        def __getattr__(self, name: str) -> Any: ...

    def _state(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name not in _INTERNAL}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, type(self)) and type(self) is type(other) and self._state() == other._state()

    def __hash__(self) -> int:
        if "_hash" not in vars(self):
            self.__dict__["_hash"] = hash((type(self).__name__, frozenset(self._state().items())))
        return vars(self)["_hash"]

    def _draft(self) -> Self:
        """A copy that can still be written, with plain lists and dictionaries."""
        new = object.__new__(type(self))
        new.__dict__.update(
            {name: thaw(value) for name, value in vars(self).items() if name not in ("_frozen", "_hash")}
        )
        return new

    def replace(self, **changes: Any) -> Self:
        """A copy with the given attributes; nothing else is derived again.

        Raises:
            TypeError: for names that the configuration does not have.
        """
        if unknown := [name for name in changes if not hasattr(self, name)]:
            raise TypeError(f"{type(self).__name__} has no attribute {', '.join(unknown)} to replace")
        new = self._draft()
        for name, value in changes.items():
            setattr(new, name, thaw(value))
        new._finish()
        return new

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo) -> Self:
        return self

    @classmethod
    def from_dict(cls, values: Mapping[str, Any], **overrides: Any) -> Self:
        """Build from a dictionary of fields; `overrides` win. What `to_dict` wrote under "run" sets run fields."""
        found = _decode(dict(values))
        if "_class_name" in found:  # a layer library's file: what is not the constructor's starts with "_"
            found = {name: value for name, value in found.items() if not name.startswith("_")}
        run = found.pop("run", {})
        return cls(**{**found, **run, **overrides})

    @classmethod
    def from_json(cls, path: str | Path, **overrides: Any) -> Self:
        """Build from the source's config.json."""
        return cls.from_dict(json.loads(Path(path).read_text(encoding="utf-8")), **overrides)

    def to_dict(self) -> dict[str, Any]:
        """The fields in the form that `from_dict` reads; run fields that differ from their defaults under "run"."""
        values = {n: _plain(value, self.tags_tuples) for n, value in self._state().items() if n not in RUN_FIELDS}
        changed = {name: value for name, value in self.run_fields().items() if value != RUN_FIELDS[name]}
        return {**values, "run": changed} if changed else values

    def to_json(self, path: str | Path | None = None) -> str:
        """`to_dict` as JSON text, also written to `path` if given."""
        text = json.dumps(_encode_floats(self.to_dict()), indent=2, sort_keys=True) + "\n"
        if path is not None:
            Path(path).write_text(text, encoding="utf-8")
        return text


def _is_config_class(value: Any) -> bool:
    return isinstance(value, type) and issubclass(value, Config)


RUN_FIELDS: dict[str, Any] = {field.name: field.default for field in dataclasses.fields(Config)}


def _plain(value: Any, tags_tuples: bool) -> Any:
    if isinstance(value, Config):
        value = value.to_dict()
        value.pop("run", None)  # sub-configurations run as the whole does
        return value
    if isinstance(value, dict):
        return {key: _plain(item, tags_tuples) for key, item in value.items()}
    if not isinstance(value, (list, tuple, frozenset)):
        return copy.copy(value)
    items = [_plain(item, tags_tuples) for item in value]
    return {"__tuple__": items} if tags_tuples and isinstance(value, tuple) else items


def _encode_floats(value: Any) -> Any:
    """Replace floats that JSON lacks by the tag that Hugging Face writes for them."""
    if isinstance(value, dict):
        return {str(key): _encode_floats(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_encode_floats(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return {"__float__": "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"}
    return value


def _decode(value: Any) -> Any:
    """Read the tags of floats and tuples."""
    if isinstance(value, dict):
        if set(value) == {"__float__"}:
            return _FLOATS[value["__float__"]]
        if set(value) == {"__tuple__"}:
            return tuple(map(_decode, value["__tuple__"]))
        return {key: _decode(item) for key, item in value.items()}
    return [_decode(item) for item in value] if isinstance(value, list) else value
