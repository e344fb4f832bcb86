"""Convert and gate a list of architectures, each in a process of its own, and print the table of results.

    python -m maxcode.core_gate [--types a,b] [--scale atlas|derived|both] [--faults] [--out DIR] [--jobs 1] [--resume]

The list is data (`tests/data/core_models.json` of a checkout, or `--models FILE`): `types`, and `atlas`, a file beside
it with one JSON entry a line (`model_type`, `class`, `config`, `inputs`). Scale "atlas" gates that entry as given,
"derived" what `maxcode convert transformers:<type>` takes. `DIR/results.jsonl` gets one record a run; `--resume` leaves
out those that passed there. Exit status 0 when everything is verified, 1 otherwise, 2 for a wrong call.
"""

import argparse
import dataclasses
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from maxcode import api
from maxcode.errors import MaxCodeError
from maxcode.processes import last_record
from maxcode.progress import Progress
from maxcode.targets import Target, TargetOptions, parse_target

SCALES = ("atlas", "derived")
MODELS = Path(__file__).resolve().parent.parent / "tests" / "data" / "core_models.json"
_LINE = "{:<16}{:<9}{:<11}{:>9}  {:<34}{:>7}  {}"
_HEAD = _LINE.format("type", "scale", "status", "exact", "worst check (share of its limit)", "seconds", "faults caught")


def main(arguments: list[str] | None = None) -> int:
    """The command line; see the module's text."""
    options = _parser().parse_args(arguments)
    try:
        if options.one:
            record = gate_one(options.one, options.scale, options.out, options.models, faults=options.faults)
            sys.stdout.write(json.dumps(record) + "\n")
            return 0
        return _gate_all(options)
    except MaxCodeError as error:
        sys.stderr.write(f"{error}\n")
        return int(error.exit_status)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="maxcode.core_gate", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--types", help="names separated by commas; all of the list by default")
    parser.add_argument("--scale", choices=[*SCALES, "both"], default="both")
    parser.add_argument("--faults", action="store_true", help="also run the seeded-fault self-test")
    parser.add_argument("--out", type=Path, default=Path("out/core"), help="packages and results.jsonl go here")
    parser.add_argument("--jobs", type=int, default=1, help="models gated at the same time; timings suffer above 1")
    parser.add_argument("--resume", action="store_true", help="leave out what results.jsonl has as verified")
    parser.add_argument("--models", type=Path, default=MODELS, help="the list of architectures")
    parser.add_argument("--one", help=argparse.SUPPRESS)  # the child process of one model
    return parser


def _gate_all(options: argparse.Namespace) -> int:
    types = options.types.split(",") if options.types else read_list(options.models)["types"]
    scales = SCALES if options.scale == "both" else (options.scale,)
    for name in types:
        for scale in scales:
            target_of(name, scale, options.models)  # a wrong name shows before the first long run
    options.out.mkdir(parents=True, exist_ok=True)
    results = options.out / "results.jsonl"
    done = latest(read_results(results)) if options.resume else {}
    wanted = [(name, scale) for scale in scales for name in types]
    todo = [key for key in wanted if key not in done or not passed(done[key])]
    sys.stdout.write(_HEAD + "\n")
    for record in _run_all(todo, options):
        with results.open("a") as file:
            file.write(json.dumps(record) + "\n")
        _say(row(record))
    found = latest(read_results(results))
    records = [found[key] for key in wanted]
    _say("", *table(records))
    return int(any(not passed(record) for record in records))


def passed(record: dict[str, Any]) -> bool:
    """Verified, and every seeded fault caught where faults were seeded."""
    faults = record.get("faults")
    return record["status"] == "verified" and (not faults or 0 < faults["seeded"] == faults["caught"])


def _run_all(todo: list[tuple[str, str]], options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    with ThreadPoolExecutor(max_workers=max(options.jobs, 1)) as pool:
        yield from pool.map(lambda key: _in_process(key[0], key[1], options), todo)


def _in_process(name: str, scale: str, options: argparse.Namespace) -> dict[str, Any]:
    """Gate one model in a child; a child that breaks gives a record of status "error", never an exception."""
    start = time.monotonic()
    command = [sys.executable, "-m", "maxcode.core_gate", "--one", name, "--scale", scale, "--out", str(options.out)]
    command += ["--models", str(options.models), *["--faults"] * options.faults]
    log = options.out / scale / f"{name}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    environment = {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"} | os.environ
    with log.open("w") as errors:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=errors, text=True, env=environment, check=False)
    record = last_record(done.stdout)
    if record is None:
        said = (log.read_text().strip().splitlines() or ["nothing"])[-1]
        record = {"type": name, "scale": scale, "status": "error", "detail": f"status {done.returncode}: {said}"}
    return record | {"seconds": round(time.monotonic() - start, 1)}


