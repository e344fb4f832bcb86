"""Facts of a training program: what its own run saw, beside what runs of its model saw."""

from typing import Any


def with_training(facts: dict[str, Any], training: dict[str, Any], seen: dict[str, Any]) -> dict[str, Any]:
    """Facts of the model's runs joined with those of the training program's."""
    files = dict(facts["files"])
    for path, rows in seen["files"].items():
        known = {tuple(row[:4]): row[4] for row in files.get(path, ())}
        for *place, fact in rows:
            known[tuple(place)] = _joined(known.get(tuple(place), {}), fact)
        files[path] = [[*place, fact] for place, fact in sorted(known.items())]
    return facts | {"files": files, "training": training}


def _joined(first: dict[str, Any], second: dict[str, Any]) -> dict[str, Any]:
    """What two runs saw of one expression."""
    return {
        name: [*first.get(name, ()), *(v for v in second.get(name, ()) if v not in first.get(name, ()))]
        for name in {**first, **second}
    }
