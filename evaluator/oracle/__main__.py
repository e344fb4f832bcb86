"""Command line of the oracle process. Exit status: 0 done, 2 bad input (one JSON line on stderr), 4 internal error."""

import argparse
import json
import os
import sys
import traceback
from pathlib import Path
from typing import Any, TextIO

from maxcode.evaluator.oracle.errors import OracleError


def main(argv: list[str] | None = None) -> int:
    arguments = _parser().parse_args(argv)
    try:
        return arguments.run(arguments)
    except OracleError as error:
        _say(sys.stderr, error.to_json())
        return 2
    except KeyboardInterrupt:
        return 130
    except Exception as error:
        frame = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{Path(frame.filename).name}:{frame.lineno}"
        found = f"{type(error).__name__}: {error}"
        internal = OracleError(where, found, "no exception", "report this with the target")
        _say(sys.stderr, internal.to_json())
        traceback.print_exc()
        return 4


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m maxcode.evaluator.oracle", description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="command")
    command = commands.add_parser("resolve", help="fill class, configuration and inputs of a target")
    command.add_argument("--target", type=Path, required=True)
    command.add_argument("--out", type=Path, required=True, help="folder for the resolved target.json")
    command.add_argument("--set", type=_assignment, action="append", default=[], metavar="A.B=JSON", dest="sets")
    command.add_argument("--full-size", action="store_true", help="keep the class's default sizes")
    command.set_defaults(run=_resolve)

    command = commands.add_parser("derive", help="another configuration of a resolved target")
    command.add_argument("--target", type=Path, required=True)
    command.add_argument("--size", choices=["small", "second"], default="small", help="see oracle/sizes.py")
    command.add_argument("--out", type=Path, required=True, help="folder for the derived target.json")
    command.set_defaults(run=_derive)

    command = commands.add_parser("materialise", help="write source/: weights and tensors.json")
    command.add_argument("--target", type=Path, required=True)
    command.add_argument("--out", type=Path, required=True, help="the run folder; source/ is written in it")
    command.set_defaults(run=_materialise)

    command = commands.add_parser("record", help="run scenarios and record their tensors")
    command.add_argument("--target", type=Path, required=True)
    command.add_argument("--source", type=Path, help="the run folder's source/")
    command.add_argument("--out", type=Path, required=True)
    command.add_argument("--scenarios", type=_names, help="comma-separated; default all")
    command.add_argument("--seeds", type=int, default=4, help="input seeds for PyTorch's own error")
    command.add_argument("--length", type=int, default=600, help="positions of the long scenario")
    command.add_argument("--tokens", type=int, default=24, help="greedy tokens of the cache scenario")
    command.set_defaults(run=_record)

    command = commands.add_parser("trace", help="forwards of classes as straight lines of torch")
    command.add_argument("--target", type=Path, required=True)
    command.add_argument("--source", type=Path, help="the run folder's source/")
    command.add_argument("--request", type=Path, required=True, help='JSON: {"classes": [...], "known": [...]}')
    command.add_argument("--out", type=Path, required=True)
    command.set_defaults(run=_trace)

    command = commands.add_parser("pipeline", help="run a diffusion pipeline, record its sampling loop")
    command.add_argument("--folder", type=Path, required=True, help="the pipeline's folder, with model_index.json")
    command.add_argument("--out", type=Path, required=True)
    command.add_argument("--steps", type=int, default=10)
    command.set_defaults(run=_pipeline)

    command = commands.add_parser("serve", help="answer requests on stdin")
    command.add_argument("--target", type=Path, required=True)
    command.add_argument("--source", type=Path, help="the run folder's source/")
    command.set_defaults(run=_serve)
    for command in commands.choices.values():
        command.add_argument("--threads", type=int, help="CPU threads of torch")
    return parser


def _say(stream: TextIO, text: str) -> None:
    stream.write(text + "\n")
    stream.flush()


def _names(text: str) -> list[str]:
    return [name for name in text.split(",") if name]


