"""Versions of what a result depends on, read from package metadata: nothing heavy is imported."""

import platform
from importlib import metadata

from maxcode import __version__

DISTRIBUTIONS = ("jax", "jaxlib", "flax", "torch", "transformers", "numpy", "safetensors", "tokenizers")


def versions() -> dict[str, str]:
    """Name -> version of MaxCode, Python and the libraries that shape a conversion; absent ones are left out."""
    found = {"maxcode": __version__, "python": platform.python_version()}
    for name in DISTRIBUTIONS:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found
