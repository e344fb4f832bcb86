"""The commands and their options: parse, call api.py, print."""

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from maxcode import __version__
from maxcode.arguments import (
    AllowPickle,
    AsJson,
    Compute,
    DType,
    Force,
    FullSize,
    GapChoice,
    Init,
    Inputs,
    LastBatch,
    LastBatchChoice,
    NoSandbox,
    OnGap,
    Output,
    PackageFolder,
    Quiet,
    Revision,
    Seed,
    Set,
    TargetText,
    Tpu,
    TrustRemoteCode,
)
from maxcode.atlas.commands import app as atlas_app
from maxcode.coverage.commands import app as rules_app
from maxcode.errors import Exit
from maxcode.options import parse_arguments, parse_overrides
from maxcode.progress import Progress
from maxcode.records import Record
from maxcode.session import Result, execute

app = typer.Typer(
    name="maxcode",
    help="Turn PyTorch models into verified, MaxText-style JAX.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
checkpoint_app = typer.Typer(help="Weights of a package.", no_args_is_help=True, rich_markup_mode=None)
app.add_typer(checkpoint_app, name="checkpoint")
app.add_typer(atlas_app, name="atlas")
app.add_typer(rules_app, name="rules")


def _version(value: bool) -> None:
    if value:
        typer.echo(f"maxcode {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="print the version and exit")
    ] = False,
) -> None:
    """Turn PyTorch models into verified, MaxText-style JAX."""


def _target(text: str, **options: Any) -> Any:
    from maxcode.targets import TargetOptions, parse_target

    options["init"] = parse_arguments("--init", options["init"])
    options["inputs"] = parse_arguments("--inputs", options["inputs"])
    options["overrides"] = parse_overrides(options["overrides"])
    return parse_target(text, TargetOptions(**options))


def _finish(record: Record, show: Callable[[Record], None] | None = None, status: int | None = None) -> Result:
    from maxcode.evaluator.verdict import EXIT
    from maxcode.render import show_record

    return Result(record, EXIT[record["status"]] if status is None else status, lambda: (show or show_record)(record))


