"""Code that no run came to and that is not converted: the emitted code raises there, and the report says so.

Asserts, which compute nothing, are left out altogether where they have no rule.

A source with many options (one class, a hundred switches) has branches that this model never takes. Where a rule is
missing in such a branch only, the model is converted whole without it. The conversion runs once, its gaps are looked up
in the source as the runs saw it, and it runs again with the smallest block or operand around each replaced.
"""

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from maxcode.converter.context import Context, Gap, attach_facts, seen
from maxcode.converter.source import SourceFile

Span = tuple[int, int, int, int]
_BLOCKS = ("body", "orelse", "finalbody")
# What the instrumented run notes: other expressions say nothing of whether a place was reached.
_NOTED = (ast.Name, ast.Attribute, ast.Subscript, ast.BinOp, ast.Compare, ast.BoolOp, ast.Call, ast.IfExp)


@dataclass
class Unreached:
    """Places to leave out, by file and span, with the gap that each stands for."""

    places: dict[str, dict[Span, Gap]] = field(default_factory=dict)
    _files: dict[str, list[Span]] = field(default_factory=dict)  # every region of a file that may be left out

    def add(self, context: Context) -> bool:
        """Note the unreached places of a conversion's gaps; returns whether there are new ones."""
        found = False
        for gap in context.gaps:
            span = self._smallest(context, gap)
            if span is not None and span not in self.places.setdefault(gap.file, {}):
                self.places[gap.file][span] = gap
                found = True
        return found

    def leave_out(self, context: Context, file: SourceFile) -> None:
        """Replace the noted places of a file, which has just been parsed, by code that raises."""
        places = self.places.get(file.path)
        if places:
            _LeaveOut(context, places).visit(file.tree)

    def _smallest(self, context: Context, gap: Gap) -> Span | None:
        if gap.file not in context.facts.get("files", {}):
            return None
        if gap.file not in self._files:
            module = next((f.module for f in context.project.files.values() if f and f.path == gap.file), "")
            file = SourceFile(module, gap.file)
            attach_facts(file, context.facts)
            self._files[gap.file] = list(_unseen_regions(file.tree))
        spot = (gap.line, gap.column)
        around = [s for s in self._files[gap.file] if s[:2] <= spot < s[2:]]
        return max(around, key=lambda s: s[:2], default=None)


def _unseen_regions(tree: ast.Module) -> Iterator[Span]:
    """Blocks and operands inside functions, none of whose expressions any run evaluated; and every assert, as one."""
    checks = [n for n in ast.walk(tree) if isinstance(n, ast.Assert)]
    yield from (_span([n]) for n in checks)
    inside = {n for check in checks for n in ast.walk(check)}
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef):
            for block in _blocks(function):
                if block and _is_unseen(block):
                    yield _span(block)
            for operand in _operands(function):
                if operand not in inside and _is_unseen([operand]):
                    yield _span([operand])


def _blocks(function: ast.FunctionDef) -> Iterator[list[ast.stmt]]:
    for node in ast.walk(function):
        if isinstance(node, ast.If | ast.While) and _on_value(node.test):
            continue  # both sides are traced, whichever a run took
        if isinstance(node, ast.stmt | ast.ExceptHandler | ast.match_case) and not isinstance(node, ast.ClassDef):
            yield from (getattr(node, name, None) or [] for name in _BLOCKS)


def _operands(function: ast.FunctionDef) -> Iterator[ast.expr]:
    """Expressions that are evaluated on a condition."""
    for node in ast.walk(function):
        if isinstance(node, ast.IfExp):
            yield from (node.body, node.orelse)
        elif isinstance(node, ast.BoolOp):
            yield from node.values[1:]
        elif isinstance(node, ast.Lambda):
            yield node.body


def _on_value(test: ast.expr) -> bool:
    """Whether a test depends on a tensor's value: it may be taken another time."""
    return any(seen(n).get("kinds") == ["tensor"] for n in ast.walk(test) if not _asks_shape(n))


def _asks_shape(node: ast.AST) -> bool:
    return isinstance(node, ast.Name)  # `x.shape[0] > 1` and `x is None` read the name alone


def _is_unseen(nodes: Iterable[ast.AST]) -> bool:
    inner = [n for node in nodes for n in ast.walk(node) if isinstance(n, _NOTED)]
    noted = [n for n in inner if isinstance(getattr(n, "ctx", ast.Load()), ast.Load)]  # a name that is bound is not
    return bool(noted) and not any(hasattr(n, "seen") for n in noted)


def _span(nodes: list) -> Span:
    first, last = nodes[0], nodes[-1]
    start = min([(first.lineno, first.col_offset), *((d.lineno, 0) for d in getattr(first, "decorator_list", ()))])
    return *start, last.end_lineno, last.end_col_offset


class _LeaveOut(ast.NodeTransformer):
    def __init__(self, context: Context, places: dict[Span, Gap]) -> None:
        self.context, self.places = context, places

    def generic_visit(self, node: ast.AST) -> ast.AST:
        for name in _BLOCKS:
            block = getattr(node, name, None)
            if isinstance(block, list) and block and isinstance(block[0], ast.stmt):
                gap = self.places.get(_span(block))
                if gap is not None:
                    setattr(node, name, [self._raising(block[0], gap)])
        return super().generic_visit(node)

    def visit_Assert(self, node: ast.Assert) -> ast.AST:
        gap = self.places.get(_span([node]))
        if gap is None:
            return self.generic_visit(node)
        self.context.assume(node, f"this check of the source is left out ({gap.torch_name}: {gap.reason})")
        return ast.copy_location(ast.Pass(), node)

    def visit(self, node: ast.AST) -> ast.AST:
        gap = self.places.get(_span([node])) if isinstance(node, ast.expr) else None
        if gap is None:
            return super().visit(node)
        made = ast.Call(self.context.use("gaps", "gap"), [ast.Constant(gap.code), ast.Constant(self._text(gap))], [])
        self._assume(node, gap)
        return ast.copy_location(made, node)

    def _raising(self, first: ast.stmt, gap: Gap) -> ast.Raise:
        made = ast.Raise(ast.Call(ast.Name("NotImplementedError", ast.Load()), [ast.Constant(self._text(gap))], []))
        for new in ast.walk(made):
            ast.copy_location(new, first)
            new.file = first.file
        self._assume(first, gap)
        return made

    def _assume(self, node: ast.AST, gap: Gap) -> None:
        text = f"no run came here, and it is not converted ({gap.torch_name}: {gap.reason}); the converted code raises"
        self.context.assume(node, text)

    @staticmethod
    def _text(gap: Gap) -> str:
        name = gap.file.rsplit("/", 1)[-1]
        reason = gap.reason.partition("; add one")[0]
        return f"{name}:{gap.line}: not converted, since no run came here: {gap.torch_name}: {reason}"
