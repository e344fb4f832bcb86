"""Measured rows on disk, one a line, and which of them are of the rules as they are now."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from maxcode.converter.measured import RESULTS, Row, read, stamp
from maxcode.versions import versions

LIBRARIES = ("torch", "jax", "jaxlib", "numpy")  # what a measured row depends on beside our code


def library_versions() -> dict[str, str]:
    """The versions that a row is measured with."""
    found = versions()
    return {name: found[name] for name in LIBRARIES if name in found}


def is_fresh(row: Row | None, names: list[str]) -> bool:
    """Whether a row was measured with the rules and libraries as they are."""
    return row is not None and row.get("stamp") == stamp(names) and row.get("versions") == library_versions()


def write(rows: Mapping[str, Row], overridable: Mapping[str, list[str]], path: Path = RESULTS) -> None:
    """Write the results, sorted, a row a line, so that two people's changes meet in few lines."""
    lines = [f"  {json.dumps(key)}: {json.dumps(rows[key], sort_keys=True)}" for key in sorted(rows)]
    head = json.dumps(overridable, sort_keys=True)
    text = f'{{"overridable": {head},\n"rows": {{\n' + ",\n".join(lines) + "\n}}\n"
    staged = path.with_suffix(".new")
    staged.write_text(text)
    staged.replace(path)


def load(path: Path = RESULTS) -> dict[str, Row]:
    """The stored rows by "op NAME" or "module NAME"."""
    return read(path)["rows"]


def overridable() -> dict[str, list[str]]:
    """torch's own list of functions that can be overridden, by the namespace that users know: a second denominator."""
    from torch.overrides import get_overridable_functions, resolve_name

    found: dict[str, set[str]] = {}
    for functions in get_overridable_functions().values():
        for function in functions:
            name: Any = resolve_name(function)
            if name and not name.endswith((".__get__", ".__set__")):
                owner, _, short = name.rpartition(".")
                found.setdefault(owner, set()).add(short)
    return {owner: sorted(names) for owner, names in sorted(found.items())}
