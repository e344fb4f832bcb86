"""Which names have a value when a loop begins, and which are read once it has ended."""

import ast

from maxcode.converter.nodes import loads, read_before_write, stored


def bound_before(function: ast.FunctionDef, loop: ast.stmt, around: ast.For | None) -> set[str]:
    """Names that may have a value when the loop begins: parameters, what is bound above, and by a loop around it."""
    own = {id(n) for n in ast.walk(loop)}
    named = [n for n in ast.walk(function) if isinstance(n, ast.Name) and id(n) not in own]
    above = [n for n in named if getattr(n, "lineno", 0) < loop.lineno]
    names = {n.id for n in above if not isinstance(n.ctx, ast.Load)} | set(stored([around] if around else []))
    return names | {a.arg for a in ast.walk(function.args) if isinstance(a, ast.arg)}


def live_after(function: ast.FunctionDef, loop: ast.For, around: ast.For | None) -> set[str]:
    """Names whose value at the end of the loop may be read."""
    if loop in function.body:
        return read_before_write(function.body[function.body.index(loop) + 1 :], kept=False)
    return {n.id for n in loads(_following(function, loop, around))}


def _following(function: ast.FunctionDef, loop: ast.For, around: ast.For | None) -> list[ast.AST]:
    """Names that run after the loop: what starts below it, and what a loop around it runs again."""
    end = loop.end_lineno or loop.lineno
    below = [n for n in ast.walk(function) if isinstance(n, ast.Name) and getattr(n, "lineno", 0) > end]
    own = {id(n) for n in ast.walk(loop)}
    return below + [n for n in ast.walk(around or ast.Pass()) if isinstance(n, ast.Name) and id(n) not in own]
