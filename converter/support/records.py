"""Records that a model returns: pytree dataclasses with the manners of the source's output objects.

@output_record
class CausalLMOutput(Record):
    loss: Array | None = None
    logits: Array | None = None

out.logits, out["logits"], out[0], out.keys(), out.to_tuple()    # fields that are None do not count in the last three
"""

import dataclasses
import inspect
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, cast, dataclass_transform

import jax

T = TypeVar("T")


class Record:
    """Fields by name, position or attribute."""

    if TYPE_CHECKING:  # `output_record` makes a dataclass of every subclass
        __dataclass_fields__: ClassVar[dict[str, Any]]

    def to_tuple(self) -> tuple[Any, ...]:
        """Return the values that are not None, in the order of the fields."""
        return tuple(value for _, value in self.items())

    def keys(self) -> list[str]:
        """Return the names of the fields that are not None."""
        return [name for name, _ in self.items()]

    def values(self) -> list[Any]:
        """Return the values that are not None."""
        return list(self.to_tuple())

    def items(self) -> list[tuple[str, Any]]:
        """Return (name, value) of the fields that are not None."""
        pairs = ((field.name, getattr(self, field.name)) for field in dataclasses.fields(self))
        return [(name, value) for name, value in pairs if value is not None]

    def get(self, name: str, default: Any = None) -> Any:
        """Return a field that is not None, or `default`."""
        return dict(self.items()).get(name, default)

    def replace(self, **changes: Any) -> Any:
        """Return a copy with some fields changed."""
        return dataclasses.replace(self, **changes)

    def __getitem__(self, key: str | int | slice) -> Any:
        if not isinstance(key, str):
            return self.to_tuple()[key]
        found = dict(self.items())
        if key not in found:
            raise KeyError(f"{type(self).__name__} has no value for {key!r}; it has {list(found)}")
        return found[key]

    def __contains__(self, name: object) -> bool:
        return name in self.keys()

    def __iter__(self) -> Iterator[str]:
        return iter(self.keys())

    def __len__(self) -> int:
        return len(self.items())


def as_tuple(result: Any) -> Any:
    """Return what a source gives when it is asked for no record: the values that are not None, in their order."""
    return result.to_tuple() if isinstance(result, Record) else result


@dataclass_transform(field_specifiers=(dataclasses.field,))
def output_record(cls: type[T]) -> type[T]:
    """Make a class of annotated fields a record: a dataclass and pytree; fields without a default get None."""
    for name in inspect.get_annotations(cls):
        if not hasattr(cls, name):
            setattr(cls, name, None)
    bases = () if issubclass(cls, Record) else (Record,)
    if bases:
        namespace = {k: v for k, v in vars(cls).items() if k not in ("__dict__", "__weakref__")}
        bases = (*(base for base in cls.__bases__ if base is not object), *bases)
        cls = cast("type[T]", type(cls.__name__, bases, namespace))
    record: Any = dataclasses.dataclass(eq=False)(cls)
    names = [field.name for field in dataclasses.fields(record)]
    return jax.tree_util.register_dataclass(record, data_fields=names, meta_fields=[])
