"""Loading operations as expressions give what transformers' own operations give, and can be undone."""

import numpy as np
import pytest
import torch
from transformers import core_model_loading as loading

from maxcode.checkpoint_convert.source_conversions import Conversion, expressions
from maxcode.converter.support.source_writer import write_back
from maxcode.converter.support.tensor_files import CheckpointError, spec_of
from maxcode.converter.support.weight_map import Row

CASES = [
    ([loading.MergeModulelist(dim=0)], {"x.*.w": [(2, 3)] * 4}, ["x.w"]),
    (
        [loading.MergeModulelist(dim=0), loading.Concatenate(dim=1)],
        {"x.*.g": [(2, 3)] * 4, "x.*.u": [(5, 3)] * 4},
        ["x.gu"],
    ),
    ([loading.Concatenate(dim=0)], {"q": [(2, 3)], "k": [(1, 3)]}, ["qk"]),
    ([loading.Chunk(dim=0)], {"qkv": [(6, 3)]}, ["q", "k", "v"]),
    ([loading.Chunk(dim=1)], {"gu": [(3, 8)]}, ["g", "u"]),
    ([loading.Transpose(1, 2)], {"w": [(2, 3, 4)]}, ["t"]),
    ([loading.Transpose(dim0=0, dim1=1)], {"w": [(2, 3)]}, ["t"]),
    ([loading.Interleave(dim=1)], {"w": [(3, 8, 2)]}, ["t"]),
    ([loading.Interleave(dim=0, inverse=True)], {"w": [(8, 2)]}, ["t"]),
]


@pytest.mark.parametrize(("operations", "sources", "targets"), CASES, ids=lambda value: str(value)[:40])
def test_expression_equals_the_operation(operations, sources, targets):
    arrays, groups, torch_groups, count = {}, [], {}, 0
    for pattern, shapes in sources.items():
        names = [pattern.replace("*", str(i)) for i in range(len(shapes))]
        for name, shape in zip(names, shapes, strict=True):
            count += 1
            arrays[name] = np.arange(np.prod(shape), dtype=np.float32).reshape(shape) + 1000 * count
        groups.append(names)
        torch_groups[pattern] = [torch.from_numpy(arrays[name]) for name in names]
    result = torch_groups
    for operation in operations:
        result = operation.convert(result, source_patterns=list(sources), target_patterns=targets)
    expected = {name: value.numpy() for name, value in result.items()}
    assert list(expected) == targets

    written = [[type(operation).__name__, dict(vars(operation))] for operation in operations]
    conversion = Conversion.from_json({"targets": targets, "sources": groups, "operations": written})
    stored = {name: spec_of(array) for name, array in arrays.items()}
    pieces = expressions(conversion, stored, {name: value.shape for name, value in expected.items()})
    for name, value in expected.items():
        whole = tuple(slice(0, n) for n in value.shape)
        np.testing.assert_array_equal(pieces[name].gather(lambda n, at: arrays[n][at], whole), value)
    back = dict(write_back([Row(name, piece) for name, piece in pieces.items()], expected.__getitem__))
    assert back.keys() == arrays.keys()
    for name, array in arrays.items():
        np.testing.assert_array_equal(back[name], array)


def test_list_is_split_into_single_tensors():
    conversion = Conversion(("x.0", "x.1"), (("xs",),), (("SplitModulelist", {"dim": 1}),))
    array = np.arange(12, dtype=np.float32).reshape(3, 2, 2)
    pieces = expressions(conversion, {"xs": spec_of(array)}, {"x.0": (3, 2), "x.1": (3, 2)})
    for i in range(2):
        whole = (slice(0, 3), slice(0, 2))
        np.testing.assert_array_equal(pieces[f"x.{i}"].gather(lambda _, at: array[at], whole), array[:, i])


def test_tensor_that_is_not_stored_gives_nothing():
    assert expressions(Conversion(("a",), (("b", "c"),)), {"b": spec_of(np.zeros(2))}, {"a": (4,)}) is None


def test_splitting_what_was_rearranged_is_refused():
    operations = (("Interleave", {"dim": 0}), ("Chunk", {"dim": 0}))
    with pytest.raises(CheckpointError, match="not after other operations"):
        expressions(Conversion(("a", "b"), (("w",),), operations), {"w": spec_of(np.zeros(4))}, {"a": (2,), "b": (2,)})
