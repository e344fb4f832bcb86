"""What a pass of the pipeline is, and how one over functions, classes or definitions runs over a conversion."""

import ast
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from maxcode.converter.context import Context, Definition


@dataclass(frozen=True)
class Pass:
    """One structural rewrite.

    Args:
      module: the file of the pass: its docstring, `EXAMPLES`, and where it has one, the check
        `ensures(context, definition) -> list[str]` of what holds from then on.
      run: rewrites all definitions of a conversion in place.
      reason: why it stands where it stands.
    """

    module: ModuleType
    run: Callable[[Context], None]
    reason: str

    @property
    def name(self) -> str:
        """The file's name."""
        return self.module.__name__.rpartition(".")[2]


def each_definition(change: Callable[[Context, Definition], Any]) -> Callable[[Context], None]:
    """Apply a change to every definition."""

    def run(context: Context) -> None:
        for definition in context.definitions:
            change(context, definition)

    return run


def each_class(change: Callable[[Context, Definition], Any]) -> Callable[[Context], None]:
    """Apply a change to every class."""
    return each_definition(lambda context, definition: change(context, definition) if definition.is_class else None)


def each_function(change: Callable[[Context, Definition, ast.FunctionDef], Any]) -> Callable[[Context], None]:
    """Apply a change to every function and method."""

    def over(context: Context, definition: Definition) -> None:
        for function in list(definition.functions()):
            change(context, definition, function)

    return each_definition(over)


def transform(make: Callable[[Context, Definition, ast.FunctionDef], ast.NodeTransformer]) -> Callable[[Context], None]:
    """Apply a transformer, made per function, to the statements of every function."""
    return each_function(lambda context, definition, function: apply(make(context, definition, function), function))


def apply(transformer: ast.NodeTransformer, function: ast.FunctionDef) -> None:
    """Transform the statements of a function, not its signature."""
    body: list[ast.stmt] = []
    for statement in function.body:
        result = transformer.visit(statement)
        body += result if isinstance(result, list) else [result] if result is not None else []
    function.body = body or [ast.Pass()]
