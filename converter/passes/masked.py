"""Write rows that a mask selects without selecting them: `x[m] = x[m] + v` over the whole of `x`.

How many rows a mask selects is not known when a program is compiled. Where rows are read by a mask, computed with entry
by entry and written back by the same mask, the whole array can be computed and the mask decide afterwards: `v` is
scattered to where the mask holds.
"""

import ast

from maxcode.converter.context import Context, Definition, seen
from maxcode.converter.example import Example, unchanged
from maxcode.converter.nodes import blocks, call, dress, loads, name, stored, typed

_ENTRYWISE = ast.Add | ast.Sub | ast.Mult  # a quotient has no gradient where nothing is scattered to


def write_whole(context: Context, definition: Definition, function: ast.FunctionDef) -> None:
    """Rewrite the masked updates of a function that read what they write."""
    for block in list(blocks(function)):
        for index in range(len(block) - 1, -1, -1):
            _rewrite(function, block, index)


def _rewrite(function: ast.FunctionDef, block: list[ast.stmt], index: int) -> None:
    statement = block[index]
    written, value = _update(statement)
    if written is None or not isinstance(written.value, ast.Name):
        return
    source = None
    if isinstance(value, ast.Name):
        source = _definition_before(function, block, index, value.id, _names(written))
        value = source.value if source is not None else value
    # What a run saw stands where the rows are read, not where they are written.
    target = next((n for n in ast.walk(value) if _is_same(n, written)), written)
    mask = _mask(target)
    whole = _whole(value, target, mask) if mask is not None else None
    if whole is None:
        return
    chosen = _torch("where", statement, _wide(mask, target), whole, name(target.value.id))
    everything = ast.Subscript(name(target.value.id), ast.Slice(), ast.Store())
    written_whole = ast.Assign([typed(everything, target)], chosen)
    block[index] = ast.fix_missing_locations(dress(written_whole, statement))
    if source is not None:
        block.remove(source)


def _update(statement: ast.stmt) -> tuple[ast.Subscript | None, ast.expr]:
    """(what is written, its value) of `x[m] = value` and `x[m] += value`."""
    if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Subscript):
        return statement.targets[0], statement.value
    if isinstance(statement, ast.AugAssign) and isinstance(statement.target, ast.Subscript):
        read = ast.Subscript(statement.target.value, statement.target.slice, ast.Load())
        return statement.target, ast.BinOp(typed(read, statement.target), statement.op, statement.value)
    return None, ast.Constant(None)


def _mask(node: ast.Subscript) -> ast.expr | None:
    """The mask of `x[m]` and `x[m, :]`."""
    first, *rest = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
    if any(ast.unparse(part) != ":" for part in rest) or set(seen(first).get("dtypes", ())) != {"bool"}:
        return None
    return first if len(seen(first).get("ndims", ())) == 1 and len(_ranks(node.value)) == 1 else None


def _ranks(node: ast.expr) -> list[int]:
    return list(seen(node).get("ndims", ()))


def _is_same(node: ast.AST, written: ast.Subscript) -> bool:
    return isinstance(node, ast.Subscript) and ast.unparse(node) == ast.unparse(written)


def _names(node: ast.AST) -> set[str]:
    return {n.id for n in loads([node])}


def _definition_before(
    function: ast.FunctionDef, block: list[ast.stmt], index: int, variable: str, kept: set[str]
) -> ast.Assign | None:
    """The only binding of a name that is read once, before statement `index` of its block, with `kept` names kept."""
    reads = [n for n in loads([function]) if n.id == variable]
    if len(reads) != 1 or stored(function.body).count(variable) != 1:
        return None
    for statement in reversed(block[:index]):
        if isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]) == variable:
            return statement
        if kept & set(stored([statement])) or any(isinstance(n, ast.Subscript) and isinstance(n.ctx, ast.Store)
                                                  for n in ast.walk(statement)):  # fmt: skip
            return None
    return None


def _whole(value: ast.expr, target: ast.Subscript, mask: ast.expr) -> ast.expr | None:
    """The value over the whole array; None where it does not read the rows, or is not computed entry by entry."""
    if isinstance(value, ast.Call) and ast.unparse(value.func).endswith(".clone") and not value.args:
        value = value.func.value
    if isinstance(value, ast.Subscript):
        same_rows = ast.unparse(value.slice) == ast.unparse(target.slice) and isinstance(value.value, ast.Name)
        alike = same_rows and _ranks(value.value) == _ranks(target.value)
        return typed(name(value.value.id), value.value) if alike or _is_same(value, target) else None
    if not (isinstance(value, ast.BinOp) and isinstance(value.op, _ENTRYWISE)):
        return None
    left, right = (_whole(side, target, mask) for side in (value.left, value.right))
    if left is None and right is None:
        return None
    left = _scattered(value.left, target, mask) if left is None else left
    right = _scattered(value.right, target, mask) if right is None else right
    return typed(ast.BinOp(left, value.op, right), value)


def _scattered(value: ast.expr, target: ast.Subscript, mask: ast.expr) -> ast.expr:
    """Rows placed where the mask holds; numbers and single rows as they are."""
    rows = len(_ranks(target.value)) == 1 and _ranks(value) == [_ranks(target.value)[0] - _ranks(mask)[0] + 1]
    if "tensor" not in seen(value).get("kinds", ()) or not rows:
        return value
    empty = _torch("zeros_like", value, name(target.value.id))
    return _torch("masked_scatter", value, empty, _wide(mask, target), value)


def _wide(mask: ast.expr, target: ast.Subscript) -> ast.expr:
    """The mask with an axis for each that it does not cover."""
    for _ in range(_ranks(target.value)[0] - _ranks(mask)[0]):
        mask = _torch("unsqueeze", mask, mask, ast.Constant(-1))
    return mask


def _torch(short: str, like: ast.AST, *args: ast.expr) -> ast.Call:
    made = call(f"torch.{short}", *args)
    made.seen = {"kinds": ["tensor"], "callee": [f"torch.{short}"]}
    return ast.copy_location(made, like)


EXAMPLES = (
    Example(
        """
        def f(x, m, v):
            # x: tensor[3]
            # m: tensor[bool]
            # v: tensor[2]
            rows = x[m, :] + v
            x[m, :] = rows
            return x
        """,
        """
        def f(x, m, v):
            x[:] = torch.where(
                torch.unsqueeze(m, -1), x + torch.masked_scatter(torch.zeros_like(x), torch.unsqueeze(m, -1), v), x
            )
            return x
        """,
    ),
    unchanged("def f(x: torch.Tensor, m: torch.Tensor, v: torch.Tensor):\n    x[m] = v\n    return x"),
)