@app.command()
def plan(
    target: TargetText,
    set_: Set = None,
    full_size: FullSize = False,
    init: Init = None,
    inputs: Inputs = None,
    revision: Revision = None,
    trust_remote_code: TrustRemoteCode = False,
    allow_pickle: AllowPickle = False,
    unsafe_no_sandbox: NoSandbox = False,
    seed: Seed = 0,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> int:
    """Say what would be converted; write nothing.

    Exit status 3 when something has no rule.
    """
    from maxcode import api, render
    from maxcode.targets import default_output

    def action(progress: Progress) -> Result:
        asked = _target(
            target,
            init=init,
            inputs=inputs,
            overrides=set_,
            full_size=full_size,
            revision=revision,
            seed=seed,
            allow_pickle=allow_pickle,
            trust_remote_code=trust_remote_code,
        )
        record = api.plan(asked, api.request_options(default_output(asked)), progress, unsandboxed=unsafe_no_sandbox)
        return _finish(record, render.show_plan, Exit.INCOMPLETE if record["gaps"] else Exit.OK)

    return execute(action, as_json=as_json, quiet=quiet, target=target)


@app.command()
def convert(
    target: TargetText,
    output: Output = None,
    set_: Set = None,
    full_size: FullSize = False,
    init: Init = None,
    inputs: Inputs = None,
    revision: Revision = None,
    trust_remote_code: TrustRemoteCode = False,
    allow_pickle: AllowPickle = False,
    on_gap: GapChoice = OnGap.fail,
    last_batch: LastBatchChoice = LastBatch.keep,
    dtype: Compute = DType.float32,
    no_weights: Annotated[bool, typer.Option("--no-weights", help="convert the code alone; implies --no-gate")] = False,
    no_gate: Annotated[bool, typer.Option("--no-gate", help="do not check the result; it is then not_shown")] = False,
    tpu: Tpu = False,
    unsafe_no_sandbox: NoSandbox = False,
    keep_run: Annotated[bool, typer.Option("--keep-run", help="keep the run folder in report/run")] = False,
    seed: Seed = 0,
    force: Force = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> int:
    """Convert a model and check it against PyTorch.

    The output folder holds a JAX package, its weights and a report; its README.md says how to use it.
    """
    from maxcode import api
    from maxcode.targets import default_output

    def action(progress: Progress) -> Result:
        asked = _target(
            target,
            init=init,
            inputs=inputs,
            overrides=set_,
            full_size=full_size,
            revision=revision,
            seed=seed,
            allow_pickle=allow_pickle,
            trust_remote_code=trust_remote_code,
        )
        place = output or default_output(asked)
        options = api.request_options(place, on_gap=on_gap.value, dtype=dtype.value, last_batch=last_batch.value)
        request = api.ConvertRequest(
            asked,
            place,
            options,
            api.GateOptions(tpu=tpu, no_sandbox=unsafe_no_sandbox, seed=seed),
            force=force,
            weights=not no_weights,
            gate=not no_gate,
            keep_run=keep_run,
        )
        return _finish(api.convert(request, progress))

    return execute(action, as_json=as_json, quiet=quiet, target=target, output=str(output or ""))


@app.command()
def gate(
    package: PackageFolder,
    tpu: Tpu = False,
    unsafe_no_sandbox: NoSandbox = False,
    seed: Seed = 0,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> int:
    """Check a package again, renew its report.

    The source has to be where it was.
    """
    from maxcode import api

    options = api.GateOptions(tpu=tpu, no_sandbox=unsafe_no_sandbox, seed=seed)
    return execute(
        lambda progress: _finish(api.gate(package, options, progress)),
        as_json=as_json,
        quiet=quiet,
        target=str(package),
    )


@app.command()
def generate(
    package: PackageFolder,
    text: Annotated[str | None, typer.Argument(metavar="[PROMPT]", help="the text to continue or answer")] = None,
    prompt: Annotated[str | None, typer.Option("--prompt", "-p", help="the same as an option")] = None,
    max_new_tokens: Annotated[int, typer.Option("--max-new-tokens", "-n", min=1)] = 64,
    temperature: Annotated[
        float | None, typer.Option("--temperature", min=0.0, help="0 is greedy", show_default="the model's own")
    ] = None,
    top_k: Annotated[int | None, typer.Option("--top-k", min=1)] = None,
    top_p: Annotated[float | None, typer.Option("--top-p", min=0.0, max=1.0)] = None,
    chat: Annotated[
        bool | None, typer.Option("--chat/--no-chat", help="use the chat template", show_default="if there is one")
    ] = None,
    dtype: Annotated[
        DType | None, typer.Option("--dtype", help="compute dtype", show_default="the package's own")
    ] = None,
    unsafe_no_sandbox: NoSandbox = False,
    seed: Seed = 0,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> int:
    """Let a package write text."""
    from maxcode import api, render

    if (text is None) == (prompt is None):
        raise typer.BadParameter("give the prompt once, after PACKAGE or with --prompt")
    request = {
        "prompt": prompt if text is None else text,
        "max_new_tokens": max_new_tokens,
        "temperature": temperature,
        "top_k": top_k,
        "top_p": top_p,
        "chat": None if chat is None else str(chat).lower(),
        "dtype": None if dtype is None else dtype.value,
        "seed": seed,
    }

    def action(progress: Progress) -> Result:
        show = functools.partial(render.show_generation, quiet=quiet)
        return _finish(api.generate(package, request, progress, unsandboxed=unsafe_no_sandbox), show, Exit.OK)

    return execute(action, as_json=as_json, quiet=quiet, target=str(package))


@checkpoint_app.command("to-hf")
def to_hf(
    package: PackageFolder,
    output: Annotated[Path, typer.Option("--output", "-o", help="the folder to write")],
    force: Force = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> int:
    """Write the weights as Hugging Face safetensors.

    Byte for byte those that the package was converted from.
    """
    from maxcode import api

    return execute(
        lambda progress: _finish(api.to_hf(package, output, force=force, progress=progress)),
        as_json=as_json,
        quiet=quiet,
    )


@app.command()
def doctor(as_json: AsJson = False, quiet: Quiet = False) -> int:
    """Look at this machine and say what to do.

    Versions, devices, disk, sandbox and caches.
    """
    from maxcode import doctor as examination

    return execute(lambda progress: _finish(examination.examine(progress)), as_json=as_json, quiet=quiet)
