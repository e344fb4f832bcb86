"""Weights that a framework's class names as shared become a statement of its constructor."""

import ast

from maxcode.converter import plumbing as tables
from maxcode.converter.context import Context, Definition
from maxcode.converter.nodes import call, dotted, name


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
    names = [n.value for n in (*declared.value.keys, *declared.value.values) if isinstance(n, ast.Constant)]
    if not all(part.isidentifier() or part.isdigit() for n in names for part in str(n).split(".")):
        context.gap("CV122", declared, tables.TIED_KEYS, "tied names are patterns", "write the names out")
        return
    test = dotted("config.tie_word_embeddings")
    statement = ast.If(test, [ast.Expr(call(context.use("leaves", "tie_weights"), name("self"), declared.value))], [])
    statement.spaced = True
    constructor.body.append(statement)
