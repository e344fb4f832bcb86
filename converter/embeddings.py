"""Where a model's input embeddings are: the framework's search over attribute names, done on the tree of the run."""

import ast

from maxcode.converter.context import Context, copy_facts

METHOD = "get_input_embeddings"
_LAYER, _DEFAULT = "_input_embed_layer", "embed_tokens"
_WITHIN = ("embeddings", "model")  # sub-models that are looked into, in this order
_ASKED = "language_model"  # a sub-model that is asked in turn, then the base model
_BASE = "base_model_prefix"


def spelled_embeddings(context: Context, owner: str, node: ast.Call) -> ast.expr | None:
    """`self.get_input_embeddings()` as the layer that the framework finds by its name; None for other calls."""
    if not (isinstance(node.func, ast.Attribute) and node.func.attr == METHOD and not node.args):
        return None
    found = input_embeddings(context, owner, node.func.value)
    return copy_facts(found, node) if found is not None else None


def input_embeddings(context: Context, owner: str, receiver: ast.expr) -> ast.expr | None:
    """`receiver.get_input_embeddings()` as the attribute that the framework's own search finds.

    Args:
      owner: qualified class in whose method the call stands.
      receiver: `self`, or modules below it.

    Returns None where a class of the model defines the method, or where instances differ.
    """
    path = _attributes(receiver)
    if path is None:
        return None
    tree = context.facts.get("tree", {})
    found = {_found(context, ".".join(filter(None, (fqn, *path)))) for fqn in tree if _is_a(context, tree, fqn, owner)}
    if len(found) != 1 or None in found:
        return None
    result = receiver
    for attr in next(iter(found)).split("."):
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
