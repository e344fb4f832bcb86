"""Every op entry against torch on torch's own sample inputs, through source: call -> expression -> text -> result."""

import functools

import jax
import pytest
import torch

from maxcode.converter import measured, registry
from maxcode.converter.rule import NoRule
from maxcode.coverage import calls, compare, ops
from maxcode.coverage.running import convert

registry.load()
# torch's own remarks on calls that its samples make.
pytestmark = [
    pytest.mark.filterwarnings("ignore:dropout2d. Received a"),
    pytest.mark.filterwarnings("ignore:reduction. 'mean' divides the total loss"),
    pytest.mark.filterwarnings("ignore:.nn.functional.upsample"),
    pytest.mark.filterwarnings("ignore:(var|std).*degrees of freedom is <= 0"),
]
_LENGTHENS = "values from minlength upwards would lengthen torch's result; a static length cannot"
# Names with samples that differ by design, each with its reason.
EXPECTED_MISSES = {"torch.bincount": _LENGTHENS, "torch.Tensor.bincount": _LENGTHENS}


def _default_names() -> list[str]:
    """Function forms; a method that shares its entries with a function is left to the slow run."""
    names = sorted(registry.OPS)
    shared = {n for n in names if n.startswith("torch.Tensor.") and f"torch.{n.rsplit('.', 1)[1]}" in registry.OPS}
    aliases = {n for n in names if n.startswith("torch.special.") and f"torch.{n.rsplit('.', 1)[1]}" in registry.OPS}
    return [n for n in names if n not in shared | aliases and n in calls.op_infos()]


@functools.cache
def _calls(name: str, requires_grad: bool = False) -> tuple[calls.Call, ...]:
    return tuple(calls.calls(name, requires_grad=requires_grad))


def _from_the_middle(found):
    """Order samples so that those between the first (often 0-d) and the last (often empty) come first."""
    middle = len(found) // 2
    return (*found[middle:], *found[:middle])


def _check(call: calls.Call) -> bool:
    """Compare one call; False when torch refuses it, or a declared limit or an unsupported form makes it a gap."""
    want = compare.expected(call)
    if want is None:
        return False
    try:
        converted = convert(call)
    except (NoRule, TypeError):
        return False
    assert compare.compared(call, converted, want)[1] is None, f"{call} -> {converted.text}"
    return True


@pytest.fixture(autouse=True)
def _x64():
    with jax.enable_x64(True):
        yield


@pytest.mark.parametrize("name", _default_names())
def test_rule_agrees_with_torch(name, request):
    if not any(compare.expected(call) for call in _calls(name)):
        pytest.skip("torch has no usable samples")
    if reason := EXPECTED_MISSES.get(name):
        request.applymarker(pytest.mark.xfail(reason=reason, strict=True))
    if not any(_check(call) for call in _from_the_middle(_calls(name))):
        assert any(rule.limits for rule in registry.entries(registry.OPS, name)), f"no sample of {name} is converted"


GRADIENTS = [
    "torch.softmax", "torch.nn.functional.gelu", "torch.nn.functional.silu", "torch.nn.functional.softplus",
    "torch.gather", "torch.scatter_add", "torch.index_add", "torch.cumsum", "torch.nn.functional.layer_norm",
    "torch.nn.functional.normalize", "torch.nn.functional.linear", "torch.topk", "torch.clamp", "torch.rsqrt",
    "torch.std", "torch.linalg.vector_norm", "torch.nn.functional.conv1d", "torch.masked_fill", "torch.cat",
]  # fmt: skip


@pytest.mark.parametrize("name", GRADIENTS)
def test_gradient_agrees_with_torch(name):
    found = [c for c in _calls(name, requires_grad=True) if all(t.numel() for t in c.tensors())]
    tried = (compare.compared(call, convert(call), compare.expected(call)) for call in reversed(found))
    compared, difference = next((r for r in tried if r[0] or r[1]), (False, None))  # in place, a leaf has no gradient
    assert compared
    assert difference is None


def _agreeing(kind: str) -> list[str]:
    return [
        k.removeprefix(kind) for k, r in measured.read()["rows"].items() if k.startswith(kind) and measured.agrees(r)
    ]


@pytest.mark.slow
@pytest.mark.parametrize("name", _agreeing("op "))
def test_measured_names_still_agree(name):
    assert measured.agrees(ops.measure(name, most=8))


def test_a_wrong_value_dtype_or_gradient_is_seen():
    call = next(c for c in _calls("torch.sin", requires_grad=True) if c.args[0].numel() > 1)
    want, converted = compare.expected(call), convert(call)
    cos = convert(calls.Call("torch.cos", call.args, {}))
    assert "values differ" in compare.compared(call, cos, want)[1]
    half = convert(calls.Call("torch.Tensor.half", call.args, {}))
    assert "dtype float16" in compare.compared(call, half, want)[1]
    frozen = convert(calls.Call("torch.detach", call.args, {}))
    torch_identity = calls.Call("torch.clone", call.args, {})
    assert "gradient" in compare.compared(torch_identity, frozen, compare.expected(torch_identity))[1]
    assert compare.compared(call, converted, want) == (True, None)


def test_random_results_are_compared_in_shape_and_dtype():
    call = calls.Call("torch.nn.functional.dropout", (torch.ones(50, dtype=torch.float64),), {"p": 0.5})
    want = compare.expected(call)
    assert want.kind is compare.Kind.RANDOM
    assert compare.compared(call, convert(call), want) == (False, None)


def test_calls_on_0d_tensors_are_vectors_of_one_entry():
    value = torch.tensor(3.0, dtype=torch.float64)
    for name, args in [("torch.sum", (0,)), ("torch.sort", ()), ("torch.cumsum", (-1,)), ("torch.softmax", (0,))]:
        call = calls.Call(name, (value, *args), {})
        assert compare.compared(call, convert(call), compare.expected(call)) == (False, None)
    assert convert(calls.Call("torch.sum", (value,), {})).text == "t0.sum()"
