"""Tests of a source that say whether a value is a tensor."""

import ast


def tested_tensor(test: ast.expr) -> str | None:
    """The name that a test says is a tensor."""
    if isinstance(test, ast.Call) and is_isinstance_tensor(test) and isinstance(test.args[0], ast.Name):
        return test.args[0].id
    return None


def is_isinstance_tensor(node: ast.Call) -> bool:
    """Whether a call is `isinstance(x, torch.Tensor)`."""
    return (
        isinstance(node.func, ast.Name)
        and node.func.id == "isinstance"
        and len(node.args) == 2
        and ast.unparse(node.args[1]) in ("torch.Tensor", "Tensor", "torch.LongTensor")
    )
