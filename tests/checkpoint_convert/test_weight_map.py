"""Weight map expressions: reading parts, writing back and the JSON form agree for any nesting."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from maxcode.converter.support.source_writer import write_back
from maxcode.converter.support.tensor_files import CheckpointError, TensorSpec
from maxcode.converter.support.weight_map import Combined, Row, Stored, Tie, Waiver, WeightMap, resize_row


@st.composite
def pieces(draw, depth=2):
    """A piece, its source arrays, and the leaf that it makes (built with NumPy's own functions)."""
    shape = tuple(draw(st.lists(st.integers(1, 3), min_size=1, max_size=3)))
    arrays: dict[str, np.ndarray] = {}

    def stored():
        name = f"t{len(arrays)}"
        axis = draw(st.integers(0, len(shape) - 1))
        extra = draw(st.integers(0, 2))
        whole = (*shape[:axis], shape[axis] + extra, *shape[axis + 1 :])
        arrays[name] = np.arange(np.prod(whole), dtype=np.float32).reshape(whole) + 1000 * len(arrays)
        if not extra:
            return Stored(name, whole, "F32"), arrays[name]
        start = draw(st.integers(0, extra))
        part = (axis, start, start + shape[axis])
        return Stored(name, whole, "F32", "", part), np.take(arrays[name], range(*part[1:]), axis)

    def node(level):
        if level == 0 or draw(st.booleans()):
            return stored()
        op = draw(st.sampled_from(["stack", "concat"]))
        count = draw(st.integers(1, 3))
        children = [node(0) for _ in range(count)]
        children_pieces, values = zip(*children, strict=True)
        axis = draw(st.integers(0, len(shape) - (op == "concat")))
        value = np.stack(values, axis) if op == "stack" else np.concatenate(values, axis)
        names = [f"x{i}" for i in range(value.ndim)]
        order = draw(st.permutations(range(value.ndim)))
        layout = f"{' '.join(names)} -> {' '.join(names[i] for i in order)}"
        return Combined(op, axis, tuple(children_pieces), layout), value.transpose(order)

    piece, leaf = node(depth)
    if isinstance(piece, Combined) and draw(st.booleans()):
        piece, leaf = Combined("stack", 0, (piece, piece)), np.stack([leaf, leaf])
    index = []
    for length in leaf.shape:
        start = draw(st.integers(0, length))
        index.append(slice(start, draw(st.integers(start, length))))
    return piece, arrays, leaf, tuple(index)


@settings(max_examples=200, deadline=None)
@given(pieces())
def test_gather_scatter_and_json(case):
    piece, arrays, leaf, index = case
    whole = tuple(slice(0, n) for n in leaf.shape)

    def fetch(name, at):
        return arrays[name][at]

    assert piece.target_shape == leaf.shape
    np.testing.assert_array_equal(piece.gather(fetch, whole), leaf)
    np.testing.assert_array_equal(piece.gather(fetch, index), leaf[index])
    for stored, values in piece.scatter(leaf):
        np.testing.assert_array_equal(values, arrays[stored.name][stored.part_index])
    written = WeightMap((Row("leaf", piece),), (Tie("a", "b", TensorSpec("F32", (2,))),), (Waiver("w", "why"),))
    assert WeightMap.from_json(json.loads(json.dumps(written.to_json()))) == written


def test_parts_from_several_leaves_make_one_tensor():
    whole = np.arange(12, dtype=np.float32).reshape(6, 2)
    rows = [
        Row(n, Stored("qkv", (6, 2), "F32", "o i -> i o", (0, a, a + 2))) for n, a in (("q", 0), ("k", 2), ("v", 4))
    ]
    leaves = {row.target: row.piece.gather(lambda _, at: whole[at], (slice(0, 2), slice(0, 2))) for row in rows}
    ((name, values),) = write_back(rows, leaves.__getitem__)
    assert name == "qkv"
    np.testing.assert_array_equal(values, whole)
    with pytest.raises(CheckpointError, match="qkv"):
        list(write_back(rows[:2], leaves.__getitem__))


def test_row_of_another_layer_and_size():
    row = Row("h.0.mlp.fc1.kernel", Stored("blocks.0.fc1.weight", (4, 3), "F32", "o i -> i o"))
    moved = resize_row(row, "h.7.mlp.fc1.kernel", (5, 6), {"blocks.7.fc1.weight": TensorSpec("BF16", (6, 5))})
    assert (moved.piece.name, moved.piece.shape, moved.shape) == ("blocks.7.fc1.weight", (6, 5), (5, 6))
    saved = resize_row(row, "h.7.mlp.fc1.kernel", (5, 6), None)
    assert (saved.piece.name, saved.piece.shape) == ("blocks.7.fc1.weight", (6, 5))
    expert = Row("h.0.moe.w", Combined("stack", 0, tuple(Stored(f"h.0.moe.{e}.w", (2,), "F32") for e in range(3))))
    moved = resize_row(expert, "h.2.moe.w", (3, 2), None)
    assert [part.name for part in moved.piece.stored()] == [f"h.2.moe.{e}.w" for e in range(3)]
    with pytest.raises(CheckpointError, match="convert at this size"):
        resize_row(expert, "h.2.moe.w", (4, 2), None)


def test_other_format_is_refused(tmp_path):
    path = tmp_path / "weights.json"
    path.write_text('{"format": 2}')
    with pytest.raises(CheckpointError, match="format 2, expected 1"):
        WeightMap.load(path)
    path.write_text("[")
    with pytest.raises(CheckpointError, match="not a weight map"):
        WeightMap.load(path)
    with pytest.raises(CheckpointError, match="no weight map"):
        WeightMap.load(tmp_path / "none.json")
