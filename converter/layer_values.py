"""Torch's layer classes as values (`norm_layer=nn.LayerNorm`): what stands for them, and what a call of one takes."""

import ast
import inspect
from dataclasses import dataclass

from maxcode.converter import plumbing as tables
from maxcode.converter import registry
from maxcode.converter.library import support_keywords
from maxcode.converter.rule import Applied, NoRule, Rule, apply_module

DROPPED = ("device", "dtype", "inplace")  # arguments of torch's constructors that no layer here has
RUN = ("config", "rngs")


@dataclass(frozen=True)
class LayerValue:
    """What a torch class is as a value.

    Args:
      applied: the expression, with the imports and helpers that it needs.
      keywords: what a call of it takes beside torch's own arguments ("axes", "config", "rngs").
      is_function: whether calling it gives a function, and takes no arguments at all.
    """

    applied: Applied
    keywords: frozenset[str]
    is_function: bool


def is_layer_class(qualified: str) -> bool:
    """Whether a module rule knows the class."""
    registry.load()
    return registry.canonical(qualified) in registry.MODULES


def layer_value(qualified: str) -> LayerValue:
    """The value for a torch layer class: the support class of the same arguments, or a lambda that gives a function.

    Raises NoRule where the class is made in another way than by torch's own arguments.
    """
    canonical = registry.canonical(qualified)
    rule = registry.entries(registry.MODULES, canonical)[0]
    names = [p.name for p in _required(rule)]
    applied = apply_module(canonical, [ast.Name(name, ast.Load()) for name in names], {})
    made = applied.expr
    if isinstance(made, ast.Name | ast.Attribute) and not names:
        lambda_ = ast.Lambda(ast.arguments([], [], None, [], [], None, []), made)
        return LayerValue(Applied(lambda_, applied.imports, applied.helpers), frozenset(), is_function=True)
    if isinstance(made, ast.Call) and _takes_the_same(rule, made, names):
        value = Applied(made.func, applied.imports, applied.helpers)
        return LayerValue(value, support_keywords(ast.unparse(made.func)), is_function=False)
    raise NoRule(f"{canonical} is no value here: it is not made by torch's own arguments")


def apply_layer(canonical: str, node: ast.Call, function: ast.FunctionDef) -> Applied:
    """Convert the construction of a torch layer in `function`, also one that hands on `*args` or `**kwargs`.

    What is handed on goes to the support class, which takes torch's own arguments. Raises NoRule where that is not so,
    or where a limit of the rule asks about an argument that cannot be seen.
    """
    keywords = [k for k in node.keywords if k.arg not in ("device", "dtype") and not _is_placement(k, function)]
    hands_on = any(k.arg is None for k in keywords)
    if not hands_on:
        try:
            return apply_module(canonical, node.args, {k.arg: k.value for k in keywords})
        except NoRule:
            if not any(isinstance(argument, ast.Starred) for argument in node.args):
                raise
    value = layer_value(canonical)
    if value.is_function or any(rule.limits for rule in registry.entries(registry.MODULES, canonical)):
        raise NoRule("it is made from `*` or `**` arguments, of which a rule has to know more")
    return Applied(ast.Call(value.applied.expr, node.args, keywords), value.applied.imports, value.applied.helpers)


def _is_placement(keyword: ast.keyword, function: ast.FunctionDef) -> bool:
    """Whether `**name` is a dictionary of nothing but device and dtype (`factory_kwargs`)."""
    if keyword.arg is not None or not isinstance(keyword.value, ast.Name | ast.Dict):
        return False
    values = [keyword.value]
    if isinstance(keyword.value, ast.Name):
        assigned = [n for n in ast.walk(function) if isinstance(n, ast.Assign)]
        values = [n.value for n in assigned if [ast.unparse(t) for t in n.targets] == [keyword.value.id]]
    return bool(values) and all(_holds_placement(value) for value in values)


def _holds_placement(value: ast.expr) -> bool:
    keys = (
        [k.value if isinstance(k, ast.Constant) else None for k in value.keys]
        if isinstance(value, ast.Dict)
        else [None]
    )
    if isinstance(value, ast.Call) and ast.unparse(value.func) == "dict" and not value.args:
        keys = [k.arg for k in value.keywords]
    return all(key in ("device", "dtype") for key in keys)


def _required(rule: Rule) -> list[inspect.Parameter]:
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return [p for p in rule.signature.parameters.values() if p.default is p.empty and p.kind in kinds]


def _takes_the_same(rule: Rule, made: ast.Call, names: list[str]) -> bool:
    """Whether the class that is called takes torch's arguments, by torch's names and in torch's order."""
    short = tables.last(ast.unparse(made.func))
    cls = registry.HELPERS.get(short) or getattr(rule.function, "__globals__", {}).get(short)
    given, defaults = made.args[: len(names)], made.args[len(names) :]
    is_handed_on = [ast.unparse(a) for a in given] == names[: len(given)]
    if not inspect.isclass(cls) or not is_handed_on or not all(isinstance(d, ast.Constant) for d in defaults):
        return False
    taken = inspect.signature(cls).parameters
    if any(p.kind is p.VAR_POSITIONAL for p in taken.values()):
        return any(p.kind is p.VAR_KEYWORD for p in taken.values())
    order = [p.name for p in taken.values() if p.kind is p.POSITIONAL_OR_KEYWORD]
    wanted = [n for n in rule.signature.parameters if n not in DROPPED and not n.startswith("_")]
    return wanted == order[: len(wanted)]
