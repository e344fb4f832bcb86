"""Helpers of the configuration tests: emit a config.py, import it as a package, compare with transformers."""

import importlib
import importlib.util
import inspect
import itertools
import json
import shutil
import sys
import warnings
from pathlib import Path

from transformers import AutoConfig

import maxcode.converter.support.config_base as config_base
from maxcode.converter.config_class import ConfigSource, emit_config

SUPPORT = Path(config_base.__file__).parent
ATLAS = Path(__file__).parents[3] / "shared" / "atlas" / "atlas.jsonl"  # beside the checkout, if at all
# Attributes that say how the framework loads or validates, and `dtype`, which is a run field here.
NOT_COMPARED = {
    "dtype", "_attn_implementation_internal", "_experts_implementation_internal", "_post_init_done", "_commit_hash",
    "ignore_keys_at_rope_validation", "transformers_version", "_auto_class", "_heterogeneity_spec",
    "_attn_implementation",
}  # fmt: skip
_numbers = itertools.count()


def import_text(text: str, folder: Path):
    """Import `text` as the config module of a fresh package that has the support modules."""
    name = f"emitted_config_{next(_numbers)}"
    package = folder / name
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    for path in (*SUPPORT.glob("*config*.py"),):
        shutil.copy(path, package)
    (package / "config.py").write_text(text)
    sys.path.insert(0, str(folder))
    try:
        return importlib.import_module(f"{name}.config")
    finally:
        sys.path.remove(str(folder))


def source_of(cls: type) -> ConfigSource:
    return ConfigSource(inspect.getsourcefile(cls), cls.__name__, cls.__module__)


def plain(value):
    """Nested values without the difference of lists and tuples, or of configuration classes."""
    if hasattr(value, "attribute_map"):
        return {name: plain(getattr(value, name)) for name in compared_names(value)}
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return sorted(value) if isinstance(value, (set, frozenset)) else value


def compared_names(config) -> set[str]:
    """Everything that model code can read from a transformers configuration of this class."""
    own = {n for c in type(config).__mro__ if c.__module__ == type(config).__module__ for n, v in vars(c).items()
           if isinstance(v, property)}  # fmt: skip
    names = set(vars(config)) | set(type(config).attribute_map) | own | {"num_labels", "output_attentions"}
    names -= NOT_COMPARED | set(getattr(config, "per_layer_attributes", None) or ())
    return {name for name in names if hasattr(config, name)}


def differences(source, emitted, where="") -> list[str]:
    """What differs between a transformers configuration and the emitted one, both ways."""
    found = []
    for name in sorted(compared_names(source)):
        expected = getattr(source, name)
        actual = getattr(emitted, name, "(no such attribute)")
        if hasattr(expected, "attribute_map") and hasattr(actual, "attribute_map"):
            found += differences(expected, actual, f"{where}{name}.")
        elif plain(expected) != plain(actual):
            found.append(f"{where}{name}: {plain(expected)!r} became {plain(actual)!r}")
    if getattr(source, "is_heterogeneous", False):
        for i, layer in enumerate(source.per_layer_config):
            found += differences(layer, emitted.per_layer_config[i], f"{where}layer {i}: ")
        return found
    run = set(config_base.RUN_FIELDS) | {"_frozen", "_hash", "_extra_keys", "_per_layer_overrides"}
    extra = [n for n in vars(emitted) if n not in run and not hasattr(source, n)]
    return found + [f"{where}{name}: not in the source" for name in extra]


class Entries(dict):
    """Configurations by model type: the atlas's small ones, else the defaults of the transformers class."""

    def __missing__(self, model_type: str) -> dict:
        cls = type(quietly(lambda: AutoConfig.for_model(model_type)))
        config = json.loads(json.dumps(cls._encode_special_floats(quietly(cls).to_dict())))
        self[model_type] = {"config_module": cls.__module__, "config_class": cls.__name__, "config": config}
        return self[model_type]


def atlas() -> Entries:
    """First entry of the atlas of every model type."""
    entries = Entries()
    for line in ATLAS.read_text().splitlines() if ATLAS.exists() else ():
        entry = json.loads(line)
        entries.setdefault(entry["model_type"], entry)
    return entries


def source_class(entry: dict) -> type:
    return getattr(importlib.import_module(entry["config_module"]), entry["config_class"])


def quietly(build):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return build()


__all__ = ["atlas", "differences", "emit_config", "import_text", "quietly", "source_class", "source_of"]
