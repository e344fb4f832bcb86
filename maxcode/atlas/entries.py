"""Entries of an atlas: one JSON line an architecture, with a tiny configuration and the inputs that it is run on."""

import dataclasses
import fnmatch
import hashlib
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from maxcode.errors import MaxCodeError
from maxcode.names import suggest
from maxcode.targets import Target

PACKAGED = Path(__file__).with_name("atlas.jsonl")
_REQUIRED = ("id", "model_type", "family", "class", "module", "config_class", "config_module", "config", "inputs")
_NON_FINITE = {"Infinity": float("inf"), "-Infinity": float("-inf"), "NaN": float("nan")}


@dataclass(frozen=True)
class Entry:
    """One architecture, as its line of the atlas says (docs/interfaces.md)."""

    id: str
    fields: dict[str, Any]

    @property
    def family(self) -> str:
        return self.fields["family"]

    @property
    def weak_signal(self) -> bool:
        """Whether the main output hardly moves with the input, so that parity on it says little."""
        return bool(self.fields.get("weak_signal"))

    @property
    def slug(self) -> str:
        """The id as a folder's name, which is also a package's: `llama_llamaforcausallm`."""
        return slug_of(self.id)

    def target(self) -> Target:
        """The entry's class at its configuration and inputs, weights being seeded noise."""
        f = self.fields
        text = f"transformers:{f['model_type']}:{f['class']}"
        target = Target(text, "transformers", type=f["model_type"], module=f["module"], class_name=f["class"])
        config = _decode(f["config"])
        return dataclasses.replace(
            target,
            config_module=f["config_module"],
            config_class=f["config_class"],
            config=config,
            inputs=f["inputs"],
        )


def slug_of(id_: str) -> str:
    """An entry's id as a name that a folder and a package can have."""
    return re.sub(r"\W+", "_", id_).lower()


def _decode(value: Any) -> Any:
    """Numbers that JSON lacks stand as {"__float__": "Infinity"}."""
    if isinstance(value, dict):
        if set(value) == {"__float__"}:
            return _NON_FINITE[value["__float__"]]
        return {key: _decode(item) for key, item in value.items()}
    return [_decode(item) for item in value] if isinstance(value, list) else value


def read_atlas(path: Path | None = None) -> list[Entry]:
    """The entries of an atlas file, in its order; of the packaged one without a path.

    Raises:
      MaxCodeError: no such file, a line that is no entry, or an id that stands there twice.
    """
    path = path or PACKAGED
    try:
        lines = path.read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise MaxCodeError(f"--atlas {path}", f"cannot be read ({error})", "a file with one entry a line") from None
    entries: dict[str, Entry] = {}
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        entry = _entry(line, f"{path}:{number}")
        if entry.id in entries:
            raise MaxCodeError(f"{path}:{number}", f"id {entry.id!r} a second time", "ids that differ", "remove one")
        entries[entry.id] = entry
    if not entries:
        raise MaxCodeError(str(path), "holds no entry", "one JSON object a line")
    return list(entries.values())


def _entry(line: str, where: str) -> Entry:
    do = "correct the line, or name another file"
    try:
        fields = json.loads(line)
    except ValueError as error:
        raise MaxCodeError(where, f"not JSON ({error})", "one entry a line", do) from None
    missing = [name for name in _REQUIRED if name not in fields] if isinstance(fields, dict) else ["id"]
    if missing:
        raise MaxCodeError(where, f"an entry without {', '.join(missing)}", f"fields {', '.join(_REQUIRED)}", do)
    return Entry(str(fields["id"]), fields)


def select(entries: Sequence[Entry], filters: Iterable[str]) -> list[Entry]:
    """The entries that every filter `field=value[,value]` keeps; a value may hold * and ?, as in a shell.

    Raises:
      MaxCodeError: a filter that is no such text, names an unknown field, or keeps nothing.
    """
    kept = list(entries)
    for text in filters:
        name, equals, wanted = text.partition("=")
        known = sorted({field for entry in entries for field in entry.fields})
        if not equals or name not in known:
            found = f"no field {name!r}{suggest(name, known)}" if equals else f"{text!r}"
            raise MaxCodeError(f"--filter {text}", found, "field=value, such as family=causal-lm")
        patterns = wanted.split(",")
        kept = [entry for entry in kept if _matches(entry.fields.get(name), patterns)]
        if not kept:
            raise MaxCodeError(f"--filter {text}", "keeps no entry", "a value that some entry has", "check the value")
    return kept


def sample(entries: Sequence[Entry], count: int) -> list[Entry]:
    """`count` entries of all families, each in proportion and at least once, in the order given.

    Which ones of a family is settled by a hash of their ids: the same today and tomorrow, and none the easy ones.
    """
    families: dict[str, list[Entry]] = {}
    for entry in sorted(entries, key=lambda e: hashlib.sha256(e.id.encode()).digest()):
        families.setdefault(entry.family, []).append(entry)
    # The family that is furthest behind its share takes the next place.
    taken = dict.fromkeys(sorted(families), 0)
    for _ in range(min(count, len(entries))):
        left = [name for name in taken if taken[name] < len(families[name])]
        taken[min(left, key=lambda name: taken[name] / len(families[name]))] += 1
    chosen = {entry.id for name, number in taken.items() for entry in families[name][:number]}
    return [entry for entry in entries if entry.id in chosen]


def _matches(value: Any, patterns: list[str]) -> bool:
    text = value if isinstance(value, str) else json.dumps(value)
    return any(fnmatch.fnmatchcase(text, pattern) for pattern in patterns)
