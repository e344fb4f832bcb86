"""The files around an emitted package: pyproject.toml, config.yml in MaxText's key names, and its own parity test."""

import json
from dataclasses import fields
from importlib import metadata
from pathlib import Path
from typing import Any

import jinja2

from maxcode import __version__
from maxcode.records import Record
from maxcode.stages import ConvertOptions
from maxcode.targets import Target

# What `maxcode gate` needs to build the source again.
REQUEST_FIELDS = tuple(field.name for field in fields(Target))

# Dependencies of an emitted package, with the series of releases that it was tested on.
_DEPENDENCIES = ("jax", "flax", "safetensors", "jaxtyping", "numpy")
_TEMPLATES = Path(__file__).with_name("templates")


def write(folder: Path, options: ConvertOptions, target: dict[str, Any], record: Record) -> None:
    """Write pyproject.toml, README.md and config.yml into the package's folder."""
    values = {
        "name": options.package_name,
        "target": target["text"],
        "class_name": target.get("class_name") or "model",
        "status": record["status"],
        "version": __version__,
        "dependencies": dependencies(*["optax"] * bool(target.get("training"))),
        "has_generate": all((folder / f).is_file() for f in (f"{options.package_name}/generate.py", "tokenizer.json")),
        "has_weights": (folder / "weights").is_dir(),
        "call": example_call(target),
    }
    for name in ("pyproject.toml", "README.md"):
        (folder / name).write_text(_render(name, values))
    (folder / "config.yml").write_text(config_yml(options, target))


def example_call(target: dict[str, Any]) -> str:
    """A call of the model with inputs of the shapes that it was tried with; "" where they are nothing that simple."""
    given = target.get("inputs")
    items = list(given.items()) if isinstance(given, dict) else [("", spec) for spec in given or []]
    arguments = []
    for name, spec in items:
        value = _example(spec)
        if value is None:
            return ""
        if not (name and value in ("None", "False")):  # what is off need not be said
            arguments.append(f"{name}={value}" if name else value)
    return f"outputs = model({', '.join(arguments)})" if arguments else ""


def _example(spec: Any) -> str | None:
    """An input as Python text: arrays of the shape asked for, plain values as they are, None for anything else."""
    if isinstance(spec, dict) and spec.get("kind") == "const":
        spec = spec["value"]
    if isinstance(spec, str | int | float | None):
        return repr(spec)
    if not isinstance(spec, dict) or "shape" not in spec:
        return None
    maker = "ones" if spec.get("kind") == "mask" else "zeros"
    dtype = str(spec.get("dtype", "float32")).replace("64", "32")  # what JAX has by default
    return f"jnp.{maker}({tuple(spec['shape'])}, {json.dumps(dtype)})"


def dependencies(*more: str) -> list[str]:
    """Requirements of a package: each from the installed release up to the next series."""
    return [f"{name}{_series(metadata.version(name))}" for name in (*_DEPENDENCIES, *more)]


def _series(version: str) -> str:
    major, minor, *_ = version.split(".")
    upper = f"0.{int(minor) + 1}" if major == "0" else str(int(major) + 1)
    return f">={major}.{minor},<{upper}"


def config_yml(options: ConvertOptions, target: dict[str, Any]) -> str:
    """The run configuration with MaxText's key names, as YAML."""
    from maxcode.converter.config_run import emit_run_yaml

    return emit_run_yaml(target.get("config") or {}, model_name=options.package_name, dtype=options.dtype)


def _render(name: str, values: dict[str, Any]) -> str:
    loader = jinja2.FileSystemLoader(_TEMPLATES)
    environment = jinja2.Environment(
        loader=loader, undefined=jinja2.StrictUndefined, keep_trailing_newline=True, trim_blocks=True, autoescape=False
    )
    environment.filters["toml"] = lambda text: json.dumps(text, ensure_ascii=False)  # JSON strings are TOML strings
    return environment.get_template(f"{name}.j2").render(values)
