"""Every op entry against torch on torch's own sample inputs, through source: call -> expression -> text -> result."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from maxcode.converter import registry
from maxcode.converter.rule import NoRule
from maxcode.converter.support import random
from tests import torch_samples

registry.load()
# torch's own remarks on calls that its samples make.
pytestmark = [
    pytest.mark.filterwarnings("ignore:dropout2d. Received a"),
    pytest.mark.filterwarnings("ignore:reduction. 'mean' divides the total loss"),
    pytest.mark.filterwarnings("ignore:.nn.functional.upsample"),
    pytest.mark.filterwarnings("ignore:(var|std).*degrees of freedom is <= 0"),
]
# Pooling lists up to 1,440 combinations of its options, each a program of its own to compile.
MOST_SAMPLES = 60
# Their values are free: only shapes and dtypes are compared.
UNSPECIFIED = ("rand", "empty", "bernoulli", "normal", "multinomial", "dropout")
_LENGTHENS = "values from minlength upwards would lengthen torch's result; a static length cannot"
# Names with samples that differ by design, each with its reason.
_VIEWS = "two samples are views into longer memory; a tensor is taken to be contiguous and whole"
EXPECTED_MISSES = {"torch.bincount": _LENGTHENS, "torch.Tensor.bincount": _LENGTHENS}
EXPECTED_MISSES_AMONG_ALL = EXPECTED_MISSES | {"torch.as_strided": _VIEWS, "torch.Tensor.as_strided": _VIEWS}


def _from_singular_vectors(left, values, right):
    count = values.shape[-1]
    return [values, left[..., :count] * values[..., None, :] @ right[..., :count, :]]


# Vectors whose signs (and what spans a null space) are free and differ between LAPACK builds are compared as products.
RECOMPOSED = {
    "torch.linalg.svd": _from_singular_vectors,
    "torch.svd": lambda left, values, right: _from_singular_vectors(left, values, right.mT),
    "torch.linalg.eigh": lambda values, vectors: [values, vectors * values[..., None, :] @ vectors.mT],
}


def _default_names() -> list[str]:
    """Function forms; a method that shares its entries with a function is left to the slow run."""
    names = sorted(registry.OPS)
    shared = {n for n in names if n.startswith("torch.Tensor.") and f"torch.{n.rsplit('.', 1)[1]}" in registry.OPS}
    aliases = {n for n in names if n.startswith("torch.special.") and f"torch.{n.rsplit('.', 1)[1]}" in registry.OPS}
    return [n for n in names if n not in shared | aliases and n in torch_samples.op_infos()]


@functools.cache
def _calls(name: str) -> tuple[torch_samples.Call, ...]:
    return tuple(call for call in torch_samples.calls(name) if _torch_accepts(call))


def _torch_accepts(call: torch_samples.Call) -> bool:
    try:
        call.on_torch()
    except (RuntimeError, TypeError, IndexError, ValueError):
        return False
    return True


def _spread(calls, count: int):
    """The largest of the samples and others spread over the rest, `count` in all."""
    if len(calls) <= count:
        return calls
    return [calls[round(i * (len(calls) - 1) / max(count - 1, 1))] for i in range(count)]


def _drawn(calls):
    """All samples, or MOST_SAMPLES drawn with a fixed seed: an even stride would miss options that vary fast."""
    if len(calls) <= MOST_SAMPLES:
        return calls
    return [calls[i] for i in sorted(np.random.default_rng(0).choice(len(calls), MOST_SAMPLES, replace=False))]


def _from_the_middle(calls):
    """Order samples so that those between the first (often 0-d) and the last (often empty) come first."""
    middle = len(calls) // 2
    return (*calls[middle:], *calls[:middle])


def _check(call: torch_samples.Call) -> bool:
    """Compare one call; False when a declared limit or an unsupported form makes it a gap."""
    try:
        converted = torch_samples.convert(call)
    except (NoRule, TypeError):
        return False
    rules = registry.entries(registry.OPS, call.name)
    rtol = max([rule.rtol or 1e-7 for rule in rules])
    atol = max([rule.atol or 1e-9 for rule in rules])
    with random.key_scope(jax.random.key(0)):
        found = torch_samples.leaves(converted.run())
    wanted = torch_samples.leaves(call.on_torch())
    if recompose := RECOMPOSED.get(call.name.replace("Tensor.", "")):
        found, wanted = recompose(*found), recompose(*wanted)
    where = f"{call} -> {converted.text}"
    assert len(found) == len(wanted), where
    unspecified = any(word in call.name for word in UNSPECIFIED) and "embedding" not in call.name
    unspecified |= bool(call.kwargs.get("dropout_p"))
    for got, want in zip(found, wanted, strict=True):
        if not isinstance(want, np.ndarray):
            assert got == want, where
            continue
        got = np.asarray(got)
        assert got.shape == want.shape, where
        assert got.dtype.kind == want.dtype.kind, where
        assert got.dtype.kind in "iub" or got.dtype == want.dtype, where
        if not unspecified or ("dropout" in call.name and call.kwargs.get("training") is False):
            np.testing.assert_allclose(got, want, rtol, atol, err_msg=where)
    return True


@pytest.fixture(autouse=True)
def _x64():
    with jax.enable_x64(True):
        yield


@pytest.mark.parametrize("name", _default_names())
def test_rule_agrees_with_torch(name, request):
    calls = _calls(name)
    if not calls:
        pytest.skip("torch has no usable samples")
    if reason := EXPECTED_MISSES.get(name):
        request.applymarker(pytest.mark.xfail(reason=reason, strict=True))
    if not any(_check(call) for call in _from_the_middle(calls)):
        assert any(rule.limits for rule in registry.entries(registry.OPS, name)), f"no sample of {name} is converted"


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(set(registry.OPS) & set(torch_samples.op_infos())))
def test_rule_agrees_with_torch_on_all_samples(name, request):
    if reason := EXPECTED_MISSES_AMONG_ALL.get(name):
        request.applymarker(pytest.mark.xfail(reason=reason, strict=True))
    for call in _drawn(_calls(name)):
        _check(call)


GRADIENTS = [
    "torch.softmax", "torch.nn.functional.gelu", "torch.nn.functional.silu", "torch.nn.functional.softplus",
    "torch.gather", "torch.scatter_add", "torch.index_add", "torch.cumsum", "torch.nn.functional.layer_norm",
    "torch.nn.functional.normalize", "torch.nn.functional.linear", "torch.topk", "torch.clamp", "torch.rsqrt",
    "torch.std", "torch.linalg.vector_norm", "torch.nn.functional.conv1d", "torch.masked_fill", "torch.cat",
]  # fmt: skip


_TRIANGLE = "torch's gradient also covers the triangle that it does not read"
# Names whose gradients differ on some sample, each with its reason; values agree.
GRADIENT_MISSES = {
    "torch.as_strided": _VIEWS,
    "torch.addr": "for a beta of 0 torch multiplies it by a NaN gradient; the converted form never reads the input",
    "torch.digamma": "jax.scipy's trigamma is off by up to 1e-2 at negative arguments",
    "torch.special.psi": "jax.scipy's trigamma is off by up to 1e-2 at negative arguments",
    "torch.scatter_reduce": "JAX has no gradient of a product scattered to repeated indices",
    "torch.cholesky_solve": _TRIANGLE,
    "torch.cholesky_inverse": _TRIANGLE,
    "torch.linalg.pinv": _TRIANGLE,
    "torch.linalg.eigh": "signs of vectors are free, and a sum of them is not",
    "torch.linalg.svd": "JAX has no gradient of full matrices",
    "torch.svd": "JAX has no gradient of full matrices",
    "torch.linalg.householder_product": "JAX has no gradient of it",
    "torch.orgqr": "JAX has no gradient of it",
    "torch.nextafter": "JAX has no gradient of it",
    "torch.index_reduce": "JAX has no gradient of a product scattered to repeated indices",
    "torch.linalg.eigvalsh": "of an input that is not symmetric, torch's gradient covers the triangle it does not read",
    "torch.linalg.norm": "numpy's vector norm of a negative order has a NaN gradient where an entry is 0, torch's is 0",
}


def _gradient_calls(name: str):
    return [c for c in _calls(name) if torch_samples.differentiable(c) and not _has_empty(c)]


def _has_empty(call) -> bool:
    return any(isinstance(a, torch.Tensor) and a.numel() == 0 for a in (*call.args, *call.kwargs.values()))


@pytest.mark.parametrize("name", GRADIENTS)
def test_gradient_agrees_with_torch(name):
    for call in _spread(_gradient_calls(name), 2)[-1:]:
        _check_gradient(call)


@pytest.mark.slow
@pytest.mark.parametrize("name", [n for n in _default_names() if not any(word in n for word in UNSPECIFIED)])
def test_gradient_agrees_with_torch_everywhere(name, request):
    if reason := GRADIENT_MISSES.get(name):
        request.applymarker(pytest.mark.xfail(reason=reason, strict=True))
    for call in _spread(_gradient_calls(name), 4):
        _check_gradient(call)


def _check_gradient(call: torch_samples.Call) -> None:
    try:
        converted = torch_samples.convert(call)
    except (NoRule, TypeError):
        return
    tensors = {k: t for k, t in converted.source.tensors.items() if t.is_floating_point()}
    for tensor in tensors.values():
        tensor.requires_grad_()
        tensor.grad = None
    try:
        wanted = [o for o in _flat(call.on_torch()) if o.is_floating_point() and o.requires_grad]
        if not wanted:
            return
        sum(o.sum() for o in map(torch.sin, wanted)).backward()
    except RuntimeError:
        return  # no derivative in torch
    finally:
        grads = {k: t.grad for k, t in tensors.items()}
        for tensor in tensors.values():
            tensor.requires_grad_(False)

    def loss(**arrays):
        leaves = [o for o in jax.tree.leaves(converted.run(**arrays)) if jnp.issubdtype(o.dtype, jnp.floating)]
        return sum(jnp.sin(o).sum() for o in leaves)

    arrays = {k: torch_samples.to_jax(t) for k, t in tensors.items()}
    found = jax.grad(lambda values: loss(**values))(arrays)
    for key, grad in grads.items():
        want = np.zeros(arrays[key].shape) if grad is None else grad.numpy(force=True)  # a ZeroTensor too
        np.testing.assert_allclose(found[key], want, rtol=1e-6, atol=1e-8, err_msg=f"{call} -> {converted.text}")


def _flat(value):
    if isinstance(value, torch.Tensor):
        return [value]
    return [leaf for item in value for leaf in _flat(item)] if isinstance(value, tuple | list) else []
