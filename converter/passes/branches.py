"""Turn `if` and `while` on values into `lax.cond` and `lax.while_loop`, and checks of values into assumptions.

A test on a tensor's value is known only when the program runs. Both branches become functions of the names that they
change and give those back; a branch that returns early takes the rest of the function as its other side. A loop that a
value breaks off goes on with nothing to do: it keeps its number of rounds, and its gradient.
"""

import ast

from maxcode.converter.calls import Function
from maxcode.converter.context import Context, Definition
from maxcode.converter.example import Example, unchanged
from maxcode.converter.liveness import bound_before
from maxcode.converter.nodes import assign, bound_by, call, dress, loads, name, read_before_write, stored
from maxcode.converter.passes.branch_parts import (
    assigned,
    effect,
    function,
    leaves,
    only_raises,
    own,
    packed,
    reshapes,
    returns,
    shapes,
)
from maxcode.converter.passes.host import reads_values
from maxcode.converter.value_tests import ValueTests

_SKIPPED = "is_skipped"
_HINT = "compute both sides and choose with torch.where, or let both branches bind the same names"


def branch_on_values(context: Context, definition: Definition, function: ast.FunctionDef) -> None:
    """Rewrite a function in place; constructors and host functions run on concrete values and stay as they are."""
    if function.name != "__init__":
        branches = Branches(context, definition, function)
        if branches.tests.plain() and not reads_values(context, Function(definition, function)):
            function.body = branches.block(function.body, frozenset(), ends=True)
            for statement in function.body:
                _Choices(context, branches.tests).visit(statement)


