"""Leave out a mask of ones that a function makes when it is given none, where only makers of masks read it.

`if attention_mask is None: attention_mask = torch.ones(batch, past + length)` asks for the length of a cache as a
size, which is not known while decoding is compiled; and to what makes attention masks, None means the same. Where
others read the mask too, it is made in calls without a cache only: those that decode have it as None.
"""

import ast

from maxcode.converter.context import Context, Definition
from maxcode.converter.example import Example, unchanged
from maxcode.converter.library import defines
from maxcode.converter.nodes import blocks, is_none, loads, name, stored
from maxcode.converter.plumbing import last

_ONES = frozenset({"ones", "new_ones"})


def leave_out_ones(context: Context, definition: Definition, function: ast.FunctionDef) -> None:
    """Drop such statements of a function."""
    for block in blocks(function):
        for statement in list(block):
            if isinstance(statement, ast.If) and (mask := _made(statement)) is not None:
                following = block[block.index(statement) + 1 :]
                if block is function.body and _only_makes_masks(following, mask):
                    block.remove(statement)
                elif (cache := _cache_of(function, statement)) is not None:
                    asked = statement.test.values if isinstance(statement.test, ast.BoolOp) else [statement.test]
                    none = ast.Compare(name(cache), [ast.Is()], [ast.Constant(None)])
                    statement.test = ast.copy_location(ast.BoolOp(ast.And(), [*asked, none]), statement.test)


def _made(statement: ast.If) -> str | None:
    """The name that `if name is None [and …]` binds to ones, with what that takes."""
    tests = statement.test.values if isinstance(statement.test, ast.BoolOp) else [statement.test]
    test = tests[0]
    if isinstance(statement.test, ast.BoolOp) and not isinstance(statement.test.op, ast.And):
        return None
    if not (isinstance(test, ast.Compare) and isinstance(test.ops[0], ast.Is) and is_none(test.comparators[0])):
        return None
    made = statement.body[-1]
    if statement.orelse or not isinstance(test.left, ast.Name) or not all(map(_is_plain, statement.body)):
        return None
    binds = isinstance(made, ast.Assign) and stored([made]) == [test.left.id]
    return test.left.id if binds and isinstance(made.value, ast.Call) and _is_ones(made.value) else None


def _cache_of(function: ast.FunctionDef, statement: ast.If) -> str | None:
    """The cache whose length a size in the statement depends on."""
    read = {n.id for n in loads(statement.body)}
    for node in ast.walk(function):
        if isinstance(node, ast.Assign) and read & set(stored([node])):
            for asked in ast.walk(node.value):
                if isinstance(asked, ast.Attribute) and asked.attr == "get_seq_length":
                    return asked.value.id if isinstance(asked.value, ast.Name) else None
    return None


def _is_plain(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Assign) and all(isinstance(t, ast.Name) for t in statement.targets)


def _is_ones(call: ast.Call) -> bool:
    return last(ast.unparse(call.func)) in _ONES


def _only_makes_masks(following: list[ast.stmt], mask: str) -> bool:
    """Whether the name is an argument of makers of masks, and nothing else, until it is bound anew."""
    for statement in following:
        given = {
            id(value)
            for node in ast.walk(statement)
            if isinstance(node, ast.Call) and _makes_mask(node)
            for value in (*node.args, *(k.value for k in node.keywords))
        }
        if any(n.id == mask and id(n) not in given for n in loads([statement])):
            return False
        if mask in stored([statement]):
            return isinstance(statement, ast.Assign)
    return True


def _makes_mask(call: ast.Call) -> bool:
    maker = last(ast.unparse(call.func))
    return maker.startswith("create_") and defines("masks", maker)


EXAMPLES = (
    Example(
        """
        def f(self, x, attention_mask, cache):
            past = cache.get_seq_length() if cache is not None else 0
            if attention_mask is None:
                length = past + x.shape[1]
                attention_mask = torch.ones(x.shape[0], length, device=x.device)
            attention_mask = create_causal_mask(config=self.config, attention_mask=attention_mask, cache=cache)
            return x + attention_mask
        """,
        """
        def f(self, x, attention_mask, cache):
            past = cache.get_seq_length() if cache is not None else 0
            attention_mask = create_causal_mask(config=self.config, attention_mask=attention_mask, cache=cache)
            return x + attention_mask
        """,
    ),
    Example(
        """
        def f(self, x, attention_mask, cache):
            past = cache.get_seq_length() if cache is not None else 0
            if attention_mask is None:
                attention_mask = torch.ones(x.shape[0], past + x.shape[1])
            return self.masked(x, attention_mask)
        """,
        """
        def f(self, x, attention_mask, cache):
            past = cache.get_seq_length() if cache is not None else 0
            if attention_mask is None and cache is None:
                attention_mask = torch.ones(x.shape[0], past + x.shape[1])
            return self.masked(x, attention_mask)
        """,
    ),
    unchanged(
        """
        def f(x, attention_mask):
            if attention_mask is None:
                attention_mask = torch.ones(x.shape[:2])
            return x * attention_mask[..., None]
        """
    ),
)
