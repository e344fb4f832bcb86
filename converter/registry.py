"""The tables of rules: filled by the decorators of `rule.py`, looked up by canonical torch name."""

from __future__ import annotations

import ast
import builtins
import functools
import importlib
import inspect
import keyword
import pkgutil
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from maxcode.converter.rule import Rule

FAMILIES = ("maxcode.converter.rules.ops", "maxcode.converter.rules.modules")

OPS: dict[str, list[Rule]] = {}
MODULES: dict[str, list[Rule]] = {}
ATTRIBUTES: dict[str, list[Rule]] = {}
HELPERS: dict[str, Any] = {}  # name -> function or class that emitted code finds in its `ops` module

# Where Python says a built-in lives -> where users know it.
_PREFIXES = (
    ("torch._C._nn.", "torch.nn.functional."),
    ("torch._C._VariableFunctions.", "torch."),
    ("torch._C._VariableFunctionsClass.", "torch."),
    ("torch._VariableFunctionsClass.", "torch."),
    ("torch._C._TensorBase.", "torch.Tensor."),
    ("torch._C.TensorBase.", "torch.Tensor."),
    ("torch._tensor.Tensor.", "torch.Tensor."),
    ("torch.nn.parameter.Parameter.", "torch.Tensor."),
    ("torch.functional.", "torch."),
    ("torch._C._linalg.linalg_", "torch.linalg."),
    ("torch._C._special.special_", "torch.special."),
    ("torch._C._fft.fft_", "torch.fft."),
    ("torch.masked._ops.", "torch.masked."),
)


class DuplicateRule(ValueError):  # noqa: N818 - named in the interfaces' words
    """Two entries that the look-up or the emitted helper module could not tell apart."""


def canonical(name: str) -> str:
    """Return the public name for one as Python reports it ("torch._C._nn.gelu" -> "torch.nn.functional.gelu")."""
    for private, public in _PREFIXES:
        if name.startswith(private):
            return public + name.removeprefix(private)
    if name.startswith("torch.nn.modules.") and name.count(".") == 4:
        return f"torch.nn.{name.rsplit('.', 1)[1]}"
    return name


def add_helper(value: Any) -> None:
    """Reserve `value.__name__` in the emitted `ops` module. Raises DuplicateRule when it is taken or not usable."""
    name = value.__name__
    if keyword.iskeyword(name) or hasattr(builtins, name):
        raise DuplicateRule(f"{_where(value)}: {name!r} would shadow a Python name in ops.py; choose another name")
    known = HELPERS.get(name)
    if known is not None and _where(known) != _where(value):
        raise DuplicateRule(f"{_where(value)}: the name {name!r} is taken by {_where(known)}; choose another name")
    HELPERS[name] = value


def add(table: dict[str, list[Rule]], rule: Rule) -> None:
    """Append `rule` under each of its names. Raises DuplicateRule when an earlier entry always wins over it."""
    for name in rule.names:
        entries = table.setdefault(name, [])
        for earlier in entries:
            if earlier.when is None and earlier.signature == rule.signature:
                raise DuplicateRule(
                    f"{_where(rule.function)}: {name!r} with this signature is taken by {_where(earlier.function)}, "
                    "which has no `when=`; remove one of them"
                )
        entries.append(rule)


@functools.cache
def load() -> None:
    """Import every rule file once; their decorators fill the tables."""
    for family in FAMILIES:
        package = importlib.import_module(family)
        for found in sorted(pkgutil.iter_modules(package.__path__), key=lambda module: module.name):
            importlib.import_module(f"{family}.{found.name}")


def entries(table: Mapping[str, list[Rule]], name: str) -> tuple[Rule, ...]:
    """Return the entries for a torch name in order of priority, empty when there is none."""
    load()
    return tuple(table.get(canonical(name), ()))


def has_op(name: str) -> bool:
    """Whether any op entry has this torch name."""
    return bool(entries(OPS, name))


def has_module(name: str) -> bool:
    """Whether any module entry has this torch name."""
    return bool(entries(MODULES, name))


def all_rules() -> Iterator[tuple[str, Rule]]:
    """Yield every (torch name, entry) pair, sorted by name, entries in order of priority."""
    load()
    for table in (OPS, ATTRIBUTES, MODULES):
        for name in sorted(table):
            yield from ((name, rule) for rule in table[name])


def weights_of(name: str) -> Mapping[str, tuple[str, str]]:
    """Return {torch leaf: (JAX leaf, layout)} of a module, {} when it has no weights.

    Raises KeyError for a module without an entry.
    """
    found = entries(MODULES, name)
    if not found:
        raise KeyError(f"no module rule for {name!r}; add one to converter/rules/modules/")
    return found[0].weights


def unread_parameters(name: str) -> frozenset[str]:
    """Constructor arguments that no rule of a module reads or limits: devices, sparse gradients and the like."""
    rules = entries(MODULES, canonical(name))
    tests = [test for rule in rules for test in (rule.when, *rule.limits.values()) if test is not None]
    read = {p for test in tests for p in inspect.signature(test).parameters}
    for rule in rules:
        read |= {n.id for n in ast.walk(rule.definition) if isinstance(n, ast.Name)}
    return frozenset({"device", "dtype"}.union(*(rule.signature.parameters for rule in rules)) - read)


def _where(value: Callable[..., Any]) -> str:
    return f"{value.__module__}.{value.__qualname__}"
