"""Which parameters share storage, where a source names them by patterns or by whole modules."""

import itertools
import re
from collections.abc import Mapping

from flax import nnx

from .leaves import LEAF_NAMES, leaf_paths


def expanded_ties(model: nnx.Module, ties: Mapping[str, str]) -> dict[str, str]:
    """{target parameter: source parameter} for {pattern of targets: pattern of sources}, names as in the source.

    Patterns are regular expressions that match from the start of a name. Sources are gone through again where there are
    more targets; a source that is a target of an earlier pair stands for that one's source.

    Raises:
        ValueError: a pattern matches nothing, or the numbers of targets and sources do not fit.
    """
    names = sorted(_source_name(name) for name in leaf_paths(model))
    found: dict[str, str] = {}
    for target, source in ties.items():
        targets = [name for name in names if re.match(target, name)]
        sources = [name for name in names if re.match(source, name)]
        if not sources or not targets or len(targets) % len(sources):
            raise ValueError(f"cannot tie {target!r} to {source!r}: {targets} and {sources}; correct the patterns")
        for name, home in zip(targets, itertools.cycle(sources), strict=False):
            found[name] = found.get(home, home)
    return found


def _source_name(name: str) -> str:
    parents, _, leaf = name.rpartition(".")
    renamed = next((source for source, stored in LEAF_NAMES.items() if leaf in stored), leaf)
    return f"{parents}.{renamed}" if parents else renamed
