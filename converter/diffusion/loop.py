"""Find a pipeline's sampling loop and decoding in its source, and make plain functions of them."""

import ast
import builtins
from dataclasses import dataclass, field
from typing import Any

from maxcode.converter.context import Context, Definition
from maxcode.converter.diffusion.prune import Prune
from maxcode.converter.nodes import assign, call, dotted, loads, name, read_before_write, stored

STEP, DECODE = "self.scheduler.step", ".vae.decode("
STATE, SCHEDULE = "scheduler_state", "schedule"
INERT = frozenset({"generator", "eta"})  # arguments of a step that deterministic samplers do without


@dataclass
class Part:
    """One function made of a pipeline's statements.

    Args:
      carry: names that go from step to step, or the one that is decoded.
      given: names that it is handed beside those.
      result: the name that holds what it gives.
    """

    function: ast.FunctionDef
    carry: list[str]
    given: list[str]
    result: str = ""
    index: tuple[str, str] = ("i", "t")
    defaults: dict[str, Any] = field(default_factory=dict)


class Structure:
    """The pipeline's class as the recording and the source show it; what is not understood becomes a gap."""

    def __init__(self, context: Context, definition: Definition, recording: dict[str, Any]) -> None:
        self.context, self.definition, self.recording = context, definition, recording
        self.call = next((f for f in definition.functions() if f.name == "__call__"), None)
        self.parts = set(recording["parts"])

    def loop(self) -> Part | None:
        """The body of the loop over the scheduler's times."""
        loops = [n for n in ast.walk(self.call or ast.Pass()) if isinstance(n, ast.For) and _steps(n)]
        inner = [n for n in loops if not any(o is not n and o in ast.walk(n) for o in loops)]
        match inner:
            case [ast.For(target=ast.Tuple(elts=[ast.Name(id=i), ast.Name(id=t)]), iter=ast.Call(func=f))] if (
                ast.unparse(f) == "enumerate"
            ):
                node = inner[0]
            case _:
                return self._gap(self.call, "its loop is not `for i, t in enumerate(timesteps)` with one step inside")
        body = self._pruned("inputs", node.body, {i, t})
        body = [self._stepped(s, i, t) for s in body]
        if None in body:
            return None
        before = set.intersection(*(set(case["inputs"]) for case in self.recording["cases"]))
        carry = [n for n in stored(body) if n in read_before_write(body, kept=False) and n in before]
        if "latents" not in carry:
            return self._gap(node, f"its loop hands on {', '.join(carry) or 'nothing'}, not the latents")
        carry.sort(key=lambda n: n != "latents")
        result = ast.Tuple([name(n) for n in (*carry, STATE)], ast.Load())
        return self._part("denoise_step", [*body, ast.Return(result)], [SCHEDULE, i, t, *carry, STATE], carry, (i, t))

    def decoding(self) -> Part | None:
        """The statements behind the loop that make an image of the latents."""
        block = next((b for b in _blocks(self.call) if any(_decodes(s) for s in b)), None)
        if block is None:
            return self._gap(self.call, "nothing in it decodes the latents by vae.decode")
        at = next(i for i, s in enumerate(block) if _decodes(s))
        start = 1 + max((i for i, s in enumerate(block[:at]) if any(_steps(n) for n in ast.walk(s))), default=-1)
        body = self._pruned("image", block[start : at + 1], set())
        target = body[-1].targets[0]
        if not isinstance(target, ast.Name):
            return self._gap(body[-1], "what it decodes has no name")
        made = self._part("decode", [*body, ast.Return(name(target.id))], ["latents"], ["latents"], ("i", "t"))
        if made is not None:
            made.result = target.id
        return made

    def _pruned(self, key: str, body: list[ast.stmt], bound: set[str]) -> list[ast.stmt]:
        """Statements with what every scenario agrees on folded in."""
        cases = [case[key] for case in self.recording["cases"]]
        tested = _tested(body)
        known = {
            n: v
            for n, v in cases[0].items()
            if (isinstance(v, bool) or (v is None and n in tested)) and all(n in c and c[n] is v for c in cases)
        }
        values = {
            n.removeprefix("self.")
            for n, v in cases[0].items()
            if n.startswith("self.") and n not in known and not _is_object(v)
        }
        return Prune(known, self.parts, values, bound | set(stored(body))).run(body)

    def _stepped(self, statement: ast.stmt, i: str, t: str) -> ast.stmt | None:
        """A statement with the scheduler's calls in terms of the schedule, the step's number and its state."""
        match statement:
            case ast.Assign(
                targets=[ast.Name(id=target)],
                value=ast.Subscript(
                    value=ast.Call(func=f, args=[output, ast.Name(id=time), sample], keywords=ks),
                    slice=ast.Constant(value=0),
                ),
            ) if ast.unparse(f) == STEP and time == t:
                if not all(self._is_inert(k) for k in ks):
                    return self._gap(statement, "its step takes more than a prediction, a time and a sample")
                made = call(f"{SCHEDULE}.step", output, name(i), sample, name(STATE))
                return assign([target, STATE], made, statement)
        statement = _Scaled(i, t).visit(statement)
        if any(ast.unparse(n) == "self.scheduler" for n in ast.walk(statement)):
            return self._gap(statement, f"it uses the scheduler in another way: {ast.unparse(statement)[:80]!r}")
        return statement

    def _is_inert(self, keyword: ast.keyword) -> bool:
        if keyword.arg is not None:
            return keyword.arg in (*INERT, "return_dict")
        values = [case["inputs"].get(ast.unparse(keyword.value)) for case in self.recording["cases"]]
        return all(isinstance(v, dict) and set(v) <= INERT and not v.get("eta") for v in values)

    def _part(
        self, title: str, body: list[ast.stmt], first: list[str], carry: list[str], index: tuple[str, str]
    ) -> Part | None:
        bound = {*first, "self", *stored(body)}
        free = dict.fromkeys(n.id for n in loads(body) if n.id not in bound and not self._is_global(n.id))
        wrong = [a for a in _own_attributes(body) if a not in self.parts and not self._method(a)]
        if wrong:
            return self._gap(self.call, f"it reads {', '.join(f'self.{a}' for a in sorted(wrong))}")
        arguments = ast.arguments([], [ast.arg(n) for n in ("self", *first, *free)], None, [], [], None, [])
        made = ast.FunctionDef(title, arguments, body, [], None, type_params=[])
        ast.fix_missing_locations(ast.copy_location(made, self.call))
        made.file = self.definition.file
        values = [case["image" if title == "decode" else "inputs"] for case in self.recording["cases"]]
        defaults = {n: v for n in free if isinstance(v := values[0].get(f"self.{n}"), int | float)}
        for n in set(free) - set(defaults):  # what a plain run does without
            found = [v.get(n, v.get(f"self.{n}")) for v in values]
            if None in found or found[0] in ({}, False):
                defaults[n] = False if found[0] is False else None
        return Part(made, carry, list(free), "", index, defaults)

    def _is_global(self, identifier: str) -> bool:
        return self.definition.file.qualify(identifier) is not None or hasattr(builtins, identifier)

    def _method(self, attr: str) -> ast.FunctionDef | None:
        """A static method of the class, which becomes a function."""
        methods = (f for f in self.definition.functions() if f.name == attr)
        return next((f for f in methods if any(ast.unparse(d) == "staticmethod" for d in f.decorator_list)), None)

    def methods(self, part: Part) -> list[ast.FunctionDef]:
        """Static methods that a part calls; its calls become those of functions."""
        found = {a: m for a in _own_attributes(part.function.body) if (m := self._method(a)) is not None}
        _Freed(set(found)).visit(part.function)
        for function in found.values():
            function.decorator_list = []
        return list(found.values())

    def _gap(self, node: ast.AST | None, reason: str) -> None:
        hint = "pipelines of another form have to be written by hand over the converted parts"
        self.context.gap("CV140", node or self.definition.node, self.definition.name, reason, hint)


