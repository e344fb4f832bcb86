"""Questions that a framework's code asks, and what stands for them."""

import ast

import pytest

from maxcode.converter.questions import device_answer, framework_answer


def _call(text: str, kind: str = "tensor") -> ast.Call:
    node = ast.parse(text, mode="eval").body
    node.args[0].seen = {"kinds": [kind]}
    return node


@pytest.mark.parametrize(
    ("text", "kind", "answer"),
    [
        ("isinstance(x, dict)", "record", "True"),
        ("isinstance(x, dict)", "dict", None),
        ("isinstance(x, BlockMask)", "tensor", "False"),
        ("is_torch_tensor(x)", "tensor", "isinstance(x, torch.Tensor)"),
        ("is_flash_attn_available(x)", "tensor", "False"),
        ("isinstance(x, list)", "record", None),
    ],
)
def test_questions(text, kind, answer):
    node = _call(text, kind)
    found = framework_answer(node, node.func.id, is_own=False)
    assert (None if found is None else ast.unparse(found)) == answer


def test_a_function_of_the_source_is_its_own():
    node = _call("is_torch_tensor(x)")
    assert framework_answer(node, "is_torch_tensor", is_own=True) is None


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("x.device != torch.device('meta')", True),
        ("x.device == torch.device('meta')", False),
        ("x.device == torch.device('cuda')", None),
        ("x.device == other", None),
    ],
)
def test_no_model_is_without_storage(text, answer):
    found = device_answer(ast.parse(text, mode="eval").body)
    assert (None if found is None else found.value) == answer