class Branches:
    """One function."""

    def __init__(self, context: Context, definition: Definition, function: ast.FunctionDef) -> None:
        self.context, self.function = context, function
        self.tests = ValueTests(context, definition, function)
        self.loops = 0

    def block(self, body: list[ast.stmt], live: frozenset[str], *, ends: bool) -> list[ast.stmt]:
        """The statements of a block; `live` are names read after it, `ends` says that the function ends with it."""
        done: list[ast.stmt] = []
        for index, statement in enumerate(body):
            rest = body[index + 1 :]
            after = (live - bound_by(rest)) | read_before_write(rest, kept=False)
            on_value = isinstance(statement, ast.If) and self.tests.is_value(statement.test)
            is_check = isinstance(statement, ast.Assert) and self.tests.is_value(statement.test)
            if is_check or (on_value and only_raises(statement.body) and not statement.orelse):
                self._check_left_out(statement)
            elif on_value and any(isinstance(n, ast.Return) for n in own(statement)):
                made = self._early_return(statement, rest) if ends else None
                return [*done, *(made or self._gap(statement, "returns from within a loop or a branch", rest))]
            elif on_value:
                done += self._if(statement, after)
            elif isinstance(statement, ast.While | ast.For):
                done += self._loop(statement, after)
            else:
                self._inside(statement, after, ends=ends and not rest)
                done.append(statement)
        return done or [ast.Pass()]

    def _inside(self, statement: ast.stmt, live: frozenset[str], *, ends: bool) -> None:
        if isinstance(statement, ast.FunctionDef | ast.ClassDef):
            return
        for field in ("body", "orelse", "finalbody"):
            block = getattr(statement, field, None)
            if isinstance(block, list) and block:
                setattr(statement, field, self.block(block, live, ends=ends))

    # --- branches

    def _if(self, node: ast.If, live: frozenset[str]) -> list[ast.stmt]:
        if (reason := effect(node)) is not None:
            return self._gap(node, reason)
        sides = [self.block(list(side), live, ends=False) if side else [] for side in (node.body, node.orelse)]
        changed = [n for n in stored([*node.body, *node.orelse]) if n in live]
        before = self._bound_before(node)
        if lost := [n for n in changed if n not in before and not all(n in bound_by(side) for side in sides)]:
            return self._gap(node, f"only one branch binds {lost[0]!r}, which is read afterwards")
        if not changed:
            return []  # nothing that is read
        for variable in changed:
            seen_shapes = [shapes(node, side, variable) for side in (node.body, node.orelse)]
            differ = all(seen_shapes) and not seen_shapes[0] & seen_shapes[1]
            if differ or any(reshapes(side, variable) for side in (node.body, node.orelse)):
                return self._gap(node, f"its branches give {variable!r} different shapes")
        taken = self._operands(sides, changed, before)
        result = packed(changed)
        functions = [function(f"when_{w}", taken, [*s, ast.Return(result)]) for w, s in zip(("true", "false"), sides)]
        made = assign(changed, self._cond(node.test, taken), node)
        for flag in changed:
            if all(isinstance(v, ast.Constant) for v in assigned(node, flag)):
                self.tests.add_flag(flag)
        return [*(dress(f, node) if f is functions[0] else f for f in functions), made]

    def _early_return(self, node: ast.If, rest: list[ast.stmt]) -> list[ast.stmt] | None:
        sides = [list(node.body), list(node.orelse)]
        sides = [side if returns(side) else [*side, *rest] for side in sides]
        if not all(map(returns, sides)) or effect(node, may_return=True) is not None:
            return None
        sides = [self.block(side, frozenset(), ends=True) for side in sides]
        taken = self._operands(sides, [], self._bound_before(node))
        functions = [function(f"when_{w}", taken, side) for w, side in zip(("true", "false"), sides)]
        return [*functions, ast.copy_location(ast.Return(self._cond(node.test, taken)), node)]

    def _operands(self, sides: list[list[ast.stmt]], changed: list[str], before: set[str]) -> list[str]:
        """Names that a branch needs and also binds, so that it cannot read them from around itself."""
        needed: set[str] = set()
        for side in sides:
            bound = set(stored(side))
            needed |= (read_before_write(side, kept=False) & bound) | {
                n for n in changed if n in bound and n not in bound_by(side)
            }
        return sorted(needed & before)

    def _cond(self, test: ast.expr, taken: list[str]) -> ast.expr:
        choose = self.context.use("control", "cond")
        return call(choose, self.tests.choice(test), name("when_true"), name("when_false"), *map(name, taken))

    # --- loops

    def _loop(self, node: ast.While | ast.For, live: frozenset[str]) -> list[ast.stmt]:
        node.body = self._skipping(node.body)
        on_value = isinstance(node, ast.While) and self.tests.is_value(node.test)
        stops = [s for s in node.body if isinstance(s, ast.If) and self.tests.is_value(s.test) and leaves(s)]
        if not on_value and not stops:
            inner = live | read_before_write([node], kept=False)
            node.body = self.block(node.body, inner, ends=False)
            return [node]
        reads_index = isinstance(node, ast.For) and bool(set(stored([node.target])) & live)
        if node.orelse or reads_index or any(isinstance(n, ast.Return) for n in own(node)):
            return self._gap(node, "a value breaks it off, and what follows depends on where")
        if not stops:
            return self._while(node, live)
        self.loops += 1
        flag = "is_done" if self.loops == 1 else f"is_done_{self.loops}"
        self.tests.names.add(flag)
        has_break = any(isinstance(s.body[-1], ast.Break) for s in stops)
        body = self._guarded(node.body, flag)
        if any(isinstance(n, ast.Break | ast.Continue) for s in body for n in own(s)):
            return self._gap(node, "it is left from within another statement")
        start = [assign(flag, ast.Constant(False), node)] if has_break else []
        going = ast.UnaryOp(ast.Not(), name(flag))
        if isinstance(node, ast.For):
            node.body = [ast.copy_location(ast.If(going, body, []), node)] if has_break else body
            return [*start, *self._loop(node, live)]
        node.body = body
        if has_break:
            is_open = isinstance(node.test, ast.Constant) and node.test.value
            node.test = going if is_open else ast.BoolOp(ast.And(), [going, node.test])
        return [*start, *self._while(node, live)]

    def _skipping(self, body: list[ast.stmt]) -> list[ast.stmt]:
        """A loop's body in which a `continue` deep inside a branch is a flag that the rest of the body asks."""
        for index, statement in enumerate(body):
            if isinstance(statement, ast.If) and (left := self._last_continue(statement)) is not None:
                self.tests.add_flag(_SKIPPED)
                left.body[-1] = assign(_SKIPPED, ast.Constant(True), left.body[-1])
                rest = ast.If(ast.UnaryOp(ast.Not(), name(_SKIPPED)), self._skipping(body[index + 1 :]), [])
                start = assign(_SKIPPED, ast.Constant(False), statement)
                return [*body[:index], start, statement, *([ast.copy_location(rest, statement)] if rest.body else [])]
        return body

    def _last_continue(self, statement: ast.If) -> ast.If | None:
        """The branch on a value that ends a branch, with `continue` as its own end."""
        inner = statement.body[-1]
        if statement.orelse or not isinstance(inner, ast.If) or inner.orelse:
            return None
        if isinstance(inner.body[-1], ast.Continue):
            return inner if self.tests.is_value(inner.test) else None
        return self._last_continue(inner)

    def _guarded(self, body: list[ast.stmt], flag: str) -> list[ast.stmt]:
        """A loop's body without `break` and `continue`: what follows them stands under the contrary test."""
        for index, statement in enumerate(body):
            if isinstance(statement, ast.If) and self.tests.is_value(statement.test) and leaves(statement):
                rest = self._guarded(body[index + 1 :], flag)
                first = statement.body[:-1]
                if isinstance(statement.body[-1], ast.Continue):
                    made = ast.If(statement.test, first or [ast.Pass()], rest)
                    return [*body[:index], ast.copy_location(made, statement)] if rest or first else body[:index]
                made = [assign(flag, self.tests.truth(statement.test), statement)]
                made += [ast.copy_location(ast.If(name(flag), first, []), statement)] if first else []
                going = ast.UnaryOp(ast.Not(), name(flag))
                made += [ast.copy_location(ast.If(going, rest, []), statement)] if rest else []
                return [*body[:index], *made]
        return body

    def _while(self, node: ast.While, live: frozenset[str]) -> list[ast.stmt]:
        if (reason := effect(node)) is not None:
            return self._gap(node, reason)
        tested = {n.id for n in loads([node.test])}
        early = read_before_write(node.body, kept=False)
        carry = [n for n in stored(node.body) if n in early | tested | live]
        before = self._bound_before(node)
        if not carry or any(n not in before for n in carry):
            lost = next((n for n in carry if n not in before), "")
            return self._gap(node, f"{lost!r} is bound in its body alone" if lost else "its body changes no name")
        body = self.block(node.body, frozenset({*live, *tested, *early}), ends=False)
        opened = [assign(carry, name("carry"))] if len(carry) > 1 else []
        parameter = "carry" if len(carry) > 1 else carry[0]
        test = function("goes_on", [parameter], [*opened, ast.Return(self.tests.truth(node.test))])
        step = function("step", [parameter], [*opened, *body, ast.Return(packed(carry))])
        self.context.imports.add("from jax import lax")
        made = assign(carry, call("lax.while_loop", name("goes_on"), name("step"), packed(carry)), node)
        return [dress(test, node), step, made]

    # --- the rest

    def _bound_before(self, node: ast.stmt) -> set[str]:
        """Names that the function's parameters and earlier statements bind."""
        found = bound_before(self.function, node, None) - {"self"}
        return found | {n for n in self.tests.names if n.startswith("is_done")} | (self.tests.flags & {_SKIPPED})

    def _check_left_out(self, node: ast.stmt) -> None:
        self.context.assume(node, f"a check of values is left out: {ast.unparse(node).splitlines()[0]}")

    def _gap(self, node: ast.stmt, reason: str, rest: list[ast.stmt] | None = None) -> list[ast.stmt]:
        what = "if" if isinstance(node, ast.If) else "for" if isinstance(node, ast.For) else "while"
        self.context.gap("CV140", node, f"`{what}` on a tensor's value", reason, _HINT)
        return [node, *(rest or [])]


