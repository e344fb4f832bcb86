"""Torch functions handed about as values: a lambda of what each must be given, or a helper that takes all of it."""

import ast

from maxcode.converter import plumbing as tables
from maxcode.converter import registry
from maxcode.converter.arguments import Unbindable, bind
from maxcode.converter.nodes import call
from maxcode.converter.rule import OPS_IMPORT, Applied, NoRule, Rule, apply_op
from maxcode.converter.source import SourceFile


def function_value(qualified: str) -> Applied:
    """The value for `{"gelu": F.gelu}`: a lambda of the arguments that it must have. Raises NoRule."""
    parameters = registry.entries(registry.OPS, qualified)[0].signature.parameters.values()
    names = [p.name for p in parameters if p.default is p.empty and p.kind is p.POSITIONAL_OR_KEYWORD]
    applied = apply_op(qualified, [ast.Name(n, ast.Load()) for n in names], {})
    made = ast.Lambda(ast.arguments([], [ast.arg(n) for n in names], None, [], [], None, []), applied.expr)
    return Applied(made, applied.imports, applied.helpers)


def is_partial(node: ast.Call, file: SourceFile) -> bool:
    """Whether a call is `functools.partial` of a function, with keywords written out."""
    root = file.imports.get(ast.unparse(node.func).partition(".")[0], "")
    is_called = root in ("functools", "functools.partial") and ast.unparse(node.func).endswith("partial")
    return is_called and bool(node.args) and None not in {k.arg for k in node.keywords}


def partial_value(qualified: str, args: list[ast.expr], keywords: dict[str, ast.expr]) -> Applied:
    """The function of `partial(F.softmax, dim=-1)`: a helper that takes torch's other arguments too.

    Raises NoRule where no entry takes all of these, or where a limit holds for them.
    """
    rules = sorted(registry.entries(registry.OPS, qualified), key=lambda r: -len(r.signature.parameters))
    for rule in rules:
        if rule.when is None and _fits(rule, args, keywords):
            name = rule.function.__name__
            function = ast.Attribute(ast.Name("ops", ast.Load()), name, ast.Load())
            return Applied(function, frozenset({OPS_IMPORT}), frozenset({name}))
    raise NoRule(f"no rule for {qualified!r} takes these arguments from `partial`")


def _required(rule: Rule) -> list[str]:
    parameters = rule.signature.parameters.values()
    return [p.name for p in parameters if p.default is p.empty and p.kind is p.POSITIONAL_OR_KEYWORD]


def _fits(rule: Rule, args: list[ast.expr], keywords: dict[str, ast.expr]) -> bool:
    missing = [n for n in _required(rule)[len(args) :] if n not in keywords]
    try:
        bound = bind(rule.signature, args, keywords | {n: ast.Name(n, ast.Load()) for n in missing})
    except Unbindable:
        return False
    return not any(bound.satisfies(predicate) for predicate in rule.limits.values())


def is_torch_function(qualified: str) -> bool:
    """Whether a qualified name is torch's, and neither a class nor a method of one of its layers."""
    if not qualified.startswith("torch."):
        return False
    last = tables.last(qualified)
    if qualified in registry.OPS:
        return True  # `torch.Tensor(2, 3)` too
    return not last[:1].isupper() and not qualified.startswith("torch.nn.modules.")


class DrawFromRngs(ast.NodeTransformer):
    """Initial values are drawn from a constructor's generator, not from a call's key."""

    def visit_Call(self, node: ast.Call) -> ast.expr:
        self.generic_visit(node)
        return call("rngs.params") if ast.unparse(node.func) == "random.next_key" else node
