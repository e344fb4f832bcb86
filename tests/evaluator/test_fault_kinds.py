"""Every kind of fault finds its code shape, and what it writes is Python."""

import ast

import pytest

from maxcode.evaluator.fault_data import DATA_KINDS
from maxcode.evaluator.fault_kinds import KINDS
from maxcode.evaluator.faults import faults_in

EXAMPLES = {
    "rope theta": ("inv = 1.0 / (base ** (jnp.arange(0, d, 2) / d))", "(base * 1.02) **"),
    "rotation sign": ("y = jnp.concatenate((-x2, x1), axis=-1)", "(x2, -x1)"),
    "norm eps": ("x = x * jax.lax.rsqrt(variance + self.eps)", "self.eps * 10"),
    "swapped gate and up": ("y = act(self.gate(x)) * self.up(x)", "act(self.up(x)) * self.gate(x)"),
    "dropped bias": ("y = x @ w + self.bias[...]", "x @ w"),
    "mask off by one": ("keep = keys <= slots", "keys < slots"),
    "window off by one": ("keep = keys > slots - window", "keys >= "),
    "cache off by one": ("k = jax.lax.dynamic_update_slice_in_dim(old, new, start, axis=2)", "start + 1"),
    "dropped upcast": ("x = x.astype(float32)", "x = x\n"),
    "added upcast": ("x = x.astype(input_dtype)", "x = x\n"),
    "added downcast": ("c = jnp.cos(emb)", "astype(jnp.bfloat16).astype(emb.dtype)"),
    "index off by one": ("e = self.embedding[...][ids]", "[ids - 1]"),
    "negative index": ("a = x[..., : n // 2]", "-(n // 2) :"),
    "activation flavour": ("y = jax.nn.gelu(x, approximate=False)", "approximate=True"),
    "scaling factor": ("w = q @ k * self.scaling", "1.02"),
    "softmax axis": ("w = jax.nn.softmax(w, axis=-1)", "axis=-2"),
    "dropped residual": ("h = residual + h", "h = h"),
    "norm weight plus one": ("y = self.weight * x.astype(d)", "(self.weight + 1)"),
    "head grouping": ("k = jnp.repeat(k, n, axis=1)", "jnp.tile(k, (1, n)"),
    "router normalisation": ("w = w / w.sum(-1, keepdims=True)", "w = w\n"),
    "router choice": ("v, i = jax.lax.top_k(scores, k)", "top_k(-scores"),
    "batch norm momentum": ("m = (1 - momentum) * m + momentum * batch", "* 0.5"),
    "position order": ("p = jnp.arange(n)", "[::-1]"),
    "swapped halves": ("a, b = jnp.split(x, 2, axis=-1)", "b, a = jnp.split"),
}


def test_there_are_enough_kinds_and_each_has_an_example():
    assert set(EXAMPLES) == set(KINDS)
    assert len(KINDS) + len(DATA_KINDS) >= 18


@pytest.mark.parametrize("name", sorted(EXAMPLES))
def test_kind_edits_its_shape(name):
    code, expected = EXAMPLES[name]
    source = f"import jax\nx = 'ä'\n{code}\n"
    fault = next(f for f in faults_in(source, "modeling.py") if f.kind == name)
    data = source.encode()
    edited = (data[: fault.start] + fault.replacement.encode() + data[fault.end :]).decode()
    ast.parse(edited)
    assert expected in edited
    assert edited.startswith("import jax\nx = 'ä'\n")
    assert fault.line == 3


@pytest.mark.parametrize("code", ["y = len(x) <= 3", "y = x.shape[0] <= n", "y = x + 1", "y = a @ b", "z = x[..., 0]"])
def test_ordinary_code_is_left_alone(code):
    assert list(faults_in(code, "modeling.py")) == []


def row(source, shape, layout="o i -> i o"):
    return {"source": source, "target": source.replace("weight", "kernel"), "layout": layout, "shape": list(shape)}


WEIGHT_MAP = {
    "format": 1,
    "rows": [
        row("embed.weight", (9, 4), ""),
        row("layers.0.gate.weight", (6, 4)),
        row("layers.0.up.weight", (6, 4)),
        row("layers.0.o.weight", (4, 4)),
        row("layers.1.gate.weight", (6, 4)),
        row("head.weight", (9, 4)),
    ],
}


@pytest.mark.parametrize("name", sorted(DATA_KINDS))
def test_weight_map_faults_change_a_copy(name):
    before = str(WEIGHT_MAP)
    changed = DATA_KINDS[name](WEIGHT_MAP)
    assert changed is not None
    assert changed != WEIGHT_MAP
    assert str(WEIGHT_MAP) == before
    assert DATA_KINDS[name]({"format": 1, "rows": []} | {"rows": WEIGHT_MAP["rows"][:1]}) is None