def _prepare(arguments: argparse.Namespace, *, timed: bool = False) -> None:
    os.environ["TQDM_DISABLE"] = "1"  # stderr carries JSON lines
    if not timed:  # threads that spin while they wait cost several times more on a busy machine than they gain
        os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    import torch

    if arguments.threads:
        torch.set_num_threads(arguments.threads)


def _assignment(text: str) -> tuple[str, Any]:
    name, separator, value = text.partition("=")
    if not separator or not name:
        raise argparse.ArgumentTypeError(f"{text!r}: expected name=JSON")
    try:
        return name, json.loads(value)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r}: no JSON after '=' ({error})") from None


def _resolve(arguments: argparse.Namespace) -> int:
    _prepare(arguments)
    from maxcode.evaluator.oracle.resolve import resolve
    from maxcode.evaluator.oracle.target import load_target, write_target

    target = load_target(arguments.target)
    target["overrides"] = (target.get("overrides") or {}) | dict(arguments.sets)
    target["full_size"] = bool(target.get("full_size") or arguments.full_size)
    resolved = resolve(target)
    if resolved["training"]:
        from maxcode.evaluator.oracle.training_target import save_facts

        resolved = save_facts(resolved, arguments.out)
    write_target(resolved, arguments.out / "target.json")
    _say(sys.stdout, json.dumps({"class": resolved["class_name"], "module": resolved["module"]}))
    return 0


def _derive(arguments: argparse.Namespace) -> int:
    _prepare(arguments)
    from maxcode.evaluator.oracle.sizes import derive_second, derive_small
    from maxcode.evaluator.oracle.target import load_target, write_target

    derive = derive_small if arguments.size == "small" else derive_second
    derived = derive(load_target(arguments.target))
    write_target(derived, arguments.out / "target.json")
    _say(sys.stdout, json.dumps({"class": derived["class_name"], "module": derived["module"]}))
    return 0


def _materialise(arguments: argparse.Namespace) -> int:
    _prepare(arguments)
    from maxcode.evaluator.oracle.materialise import materialise
    from maxcode.evaluator.oracle.target import load_target

    about = materialise(load_target(arguments.target), arguments.out / "source")
    _say(
        sys.stdout,
        json.dumps({"tensors": len(about["tensors"]), "tied": len(about["tied"]), "linked": about["linked"]}),
    )
    return 0


def _record(arguments: argparse.Namespace) -> int:
    _prepare(arguments)
    from maxcode.evaluator.oracle.record import SCENARIOS, record
    from maxcode.evaluator.oracle.session import Session

    session = Session(
        arguments.target, arguments.source, seeds=arguments.seeds, length=arguments.length, tokens=arguments.tokens
    )
    index = record(session, arguments.out, arguments.scenarios or list(SCENARIOS))
    _say(sys.stdout, json.dumps(index))
    return 0


def _trace(arguments: argparse.Namespace) -> int:
    _prepare(arguments)
    from maxcode.evaluator.oracle.session import Session
    from maxcode.evaluator.oracle.trace import trace_classes

    request = json.loads(arguments.request.read_text())
    session = Session(arguments.target, arguments.source)
    found = trace_classes(session, request["classes"], set(request["known"]))
    arguments.out.write_text(json.dumps(found, indent=1))
    return 0


def _pipeline(arguments: argparse.Namespace) -> int:
    _prepare(arguments)
    from maxcode.evaluator.oracle.pipelines import record_pipeline

    about = record_pipeline(arguments.folder, arguments.out, arguments.steps)
    _say(sys.stdout, json.dumps({"class": about["class_name"], "components": sorted(about["components"])}))
    return 0


def _serve(arguments: argparse.Namespace) -> int:
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # whatever a model prints must not look like an answer
    _prepare(arguments, timed=True)
    from maxcode.evaluator.oracle.serve import serve
    from maxcode.evaluator.oracle.session import Session

    serve(Session(arguments.target, arguments.source), sys.stdin, answers)
    return 0


if __name__ == "__main__":
    sys.exit(main())
