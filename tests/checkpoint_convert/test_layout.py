"""Layouts: what they do to arrays, that their inverse undoes it, and that parts are read as wholes are."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from maxcode.checkpoint_convert.layout import LayoutError, parse_layout


@pytest.mark.parametrize(
    ("text", "shape", "expected"),
    [
        ("", (2, 3), lambda x: x),
        ("", (), lambda x: x),
        ("v e -> v e", (4, 3), lambda x: x),
        ("o i -> i o", (4, 3), lambda x: x.T),
        ("o i h w -> h w i o", (2, 3, 4, 5), lambda x: x.transpose(2, 3, 1, 0)),
        ("c 1 k -> k c", (6, 1, 4), lambda x: x[:, 0].T),
        ("(h=2 d) e -> e h d", (6, 5), lambda x: x.reshape(2, 3, 5).transpose(2, 0, 1)),
        ("(h=2 two=2 d) i -> (h d two) i", (12, 5), lambda x: x.reshape(2, 2, 3, 5).swapaxes(1, 2).reshape(12, 5)),
    ],
)
def test_apply_and_inverse(text, shape, expected):
    source = np.arange(np.prod(shape, dtype=int)).reshape(shape)
    layout = parse_layout(text)
    target = layout.apply(source)
    np.testing.assert_array_equal(target, expected(source))
    assert layout.target_shape(shape) == target.shape
    np.testing.assert_array_equal(layout.bind(shape, target.shape).inverse().apply(target), source)


@st.composite
def layouts(draw):
    """A layout with written lengths, the shape of its source side, and an index into its target side."""
    names = list("abcde")[: draw(st.integers(1, 5))]
    sizes = {name: draw(st.integers(1, 4)) for name in names}

    def side(order):
        groups, rest = [], list(order)
        while rest:
            width = draw(st.integers(1, len(rest)))
            groups.append(rest[:width])
            rest = rest[width:]
        return groups

    left, right = side(draw(st.permutations(names))), side(draw(st.permutations(names)))
    lengths = [int(np.prod([sizes[n] for n in group])) for group in right]
    index = []
    for length in lengths:
        start = draw(st.integers(0, length))
        index.append(slice(start, draw(st.integers(start, length))))
    text = " -> ".join(" ".join("(" + " ".join(f"{n}={sizes[n]}" for n in g) + ")" for g in s) for s in (left, right))
    return text, tuple(int(np.prod([sizes[n] for n in group])) for group in left), tuple(index)


@settings(max_examples=200, deadline=None)
@given(layouts())
def test_inverse_undoes_apply(case):
    text, shape, _ = case
    source = np.arange(np.prod(shape)).reshape(shape)
    layout = parse_layout(text)
    np.testing.assert_array_equal(layout.inverse().apply(layout.apply(source)), source)
    assert parse_layout(str(layout)) == layout


@settings(max_examples=200, deadline=None)
@given(layouts())
def test_part_equals_cut_of_whole(case):
    text, shape, index = case
    source = np.arange(np.prod(shape)).reshape(shape)
    layout = parse_layout(text)
    np.testing.assert_array_equal(layout.take(lambda i: source[i], shape, index), layout.apply(source)[index])


def test_transposed_part_reads_only_what_it_needs():
    read = []
    source = np.arange(24).reshape(4, 6)
    parse_layout("o i -> i o").take(
        lambda i: read.append(source[i].shape) or source[i], (4, 6), (slice(1, 3), slice(2, 4))
    )
    parse_layout("(h=2 d) i -> h d i").take(
        lambda i: read.append(source[i].shape) or source[i], (4, 6), (slice(1, 2), slice(0, 2), slice(0, 6))
    )
    assert read == [(2, 2), (2, 6)]


def test_leaf_shape_settles_open_lengths():
    layout = parse_layout("(h d) i -> h d i")
    with pytest.raises(LayoutError, match="unknown"):
        layout.target_shape((6, 5))
    bound = layout.bind((6, 5), (2, 3, 5))
    assert str(bound) == "(h=2 d=3) i=5 -> h d i"
    assert bound.target_shape((6, 5)) == (2, 3, 5)


@pytest.mark.parametrize(
    "text", ["o i", "o i -> i", "o o -> o o", "(o (i)) -> o i", "(o i -> o i", "o,i -> i o", "2 a -> a", ")"]
)
def test_unreadable_layout_is_refused(text):
    with pytest.raises(LayoutError, match="layout"):
        parse_layout(text)


@pytest.mark.parametrize(
    ("text", "shape"), [("o i -> i o", (3,)), ("(a=2 b) c -> a b c", (5, 2)), ("a 1 -> a", (3, 2))]
)
def test_shape_that_does_not_fit_is_refused(text, shape):
    with pytest.raises(LayoutError, match="shape"):
        parse_layout(text).target_shape(shape)