def gate_one(name: str, scale: str, out: Path, models: Path = MODELS, *, faults: bool = False) -> dict[str, Any]:
    """Convert and gate one model in this process; the package stays in `out/scale/name`.

    Raises:
      MaxCodeError: the list has no such model, or the target cannot be converted.
    """
    output = out / scale / name
    request = api.ConvertRequest(
        target_of(name, scale, models),
        output,
        api.request_options(output),
        api.GateOptions(faults=faults),
        force=True,
    )
    with Progress() as progress:
        record = api.convert(request, progress)
    return summary(name, scale, record)


def summary(name: str, scale: str, record: dict[str, Any]) -> dict[str, Any]:
    """What results.jsonl keeps of a conversion's record."""
    checks = record["checks"]
    exact = next((check["value"] for check in checks if check["name"] == "exact"), None)
    return {
        "type": name,
        "scale": scale,
        "status": record["status"],
        "exact": exact,
        "worst": worst(checks),
        "faults": (record.get("evidence") or {}).get("faults"),
        "gaps": len(record["gaps"]),
        "checks": checks,
        "timings": record["timings"],
    }


def worst(checks: Iterable[dict[str, Any]]) -> str:
    """The failed checks by name, else the passed one that is nearest to its limit."""
    checks = list(checks)
    failed = [check["name"] for check in checks if check["status"] == "fail"]
    if failed:
        return ", ".join(failed)
    shares = [
        (float(check["value"]) / float(check["limit"]), check["name"])
        for check in checks
        if check["status"] == "pass" and check["value"] is not None and check["limit"]
    ]
    return "{1} {0:.2g}".format(*max(shares)) if shares else ""


def target_of(name: str, scale: str, models: Path = MODELS) -> Target:
    """The target of one model at one scale.

    Raises:
      MaxCodeError: the list or the atlas lacks the model.
    """
    known = read_list(models)
    if name not in known["types"]:
        raise MaxCodeError(str(models), f"has no {name!r}", f"one of {', '.join(known['types'])}", "correct --types")
    if scale == "derived":
        return parse_target(f"transformers:{name}")
    path = models.parent / known["atlas"]
    entries = [json.loads(line) for line in path.read_text().splitlines() if line.strip()]
    entry = next((entry for entry in entries if entry["model_type"] == name), None)
    if entry is None:
        raise MaxCodeError(str(path), f"has no entry for {name!r}", "one entry for every type of the list")
    text = f"transformers:{name}:{entry['class']}"
    target = parse_target(text, TargetOptions(inputs=entry["inputs"]))
    return dataclasses.replace(target, config=entry["config"])


def read_list(models: Path) -> dict[str, Any]:
    """The list of architectures: {"types": [...], "atlas": file name beside the list}.

    Raises:
      MaxCodeError: there is no such file.
    """
    try:
        return json.loads(models.read_text())
    except OSError as error:
        do = "run from a checkout, or name a list with --models"
        raise MaxCodeError(str(models), f"cannot be read ({error})", "the list of architectures", do) from None


def read_results(path: Path) -> list[dict[str, Any]]:
    """Records of results.jsonl, oldest first; none when there is no such file."""
    return [json.loads(line) for line in path.read_text().splitlines() if line.strip()] if path.is_file() else []


def latest(records: Iterable[dict[str, Any]]) -> dict[tuple[str, str], dict[str, Any]]:
    """The last record of every (type, scale)."""
    return {(record["type"], record["scale"]): record for record in records}


def table(records: list[dict[str, Any]]) -> list[str]:
    """Lines of the closing table: a row a record, then the details of what failed."""
    lines = [_HEAD, *(row(record) for record in records)]
    lines.append(f"{sum(map(passed, records))} of {len(records)} verified")
    for record in records:
        where = f"{record['type']} ({record['scale']})"
        lines += [f"{where}: {record['detail']}"] if record.get("detail") else []
        for check in record.get("checks", ()):
            if check["status"] == "fail":
                lines.append(f"{where} {check['name']}: {check['detail'].splitlines()[0] if check['detail'] else ''}")
        missed = (record.get("faults") or {}).get("missed")
        lines += [f"{where} faults missed: {', '.join(missed)}"] if missed else []
    return lines


def row(record: dict[str, Any]) -> str:
    """One line of the table."""
    exact, faults = record.get("exact"), record.get("faults")
    figure = f"{float(exact):.1e}" if exact is not None else "-"
    caught = f"{faults['caught']}/{faults['seeded']}" if faults else "-"
    seconds = f"{record.get('seconds', 0):.0f}"
    return _LINE.format(
        record["type"], record["scale"], record["status"], figure, record.get("worst", "")[:33], seconds, caught
    )


def _say(*lines: str) -> None:
    sys.stdout.write("\n".join(lines) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
