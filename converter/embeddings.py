"""Where a model's embeddings, encoder and decoder are: the framework's search over names, done on the run's tree."""

import ast
import functools

from maxcode.converter.context import Context, copy_facts

METHOD = "get_input_embeddings"
_LAYER, _DEFAULT = "_input_embed_layer", "embed_tokens"
_WITHIN = ("embeddings", "model")  # sub-models that are looked into, in this order
_ASKED = "language_model"  # a sub-model that is asked in turn, then the base model
_BASE = "base_model_prefix"
_PARTS = {  # method -> the attributes that it looks for, in this order
    "get_encoder": ("text_encoder", "encoder"),
    "get_decoder": ("language_model", "text_model", "decoder", "text_decoder"),
}


def spelled_embeddings(context: Context, owner: str, node: ast.Call) -> ast.expr | None:
    """`self.get_input_embeddings()`, `get_encoder()` or `get_decoder()` as the module that the framework finds by its
    name; None for other calls.
    """
    if not isinstance(node.func, ast.Attribute) or node.args or node.keywords:
        return None
    if node.func.attr not in (METHOD, *_PARTS):
        return None
    found = found_module(context, owner, node.func.value, node.func.attr)
    return copy_facts(found, node) if found is not None else None


def found_module(context: Context, owner: str, receiver: ast.expr, method: str = METHOD) -> ast.expr | None:
    """`receiver.method()` as the attribute that the framework's own search finds.

    Args:
      owner: qualified class in whose method the call stands.
      receiver: `self`, or modules below it.

    Returns None where a class of the model defines the method, or where instances differ.
    """
    path = _attributes(receiver)
    if path is None:
        return None
    tree = context.facts.get("tree", {})
    search = _found if method == METHOD else functools.partial(_found_part, method=method)
    found = {search(context, ".".join(filter(None, (fqn, *path)))) for fqn in tree if _is_a(context, tree, fqn, owner)}
    if len(found) != 1 or None in found:
        return None
    result = receiver
    for attr in filter(None, next(iter(found)).split(".")):
        result = ast.Attribute(result, attr, ast.Load())
    return ast.copy_location(result, receiver)


def _attributes(receiver: ast.expr) -> list[str] | None:
    path: list[str] = []
    while isinstance(receiver, ast.Attribute):
        path.insert(0, receiver.attr)
        receiver = receiver.value
    return path if isinstance(receiver, ast.Name) and receiver.id == "self" else None


def _is_a(context: Context, tree: dict, fqn: str, owner: str) -> bool:
    name = tree[fqn]["class"]
    return owner == name or owner in context.facts["classes"].get(name, {}).get("mro", ())


def _found(context: Context, fqn: str) -> str | None:
    """Attributes below `fqn` that lead to the embeddings; None where they are not found by search."""
    tree = context.facts["tree"]
    if fqn not in tree or _class_member(context, fqn, METHOD) is not None:
        return None
    layer = _class_member(context, fqn, _LAYER)
    layer = layer.value if isinstance(layer, ast.Constant) else _DEFAULT
    for owner in ("", *(f"{name}." for name in _WITHIN)):
        if ".".join(filter(None, (fqn, owner + layer))) in tree:
            return owner + layer
    base = _class_member(context, fqn, _BASE)
    for name in (_ASKED, base.value if isinstance(base, ast.Constant) else ""):
        inner = ".".join(filter(None, (fqn, name)))
        if name and inner in tree and (rest := _found(context, inner)):
            return f"{name}.{rest}"
    return None


def _found_part(context: Context, fqn: str, method: str) -> str | None:
    """Attributes below `fqn` that lead to its encoder or decoder, "" for itself; None where a class says it itself."""
    tree = context.facts["tree"]
    if fqn not in tree or _class_member(context, fqn, method) is not None:
        return None
    for name in _PARTS[method]:
        if ".".join(filter(None, (fqn, name))) in tree:
            return name
    base = _class_member(context, fqn, _BASE)
    name = base.value if isinstance(base, ast.Constant) else ""
    inner = ".".join(filter(None, (fqn, name)))
    if not name or inner not in tree:
        return ""
    rest = _found_part(context, inner, method)
    if rest is None:
        return None
    # A body without an encoder of its own leaves the model as its own encoder; as a decoder it stands itself.
    return f"{name}.{rest}" if rest else name if method == "get_decoder" else ""


def _class_member(context: Context, fqn: str, name: str) -> ast.AST | None:
    """What the model's own classes define under a name: a method, or the value of a class attribute."""
    qualified = context.facts["tree"][fqn]["class"]
    for cls in (qualified, *context.facts["classes"].get(qualified, {}).get("mro", ())):
        if cls.partition(".")[0] in ("torch", "builtins") or cls.startswith("transformers.modeling_utils."):
            continue
        located = context.project.outline(cls)
        for statement in located[1].body if located and isinstance(located[1], ast.ClassDef) else ():
            if isinstance(statement, ast.FunctionDef) and statement.name == name:
                return statement
            if isinstance(statement, ast.Assign) and any(ast.unparse(t) == name for t in statement.targets):
                return statement.value
    return None
