"""Shapes of the report's charts: positions, colours and labels; the template only draws them."""

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

CELL, GAP = 16, 2  # pixels
LABEL, HEAD = 250, 22
_DECADES = 6  # how many decades below the limit the colour scale shows
_PALETTE = (
    (68, 102, 178),
    (60, 150, 170),
    (96, 183, 134),
    (180, 200, 90),
    (240, 190, 70),
)  # far below … near the limit
_OVER = (214, 63, 63)
_DEFAULT_LIMIT = {"float64": 1e-10, "float32": 1e-4, "bfloat16": 5e-2}


def heat_map(name: str, data: Mapping[str, Any]) -> dict[str, Any]:
    """Modules of repeated layers as a grid: a row per place in the layer, a column per layer; others in column 0.

    Colour is log10 of the error against the limit; red is over it.
    """
    limit = data.get("limit") or _DEFAULT_LIMIT.get(name, 1e-4)
    modules = data.get("modules") or []
    rows: dict[str, int] = {}
    columns = 1
    cells = []
    for module in modules:
        key, layer = _row_and_layer(str(module["fqn"]))
        row = rows.setdefault(key, len(rows))
        columns = max(columns, (layer or 0) + 1)
        label = f"{module['fqn'] or '(model)'} · {module.get('class', '')} · {_text(module.get('error'))}"
        x, y = LABEL + (layer or 0) * (CELL + GAP), HEAD + row * (CELL + GAP)
        cells.append({"x": x, "y": y, "fill": colour(module.get("error"), limit), "title": label})
    step = max(1, math.ceil(columns / 16))
    return {
        "name": name,
        "limit": limit,
        "cells": cells,
        "rows": [{"y": HEAD + i * (CELL + GAP) + 12, "text": _shorten(key)} for key, i in rows.items()],
        "heads": [{"x": LABEL + i * (CELL + GAP) + CELL / 2, "text": str(i)} for i in range(0, columns, step)],
        "width": LABEL + columns * (CELL + GAP) + 8,
        "height": HEAD + len(rows) * (CELL + GAP) + 4,
        "size": CELL,
        "worst": max((m for m in modules if _is_number(m.get("error"))), key=lambda m: m["error"], default=None),
        "legend": _legend(limit),
    }


def _row_and_layer(fqn: str) -> tuple[str, int | None]:
    match = re.search(r"(?:^|\.)(\d+)(?=\.|$)", fqn)
    if match is None:
        return fqn or "(model)", None
    return f"{fqn[: match.start(1)]}*{fqn[match.end(1) :]}", int(match[1])


def _shorten(text: str, width: int = 36) -> str:
    return text if len(text) <= width else "…" + text[-(width - 1) :]


def colour(error: Any, limit: float) -> str:
    """From blue (at least six decades below the limit) to amber (at it); red above it, grey when unknown."""
    if not _is_number(error):
        return "rgb(140,140,140)"
    if error > limit:
        return f"rgb{_OVER}"
    decades = math.log10(limit / error) if error > 0 else _DECADES
    position = (1 - min(decades / _DECADES, 1)) * (len(_PALETTE) - 1)
    low = min(int(position), len(_PALETTE) - 2)
    mixed = (a + (b - a) * (position - low) for a, b in zip(_PALETTE[low], _PALETTE[low + 1], strict=True))
    return f"rgb({','.join(str(round(part)) for part in mixed)})"


def _legend(limit: float) -> list[dict[str, str]]:
    exponents = range(_DECADES, -1, -1)
    entries = [{"fill": colour(limit / 10**e, limit), "text": f"{limit / 10**e:.0e}"} for e in exponents]
    return [*entries, {"fill": colour(limit * 10, limit), "text": "over"}]


def histogram(name: str, data: Mapping[str, Any], width: int = 440, height: int = 150) -> dict[str, Any]:
    """Bars of counts over error bins (edges ascending, usually decades); heights are square roots, so that few show."""
    edges, counts = list(data["edges"]), list(data["counts"])
    if len(edges) != len(counts) + 1:
        raise ValueError(f"histogram {name!r}: {len(edges)} edges for {len(counts)} counts, expected one more edge")
    top = max([*counts, 1])
    step = width / max(len(counts), 1)
    limit = data.get("limit")
    bars = [
        {
            "x": i * step + 1,
            "y": height - height * math.sqrt(count / top),
            "width": max(step - 2, 1),
            "height": height * math.sqrt(count / top),
            "title": f"{_text(edges[i])} to {_text(edges[i + 1])}: {count}",
            "over": limit is not None and edges[i] >= limit,
        }
        for i, count in enumerate(counts)
    ]
    every = max(1, math.ceil(len(edges) / 7))
    ticks = [{"x": i * step, "text": f"{edges[i]:.0e}"} for i in range(0, len(edges), every)]
    return {"name": name, "bars": bars, "ticks": ticks, "width": width, "height": height, "total": sum(counts)}


def bars(timings: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Seconds as horizontal bars, longest is full width; order kept."""
    numbers = {name: float(value) for name, value in timings.items() if _is_number(value)}
    longest = max(numbers.values(), default=0.0) or 1.0
    return [{"name": n, "seconds": s, "percent": max(100 * s / longest, 0.4)} for n, s in numbers.items()]


def headroom(value: Any, limit: Any) -> dict[str, Any] | None:
    """How far a figure is from its limit: percent of a bar (log scale over six decades), and in words."""
    if not _is_number(value) or not _is_number(limit) or limit <= 0 or value < 0:
        return None
    if value > limit:
        return {"percent": 100.0, "text": f"{value / limit:.2g}× over", "over": True}
    decades = math.log10(limit / value) if value > 0 else _DECADES
    factor = limit / value if value > 0 else math.inf
    if factor < 10:
        text = f"{100 * value / limit:.0f} % of it"
    else:
        text = f"{factor:.0e}× below".replace("e+0", "e").replace("e+", "e") if value > 0 else "0"
    return {"percent": max(100 * (1 - min(decades / _DECADES, 1)), 2), "text": text, "over": False}


def clock(seconds: float) -> str:
    """Seconds as people read them."""
    if seconds < 60:
        return f"{seconds:.2f} s" if seconds < 10 else f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}:{rest:02d} min"


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _text(value: Any) -> str:
    return f"{value:.1e}" if _is_number(value) else "unknown"


def log_bins(errors: Sequence[float], lowest: int = -18, highest: int = 1) -> dict[str, list[float]]:
    """Counts of errors per decade, in the form of `histogram`; what lies outside goes into the outermost bins."""
    counts = [0] * (highest - lowest)
    for error in errors:
        exponent = math.floor(math.log10(error)) if error > 0 else lowest
        counts[min(max(exponent, lowest), highest - 1) - lowest] += 1
    return {"edges": [10.0**e for e in range(lowest, highest + 1)], "counts": [float(c) for c in counts]}
