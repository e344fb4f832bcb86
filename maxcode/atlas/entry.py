"""One entry of an atlas, in this process: convert it, gate it as given and at a second configuration, print its row.

python -m maxcode.atlas.entry --atlas FILE --id ID --out DIR [--scale both] [--on-gap fail] [--threads 1]
"""

import argparse
import json
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from maxcode import api
from maxcode.atlas import rows
from maxcode.atlas.entries import Entry, read_atlas
from maxcode.errors import MaxCodeError
from maxcode.progress import Progress
from maxcode.stages import GateOptions

SCALES = ("given", "both")


@dataclass(frozen=True)
class EntryOptions:
    """How every entry of a run is converted and gated."""

    scale: str = "both"  # "given": the entry's configuration alone; "both": a second, derived one as well
    on_gap: str = "fail"
    threads: int = 1
    unsandboxed: bool = False

    def arguments(self) -> list[str]:
        """The same as options of this program."""
        switch = ["--unsafe-no-sandbox"] if self.unsandboxed else []
        return ["--scale", self.scale, "--on-gap", self.on_gap, "--threads", str(self.threads), *switch]


def run_entry(entry: Entry, folder: Path, options: EntryOptions, progress: Progress) -> rows.Row:
    """Convert and gate one entry; the package is left in `folder`. Input that is refused is a row too."""
    start = time.monotonic()
    request = api.ConvertRequest(
        entry.target(),
        folder,
        api.request_options(folder, on_gap=options.on_gap),
        GateOptions(
            no_sandbox=options.unsandboxed,
            checks=rows.CHECKS,
            second_checks=rows.SECOND_CHECKS if options.scale == "both" else (),
            threads=options.threads,
            quick_compile=True,
        ),
        force=True,
    )
    try:
        row = rows.row_of(entry, api.convert(request, progress), 0.0, folder)
    except MaxCodeError as error:
        row = rows.broken_row(entry, type(error).__name__, str(error))
    return row | {"seconds": round(time.monotonic() - start, 2)}


def main(arguments: list[str] | None = None) -> int:
    """The command line; see the module's text. The row is the last line of stdout."""
    parser = argparse.ArgumentParser(prog="maxcode.atlas.entry", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--atlas", type=Path, required=True)
    parser.add_argument("--id", required=True)
    parser.add_argument("--out", type=Path, required=True, help="the package's folder")
    parser.add_argument("--scale", choices=SCALES, default="both")
    parser.add_argument("--on-gap", default="fail")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--unsafe-no-sandbox", action="store_true")
    given = parser.parse_args(arguments)
    entry = next(entry for entry in read_atlas(given.atlas) if entry.id == given.id)
    options = EntryOptions(given.scale, given.on_gap, given.threads, given.unsafe_no_sandbox)
    with Progress() as progress:
        row = run_entry(entry, given.out, options, progress)
    sys.stdout.write(json.dumps(row) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
