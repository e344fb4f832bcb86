"""The engine: binding, inlining, helpers, limits, duplicates; and the text that common calls become."""

import ast
import warnings

import jax.numpy as jnp
import pytest
import torch

from maxcode.converter import helpers, registry
from maxcode.converter.facts import Fact
from maxcode.converter.rule import NoRule, apply_attribute, apply_method, apply_module, apply_op, op
from maxcode.converter.rules import constants

TENSOR = Fact("tensor", frozenset({"float32"}), frozenset({3}), ((2, 4, 6),))


def _call(text: str):
    node = ast.parse(text, mode="eval").body
    for name in ast.walk(node):
        if isinstance(name, ast.Name) and name.id in "xyw":
            name.fact = TENSOR
        if isinstance(name, ast.Name) and name.id in ("n", "m"):
            name.fact = Fact("int")
    return node


def convert(text: str) -> str:
    """Convert `torch.f(…)` or `x.f(…)` and give the text."""
    node = _call(text)
    keywords = {k.arg: k.value for k in node.keywords}
    root = ast.unparse(node.func)
    if root.startswith(("torch.", "F.")):
        return ast.unparse(apply_op(root.replace("F.", "torch.nn.functional."), node.args, keywords).expr)
    return ast.unparse(apply_method(node.func.attr, node.func.value, node.args, keywords).expr)


@pytest.mark.parametrize(
    ("source", "emitted"),
    [
        ("x.view(n, -1, m)", "x.reshape(n, -1, m)"),
        ("x.view(*shape, -1)", "x.reshape(*shape, -1)"),
        ("x.reshape(shape)", "x.reshape(shape)"),
        ("x.transpose(1, 2)", "x.swapaxes(1, 2)"),
        ("(x + y).transpose(1, 2)", "(x + y).swapaxes(1, 2)"),
        ("x.permute(0, 2, 1)", "x.transpose(0, 2, 1)"),
        ("x.float()", "x.astype(float32)"),
        ("x.to(torch.float32)", "x.astype(torch.float32)"),
        ("x.to(y.dtype)", "x.astype(y.dtype)"),
        ("x.to(y)", "x.astype(y.dtype)"),
        ("x.to(y.device)", "x"),
        ("x.to(device=y.device, dtype=float32)", "x.astype(float32)"),
        ("x.to(z)", "ops.to_whatever(x, z)"),
        ("torch.get_default_dtype()", "float32"),
        ("x.type_as(y)", "x.astype(y.dtype)"),
        ("x.contiguous()", "x"),
        ("x.detach()", "lax.stop_gradient(x)"),
        ("x.size()", "x.shape"),
        ("x.size(-1)", "x.shape[-1]"),
        ("x.pow(2)", "jnp.square(x)"),
        ("torch.rsqrt(x + 1)", "1 / jnp.sqrt(x + 1)"),
        ("torch.rsqrt(x)", "lax.rsqrt(x)"),
        ("x.mean(-1, keepdim=True)", "x.mean(-1, keepdims=True)"),
        ("x.sum(dim=[1, 2])", "x.sum((1, 2))"),
        ("torch.cat((x, y), dim=-1)", "jnp.concatenate((x, y), axis=-1)"),
        ("x.unsqueeze(1)", "jnp.expand_dims(x, 1)"),
        ("x.expand(n, 4, 6)", "jnp.broadcast_to(x, (n, 4, 6))"),
        ("x.expand(n, -1, 6)", "ops.expand(x, n, -1, 6)"),
        ("x.chunk(2, dim=-1)", "jnp.split(x, 2, axis=-1)"),
        ("x.chunk(4, dim=-1)", "ops.chunk(x, 4, -1)"),
        ("F.softmax(x, dim=-1, dtype=torch.float32)", "jax.nn.softmax(x.astype(torch.float32), axis=-1)"),
        ("F.gelu(x)", "jax.nn.gelu(x, approximate=False)"),
        ("F.gelu(x, approximate='tanh')", "jax.nn.gelu(x, approximate=True)"),
        ("F.linear(x, w)", "x @ w.T"),
        ("F.linear(x, w, y)", "project(x, w.T, y)"),
        ("F.dropout(x, p=n, training=False)", "random.dropout(x, n, False)"),
        ("torch.zeros(n, m, dtype=x.dtype, device=x.device)", "jnp.zeros((n, m), x.dtype)"),
        ("torch.ones((n, m))", "jnp.ones((n, m), float32)"),
        ("torch.arange(n, device=x.device)", "jnp.arange(n)"),
        ("torch.arange(0, n, 2, dtype=float32)", "jnp.arange(0, n, 2, dtype=float32)"),
        ("torch.full((n,), 0.5)", "jnp.full((n,), 0.5, float32)"),
        ("x.masked_fill(y, 0.0)", "jnp.where(y, 0.0, x)"),
        ("torch.einsum('bi,bj->bij', x, y)", "jnp.einsum('bi,bj->bij', x, y)"),
        ("x.clamp(min=0)", "jnp.clip(x, min=0)"),
        ("x.max(dim=-1)", "ops.max_along(x, -1)"),
        ("x.repeat(1, n, 1)", "jnp.tile(x, (1, n, 1))"),
        ("torch.baddbmm(x, y, w, beta=0, alpha=n)", "n * (y @ w)"),
    ],
)
def test_emitted_text(source, emitted):
    assert convert(source) == emitted


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("torch.nonzero(x)", "shape depends on data"),
        ("torch.where(x)", "shape depends on data"),
        ("F.one_hot(x)", "num_classes is not given"),
        ("F.softmax(x)", "dim is not given"),
        ("x.mean(*axes)", "starred argument"),
        ("torch.no_such_function(x)", "no rule for 'torch.no_such_function'"),
    ],
)
def test_gaps_say_why(source, reason):
    with pytest.raises(NoRule, match=reason):
        convert(source)


