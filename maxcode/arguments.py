"""Arguments and options that several commands share."""

from enum import Enum
from pathlib import Path
from typing import Annotated

import typer


class OnGap(str, Enum):  # noqa: UP042 - typer shows the plain value
    """What to do with a part that no rule converts."""

    fail = "fail"
    trace = "trace"
    agent = "agent"


class DType(str, Enum):  # noqa: UP042
    """Compute dtypes."""

    float32 = "float32"
    bfloat16 = "bfloat16"
    float16 = "float16"
    float64 = "float64"


class LastBatch(str, Enum):  # noqa: UP042
    """What becomes of a last batch that is smaller than the others."""

    keep = "keep"
    drop = "drop"
    pad = "pad"
    refuse = "raise"


TargetText = Annotated[
    str,
    typer.Argument(
        metavar="TARGET",
        help="a hub id, a folder, a GGUF file, file.py:Class, pkg.mod:Class, transformers:<type>[:<Class>], "
        "or a training program: train.py, train.py:function",
    ),
]
PackageFolder = Annotated[Path, typer.Argument(metavar="PACKAGE", help="an output folder of maxcode convert")]
AsJson = Annotated[bool, typer.Option("--json", help="print one JSON record on stdout, and nothing else there")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="no progress on stderr")]
Force = Annotated[bool, typer.Option("--force", help="replace an output folder that MaxCode did not write")]
Set = Annotated[list[str] | None, typer.Option("--set", metavar="A.B=JSON", help="override a configuration value")]
FullSize = Annotated[bool, typer.Option("--full-size", help="keep the class's default size (transformers: targets)")]
Init = Annotated[
    str | None, typer.Option("--init", metavar="JSON", help="constructor arguments: a list, an object, or @file.json")
]
Inputs = Annotated[
    str | None,
    typer.Option("--inputs", metavar="JSON", help='inputs: values or {"shape", "dtype", "low", "high"}, or @file.json'),
]
Revision = Annotated[str | None, typer.Option("--revision", help="branch, tag or commit of a hub target")]
TrustRemoteCode = Annotated[bool, typer.Option("--trust-remote-code", help="run the repository's own model code")]
AllowPickle = Annotated[bool, typer.Option("--allow-pickle", help="load .bin weights (weights-only)")]
GapChoice = Annotated[
    OnGap,
    typer.Option(
        "--on-gap",
        help="a part that no rule converts: list it, lower its class from its graph, or (not yet) ask a model",
    ),
]
LastBatchChoice = Annotated[
    LastBatch,
    typer.Option("--last-batch", help="training programs: what shuffled loaders do with a smaller last batch"),
]
Compute = Annotated[DType, typer.Option("--dtype", help="compute dtype")]
Seed = Annotated[int, typer.Option("--seed", min=0, help="seed of random weights and inputs")]
Tpu = Annotated[bool, typer.Option("--tpu", help="also compile for real TPU topologies")]
NoSandbox = Annotated[bool, typer.Option("--unsafe-no-sandbox", help="run model code without a sandbox; recorded")]
Output = Annotated[
    Path | None, typer.Option("--output", "-o", help="the folder to write", show_default="target's name")
]
