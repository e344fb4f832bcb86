"""Tests on the values of tensors: which they are, and how they are written as one traced truth."""

import ast

from maxcode.converter.context import Context, Definition
from maxcode.converter.infer import Kinds
from maxcode.converter.nodes import call
from maxcode.converter.passes.tensor_tests import is_isinstance_tensor
from maxcode.converter.plumbing import last

_NUMBERS = frozenset({"bool", "float"})  # of a tensor, each says what the tensor itself says
_IDENTITY = (ast.Is, ast.IsNot, ast.In, ast.NotIn)


class ValueTests:
    """The tests of one function."""

    def __init__(self, context: Context, definition: Definition, function: ast.FunctionDef) -> None:
        self.context, self.function = context, function
        self.types = Kinds(context, definition, function)
        self.names: set[str] = set()  # local names of numbers and truths that were read from tensors
        self.flags: set[str] = set()  # those of them that Python may know: they are bound before a branch, too
        self._name_read_numbers()

    def plain(self) -> bool:
        """Let the function's tests on values ask arrays instead of numbers read from them; False where it has none."""
        kinds = ast.If | ast.While | ast.IfExp | ast.Assert
        tests = [n for n in ast.walk(self.function) if isinstance(n, kinds) and self.is_value(n.test)]
        for node in tests:
            node.test = _Numbers(self).visit(node.test)
        return bool(tests)

    def is_value(self, test: ast.expr) -> bool:
        """Whether a test asks for the value of a tensor."""
        if isinstance(test, ast.BoolOp):
            numbers = _told_numbers(test)
            return any(self.is_value(v) and not numbers & {ast.unparse(n) for n in ast.walk(v)} for v in test.values)
        if isinstance(test, ast.UnaryOp):
            return self.is_value(test.operand)
        if isinstance(test, ast.Compare):
            plain = any(isinstance(o, _IDENTITY) for o in test.ops)
            return not plain and any(map(self.is_value, (test.left, *test.comparators)))
        if isinstance(test, ast.BinOp):
            return self.is_value(test.left) or self.is_value(test.right)
        if isinstance(test, ast.Name) and test.id in self.names:
            return True
        return self._number_of(test) is not None or self.types.is_tensor(test)

    def choice(self, test: ast.expr) -> ast.expr:
        """The test for a choice that Python makes where it can: what comes before the first value stays Python's."""
        if isinstance(test, ast.Name) and test.id in self.flags:
            return test
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not) and ast.unparse(test.operand) in self.flags:
            return call(self.context.use("control", "negated"), test.operand)
        if isinstance(test, ast.BoolOp) and not self.is_value(test.values[0]):
            first = next(i for i, v in enumerate(test.values) if self.is_value(v))
            rest = test.values[first:]
            last = rest[0] if len(rest) == 1 else ast.copy_location(ast.BoolOp(test.op, rest), test)
            return ast.copy_location(ast.BoolOp(test.op, [*test.values[:first], self.truth(last)]), test)
        return self.truth(test)

    def add_flag(self, flag: str) -> None:
        """Let a name be a truth that is a value in some calls and Python's in others."""
        self.names.add(flag)
        self.flags.add(flag)

    def truth(self, test: ast.expr) -> ast.expr:
        """The test as an expression of one traced truth."""
        if isinstance(test, ast.Call) and ast.unparse(test.func) == "truth":
            return test
        if isinstance(test, ast.BoolOp):
            function = "every" if isinstance(test.op, ast.And) else "some"
            return call(self.context.use("control", function), *map(self._plain, test.values))
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            self.context.imports.add("import jax.numpy as jnp")
            return call("jnp.logical_not", self.truth(test.operand))
        if isinstance(test, ast.Compare) and len(test.ops) > 1:
            sides = [test.left, *test.comparators]
            parts = [ast.Compare(a, [o], [b]) for a, o, b in zip(sides, test.ops, sides[1:])]
            return call(self.context.use("control", "every"), *map(self._plain, parts))
        return call(self.context.use("control", "truth"), self._plain(test))

    def _plain(self, test: ast.expr) -> ast.expr:
        """A part of a test without reading numbers out of tensors."""
        if isinstance(test, ast.BoolOp) or (isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not)):
            return self.truth(test)
        return _Numbers(self).visit(test)

    def _number_of(self, node: ast.expr) -> ast.expr | None:
        """The tensor of `x.item()`, `float(x)` or `bool(x)`."""
        if not isinstance(node, ast.Call) or node.keywords:
            return None
        if isinstance(node.func, ast.Attribute) and node.func.attr == "item" and self.types.is_method(node.func):
            return node.func.value
        is_number = isinstance(node.func, ast.Name) and node.func.id in _NUMBERS and len(node.args) == 1
        return node.args[0] if is_number and self.is_value(node.args[0]) else None

    def _name_read_numbers(self) -> None:
        """`n = x.item()` that a test reads: the name keeps the array."""
        tests = [n.test for n in ast.walk(self.function) if isinstance(n, ast.If | ast.While | ast.IfExp)]
        tested = {n.id for test in tests for n in ast.walk(test) if isinstance(n, ast.Name)}
        for node in ast.walk(self.function):
            target = node.targets[0] if isinstance(node, ast.Assign) else None
            if isinstance(target, ast.Name) and target.id in tested and self._number_of(node.value) is not None:
                node.value = _Numbers(self).visit(node.value)
                self.names.add(target.id)


def _told_numbers(test: ast.BoolOp) -> set[str]:
    """Expressions that a conjunction says are no tensors: `not torch.is_tensor(n) and n > 3`."""
    calls = [
        v.operand
        for v in test.values
        if isinstance(v, ast.UnaryOp) and isinstance(v.op, ast.Not) and isinstance(v.operand, ast.Call)
    ]
    tests = [c for c in calls if last(ast.unparse(c.func)) == "is_tensor" or is_isinstance_tensor(c)]
    return {ast.unparse(c.args[0]) for c in tests} if isinstance(test.op, ast.And) else set()


class _Numbers(ast.NodeTransformer):
    def __init__(self, tests: ValueTests) -> None:
        self.tests = tests

    def visit_Call(self, node: ast.Call) -> ast.expr:
        self.generic_visit(node)
        found = self.tests._number_of(node)
        return node if found is None else found
