"""The `jaxbench` command. Workloads and harness arrive with a later milestone; until then it says so."""

import argparse
import sys

from maxcode import __version__

_BAD_USAGE = 2
_ABOUT = f"Benchmark kernels and models in JAX. Release {__version__} has no workloads yet: only --version answers."


def main(arguments: list[str] | None = None) -> int:
    """Answer `--version` and `--help`; anything else ends with exit status 2 and a message."""
    parser = argparse.ArgumentParser(prog="jaxbench", description=_ABOUT)
    parser.add_argument("--version", action="version", version=f"jaxbench {__version__}")
    parser.parse_args(arguments)
    sys.stderr.write(
        f"jaxbench: no workloads in release {__version__}; they come with a later milestone (see CHANGELOG.md). "
        "To measure a converted model, read the performance check of `maxcode gate`.\n"
    )
    return _BAD_USAGE


if __name__ == "__main__":
    sys.exit(main())