def test_argument_used_twice_becomes_a_helper_call():
    applied = apply_op("torch.lerp", [*_call("f(g(x), y, 0.5)").args], {})
    assert ast.unparse(applied.expr) == "ops.lerp(g(x), y, 0.5)"
    assert applied.helpers == {"lerp"}
    assert "from . import ops" in applied.imports


def test_imports_follow_from_the_body():
    applied = apply_method("float", ast.Name("x"), [], {})
    assert applied.imports == {"import jax.numpy as jnp", "float32 = jnp.float32"}


def test_dropped_conditionals_need_no_imports():
    applied = apply_op("torch.zeros", [*_call("f(n)").args], {"dtype": ast.parse("x.dtype", mode="eval").body})
    assert applied.imports == {"import jax.numpy as jnp"}


def test_argument_names_never_become_helpers_or_imports():
    applied = apply_op("torch.nn.functional.linear", [ast.Name("project"), ast.Name("jax")], {})
    assert ast.unparse(applied.expr) == "project @ jax.T"
    assert applied.imports == frozenset()


def test_facts_stay_on_the_arguments():
    applied = apply_op("torch.exp", [*_call("f(x)").args], {})
    assert applied.expr.args[0].fact is TENSOR


@pytest.mark.parametrize(
    ("private", "public"),
    [
        ("torch._C._nn.gelu", "torch.nn.functional.gelu"),
        ("torch._C._VariableFunctions.cat", "torch.cat"),
        ("torch._C.TensorBase.view", "torch.Tensor.view"),
        ("torch.functional.einsum", "torch.einsum"),
        ("torch._C._linalg.linalg_solve_triangular", "torch.linalg.solve_triangular"),
        ("torch.nn.modules.linear.Linear", "torch.nn.Linear"),
    ],
)
def test_private_names_are_known_by_their_public_ones(private, public):
    assert registry.canonical(private) == public


def test_duplicate_entries_raise():
    with pytest.raises(registry.DuplicateRule, match="is taken by"):

        @op("torch.exp")
        def a_second_exp(input):
            return input

    registry.HELPERS.pop("a_second_exp")


