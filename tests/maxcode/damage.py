"""Damaged and refused model files."""

import json
import struct

import gguf
import numpy as np
from safetensors.numpy import save_file


def write_gguf(path, architecture="llama", size=32):
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_tensor("token_embd.weight", np.zeros((4, size), np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def truncate(folder):
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-8])


def lengthen_header(folder):
    path = folder / "model.safetensors"
    path.write_bytes(struct.pack("<Q", 10**9) + path.read_bytes()[8:])


def garble_header(folder):
    path = folder / "model.safetensors"
    data = bytearray(path.read_bytes())
    data[9:12] = b"\x00\xff{"
    path.write_bytes(bytes(data))


def lose_shard(folder):
    save_file({"a": np.zeros(2, np.float32)}, folder / "model-1.safetensors")
    (folder / "model.safetensors").unlink()
    index = {"weight_map": {"a": "model-1.safetensors", "b": "model-2.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


def lose_tensor(folder):
    lose_shard(folder)
    save_file({"c": np.zeros(2, np.float32)}, folder / "model-2.safetensors")


def garble_index(folder):
    lose_shard(folder)
    (folder / "model.safetensors.index.json").write_text("{")


def pickle_only(folder):
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
