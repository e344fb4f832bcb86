"""Safetensors folders: every dtype, slices, shards, and refusal of damaged files."""

import json
import struct

import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from maxcode.converter.support.tensor_files import (
    DTYPES,
    CheckpointError,
    FolderWriter,
    TensorFolder,
    plan_shards,
    read_header,
    spec_of,
)

ALL = {name: np.arange(6).reshape(2, 3).astype(dtype) for name, dtype in DTYPES.items()}
ODD = {"scalar": np.float32(3).reshape(()), "empty": np.zeros((0, 4), ml_dtypes.bfloat16)}


def write(folder, tensors, max_bytes=10**9):
    specs = {name: spec_of(array) for name, array in tensors.items()}
    with FolderWriter(folder, plan_shards(specs, max_bytes)) as out:
        for name in reversed(tensors):  # any order
            out.write(name, tensors[name])
    return folder


@pytest.mark.parametrize("max_bytes", [1, 40, 10**9])
def test_written_tensors_read_back(tmp_path, max_bytes):
    files = TensorFolder(write(tmp_path, ALL | ODD, max_bytes))
    assert files.entries.keys() == (ALL | ODD).keys()
    for name, array in (ALL | ODD).items():
        read = files.read(name)
        assert (read.dtype, read.shape, read.tobytes()) == (array.dtype, array.shape, array.tobytes()), name
    assert (len(files.files) > 1) == (tmp_path / "model.safetensors.index.json").exists()
    assert not list(tmp_path.glob(".*"))


def test_agrees_with_the_library(tmp_path):
    known = {name: ALL[name] for name in ("F32", "BF16", "I64", "BOOL", "F16", "U8", "F64")}
    write(tmp_path / "ours", known)
    for name, array in load_file(tmp_path / "ours" / "model.safetensors").items():
        assert array.tobytes() == known[name].tobytes()
    (tmp_path / "theirs").mkdir()
    save_file(known, tmp_path / "theirs" / "model.safetensors", metadata={"format": "pt"})
    files = TensorFolder(tmp_path / "theirs")
    assert files.files[0].metadata == {"format": "pt"}
    for name, array in known.items():
        np.testing.assert_array_equal(files.read(name, (slice(1, 2), slice(0, 2))), array[1:2, 0:2])


def damage(path, how):
    data = path.read_bytes()
    header = json.loads(data[8 : 8 + struct.unpack("<Q", data[:8])[0]])
    body = data[8 + struct.unpack("<Q", data[:8])[0] :]
    if how == "truncated":
        path.write_bytes(data[:-3])
    elif how == "no header":
        path.write_bytes(data[:5])
    elif how == "garbage":
        path.write_bytes(b"\xff" * len(data))
    elif how == "longer":
        path.write_bytes(data + b"x")
    else:
        header["a"] |= {"shape": {"shape": [3, 3]}, "dtype": {"dtype": "F7"}, "range": {"data_offsets": [4, 28]}}[how]
        raw = json.dumps(header).encode()
        path.write_bytes(struct.pack("<Q", len(raw)) + raw + body)


@pytest.mark.parametrize("how", ["truncated", "no header", "garbage", "longer", "shape", "dtype", "range"])
def test_damaged_file_is_refused(tmp_path, how):
    write(tmp_path, {"a": np.zeros((2, 3), np.float32)})
    path = tmp_path / "model.safetensors"
    damage(path, how)
    with pytest.raises(CheckpointError, match=r"model\.safetensors"):
        read_header(path)


def test_missing_shards_are_all_listed(tmp_path):
    write(tmp_path, ALL, max_bytes=1)
    gone = sorted(tmp_path.glob("*.safetensors"))[1:3]
    for path in gone:
        path.unlink()
    with pytest.raises(CheckpointError) as error:
        TensorFolder(tmp_path)
    assert all(path.name in str(error.value) for path in gone)


def test_index_that_names_absent_tensors_is_refused(tmp_path):
    write(tmp_path, ALL, max_bytes=40)
    path = tmp_path / "model.safetensors.index.json"
    index = json.loads(path.read_text())
    index["weight_map"]["ghost"] = index["weight_map"]["F32"]
    path.write_text(json.dumps(index))
    with pytest.raises(CheckpointError, match="ghost"):
        TensorFolder(tmp_path)


def test_folder_without_weights_names_what_it_has(tmp_path):
    (tmp_path / "pytorch_model.bin").write_bytes(b"x")
    with pytest.raises(CheckpointError, match=r"pytorch_model\.bin"):
        TensorFolder(tmp_path)


def test_failed_write_leaves_no_file(tmp_path):
    specs = {"a": spec_of(np.zeros(3)), "b": spec_of(np.zeros(3))}
    with pytest.raises(CheckpointError, match="'b'"), FolderWriter(tmp_path, plan_shards(specs, 1 << 20)) as out:
        out.write("a", np.zeros(3))
    with pytest.raises(CheckpointError, match="expected"), FolderWriter(tmp_path, plan_shards(specs, 1 << 20)) as out:
        out.write("a", np.zeros(4))
    assert list(tmp_path.iterdir()) == []
