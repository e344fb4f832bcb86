"""MaxCode: turn PyTorch models into verified, MaxText-style JAX."""

from pathlib import Path

_ROOT = Path(__file__).resolve().parent.parent
if (_ROOT / "pyproject.toml").exists() and (_ROOT / "converter").is_dir():
    # In a source checkout the stages are sibling folders (converter/, evaluator/, …); an installed wheel nests them.
    __path__ = [*__path__, str(_ROOT)]

__version__ = "0.1.0"
