"""What `maxcode plan` says: every definition and what becomes of it, what comes along, risks, an estimate."""

import ast
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import maxcode.converter.support
from maxcode import names
from maxcode.progress import SHARES
from maxcode.records import Record, counted

_SUPPORT = Path(next(iter(maxcode.converter.support.__path__)))


def describe(
    target: dict[str, Any], conversion: Any, facts: dict[str, Any], record: Record, *, weights: int | None
) -> Record:
    """The plan of a target.

    Args:
      facts: of the instrumented run.
      record: with `gaps` and `assumptions` (where they became which lines) and `timings` so far.
      weights: bytes of the stored weights, or None when they are random.
    """
    ours = {name: text for name, text in conversion.files.items() if not (_SUPPORT / name).is_file()}
    lines = {name: text.count("\n") for name, text in conversion.files.items()}
    return {
        "class": f"{target.get('module') or target.get('path')}:{target.get('class_name')}",
        "config_class": target.get("config_class"),
        "config": target.get("config") or target.get("arguments"),
        "definitions": definitions(ours, conversion, record["gaps"]),
        "left_out": left_out(facts, ours, target),
        "support": {name: _purpose(text) for name, text in sorted(conversion.files.items()) if name not in ours},
        "lines": {"written": sum(lines[name] for name in ours), "files": lines},
        "risks": risks(record, facts, weights),
        "estimate": estimate(record["timings"], weights),
    }


def definitions(files: Mapping[str, str], conversion: Any, gaps: list[dict[str, Any]]) -> list[Record]:
    """Classes and functions that are converted, each after those that it needs."""
    rows = []
    for name, text in sorted(files.items(), key=lambda item: item[0] == "modeling.py"):
        for node in ast.parse(text).body:
            if name != "__init__.py" and isinstance(node, ast.ClassDef | ast.FunctionDef):
                inside = [g for g in gaps if _is_inside(g, name, node)]
                rows.append({
                    "name": node.name, "kind": "class" if isinstance(node, ast.ClassDef) else "function", "file": name,
                    "lines": (node.end_lineno or node.lineno) - node.lineno + 1,
                    "source": conversion.classes.get(node.name, ""),
                    "handling": f"convert, {counted(len(inside), 'gap')}" if inside else "convert",
                })  # fmt: skip
    return rows


def _is_inside(gap: dict[str, Any], file: str, node: ast.stmt) -> bool:
    line = gap.get("jax_line") or 0
    return str(gap.get("jax_file", "")).endswith(f"/{file}") and node.lineno <= line <= (node.end_lineno or 0)


def left_out(facts: dict[str, Any], files: Mapping[str, str], target: dict[str, Any]) -> list[str]:
    """Definitions of the model's own file that the class does not reach, or that are framework plumbing."""
    row = facts.get("classes", {}).get(f"{target.get('module')}.{target.get('class_name')}", {})
    tree = names.parse_file(Path(row["file"])) if row.get("file") else ""
    if not isinstance(tree, ast.Module):
        return []
    kept = {name for text in files.values() for node in ast.parse(text).body if (name := getattr(node, "name", None))}
    return sorted((set(names.classes(tree)) | names.functions(tree)) - kept)


def _purpose(text: str) -> str:
    return (ast.get_docstring(ast.parse(text)) or "").partition("\n")[0]


def risks(record: Record, facts: dict[str, Any], weights: int | None) -> list[str]:
    """What may stand between this plan and a verified package."""
    found = []
    if record["gaps"]:
        found.append(f"{counted(len(record['gaps']), 'gap')}: the result is not verified until each has a rule")
    if record["assumptions"]:
        found.append(f"{counted(len(record['assumptions']), 'assumption')}: the result can do less than the source")
    refused = [row for row in facts.get("scenarios", ()) if row.get("error")]
    found += [f"the source does not run {row['name']!r} ({row['error'].splitlines()[0]})" for row in refused]
    free = shutil.disk_usage(Path.cwd()).free
    if weights and free < 2 * weights:
        found.append(f"{weights / 1e9:.1f} GB of weights are written once more, {free / 1e9:.1f} GB are free here")
    return found


def estimate(timings: dict[str, float], weights: int | None) -> dict[str, float]:
    """Seconds of the whole conversion on this machine, from what its first stages took just now."""
    spent = sum(timings.get(name, 0.0) for name in SHARES)
    per_share = spent / sum(share for name, share in SHARES.items() if name in timings)
    with_gate = sum(SHARES.values())
    copying = (weights or 0) / 1e8  # read, write and compare
    return {
        "seconds_without_gate": round(per_share * (with_gate - SHARES["gate"]) + copying, 1),
        "seconds": round(per_share * with_gate + copying, 1),
    }
