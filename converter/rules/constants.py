"""Names of torch that are values: dtypes and numbers.

64-bit types are written as Python's own `int`, `float` and `complex`: as a dtype these mean 64 bits where x64 is on and
32 where it is off, where `jnp.int64` would warn at every use. They do not compare equal to an array's dtype, so
comparisons use `jnp.result_type(int)`.
"""

from __future__ import annotations

import ast

from maxcode.converter.inline import IMPORTS
from maxcode.converter.rule import Applied, NoRule

DTYPES = {
    "float32": "float32", "float": "float32", "float64": "float", "double": "float",
    "float16": "jnp.float16", "half": "jnp.float16", "bfloat16": "jnp.bfloat16",
    "complex64": "jnp.complex64", "cfloat": "jnp.complex64", "complex128": "complex", "cdouble": "complex",
    "int64": "int", "long": "int", "int32": "jnp.int32", "int": "jnp.int32", "int16": "jnp.int16",
    "short": "jnp.int16", "int8": "jnp.int8", "uint8": "jnp.uint8", "uint16": "jnp.uint16", "uint32": "jnp.uint32",
    "bool": "bool", "float8_e4m3fn": "jnp.float8_e4m3fn", "float8_e5m2": "jnp.float8_e5m2",
    "float8_e4m3fnuz": "jnp.float8_e4m3fnuz", "float8_e5m2fnuz": "jnp.float8_e5m2fnuz",
    "float8_e8m0fnu": "jnp.float8_e8m0fnu",
}  # fmt: skip
NUMBERS = {"inf": "jnp.inf", "nan": "jnp.nan", "pi": "jnp.pi", "e": "jnp.e", "newaxis": "None"}
CLASSES = {"Tensor": "jax.Array", "LongTensor": "jax.Array", "FloatTensor": "jax.Array", "BoolTensor": "jax.Array",
           "IntTensor": "jax.Array", "dtype": "jnp.dtype", "Size": "tuple", "Generator": "jax.Array"}  # fmt: skip
_WIDE = ("int", "float", "complex", "bool")


def apply_constant(name: str, *, compared: bool = False) -> Applied:
    """Convert a reference to a torch name that is a value ("torch.float32", "torch.inf") or a type ("torch.Tensor").

    With `compared`, a dtype is written so that it equals an array's `.dtype`. Raises NoRule for any other name.
    """
    leaf = name.removeprefix("torch.")
    text = DTYPES.get(leaf) or NUMBERS.get(leaf) or CLASSES.get(leaf)
    if text is None or leaf == name:
        raise NoRule(f"{name!r} is no constant that is converted; add it to converter/rules/constants.py")
    if compared and leaf in DTYPES and text in _WIDE:
        text = f"jnp.result_type({text})"
    expr = ast.parse(text, mode="eval").body
    imports = {IMPORTS[root] for root in _roots(expr) if root in IMPORTS}
    if "float32" in _roots(expr):
        imports.add(IMPORTS["jnp"])
    for node in ast.walk(expr):
        for attribute in ("lineno", "col_offset", "end_lineno", "end_col_offset"):
            node.__dict__.pop(attribute, None)
    return Applied(expr, frozenset(imports))


def has_constant(name: str) -> bool:
    """Whether `apply_constant` converts this name."""
    leaf = name.removeprefix("torch.")
    return leaf != name and (leaf in DTYPES or leaf in NUMBERS or leaf in CLASSES)


def _roots(expr: ast.expr) -> set[str]:
    return {node.id for node in ast.walk(expr) if isinstance(node, ast.Name)}
