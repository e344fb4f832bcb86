import numpy as np
import pytest

from maxcode.evaluator.inverse_layout import to_source
from maxcode.evaluator.ledger import Row, fitted

RNG = np.random.default_rng(0)


@pytest.mark.parametrize(
    ("layout", "source_shape", "forward"),
    [
        ("", (3, 4), lambda x: x),
        ("o i -> o i", (3, 4), lambda x: x),
        ("o i -> i o", (3, 4), lambda x: x.T),
        ("c 1 k -> k c", (5, 1, 3), lambda x: x[:, 0].T),
        ("(h=2 d) e -> e h d", (6, 4), lambda x: x.reshape(2, 3, 4).transpose(2, 0, 1)),
        ("(h=2 two=2 d) i -> (h d two) i", (12, 5), lambda x: x.reshape(2, 2, 3, 5).swapaxes(1, 2).reshape(12, 5)),
    ],
)
def test_layouts_are_undone(layout, source_shape, forward):
    source = RNG.normal(size=source_shape)
    np.testing.assert_array_equal(to_source(forward(source), layout, source_shape), source)


@pytest.mark.parametrize(
    ("layout", "leaf", "shape"),
    [
        ("", (4, 3), (3, 4)),
        ("o i -> i o", (3, 4), (3, 4)),
        ("o i -> i", (3,), (3, 4)),
        ("(h=5 d) -> h d", (2, 3), (6,)),
    ],
)
def test_layouts_that_do_not_fit_are_refused(layout, leaf, shape):
    with pytest.raises(ValueError, match="layout"):
        to_source(np.zeros(leaf), layout, shape)


def simple(name, shape, **more):
    return {"source": name, "shape": list(shape), "dtype": "F32", "layout": "o i -> i o", **more}


def test_a_stack_gives_back_its_tensors():
    tensors = RNG.normal(size=(2, 3, 4))
    experts = [simple("e.0", (3, 4)), simple("e.1", (3, 4))]
    row = Row("e", {"target": "e", "sources": experts, "combine": {"op": "stack", "axis": 0}, "layout": ""})
    pieces = list(row.pieces(tensors.transpose(0, 2, 1)))
    assert [piece.source for piece in pieces] == ["e.0", "e.1"]
    np.testing.assert_array_equal(np.stack([piece.value for piece in pieces]), tensors)


def test_a_concatenation_then_a_layout_gives_back_its_tensors():
    gate, up = RNG.normal(size=(3, 4)), RNG.normal(size=(2, 4))
    sources = [simple("gate", (3, 4), layout=""), simple("up", (2, 4), layout="")]
    row = Row("w", {"sources": sources, "combine": {"op": "concat", "axis": 0}, "layout": "o i -> i o"})
    found = {piece.source: piece.value for piece in row.pieces(np.concatenate([gate, up]).T)}
    np.testing.assert_array_equal(found["gate"], gate)
    np.testing.assert_array_equal(found["up"], up)


def test_a_part_has_the_shape_of_the_part():
    [piece] = Row("q", simple("qkv", (9, 4), part=[0, 3, 6])).pieces(np.zeros((4, 3)))
    assert (piece.value.shape, piece.part, piece.shape) == ((3, 4), (0, 3, 6), (9, 4))


def test_an_unknown_format_is_refused():
    with pytest.raises(ValueError, match="format 2"):
        Row.all({"format": 2, "rows": []})


def test_rows_serve_a_smaller_model():
    rows = [Row(f"layers.{i}.q.kernel", simple(f"h.{i}.q.weight", (8, 6))) for i in range(2)]
    small, more = fitted(rows, ["layers.1.q.kernel", "layers.4.q.kernel", "other"], {"h.4.q.weight": (3, 2)})
    assert small == rows[1]
    assert (more.target, more.sources()) == ("layers.4.q.kernel", ["h.4.q.weight"])
    leaf = RNG.normal(size=(2, 3))
    np.testing.assert_array_equal(next(more.pieces(leaf)).value, leaf.T)


def test_numbers_are_replaced_in_their_order():
    expert = {"sources": [simple(f"h.0.e.{e}.w", (3, 4)) for e in range(2)], "combine": {"op": "stack", "axis": 0}}
    [row] = fitted([Row("layers.0.e.w", expert)], ["layers.7.e.w"], {})
    assert row.sources() == ["h.7.e.0.w", "h.7.e.1.w"]