class _Choices(ast.NodeTransformer):
    """`a if t else b` on a value."""

    def __init__(self, context: Context, tests: ValueTests) -> None:
        self.context, self.tests = context, tests

    def visit_IfExp(self, node: ast.IfExp) -> ast.expr:
        self.generic_visit(node)
        if not self.tests.is_value(node.test):
            return node
        sides = [ast.Lambda(ast.arguments([], [], None, [], [], None, []), side) for side in (node.body, node.orelse)]
        made = call(self.context.use("control", "cond"), self.tests.choice(node.test), *sides)
        made.seen = {k: v for k, v in getattr(node, "seen", {}).items() if k != "callee"}
        return ast.copy_location(made, node)


EXAMPLES = (
    Example(
        """
        def f(x: torch.Tensor, n: int):
            if x.sum() > 0:
                x = x * 2
            else:
                y = n
                x = x - y
            return x
        """,
        """
        def f(x: torch.Tensor, n: int):
            def when_true(x):
                x = x * 2
                return x
            def when_false(x):
                y = n
                x = x - y
                return x
            x = cond(truth(x.sum() > 0), when_true, when_false, x)
            return x
        """,
    ),
    Example(
        """
        def f(self, x: torch.Tensor, n: torch.Tensor):
            if self.training and x.sum() > 0:
                x = x * 2
            if not torch.is_tensor(n) and n > 3:
                self.grow()
            return x
        """,
        """
        def f(self, x: torch.Tensor, n: torch.Tensor):
            def when_true(x):
                x = x * 2
                return x
            def when_false(x):
                return x
            x = cond(self.training and truth(x.sum() > 0), when_true, when_false, x)
            if not torch.is_tensor(n) and n > 3:
                self.grow()
            return x
        """,
    ),
    Example(
        """
        def f(x: torch.Tensor):
            if x.sum() > 0:
                return x
            x = x + 1
            return x * 2
        """,
        """
        def f(x: torch.Tensor):
            def when_true(x):
                return x
            def when_false(x):
                x = x + 1
                return x * 2
            return cond(truth(x.sum() > 0), when_true, when_false, x)
        """,
    ),
    Example(
        """
        def f(x: torch.Tensor):
            while x.sum() > 1:
                x = x / 2
            return x
        """,
        """
        def f(x: torch.Tensor):
            def goes_on(x):
                return truth(x.sum() > 1)
            def step(x):
                x = x / 2
                return x
            x = lax.while_loop(goes_on, step, x)
            return x
        """,
    ),
    unchanged(
        """
        def f(x: torch.Tensor, n: int):
            if n > 2 and x is not None:
                x = x * 2
            return x
        """
    ),
    unchanged("def f(self, x: torch.Tensor):\n    if x.sum() > 0:\n        self.count = 1\n    return x", gap="CV140"),
)
