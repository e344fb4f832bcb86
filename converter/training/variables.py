"""What a piece of a training loop reads and binds; `self.x` and `args.x` count as variables of their own."""

import ast
from collections.abc import Iterator

from maxcode.converter.context import callees, kinds, seen


def key_of(node: ast.AST) -> str | None:
    """The variable that an expression names: a name, or a chain of attributes that starts at an object of the host."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and _is_host_object(_root(node)) and _root(node) is not None:
        return ast.unparse(node)
    return None


def _root(node: ast.AST) -> ast.Name | None:
    while isinstance(node, ast.Attribute):
        node = node.value
    return node if isinstance(node, ast.Name) else None


def _is_host_object(node: ast.Name | None) -> bool:
    if node is None:
        return False
    return node.id == "self" or kinds(node) in ({"unknown"}, {"config"})


def reads(nodes: list[ast.AST]) -> dict[str, ast.expr]:
    """Variables that nodes read, each with the expression that reads it first."""
    found: dict[str, ast.expr] = {}
    for node in nodes:
        for key, expression in _reads(node):
            found.setdefault(key, expression)
    return found


def _reads(node: ast.AST, called: bool = False) -> Iterator[tuple[str, ast.expr]]:
    if isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Load):
        key = key_of(node)
        if isinstance(node, ast.Attribute) and (key is None or (called and not _is_module(node))):
            yield from _reads(node.value)
            return
        if key is not None:
            yield key, node
        return
    if isinstance(node, ast.AugAssign) and (key := key_of(node.target)):
        yield key, node.target
    if isinstance(node, ast.Call):
        yield from _reads(node.func, called=True)
        for argument in (*node.args, *(k.value for k in node.keywords)):
            yield from _reads(argument)
        return
    bound = _own(node)
    for child in ast.iter_child_nodes(node):
        for key, expression in _reads(child):
            if key not in bound:
                yield key, expression


def _is_module(node: ast.expr) -> bool:
    return bool(kinds(node) & {"module", "callable"}) and any(
        n.startswith("module:") for n in seen(node).get("names", ())
    )


def _own(node: ast.AST) -> set[str]:
    """Names that a comprehension or function binds for itself."""
    if isinstance(node, ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp):
        targets = [n for g in node.generators for n in ast.walk(g.target)]
        return {n.id for n in targets if isinstance(n, ast.Name)}
    if isinstance(node, ast.Lambda | ast.FunctionDef):
        return {a.arg for a in ast.walk(node.args) if isinstance(a, ast.arg)}
    return set()


def binds(nodes: list[ast.AST]) -> set[str]:
    """Variables that statements bind or write into (`x[i] = y` and `x.append(y)` write into `x`)."""
    found: set[str] = set()
    for node in nodes:
        inner = {id(n) for c in ast.walk(node) if isinstance(c, ast.comprehension) for n in ast.walk(c.target)}
        for child in ast.walk(node):
            if id(child) in inner:
                continue
            if (
                isinstance(child, ast.Name | ast.Attribute)
                and isinstance(child.ctx, ast.Store)
                and (key := key_of(child))
            ) or (
                isinstance(child, ast.Subscript) and isinstance(child.ctx, ast.Store) and (key := key_of(child.value))
            ):
                found.add(key)
            elif isinstance(child, ast.Call) and isinstance(child.func, ast.Attribute) and _writes(child):
                if key := key_of(child.func.value):
                    found.add(key)
            elif isinstance(child, ast.FunctionDef):
                found.add(child.name)
    return found


def _writes(node: ast.Call) -> bool:
    attr = node.func.attr
    if attr in ("append", "extend", "update", "insert", "add", "pop", "setdefault", "clear"):
        return True
    return attr.endswith("_") and not attr.endswith("__") and any(c.startswith("torch.Tensor.") for c in callees(node))
