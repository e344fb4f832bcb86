"""Traced parts: a class's `forward` as straight lines of torch, taken from its exported graph instead of its source."""

import ast
from dataclasses import dataclass

from maxcode.converter.context import Context, Definition, Gap

NOTE = "# Traced: torch.export's graph of the source's forward, one operation a line."


@dataclass(frozen=True)
class TracedPart:
    """A class whose `forward` was traced: where it stands in the source, and what it could not be converted for."""

    name: str
    file: str
    line: int
    reason: str


def splice(context: Context, definition: Definition) -> None:
    """Put the traced text in the place of a class's `forward`, with what the graph knows of every name."""
    text = context.facts.get("traced", {}).get(definition.qualified)
    forward = next((f for f in definition.functions() if f.name == "forward"), None)
    if text is None or "body" not in text or forward is None:
        return
    lines = "\n".join([*text["checks"], *text["body"]])
    forward.body = ast.parse(lines).body
    forward.body[0].leading = [NOTE]
    for statement in forward.body:
        for node in ast.walk(statement):
            ast.copy_location(node, forward)
            node.file = definition.file
            if isinstance(node, ast.Name) and node.id in text["variables"]:
                node.seen = text["variables"][node.id]
            elif isinstance(node, ast.Attribute) and ast.unparse(node.value).startswith("self"):
                node.seen = {"kinds": ["tensor"]}  # the graph reads nothing but parameters and buffers of a module
            elif isinstance(node, ast.Call) and ast.unparse(node.func).startswith("torch."):
                node.seen = {"callee": [ast.unparse(node.func)]}
        if isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Call):
            about = text["variables"].get(ast.unparse(statement.targets[0]), {})
            statement.value.seen = getattr(statement.value, "seen", {}) | about


def classes_to_trace(context: Context, gaps: list[Gap]) -> dict[str, str]:
    """Qualified class -> reason, for the classes whose `forward` reaches a gap.

    Gaps in constructors are left out: tracing does not help there.
    """
    found: dict[str, str] = {}
    for gap in gaps:
        for definition in context.definitions:
            if definition.file.path != gap.file:
                continue
            function = _function_at(definition, gap.line)
            if function is None or function.name == "__init__":
                continue
            users = [definition] if definition.is_class else _classes_using(context, definition.name)
            for user in users:
                found.setdefault(user.qualified, f"{gap.torch_name}: {gap.reason}")
    return found


def _function_at(definition: Definition, line: int) -> ast.FunctionDef | None:
    inside = [f for f in definition.functions() if f.lineno <= line <= (f.end_lineno or f.lineno)]
    return inside[-1] if inside else None


def _classes_using(context: Context, name: str, seen: frozenset[str] = frozenset()) -> list[Definition]:
    """Classes that read a module-level function by name, themselves or through other functions."""
    found: list[Definition] = []
    for definition in context.definitions:
        if definition.name == name or definition.name in seen or name not in _names(definition.node):
            continue
        if definition.is_class:
            found.append(definition)
        else:
            found += _classes_using(context, definition.name, seen | {name})
    return found


def _names(node: ast.AST) -> set[str]:
    return {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}


def traced_parts(context: Context) -> list[TracedPart]:
    """The traced classes of a conversion."""
    found = []
    for qualified, text in sorted(context.facts.get("traced", {}).items()):
        definition = context.definition(qualified)
        if definition is not None and "body" in text:
            part = TracedPart(definition.name, definition.file.path, definition.node.lineno, text["reason"])
            found.append(part)
    return found
