"""Try the list of third-party models and write the table.

python -m maxcode.third_party --site DIR --out DIR [--only TEXT …] [--resume] [--no-install] [--no-gate] [--table FILE]
"""

import argparse
import json
import sys
from pathlib import Path

from maxcode.errors import MaxCodeError
from maxcode.third_party.models import install, read_models, require
from maxcode.third_party.run import run_model
from maxcode.third_party.table import table


def main(arguments: list[str] | None = None) -> int:
    """The command line; see the module's text. Exit status 0 once every model has a row."""
    given = _parser().parse_args(arguments)
    site, out = given.site.resolve(), given.out.resolve()
    models = read_models(only=given.only)
    try:
        require(models)
    except MaxCodeError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    if not given.no_install and (missing := install(models, site)):
        sys.stderr.write(f"not on the index: {', '.join(missing)}\n")
    out.mkdir(parents=True, exist_ok=True)
    results = out / "results.jsonl"
    rows = {row["model"]: row for row in map(json.loads, results.read_text().splitlines())} if results.exists() else {}
    for model in models:
        before = rows.get(model.model, {})
        is_done = before.get("version") == model.version(site) and (given.no_gate or before["status"] != "not_shown")
        if given.resume and is_done:
            continue
        row = rows[model.model] = run_model(model, site, out, given.seconds, gate=not given.no_gate)
        with results.open("a") as file:
            file.write(json.dumps(row) + "\n")
        sys.stderr.write(f"{model.model}: {row['status']}, {row['seconds']} s\n")
    known = {model.model for model in read_models()}
    given.table.write_text(table([row for name, row in rows.items() if name in known], site))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="maxcode.third_party", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--site", type=Path, required=True, help="where the packages are, or are installed to")
    parser.add_argument("--out", type=Path, required=True, help="results.jsonl, packages and logs")
    parser.add_argument("--only", nargs="*", default=(), help="parts of the models' names")
    parser.add_argument("--resume", action="store_true", help="keep rows of the same version")
    parser.add_argument("--no-install", action="store_true")
    parser.add_argument("--no-gate", action="store_true", help="convert alone: a quick look at the gaps")
    parser.add_argument("--seconds", type=float, default=1200.0, help="limit of one model")
    parser.add_argument("--table", type=Path, default=Path("docs/third_party.md"))
    return parser


if __name__ == "__main__":
    sys.exit(main())
