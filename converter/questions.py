"""Questions of a source about where it runs, and the answers that hold for a converted model."""

import ast

from maxcode.converter import plumbing as tables
from maxcode.converter.context import copy_facts, kinds, seen
from maxcode.converter.nodes import attribute, call


def framework_answer(node: ast.Call, short: str, *, is_own: bool) -> ast.expr | None:
    """What stands for a call of the function with the last name `short`; None where it is none of these.

    Args:
      node: the call.
      short: the last part of the function's name.
      is_own: whether the source defines a function of that name itself.
    """
    if short == "isinstance" and _asks_for_other_tensor(node):
        return ast.copy_location(ast.Constant(False), node)
    if short == "isinstance" and _asks_for_record(node):
        return ast.copy_location(ast.Constant(True), node)
    if is_own:
        return None
    if short in tables.TENSOR_QUESTIONS and len(node.args) == 1:
        return copy_facts(call("isinstance", node.args[0], attribute("torch", "Tensor")), node)
    if _is_environment_question(short):
        return ast.copy_location(ast.Constant(tables.CONSTANT_CALLS.get(short, False)), node)
    if short in tables.IDENTITY_CALLS and node.args:
        return node.args[0]
    answer = _version_answer(node) if short in tables.VERSION_QUESTIONS else None
    return None if answer is None else ast.copy_location(ast.Constant(answer), node)


def device_answer(node: ast.Compare) -> ast.Constant | None:
    """A comparison with the device that has no storage: a converted model is never there."""
    asked = node.comparators[0] if len(node.ops) == 1 and isinstance(node.ops[0], ast.Eq | ast.NotEq) else None
    if not isinstance(asked, ast.Call) or ast.unparse(asked) != "torch.device('meta')":
        return None
    return ast.copy_location(ast.Constant(isinstance(node.ops[0], ast.NotEq)), node)


def _asks_for_record(node: ast.Call) -> bool:
    """Whether a dictionary is asked for where every run had an output record, which is one in the framework."""
    return len(node.args) == 2 and ast.unparse(node.args[1]) == "dict" and kinds(node.args[0]) == {"record"}


def _asks_for_other_tensor(node: ast.Call) -> bool:
    return len(node.args) == 2 and tables.last(ast.unparse(node.args[1])) in tables.NEVER_INSTANCES


def _version_answer(node: ast.Call) -> bool | None:
    """What the run found; where none came by, releases are taken to be new."""
    if len(found := seen(node).get("literals", ())) == 1:
        return found[0]
    first = node.args[0].value if node.args and isinstance(node.args[0], ast.Constant) else None
    return {"<": False, "<=": False, ">": True, ">=": True}.get(str(first))


def _is_environment_question(name: str) -> bool:
    start, end = tables.OPTIONAL_PACKAGE
    return name in tables.CONSTANT_CALLS or (name.startswith(start) and name.endswith(end))
