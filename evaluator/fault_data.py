"""Faults of the weight map: the code is right, the weights stand in the wrong place."""

import copy
import itertools
import re
from collections.abc import Callable
from typing import Any

WeightMap = dict[str, Any]
DATA_KINDS: dict[str, Callable[[WeightMap], WeightMap | None]] = {}


def data_kind(name: str) -> Callable[[Callable], Callable]:
    """Register a fault of the weight map: a changed copy, or None where it does not apply."""

    def register(function: Callable) -> Callable:
        DATA_KINDS[name] = function
        return function

    return register


def simple(row: dict[str, Any]) -> bool:
    return "source" in row and not row.get("copy") and not row.get("part")


@data_kind("transposed square weight")
def transposed(weight_map: WeightMap) -> WeightMap | None:
    changed = copy.deepcopy(weight_map)
    for row in changed["rows"]:
        shape = row.get("shape", ())
        if simple(row) and len(shape) == 2 and shape[0] == shape[1] and len(row.get("layout", "").split("->")) == 2:
            left, right = (side.split() for side in row["layout"].split("->"))
            if left == right[::-1]:
                row["layout"] = ""
                return changed
    return None


@data_kind("swapped layers")
def swapped_layers(weight_map: WeightMap) -> WeightMap | None:
    """Layers 0 and 1 exchange every tensor of equal shape."""
    changed = copy.deepcopy(weight_map)
    by_source = {row["source"]: row for row in changed["rows"] if simple(row)}
    swapped = 0
    for name, row in by_source.items():
        other = by_source.get(re.sub(r"(?<=\.)0(?=\.)", "1", name, count=1))
        if other is not None and other is not row and other["shape"] == row["shape"]:
            row["target"], other["target"] = other["target"], row["target"]
            swapped += 1
    return changed if swapped else None


@data_kind("tied instead of untied")
def tied(weight_map: WeightMap) -> WeightMap | None:
    """The output projection takes the embedding's tensor."""
    changed = copy.deepcopy(weight_map)
    tables = [row for row in changed["rows"] if simple(row) and len(row["shape"]) == 2]
    tables = [row for row in tables if row["shape"][0] == max(r["shape"][0] for r in tables)]
    embedding = next((row for row in tables if not row.get("layout")), None)
    for row in tables:
        if embedding is not None and row is not embedding and row["shape"] == embedding["shape"] and row.get("layout"):
            row["source"] = embedding["source"]
            return changed
    return None


@data_kind("swapped tensors")
def swapped_tensors(weight_map: WeightMap) -> WeightMap | None:
    """Two tensors of one layer with equal shape and layout (gate and up, keys and values) exchange their leaves."""
    changed = copy.deepcopy(weight_map)
    rows = [row for row in changed["rows"] if simple(row) and len(row["shape"]) == 2]
    for first, second in itertools.pairwise(rows):
        alike = first["shape"] == second["shape"] and first.get("layout") == second.get("layout")
        if alike and first["source"].split(".")[:-2] == second["source"].split(".")[:-2]:
            first["target"], second["target"] = second["target"], first["target"]
            return changed
    return None
