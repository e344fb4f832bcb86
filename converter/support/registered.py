"""Static values that a module keeps beside its parameters: registered constructor arguments, objects equal by value."""

from typing import Any

from .config_base import freeze


class Registered:
    """The constructor's arguments as the source's `self.config`: read by attribute or key, hashable, never changed."""

    def __init__(self, **values: Any):
        vars(self).update(freeze(dict(values)))

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"the registered configuration has no {name!r}; it has {', '.join(vars(self))}")

    def __setattr__(self, name: str, value: Any) -> None:
        raise TypeError(f"a registered configuration is never changed; use replace({name}=...)")

    def __getitem__(self, name: str) -> Any:
        return vars(self)[name]

    def __contains__(self, name: object) -> bool:
        return name in vars(self)

    def get(self, name: str, default: Any = None) -> Any:
        """A value, or `default` where there is none of that name."""
        return vars(self).get(name, default)

    def replace(self, **changes: Any) -> "Registered":
        """A copy with some values changed or added."""
        return Registered(**{**vars(self), **changes})

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Registered) and vars(self) == vars(other)

    def __hash__(self) -> int:
        return hash(frozenset(vars(self).items()))


class Valued:
    """Base of plain objects that a module holds: equal where class and attributes are, as layers that share a trace."""

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and vars(self) == vars(other)

    def __hash__(self) -> int:
        return hash((type(self), frozenset(vars(self).items())))
