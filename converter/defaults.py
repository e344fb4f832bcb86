"""Arguments that the framework takes from a model's configuration where a caller gives none, by a decorator."""

import ast

from maxcode.converter import plumbing as tables


def merge_defaults(function: ast.FunctionDef) -> None:
    """Write `if x is None: x = getattr(self.config, "x", None)` out for each such argument of a marked function."""
    decorators = {tables.last(ast.unparse(d)) for d in function.decorator_list}
    if tables.MERGING not in decorators:
        return
    names = [a.arg for a in (*function.args.args, *function.args.kwonlyargs)]
    written = []
    for name in (n for n in tables.MERGED_ARGUMENTS if n in names):
        text = f"if {name} is None:\n    {name} = getattr(self.config, {name!r}, None)"
        written.append(ast.copy_location(ast.parse(text).body[0], function.body[0]))
    first = 1 if ast.get_docstring(function, clean=False) is not None else 0
    function.body[first:first] = [ast.fix_missing_locations(s) for s in written]
