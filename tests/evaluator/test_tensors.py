import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from maxcode.evaluator.tensors import TensorFile, TensorFolder, write_tensors

ARRAYS = {
    "half": np.arange(6, dtype=np.float32).astype(ml_dtypes.bfloat16).reshape(2, 3),
    "ids": np.array([-1, 5]),
    "flag": np.array(True),
    "none": np.zeros((0, 2), np.float32),
}


def test_arrays_come_back_as_written(tmp_path):
    write_tensors(tmp_path / "a.safetensors", ARRAYS)
    file = TensorFile(tmp_path / "a.safetensors")
    for name, value in ARRAYS.items():
        assert file[name].dtype == value.dtype
        np.testing.assert_array_equal(file[name], value)


def test_the_format_is_that_of_safetensors(tmp_path):
    plain = {"x": np.arange(4.0), "n": np.arange(3)}
    write_tensors(tmp_path / "ours.safetensors", plain)
    np.testing.assert_array_equal(load_file(tmp_path / "ours.safetensors")["x"], plain["x"])
    save_file(plain, tmp_path / "theirs.safetensors")
    np.testing.assert_array_equal(TensorFile(tmp_path / "theirs.safetensors")["n"], plain["n"])


@pytest.mark.parametrize("kept", [4, 40, -8])
def test_a_truncated_file_is_named(tmp_path, kept):
    path = tmp_path / "a.safetensors"
    write_tensors(path, {"x": np.arange(64.0)})
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(ValueError, match=r"a\.safetensors"):
        TensorFile(path)["x"]


def test_a_folder_joins_shards_and_refuses_duplicates(tmp_path):
    write_tensors(tmp_path / "1.safetensors", {"a": np.zeros(1)})
    write_tensors(tmp_path / "2.safetensors", {"b": np.ones(1)})
    assert sorted(TensorFolder(tmp_path)) == ["a", "b"]
    write_tensors(tmp_path / "3.safetensors", {"a": np.zeros(1)})
    with pytest.raises(ValueError, match="in both"):
        TensorFolder(tmp_path)
    with pytest.raises(FileNotFoundError, match="weights were expected"):
        TensorFolder(tmp_path / "empty")
