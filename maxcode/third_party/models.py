"""The list of models (`models.jsonl`), and the folder that their packages are installed into."""

import importlib.metadata
import json
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from maxcode.errors import MaxCodeError

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Model:
    """One line of the list.

    Args:
      package: name on PyPI.
      model: `module:Class`, or `folder/file.py:Class` below the site folder, for packages whose own `__init__` imports
        what does not run beside a CPU build of torch.
      init, inputs: what `maxcode convert` is given as `--init` and `--inputs`.
    """

    package: str
    model: str
    init: Any
    inputs: Any

    @property
    def slug(self) -> str:
        """A folder name."""
        return "".join(c if c.isalnum() else "_" for c in self.model)

    def target(self, site: Path) -> str:
        """The text that `maxcode convert` is given."""
        return str(site / self.model) if ".py:" in self.model else self.model

    def version(self, site: Path) -> str:
        """The installed version; "" where the package is not there."""
        found = importlib.metadata.distributions(name=self.package, path=[str(site)])
        return next((d.version for d in found), "")


def read_models(path: Path = HERE / "models.jsonl", only: Sequence[str] = ()) -> list[Model]:
    """The models of a list; with `only`, those whose name contains one of the texts."""
    models = [Model(**json.loads(line)) for line in path.read_text().splitlines() if line.strip()]
    return [m for m in models if not only or any(text in m.model for text in only)]


def install(models: Iterable[Model], site: Path) -> list[str]:
    """Install packages that are missing in `site`, without their dependencies, so that torch stays as it is.

    Returns the packages that the index does not have. What several packages need beside torch is in `support.txt`.
    """
    wanted = [*(HERE / "support.txt").read_text().split(), *(m.package for m in models)]
    missing = []
    for package in dict.fromkeys(wanted):
        if any(importlib.metadata.distributions(name=package, path=[str(site)])):
            continue
        command = [sys.executable, "-m", "pip", "install", "-qq", "--no-deps", "--target", str(site), package]
        if subprocess.run(command, check=False, capture_output=True).returncode:
            missing.append(package)
    return missing


def require(models: Sequence[Model]) -> None:
    """Raises MaxCodeError where nothing is left to try."""
    if not models:
        raise MaxCodeError(
            "third-party", "no model of the list has such a name", "a part of module:Class", "see the list"
        )