class _Scaled(ast.NodeTransformer):
    def __init__(self, i: str, t: str) -> None:
        self.i, self.t = i, t

    def visit_Call(self, node: ast.Call) -> ast.expr:
        self.generic_visit(node)
        if ast.unparse(node.func) == "self.scheduler.scale_model_input" and ast.unparse(node.args[1]) == self.t:
            node.func, node.args[1] = dotted(f"{SCHEDULE}.scale_model_input"), name(self.i)
            node.seen = {k: v for k, v in getattr(node, "seen", {}).items() if k != "callee"}
        return node


class _Freed(ast.NodeTransformer):
    """`self.f(…)` as `f(…)`."""

    def __init__(self, names: set[str]) -> None:
        self.names = names

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        self.generic_visit(node)
        return name(node.attr) if ast.unparse(node.value) == "self" and node.attr in self.names else node


def _tested(body: list[ast.stmt]) -> set[str]:
    """Names that decide a branch: where none is given, the branch is gone and the name with it."""
    tests = [n.test for s in body for n in ast.walk(s) if isinstance(n, ast.If | ast.IfExp)]
    nodes = [n for test in tests for n in ast.walk(test)]
    return {ast.unparse(n) for n in nodes if isinstance(n, ast.Name | ast.Attribute)}


def _steps(node: ast.AST) -> bool:
    return any(isinstance(n, ast.Call) and ast.unparse(n.func) == STEP for n in ast.walk(node))


def _decodes(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Assign) and DECODE in ast.unparse(statement.value)


def _blocks(node: ast.AST | None) -> list[list[ast.stmt]]:
    """Every list of statements below a node."""
    found = []
    for child in ast.walk(node or ast.Pass()):
        for key in ("body", "orelse", "finalbody"):
            block = getattr(child, key, None)
            if isinstance(block, list):
                found.append(block)
    return found


def _own_attributes(body: list[ast.stmt]) -> list[str]:
    nodes = (n for s in body for n in ast.walk(s))
    own = [n.attr for n in nodes if isinstance(n, ast.Attribute) and ast.unparse(n.value) == "self"]
    return list(dict.fromkeys(own))


def _is_object(value: Any) -> bool:
    return isinstance(value, dict) and "$kind" in value
