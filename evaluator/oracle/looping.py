"""Watch a pipeline's sampling loop: what its names hold before it, after each step, and when the image is decoded.

The class's `__call__` is run from its source with calls put in: before the loop that steps the scheduler, at the end
of its body, and behind the statement that decodes.
"""

import ast
from collections.abc import Callable
from typing import Any

from maxcode.evaluator.oracle.errors import OracleError
from maxcode.evaluator.oracle.instrument import WATCH

STEP, DECODE = ".scheduler.step(", ".vae.decode("


def is_loop(node: ast.AST) -> bool:
    """Whether a statement is a loop that steps the scheduler."""
    return isinstance(node, ast.For) and any(STEP in ast.unparse(s) for s in node.body)


def watched(tree: ast.Module) -> ast.Module:
    """A pipeline's module with the calls put in; other functions stay as they are."""
    for cls in (n for n in tree.body if isinstance(n, ast.ClassDef)):
        for function in (f for f in cls.body if isinstance(f, ast.FunctionDef) and f.name == "__call__"):
            own = _own_names(function)
            _Watch(own).visit(function)
    return tree


def _own_names(function: ast.FunctionDef) -> list[str]:
    """Attributes of the pipeline that its loop and what follows read."""
    names = {
        n.attr
        for n in ast.walk(function)
        if isinstance(n, ast.Attribute) and isinstance(n.value, ast.Name) and n.value.id == "self"
    }
    return sorted(names)


class _Watch(ast.NodeTransformer):
    def __init__(self, own: list[str]) -> None:
        self.own = ", ".join(map(repr, own))

    def _call(self, event: str) -> ast.stmt:
        room = ast.Pass()
        room.filled = ast.parse(f"{WATCH}({event!r}, self, dict(locals()), [{self.own}])").body[0]
        return room

    def visit_For(self, node: ast.For) -> Any:
        self.generic_visit(node)
        if not is_loop(node):
            return node
        node.body.append(self._call("step"))
        return [self._call("before"), node]

    def visit_Assign(self, node: ast.Assign) -> Any:
        return [node, self._call("image")] if DECODE in ast.unparse(node.value) else node


class Watcher:
    """Collects what `watched` code reports: `before` and `image` as names and values, `steps` of the latents."""

    def __init__(self) -> None:
        self.before: dict[str, Any] = {}
        self.image: dict[str, Any] = {}
        self.steps: list[Any] = []

    def __call__(self, event: str, pipeline: Any, names: dict[str, Any], own: list[str]) -> None:
        if event == "step":
            self.steps.append(names["latents"].detach().clone())
            return
        found = {name: value for name, value in names.items() if name != "self"}
        found |= {f"self.{name}": getattr(pipeline, name, None) for name in own}
        setattr(self, event, found)

    def require(self, steps: int) -> None:
        """Raise OracleError unless one loop of `steps` steps and one decoding were seen."""
        if len(self.steps) != steps or not self.before or not self.image:
            found = f"{len(self.steps)} steps, {'a' if self.image else 'no'} decoding"
            expected = f"one loop of {steps} steps over the scheduler, then vae.decode"
            raise OracleError("pipeline", found, expected, "this kind of pipeline is not converted")


Watching = Callable[[str, Any, dict[str, Any], list[str]], None]
