"""What stands where the source could not be converted."""

from typing import Any


def gap(code: str, text: str) -> Any:
    """Raise NotImplementedError: this part of the model has no conversion."""
    raise NotImplementedError(f"{code}: {text}")
