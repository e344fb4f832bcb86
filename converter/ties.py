"""Weights that a framework's class names as shared become a statement of its constructor."""

import ast
from typing import Any

from maxcode.converter import plumbing as tables
from maxcode.converter.context import Context, Definition
from maxcode.converter.nodes import assign, call, dotted, name

_LOCAL = "tied_weights_keys"
_SWITCH = "tie_word_embeddings"


def _has_switch(config: Any) -> bool:
    """Whether a configuration, or one nested in it, has the field that switches ties on."""
    return isinstance(config, dict) and (_SWITCH in config or any(map(_has_switch, config.values())))


def tie_weights(context: Context, definition: Definition) -> None:
    """Turn the class attribute that names shared parameters into a statement at the end of the constructor."""
    node = definition.node
    declared = next(
        (s for s in node.body if isinstance(s, ast.Assign) and ast.unparse(s.targets[0]) == tables.TIED_KEYS), None
    )
    if declared is None:
        return
    node.body.remove(declared)
    constructor = next((f for f in definition.functions() if f.name == "__init__"), None)
    if not isinstance(declared.value, ast.Dict) or constructor is None:
        return
    held, ties = _instance_table(constructor), declared.value
    if not held and not declared.value.keys:
        return  # it names none
    if held or not all(_is_parameter(n) for n in (*declared.value.keys, *declared.value.values)):
        # Whole modules or patterns, perhaps changed by the constructor: told from the names of the finished model.
        _Local().visit(constructor)
        first = assign(_LOCAL, declared.value)
        constructor.body.insert(_after_docstring(constructor), first)
        ties = call(context.use("ties", "expanded_ties"), name("self"), name(_LOCAL))
    test = dotted(f"config.{_SWITCH}")
    if not _has_switch(context.facts.get("config")):
        test = call("getattr", name("config"), ast.Constant(_SWITCH), ast.Constant(False))
    statement = ast.If(test, [ast.Expr(call(context.use("leaves", "tie_weights"), name("self"), ties))], [])
    statement.spaced = True
    constructor.body.append(statement)


class _Local(ast.NodeTransformer):
    """The table of an instance is a variable of its constructor: nothing else reads it."""

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        return ast.copy_location(ast.Name(_LOCAL, node.ctx), node) if _is_table(node) else self.generic_visit(node)


def _is_table(node: ast.AST) -> bool:
    return isinstance(node, ast.Attribute) and node.attr == tables.TIED_KEYS and ast.unparse(node.value) == "self"


def _instance_table(constructor: ast.FunctionDef) -> bool:
    return any(_is_table(n) for n in ast.walk(constructor))


def _is_parameter(node: ast.expr | None) -> bool:
    """Whether a name is written out: of a parameter, not of a module, and no pattern."""
    parts = node.value.split(".") if isinstance(node, ast.Constant) and isinstance(node.value, str) else [""]
    return all(p.isidentifier() or p.isdigit() for p in parts) and parts[-1].endswith(("weight", "bias"))


def _after_docstring(function: ast.FunctionDef) -> int:
    first = function.body[0]
    return int(isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant))
