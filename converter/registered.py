"""Two habits of layer libraries, as plain Python.

A decorator registers a constructor's arguments as `self.config`; and a layer hands its work to a processor object that
can be swapped, filtering the keywords that it passes on by the processor's signature.
"""

import ast

from maxcode.converter import plumbing as tables
from maxcode.converter.context import Context
from maxcode.converter.nodes import attribute, blocks, call, dress, name

REGISTERS, SETS_PROCESSOR, CHANGES = "register_to_config", "set_processor", "register_to_config"


def plain_classes(context: Context, node: ast.ClassDef) -> None:
    """Rewrite a class in place; run before decorators are dropped."""
    for function in (s for s in node.body if isinstance(s, ast.FunctionDef)):
        marks = [tables.last(ast.unparse(d)) for d in function.decorator_list]
        if function.name == "__init__" and REGISTERS in marks:
            _register(context, function)
        for block in blocks(function):
            block[:] = [_assigned(context, s) for s in block]
        _drop_signature_filters(function)


def _register(context: Context, function: ast.FunctionDef) -> None:
    """`self.config = Registered(a=a, …)` at the top of a constructor."""
    arguments = function.args
    names = [a.arg for a in (*arguments.posonlyargs, *arguments.args[1:], *arguments.kwonlyargs)]
    made = call(context.use("registered", "Registered"), **{n: name(n) for n in names if n != "device"})
    target = ast.Attribute(name("self"), "config", ast.Store())
    has_text = isinstance(function.body[0], ast.Expr) and isinstance(function.body[0].value, ast.Constant)
    at = 1 if has_text else 0
    function.body.insert(at, dress(ast.Assign([target], made, lineno=function.lineno), function.body[at]))


def _assigned(context: Context, statement: ast.stmt) -> ast.stmt:
    """`self.set_processor(x)` and `self.register_to_config(a=x)` as assignments."""
    match statement:
        case ast.Expr(value=ast.Call(func=ast.Attribute(value=ast.Name(id="self"), attr=attr), args=args, keywords=ks)):
            pass
        case _:
            return statement
    if attr == SETS_PROCESSOR and len(args) == 1 and not ks:
        return dress(ast.Assign([ast.Attribute(name("self"), "processor", ast.Store())], args[0], lineno=0), statement)
    if attr == CHANGES and ks and not args and all(k.arg for k in ks):
        made = call(attribute(attribute("self", "config"), "replace"))
        made.keywords = ks
        return dress(ast.Assign([ast.Attribute(name("self"), "config", ast.Store())], made, lineno=0), statement)
    return statement


def _drop_signature_filters(function: ast.FunctionDef) -> None:
    """Take out `kwargs = {k: v for k, v in kwargs.items() if k in signature(f).parameters}` and what only warns of it.

    Keywords that nothing reads do not travel in converted code (`kwargs`), so the filter lets everything pass.
    """
    signatures = {n.targets[0].id for n in ast.walk(function) if _is_signature(n)}
    if not signatures:
        return
    for block in blocks(function):
        kept = [s for s in block if not _is_signature(s) and not _is_filter(s, signatures)]
        unused = {s.targets[0].id for s in block if _lists_unknown(s, signatures)}
        kept = [s for s in kept if not _lists_unknown(s, signatures) and not _only_warns(s, unused)]
        if len(kept) != len(block):
            block[:] = kept or [ast.Pass()]


def _is_signature(node: ast.AST) -> bool:
    is_named = isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name)
    return is_named and "signature(" in ast.unparse(node.value) and ".parameters" in ast.unparse(node.value)


def _is_filter(node: ast.stmt, signatures: set[str]) -> bool:
    match node:
        case ast.Assign(
            targets=[ast.Name(id=own)],
            value=ast.DictComp(
                key=ast.Name(id=key),
                value=ast.Name(id=value),
                generators=[
                    ast.comprehension(
                        target=ast.Tuple(elts=[ast.Name(id=first), ast.Name(id=second)]),
                        iter=ast.Call(func=ast.Attribute(value=ast.Name(id=whole), attr="items")),
                        ifs=[ast.Compare(left=ast.Name(id=asked), ops=[ast.In()], comparators=[ast.Name(id=known)])],
                    )
                ],
            ),
        ):
            return own == whole and (key, value) == (first, second) and asked == key and known in signatures
    return False


def _lists_unknown(node: ast.stmt, signatures: set[str]) -> bool:
    """`unused = [k for k, _ in kwargs.items() if k not in …]`: what the filter would leave out."""
    is_named = isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name)
    if not is_named or not isinstance(node.value, ast.ListComp | ast.Set):
        return False
    if isinstance(node.value, ast.Set):
        return all(isinstance(e, ast.Constant) for e in node.value.elts)
    return any(isinstance(n, ast.Name) and n.id in signatures for n in ast.walk(node.value))


def _only_warns(node: ast.stmt, unused: set[str]) -> bool:
    """`if len(unused) > 0: logger.warning(…)`."""
    if not isinstance(node, ast.If) or node.orelse:
        return False
    asked = {n.id for n in ast.walk(node.test) if isinstance(n, ast.Name)} - {"len"}
    calls = [s.value for s in node.body if isinstance(s, ast.Expr) and isinstance(s.value, ast.Call)]
    only_logs = len(calls) == len(node.body) and all(ast.unparse(c.func).startswith("logger.") for c in calls)
    return bool(asked) and asked <= unused and only_logs
