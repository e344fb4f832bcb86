"""Put the finished package together in its output folder: files of its own, the source's files, report, tests."""

import json
import shutil
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from maxcode import package_files
from maxcode.output import MARKER, read_marker, write_marker
from maxcode.package_parity import keep_oracle
from maxcode.records import Record
from maxcode.stages import ConvertOptions, Run

# The source's own files that belong to a package (never its weights or code).
_OWN_FILES = (
    "config.json", "generation_config.json", "tokenizer*", "vocab*", "merges.txt", "special_tokens_map.json",
    "added_tokens.json", "chat_template*", "*.model", "preprocessor_config.json", "processor_config.json", "LICENSE*",
    "NOTICE*", "modules.json", "sentence_*config.json",
)  # fmt: skip


def assemble(folder: Path, run: Run, record: Record, *, options: ConvertOptions, keep_run: bool) -> None:
    """Turn a finished run folder below `folder` into the package that users get."""
    target = run.read_target()
    for entry in sorted(run.package.iterdir()):
        entry.replace(folder / entry.name)
    if target.get("path") and target["kind"] in ("folder", "hub"):
        if not target.get("overrides"):
            (folder / "config.json").unlink(missing_ok=True)  # the source's own stands for it
        copy_own_files(Path(target["path"]), folder)
    copy_own_files(run.source, folder)
    if target.get("config") is not None and not (folder / "config.json").exists():
        (folder / "config.json").write_text(json.dumps(target["config"], indent=2) + "\n")
    set_dtype(folder / "config.json", options.dtype)
    if (folder / "weights.json").is_file():  # an installed package has no folder around it
        shutil.copyfile(folder / "weights.json", folder / options.package_name / "weights.json")
    package_files.write(folder, options, target, record)
    keep_oracle(folder, run.oracle)
    write_report(folder / "report", record, run)
    request = json.loads(json.dumps({k: target[k] for k in package_files.REQUEST_FIELDS if k in target}))
    write_marker(folder, {"target": target["text"], "status": record["status"], "request": request})
    if not keep_run:
        shutil.rmtree(run.root)


def set_dtype(path: Path, dtype: str) -> None:
    """Make a compute dtype other than float32 the package's default: its Config reads it under "run"."""
    if dtype == "float32":
        return
    config = json.loads(path.read_text()) if path.is_file() else {}
    path.write_text(json.dumps(config | {"run": {**config.get("run", {}), "dtype": dtype}}, indent=2) + "\n")


def unset_run(path: Path) -> None:
    """Take the package's run settings out of a configuration that goes back to Hugging Face form."""
    config = json.loads(path.read_text()) if path.is_file() else {}
    if config.pop("run", None) is not None:
        path.write_text(json.dumps(config, indent=2) + "\n")


def mark(folder: Path, record: dict[str, Any]) -> None:
    """Mark a folder of another kind (weights written back) as ours."""
    write_marker(folder, record)


def copy_own_files(source: Path, destination: Path) -> None:
    """Copy configuration, tokenizer and licence files; what is there already stays."""
    for path in _matching(source, _OWN_FILES):
        if not (destination / path.name).exists():
            shutil.copyfile(path, destination / path.name)  # hub snapshots hold links: the content is copied


def _matching(folder: Path, patterns: Iterable[str]) -> list[Path]:
    found = {path for pattern in patterns for path in folder.glob(pattern) if path.is_file()}
    return sorted(path for path in found if path.suffix not in (".py", ".bin") and path.name != MARKER)


def write_report(folder: Path, record: Record, run: Run | None) -> None:
    """report.json, junit.xml and index.html."""
    from maxcode.evaluator import junit, report
    from maxcode.evaluator.verdict import Verdict

    folder.mkdir(parents=True, exist_ok=True)
    seconds = {name.removeprefix("gate/"): value for name, value in record["timings"].items() if "/" in name}
    known = {key: record[key] for key in Verdict.__dataclass_fields__ if key in record}
    verdict = Verdict.from_json(known | {"timings": seconds})
    text = json.dumps(record, indent=1, allow_nan=False)
    (folder / "report.json").write_text(text + "\n")
    (folder / "junit.xml").write_text(junit.to_xml(verdict))
    (folder / "index.html").write_text(report.render(record))


def read_report(package: Path) -> Record:
    """The report of an earlier run; empty when there is none."""
    path = package / "report" / "report.json"
    return json.loads(path.read_text()) if path.is_file() else {}


def renew_report(package: Path, run: Run, record: Record) -> None:
    """Replace a package's report, file by file and each at once; the weight ledger of the conversion is kept."""
    before = read_report(package)
    kept = {key: value for key, value in before.items() if key not in record}
    with tempfile.TemporaryDirectory(prefix=".report-", dir=package) as place:
        write_report(Path(place), record | kept, run)
        (package / "report").mkdir(exist_ok=True)
        for path in sorted(Path(place).iterdir()):
            path.replace(package / "report" / path.name)
    marker = read_marker(package)
    _renew_verdict(package / "README.md", marker["status"], record["status"])
    write_marker(package, marker | {"status": record["status"]})


def _renew_verdict(readme: Path, before: str, now: str) -> None:
    """The one word of a package's README.md that a new verdict changes; a file without it is the user's own."""
    if readme.is_file() and f"**{before}**" in (text := readme.read_text()):
        readme.write_text(text.replace(f"**{before}**", f"**{now}**", 1))
