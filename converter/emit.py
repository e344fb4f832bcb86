"""Write converted definitions as Python text with the source's comments, formatted by ruff."""

import ast
import subprocess
import textwrap

from ruff.__main__ import find_ruff_bin

_INDENT = "    "
_WIDTH = 120
_FIXES = "I,F401,PYI041,UP034"  # what ruff repairs: imports, `int | float`, doubled parentheses


def unparse(statements: list[ast.stmt], indent: int = 0) -> str:
    """Text of `statements` with the comments and blank lines attached to them."""
    lines: list[str] = []
    for index, statement in enumerate(statements):
        if index and getattr(statement, "spaced", False):
            lines.append("")
        lines += _statement(statement, indent)
    return "\n".join(lines)


class _Unparser(ast._Unparser):
    """Python's own unparser, with numbers as the source wrote them and bare tuples after `return` and `=`."""

    def get_type_comment(self, node: ast.AST) -> None:
        return None

    def visit_Constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, float) and getattr(node, "text", None):
            self.write(node.text)
        else:
            super().visit_Constant(node)

    def visit_Return(self, node: ast.Return) -> None:
        if isinstance(node.value, ast.Tuple) and len(node.value.elts) > 1:
            self.fill("return ")
            self.items_view(self.traverse, node.value.elts)
        else:
            super().visit_Return(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        """As Python's, but parentheses stand around a mixture of `and` and `or` and not around `not`."""
        precedence = ast._Precedence.AND if isinstance(node.op, ast.And) else ast._Precedence.OR
        with self.require_parens(precedence, node):
            for index, value in enumerate(node.values):
                if index:
                    self.write(f" {self.boolops[type(node.op).__name__]} ")
                if isinstance(value, ast.BoolOp):  # `a or (b and c)`: not everyone knows which binds closer
                    self.set_precedence(ast._Precedence.ATOM, value)
                elif isinstance(value, ast.UnaryOp) and isinstance(value.op, ast.Not):
                    self.set_precedence(ast._Precedence.NOT, value)
                else:
                    self.set_precedence(precedence.next(), value)
                self.traverse(value)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        """As Python's, but a sign in an exponent needs no parentheses."""
        if (
            isinstance(node.op, ast.Pow)
            and isinstance(node.right, ast.UnaryOp)
            and not isinstance(node.right.op, ast.Not)
        ):
            with self.require_parens(ast._Precedence.POWER, node):
                self.set_precedence(ast._Precedence.POWER.next(), node.left)
                self.traverse(node.left)
                self.write(" ** ")
                self.set_precedence(ast._Precedence.FACTOR, node.right)
                self.traverse(node.right)
        else:
            super().visit_BinOp(node)

    def visit_Call(self, node: ast.Call) -> None:
        """As Python's, but with `:=` bare where it is an argument."""
        named = [a for a in node.args if isinstance(a, ast.NamedExpr)]
        self.set_precedence(ast._Precedence.NAMED_EXPR, *named)
        super().visit_Call(node)

    def visit_Assign(self, node: ast.Assign) -> None:
        unpacks = any(isinstance(target, ast.Tuple) for target in node.targets)
        starred = isinstance(node.value, ast.Tuple) and any(isinstance(e, ast.Starred) for e in node.value.elts)
        if isinstance(node.value, ast.Tuple) and len(node.value.elts) > 1 and not starred and unpacks:
            self.fill()
            for target in node.targets:
                self.set_precedence(ast._Precedence.TUPLE, target)
                self.traverse(target)
                self.write(" = ")
            self.items_view(self.traverse, node.value.elts)
        else:
            super().visit_Assign(node)


def expression_text(node: ast.AST) -> str:
    """Source text of one node."""
    return _Unparser().visit(node)


def _statement(statement: ast.stmt, indent: int) -> list[str]:
    """Lines of a statement with the comments above, on and below it."""
    pad = _INDENT * indent
    lines = [pad + comment for comment in getattr(statement, "leading", [])]
    if isinstance(statement, ast.Match):
        lines += _head_lines(statement, f"match {expression_text(statement.subject)}:", pad)
        for case in statement.cases:
            lines += [_INDENT + line for line in _handler(case, indent)]
    elif isinstance(getattr(statement, "body", None), list):
        if isinstance(statement, ast.If):
            _of_type_check(statement)
        for decorator in getattr(statement, "decorator_list", []):
            lines += _head_lines(decorator, f"@{expression_text(decorator)}", pad)
        lines += _head_lines(statement, _header(statement), pad)
        lines += _compound(statement, indent)
    else:
        lines += _simple(statement, pad)
    return lines + [pad + comment for comment in getattr(statement, "following", [])]


def _of_type_check(statement: ast.If) -> None:
    """Say that a ValueError about a type is the source's own choice: callers may catch it."""
    text = ast.unparse(statement.test)
    for inner in statement.body:
        raised = isinstance(inner, ast.Raise) and inner.exc is not None and ast.unparse(inner.exc)
        if raised and raised.startswith("ValueError(") and text.startswith(("not isinstance(", "isinstance(")):
            inner.trailing = getattr(inner, "trailing", "") or "# noqa: TRY004 - the source raises it"


def _simple(statement: ast.stmt, pad: str) -> list[str]:
    if _is_docstring(statement):
        return _docstring(statement.value.value, pad) + _above(statement, pad)
    text = expression_text(statement)
    if "\n" in text:
        return [*_above(statement, pad), *_indent(text, pad)]
    return _head_lines(statement, text, pad)


def _head_lines(node: ast.AST, text: str, pad: str) -> list[str]:
    """One line of code with the comment on it, or below the comment where both together are too long."""
    trailing = getattr(node, "trailing", "")
    line = f"{pad}{text}  {trailing}" if trailing else pad + text
    if trailing.startswith("# noqa"):
        return [line]  # it counts on this line only
    return [line] if len(line) <= _WIDTH or not trailing else [*_above(node, pad), pad + text]


def _above(node: ast.AST, pad: str) -> list[str]:
    trailing = getattr(node, "trailing", "")
    return [pad + trailing] if trailing else []


def _handler(node: ast.AST, indent: int) -> list[str]:
    """Lines of an `except` or `case` clause."""
    pad = _INDENT * indent
    lines = [pad + comment for comment in getattr(node, "leading", [])]
    return [*lines, *_head_lines(node, _header(node), pad), *unparse(node.body, indent + 1).split("\n")]


def _compound(statement: ast.stmt, indent: int) -> list[str]:
    """Lines of the blocks of a compound statement."""
    pad = _INDENT * indent
    lines = [unparse(statement.body, indent + 1)]
    for handler in getattr(statement, "handlers", []):
        lines += _handler(handler, indent)
    orelse = getattr(statement, "orelse", [])
    if len(orelse) == 1 and isinstance(orelse[0], ast.If) and isinstance(statement, ast.If):
        nested = _statement(orelse[0], indent)
        first = next(i for i, line in enumerate(nested) if line.lstrip().startswith("if "))
        nested[first] = nested[first].replace("if ", "elif ", 1)
        lines += nested
    elif orelse:
        lines += [f"{pad}else:", unparse(orelse, indent + 1)]
    if getattr(statement, "finalbody", []):
        lines += [f"{pad}finally:", unparse(statement.finalbody, indent + 1)]
    return lines


def _header(statement: ast.AST) -> str:
    """First line of a compound statement: its text with an empty body, decorators aside."""
    shell = type(statement)(**{name: getattr(statement, name, None) for name in statement._fields})
    shell.body = [ast.Pass()]
    for name in ("orelse", "finalbody", "decorator_list"):
        if hasattr(shell, name):
            setattr(shell, name, [])
    if isinstance(shell, ast.Try):
        return "try:"
    if isinstance(shell, ast.match_case):
        guard = f" if {expression_text(shell.guard)}" if shell.guard else ""
        return f"case {expression_text(shell.pattern)}{guard}:"
    ast.fix_missing_locations(shell)
    return expression_text(shell).rsplit("\n", 1)[0]


def _indent(text: str, pad: str) -> list[str]:
    return textwrap.indent(text, pad).splitlines()


def format_files(files: dict[str, str]) -> dict[str, str]:
    """Sort imports, drop unused ones and format; names are file names, for messages only.

    Raises ValueError with ruff's message and the text when a file is no valid Python.
    """
    return {name: format_text(text, name) for name, text in files.items()}


def format_text(text: str, name: str = "modeling.py") -> str:
    """`text` with unused imports dropped, imports sorted, and lines at most 120 columns."""
    fixed = _ruff(
        ["check", "--isolated", "--quiet", "--fix-only", "--select", _FIXES, "--stdin-filename", name, "-"], text
    )
    return _ruff(["format", "--isolated", "--quiet", "--line-length", "120", "--stdin-filename", name, "-"], fixed)


def _ruff(arguments: list[str], text: str) -> str:
    done = subprocess.run([find_ruff_bin(), *arguments], input=text, capture_output=True, text=True, check=False)
    if done.returncode not in (0, 1) or (arguments[0] == "format" and done.returncode):
        raise ValueError(f"{arguments[-2]}: ruff {arguments[0]} failed: {done.stderr.strip()}\n{text}")
    return done.stdout


def _is_docstring(statement: ast.stmt) -> bool:
    return (
        isinstance(statement, ast.Expr)
        and isinstance(statement.value, ast.Constant)
        and isinstance(statement.value.value, str)
    )


def _docstring(text: str, pad: str) -> list[str]:
    quoted = text.replace("\\", "\\\\").replace('"""', '\\"""')
    return f'{pad}"""{quoted}"""'.splitlines()
