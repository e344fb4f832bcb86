"""The weight map's builder: rules by class, ties, waivers, and one error that lists everything that does not fit."""

import pytest

from maxcode.checkpoint_convert.mapping import Leaf, build_map
from maxcode.checkpoint_convert.source_tensors import SourceTensors
from maxcode.converter.support.tensor_files import CheckpointError, TensorSpec
from maxcode.converter.support.weight_map import Stored, Waiver

LINEAR, EMBEDDING = "torch.nn.modules.linear.Linear", "torch.nn.modules.sparse.Embedding"
RULES = {
    LINEAR: {"weight": ("kernel", "o i -> i o"), "bias": ("bias", "o -> o")},
    EMBEDDING: {"weight": ("embedding", "")},
}


def source(tensors, **extra):
    """tensors: {name: (shape, class or classes[, tied to])}"""
    rows = {}
    for name, (shape, classes, *tied) in tensors.items():
        first, *bases = [classes] if isinstance(classes, str) else classes
        facts = {"shape": shape, "dtype": "float32", "module_class": first, "module_bases": bases}
        rows[name] = facts | {"tied_to": tied[0] if tied else None}
    return SourceTensors.from_json({"tensors": rows, **extra})


def build(about, leaves, stored=None, **options):
    stored = {t.name: t.shape for t in about.tensors if t.same_as is None} if stored is None else stored
    specs = {name: TensorSpec("F32", tuple(shape)) for name, shape in stored.items()}
    return build_map(about, RULES.get, [Leaf(n, tuple(s), "float32") for n, s in leaves.items()], specs, **options)


def test_rules_apply_by_class_and_base_class():
    about = source(
        {
            "a.weight": ([4, 3], LINEAR),
            "b.weight": ([4, 3], ["m.Mine", LINEAR]),
            "c.weight": ([4, 3], "m.Raw"),
            "d": ([2], "m.Raw"),
        }
    )
    rows = build(about, {"a.kernel": [3, 4], "b.kernel": [3, 4], "c.weight": [4, 3], "d": [2]}).rows
    assert [(row.target, row.piece.name, row.piece.layout) for row in rows] == [
        ("a.kernel", "a.weight", "o i -> i o"),
        ("b.kernel", "b.weight", "o i -> i o"),
        ("c.weight", "c.weight", ""),
        ("d", "d", ""),
    ]


@pytest.mark.parametrize("kept", ["embed.weight", "head.weight"])
@pytest.mark.parametrize("leaves", [{"embed.embedding": [5, 3]}, {"embed.embedding": [5, 3], "head.kernel": [3, 5]}])
def test_tied_tensors_are_read_once_whichever_name_is_stored(kept, leaves):
    about = source({"embed.weight": ([5, 3], EMBEDDING), "head.weight": ([5, 3], LINEAR, "embed.weight")})
    found = build(about, leaves, {kept: [5, 3]})
    assert {row.target: (row.piece.name, row.copy) for row in found.rows} == {
        name: (kept, i > 0) for i, name in enumerate(leaves)
    }
    (tie,) = found.tied
    assert (tie.same_as, tie.stored) == (kept, None)
    both = build(about, leaves, {"embed.weight": [5, 3], "head.weight": [5, 3]})
    assert both.tied[0].stored == TensorSpec("F32", (5, 3))


def test_what_the_source_leaves_unread_is_waived_with_the_reason():
    about = source({"a": ([2], "m.Raw"), "b": ([2], "m.Raw")}, non_persistent=["rope.inv_freq"], ignored=[r"^mtp\."])
    stored = {"a": [2], "b": [2], "rope.inv_freq": [4], "mtp.x": [1]}
    found = build(about, {"a": [2]}, stored, waive={"b": "frozen at zero"})
    assert found.waived[0] == Waiver("b", "frozen at zero")
    assert {waiver.name: waiver.reason.split(":")[0] for waiver in found.waived[1:]} == {
        "rope.inv_freq": "non-persistent buffer",
        "mtp.x": "the source ignores names like '^mtp\\\\.' on load",
    }


def test_error_lists_everything_on_both_sides():
    about = source({"a.weight": ([4, 3], LINEAR), "b.bias": ([4], LINEAR), "c": ([2], "m.Raw"), "d": ([2], "m.Raw")})
    leaves = {"a.kernel": [4, 3], "extra.kernel": [1], "other": [1], "d": [2]}
    with pytest.raises(CheckpointError) as error:
        build(about, leaves, {"a.weight": [4, 3], "b.bias": [4], "d": [2], "stray.1": [1], "stray.2": [1]})
    text = str(error.value)
    assert "without a JAX leaf (add a module rule, or waive them with a reason) (1): b.bias -> b.bias" in text
    assert "without a source tensor (2): extra.kernel, other" in text
    assert "does not hold (1): c" in text
    assert "does not use (2): stray.1, stray.2" in text
    assert "a.weight (4, 3) -> a.kernel (4, 3)" in text


def test_stored_shape_that_is_not_the_models_is_refused():
    about = source({"a": ([2, 2], "m.Raw")})
    with pytest.raises(CheckpointError, match=r"checkpoint gives \(4,\), the model has \(2, 2\)"):
        build(about, {"a": [2, 2]}, {"a": [4]})


def test_integers_do_not_fill_floats():
    about = SourceTensors.from_json(
        {"tensors": {"n": {"shape": [], "dtype": "int64", "tied_to": None, "module_class": "m.Raw"}}}
    )
    with pytest.raises(CheckpointError, match="int64 cannot fill n, which is float32"):
        build_map(about, RULES.get, [Leaf("n", (), "float32")], {"n": TensorSpec("I64", ())})


def test_split_that_leaves_a_rest_is_refused():
    conversions = [{"targets": ["q"], "sources": [["qkv"]], "operations": [["Split", {"dim": 0}]]}]
    about = source({"q": ([2], "m.Raw")}, conversions=conversions)
    with pytest.raises(CheckpointError, match="do not make axis 0"):
        build(about, {"q": [2]}, {"qkv": [6]})


def test_two_readers_of_one_part_are_refused():
    conversions = [{"targets": [name], "sources": [["x"]], "operations": []} for name in ("p", "q")]
    about = source({"p": ([2], "m.Raw"), "q": ([2], "m.Raw")}, conversions=conversions)
    with pytest.raises(CheckpointError, match="exactly once"):
        build(about, {"p": [2], "q": [2]}, {"x": [2]})


def test_unknown_operation_is_named():
    conversions = [{"targets": ["q"], "sources": [["x"]], "operations": [["Dequantise", {}]]}]
    about = source({"q": ([2], "m.Raw")}, conversions=conversions)
    with pytest.raises(CheckpointError, match="'Dequantise'"):
        build(about, {"q": [2]}, {"x": [2]})


def test_open_axis_lengths_are_written_into_the_map():
    rules = {"m.Heads": {"weight": ("kernel", "(h d) i -> i h d")}}
    about = source({"a.weight": ([6, 4], "m.Heads")})
    found = build_map(
        about, rules.get, [Leaf("a.kernel", (4, 2, 3), "float32")], {"a.weight": TensorSpec("F32", (6, 4))}
    )
    assert isinstance(found.rows[0].piece, Stored)
    assert found.rows[0].shape == (4, 2, 3)
