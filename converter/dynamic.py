"""Names that a source works out while it runs, spelled as the run saw them: attributes and classes chosen by text."""

import ast

from maxcode.converter import plumbing as tables
from maxcode.converter.context import callees, copy_facts, seen
from maxcode.converter.nodes import dress

_MODULE = "module:"
_BUILDERS = ("from_config", "_from_config")


def spelled_attribute(node: ast.Call) -> ast.expr | None:
    """`getattr(x, name)` as `x.a`, where every run saw the same name; None for other calls."""
    if not _calls(node, "getattr", 2):
        return None
    attr = _same_text(node.args[1])
    return copy_facts(ast.Attribute(node.args[0], attr, ast.Load()), node) if attr else None


def spelled_assignment(node: ast.Expr) -> ast.Assign | None:
    """The statement `setattr(x, name, value)` as `x.a = value`, where every run saw the same name.

    `x.add_module(name, value)` is the same for a module's own.
    """
    made = node.value
    if not isinstance(made, ast.Call):
        return None
    if is_added(made):
        owner, (name, value) = made.func.value, made.args
    elif _calls(made, "setattr", 3):
        owner, name, value = made.args
    else:
        return None
    attr = _same_text(name)
    if not attr:
        return None
    return dress(ast.Assign([ast.Attribute(owner, attr, ast.Store())], value, lineno=0), node)


def is_added(node: ast.Call) -> bool:
    """Whether a call registers a module under a name: `x.add_module(name, module)`."""
    is_method = isinstance(node.func, ast.Attribute) and node.func.attr in ("add_module", "register_module")
    ours = all(c.startswith("torch.nn.modules.module.Module.") for c in callees(node))
    return is_method and ours and len(node.args) == 2 and not node.keywords


def built_class(node: ast.Call) -> ast.Call | None:
    """`AutoModel.from_config(config)` as `Model(config)`, with the class that every run built; None for other calls.

    Likewise `Model._from_config(config)`, which only sets dtypes besides.
    """
    file, names = getattr(node, "file", None), seen(node).get("names", ())
    is_dispatch = any(_is_builder(name) for name in callees(node))
    given = [*node.args, *(k.value for k in node.keywords if k.arg == "config")]
    if not is_dispatch or file is None or len(names) != 1 or not names[0].startswith(_MODULE) or not given:
        return None
    qualified = names[0].removeprefix(_MODULE)
    short = tables.last(qualified)
    if file.qualify(short) not in (None, qualified):
        return None
    if short not in file.definitions:
        file.imports[short] = qualified
    made = copy_facts(ast.Call(copy_facts(ast.Name(short, ast.Load()), node.func), given[:1], []), node)
    made.seen = seen(node) | {"callee": [qualified]}
    return made


def _is_builder(name: str) -> bool:
    is_frameworks = ".auto." in name or name.startswith("transformers.modeling_utils.")
    return tables.last(name) == tables.BACKBONE_LOADER or (tables.last(name) in _BUILDERS and is_frameworks)


def is_never_built(node: ast.Call) -> bool:
    """Whether a call would build a model by its configuration (`AutoModel.from_config`), and no run came to it."""
    file, function = getattr(node, "file", None), node.func
    if file is None or seen(node) or not isinstance(function, ast.Attribute) or function.attr not in _BUILDERS:
        return False
    root = ast.unparse(function.value).partition(".")[0]
    qualified = file.qualify(root) or ""
    return ".auto" in qualified and tables.last(qualified).startswith("Auto")


def has_attribute(node: ast.Call) -> ast.Constant | None:
    """`hasattr(torch.nn.functional, "…")` as what the run found: a question about the installed torch."""
    file = getattr(node, "file", None)
    if not _calls(node, "hasattr", 2) or file is None:
        return None
    root = ast.unparse(node.args[0]).partition(".")[0]
    answers = seen(node).get("literals", ())
    if not root.isidentifier() or not f"{file.qualify(root)}.".startswith("torch."):
        return None
    return copy_facts(ast.Constant(answers[0]), node) if len(answers) == 1 else None


def _calls(node: ast.Call, name: str, arguments: int) -> bool:
    return (
        isinstance(node.func, ast.Name) and node.func.id == name and len(node.args) == arguments and not node.keywords
    )


def _same_text(node: ast.expr) -> str:
    """The identifier that an expression always is; "" where that is not known, or is written out already as one."""
    literals = [node.value] if isinstance(node, ast.Constant) else seen(node).get("literals", ())
    is_text = len(literals) == 1 and isinstance(literals[0], str) and seen(node).get("kinds", ["str"]) == ["str"]
    return literals[0] if is_text and literals[0].isidentifier() else ""