def test_python_names_are_refused_as_helper_names():
    with pytest.raises(registry.DuplicateRule, match="shadow"):

        @op("torch.some_function")
        def sum(input):
            return input


def test_every_rule_body_uses_names_that_emitted_code_has():
    registry.load()
    for name in registry.HELPERS:
        helpers.helper_source(name)
    compile(helpers.ops_module(registry.HELPERS), "ops.py", "exec")


def test_helpers_bring_what_they_call():
    assert helpers.closure(["normalize"]) == ["p_norm", "normalize", "absolute"]
    text = helpers.ops_module(["max_along"])
    assert "class ValuesAndIndices(NamedTuple)" in text
    assert "@op" not in text


def test_unknown_helper_raises():
    with pytest.raises(KeyError, match="no helper"):
        helpers.helper_source("no_such_helper")


def test_what_an_unknown_argument_of_to_means_is_seen_at_run_time():
    from maxcode.converter.rules.ops.dtype import to_whatever

    x = jnp.ones(2)
    for target in (jnp.bfloat16, jnp.dtype("bfloat16"), jnp.ones(3, jnp.bfloat16)):
        assert to_whatever(x, target).dtype == jnp.bfloat16
    for target in (None, "cpu"):
        assert to_whatever(x, target) is x
    assert to_whatever(x, int).dtype == jnp.result_type(int)


def test_padded_sequences_agree_with_torch():
    from maxcode.converter.rules.ops.joining import pad_sequence

    sequences = [torch.ones(n, 2) * n for n in (2, 4, 1)]
    for batch_first in (False, True):
        for side in ("left", "right"):
            want = torch.nn.utils.rnn.pad_sequence(sequences, batch_first, -1.0, side)
            found = pad_sequence([jnp.asarray(s.numpy()) for s in sequences], batch_first, -1.0, side)
            assert (found == want.numpy()).all()


def test_attributes_of_dtypes():
    for name in ("is_floating_point", "is_complex", "is_signed", "itemsize"):
        applied = apply_attribute(f"torch.dtype.{name}", ast.Name("t"))
        for dtype in ("bfloat16", "float32", "int8", "uint8", "complex64", "bool"):
            found = eval(ast.unparse(applied.expr), {"jnp": jnp, "t": jnp.dtype(dtype)})
            assert found == getattr(getattr(torch, dtype), name), (name, dtype)


def test_attributes_and_constants():
    assert ast.unparse(apply_attribute("torch.Tensor.mT", ast.Name("x")).expr) == "x.mT"
    assert ast.unparse(constants.apply_constant("torch.long").expr) == "int"
    assert ast.unparse(constants.apply_constant("torch.long", compared=True).expr) == "jnp.result_type(int)"
    assert ast.unparse(constants.apply_constant("torch.bfloat16").expr) == "jnp.bfloat16"
    assert constants.apply_constant("torch.float32").imports == {"import jax.numpy as jnp", "float32 = jnp.float32"}
    with pytest.raises(NoRule, match="no constant"):
        constants.apply_constant("torch.strided")


def test_module_defaults_drop_out():
    node = _call("f(n, m, False)")
    assert ast.unparse(apply_module("torch.nn.Linear", node.args, {}).expr) == "Linear(n, m, bias=False)"
    assert ast.unparse(apply_module("torch.nn.Linear", node.args[:2], {}).expr) == "Linear(n, m)"


def test_weights_of():
    assert registry.weights_of("torch.nn.Linear")["weight"] == ("kernel", "o i -> i o")
    assert registry.weights_of("torch.nn.GELU") == {}
    with pytest.raises(KeyError, match="no module rule"):
        registry.weights_of("torch.nn.NoSuchLayer")


def test_64_bit_dtypes_do_not_warn_without_x64():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for name in ("torch.long", "torch.float64", "torch.complex128"):
            dtype = eval(ast.unparse(constants.apply_constant(name).expr))
            assert jnp.arange(3).astype(dtype).dtype == jnp.zeros(2, dtype).dtype
        assert jnp.arange(2).dtype == eval(ast.unparse(constants.apply_constant("torch.long", compared=True).expr))
