"""Questions about the installed torch and its devices: what the run found them to answer stands in their place."""

import ast
from collections.abc import Collection

from maxcode.converter import plumbing as tables
from maxcode.converter.context import Context, callees, copy_facts, kinds, seen
from maxcode.converter.nodes import name as name_of
from maxcode.converter.nodes import stored

_TORCH = (
    "torch.__version__",
    "torch.version.",
    "torch.cuda.",
    "torch.backends.",
    "torch.xpu.",
    "torch.mps.",
    "torch.distributed.",
)
_VALUES = frozenset({"int", "float", "bool", "str", "none"})


def asks_environment(node: ast.expr, known: Collection[str] = ()) -> bool:
    """Whether an expression reads the installed torch or its devices, itself or by one of the `known` local names."""
    file = getattr(node, "file", None)
    for child in ast.walk(node):
        if isinstance(child, ast.Name) and child.id in known:
            return True
        if isinstance(child, ast.Attribute) and file is not None:
            root, _, rest = ast.unparse(child).partition(".")
            qualified = f"{file.qualify(root)}.{rest}." if root.isidentifier() else ""
            if qualified.startswith(_TORCH):
                return True
    return False


def answered(node: ast.expr, known: Collection[str] = ()) -> ast.Constant | None:
    """The answer that every run had, where a question is about the environment; None for other expressions."""
    literals = seen(node).get("literals", ())
    if len(literals) != 1 or len(kinds(node)) != 1 or not asks_environment(node, known):
        return None
    return copy_facts(ast.Constant(literals[0]), node)


def without_generator(node: ast.Call) -> ast.Constant | None:
    """None for a generator that torch makes or seeds: random numbers come from the scope around a call here."""
    file, (root, _, rest) = getattr(node, "file", None), ast.unparse(node.func).partition(".")
    named = f"{file.qualify(root)}.{rest}".rstrip(".") if file and root.isidentifier() else ""
    made = {"torch.Generator", "torch._C.Generator"}
    seeded = {f"{name}.{method}" for name in made for method in ("manual_seed", "seed")}
    found = {named, *callees(node)} & (made | seeded)
    if not found and isinstance(node.func, ast.Attribute) and node.func.attr in ("manual_seed", "seed"):
        return without_generator(node.func.value) if isinstance(node.func.value, ast.Call) else None
    return ast.copy_location(ast.Constant(None), node) if found else None


def is_description(node: ast.expr, known: Collection[str] = ()) -> bool:
    """Whether an expression gives an object that describes the environment (a parsed version): only compared later."""
    return (
        bool(kinds(node))
        and not kinds(node) & (_VALUES | {"tensor", "param", "module"})
        and (asks_environment(node, known))
    )


def is_context(value: ast.expr) -> bool:
    """Whether an expression chooses among context managers that a converted model does without."""
    if isinstance(value, ast.IfExp):
        return is_context(value.body) and is_context(value.orelse)
    if isinstance(value, ast.Call):
        short = tables.last(ast.unparse(value.func))
        return is_context(value.args[0]) if short == "partial" and value.args else short in tables.DROPPED_CONTEXTS
    return isinstance(value, ast.Name | ast.Attribute) and tables.last(ast.unparse(value)) in tables.DROPPED_CONTEXTS


def context_name(item: ast.withitem) -> str:
    """The context manager that every run entered, where it has another name here; "" where that is not known."""
    ran = {tables.last(name) for name in callees(item.context_expr)}
    return ran.pop() if len(ran) == 1 else "" if not ran <= tables.DROPPED_CONTEXTS else min(ran, default="")


def is_of_the_model(context: Context, decorator: ast.expr, name: str) -> bool:
    """Whether the model's own files define a decorator; it is converted like any function."""
    file, (root, _, rest) = getattr(decorator, "file", None), name.partition(".")
    qualified = file.qualify(root) if file else None
    if qualified is None or qualified.startswith((*tables.FRAMEWORKS, "torch.")):
        return False
    return context.project.outline(f"{qualified}.{rest}" if rest else qualified) is not None


def spelled_locals(node: ast.Call, function: ast.FunctionDef | None, gone: Collection[str]) -> ast.Dict | None:
    """`locals()` spelled out: the parameters, and what the function has bound before; None for other calls."""
    if ast.unparse(node) != "locals()" or function is None:
        return None
    names = [a.arg for a in ast.walk(function.args) if isinstance(a, ast.arg)]
    before = [s for s in function.body if s.end_lineno is not None and s.end_lineno < node.lineno]
    names = [n for n in dict.fromkeys([*names, *stored(before)]) if n not in gone]
    return ast.copy_location(ast.Dict([ast.Constant(n) for n in names], list(map(name_of, names))), node)
