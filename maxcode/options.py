"""Values of command-line options that hold JSON."""

import ast
import json
from pathlib import Path
from typing import Any

from maxcode.errors import MaxCodeError
from maxcode.evaluator.tuples import tagged


def parse_json(option: str, text: str) -> Any:
    """A JSON value, or with `@path` the JSON content of a file.

    Raises:
      MaxCodeError: the file cannot be read, or the text is no JSON.
    """
    where = option
    if text.startswith("@"):
        where = f"{option} {text}"
        try:
            text = Path(text[1:]).expanduser().read_text()
        except (OSError, UnicodeDecodeError) as error:
            raise MaxCodeError(where, f"cannot read the file ({error})", "a JSON file", "check the path") from None
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        found = f"not JSON: {error.msg} at line {error.lineno} column {error.colno} of {_shorten(text)!r}"
        raise MaxCodeError(where, found, "a JSON value", "quote it for the shell, with double quotes inside") from None


def parse_overrides(items: list[str] | None) -> dict[str, Any]:
    """`--set a.b=JSON` options as a mapping of dotted names to values; the last one of a name wins.

    Raises:
      MaxCodeError: no `=`, a name that is not dotted identifiers, or a value that is no JSON.
    """
    overrides: dict[str, Any] = {}
    for item in items or []:
        name, equals, value = item.partition("=")
        if not equals or not all(part.isidentifier() or part.isdigit() for part in name.split(".")):
            raise MaxCodeError(
                "--set", f"{item!r} is not NAME=JSON", "such as a.b=3", "write the name, '=' and a value"
            )
        try:
            overrides[name] = parse_json(f"--set {name}", value)
        except MaxCodeError as error:
            if value.startswith("@"):
                raise
            do = f"""for a text write --set '{name}="{value}"'"""
            raise MaxCodeError(error.where, error.found, error.expected, do) from None
    return overrides


def parse_arguments(option: str, text: str | None) -> list[Any] | dict[str, Any] | None:
    """`--init` and `--inputs`: a list (positional) or object (by name), in JSON or as a Python literal with tuples.

    Raises:
      MaxCodeError: anything else.
    """
    if text is None:
        return None
    try:
        value = parse_json(option, text)
    except MaxCodeError:
        value = _literal(text)
        if value is None:
            raise
    if not isinstance(value, list | dict):
        raise MaxCodeError(
            option, f"{_shorten(json.dumps(value))} is one value", "a JSON list or object", "put it in [ ]"
        )
    return value


def _literal(text: str) -> Any:
    """A Python literal, tuples tagged as target.json has them; None for other text."""
    try:
        value = ast.literal_eval(text)
        return tagged(value) if isinstance(value, dict) else [tagged(item) for item in value]
    except (ValueError, SyntaxError, TypeError):
        return None


def _shorten(text: str, width: int = 60) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= width else flat[: width - 1] + "…"
