"""Write facts.json: what an instrumented run of the source model saw (see `instrument`), and the model's tree.

`python -m maxcode.evaluator.oracle.probe --target target.json --out facts.json`
"""

import argparse
import inspect
import json
import sys
import traceback
from pathlib import Path
from typing import Any

import torch

from maxcode.evaluator.oracle import importing
from maxcode.evaluator.oracle.flatten import flatten
from maxcode.evaluator.oracle.instrument import InstrumentingFinder, Recorder, _qualified, kind_of

_CONVERTED_PARTS = (
    "transformers.models.", "transformers.pytorch_utils", "transformers.modeling_layers", "transformers.vision_utils",
)  # fmt: skip

# Of a framework whose layers stand beside its plumbing: what is model code, and what among that is plumbing.
_LAYER_PARTS = {"diffusers.": ("diffusers.models.", "diffusers.utils.torch_utils")}
_PLUMBING_PARTS = (
    "diffusers.models.modeling_", "diffusers.models.attention_dispatch", "diffusers.models.cache_utils",
    "diffusers.models._modeling_", "diffusers.models.auto_model", "diffusers.models.model_loading_utils",
    "diffusers.models.lora",
)  # fmt: skip
# Packages whose code no model is made of, or whose calls have rules of their own.
_LIBRARIES = frozenset(sys.stdlib_module_names) | {
    "torch", "torchvision", "torchaudio", "torchgen", "functorch", "triton", "maxcode", "jax", "flax", "einops",
    "numpy", "scipy", "pandas", "sklearn",
    "sympy", "networkx", "safetensors", "accelerate", "tokenizers", "huggingface_hub",
    "beartype", "jaxtyping", "typeguard", "lightning", "pytorch_lightning", "torchmetrics", "tensordict", "PIL",
    "wrapt", "loguru", "tqdm", "setuptools", "pydantic", "packaging", "psutil", "pytest", "hypothesis", "einx",
}  # fmt: skip

_REGISTRIES = (".configuration_", ".models.auto")


def wanted(target: dict) -> Any:
    """Which modules to instrument: model code of the target's own package or folder, never framework plumbing."""
    package = (target.get("module") or "").split(".")[0]
    folder = str(Path(target["path"]).resolve().parent) if str(target.get("path") or "").endswith(".py") else None

    def test(fullname: str, origin: str) -> bool:
        if fullname.startswith("transformers."):
            return fullname.startswith(_CONVERTED_PARTS) and not any(part in fullname for part in _REGISTRIES)
        layers = _LAYER_PARTS.get(f"{fullname.split('.')[0]}.")
        if layers is not None:
            return fullname.startswith(layers) and not fullname.startswith(_PLUMBING_PARTS)
        if folder is not None and origin.startswith(folder):
            return True
        top = fullname.partition(".")[0]
        return top not in _LIBRARIES and (top == package or _is_model_code(origin))

    return test


def _is_model_code(origin: str) -> bool:
    """Whether a file of another package may be part of the model: it has to do with torch."""
    try:
        return "torch" in Path(origin).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return False


def probe(target: dict, source: Path | None = None) -> dict:
    """Build and run the target under instrumentation, in several scenarios; the JSON record of facts.json.

    `source` is what `materialise` wrote, if it has: reading that is faster than reading the checkpoint again.
    """
    recorder = Recorder()
    finder = InstrumentingFinder(recorder, wanted(target))
    sys.meta_path.insert(0, finder)
    from maxcode.evaluator.oracle.build import build  # imports the model's module, now through the hook

    model, inputs = build(target, source_dir=source)
    scenarios = []
    for name, run in _scenarios(model, inputs):
        try:
            with torch.set_grad_enabled(name == "backward"):
                run()
            scenarios.append({"name": name, "error": None})
        except Exception as error:
            scenarios.append({"name": name, "error": f"{type(error).__name__}: {error}", "at": _last_frame(error)})
    return {
        "format": 1,
        "scenarios": scenarios,
        "files": recorder.to_json(),
        "modules": finder.modules,
        "tree": _tree(model),
        "classes": _classes(model),
        "config_file": _config_file(model, target),
        "config": _config_dict(model),
        "constructor": _constructor(type(model), target),
        "forward": list(inspect.signature(type(model).forward).parameters)[1:],
        "inputs": {k: _describe(v) for k, v in (inputs.items() if isinstance(inputs, dict) else enumerate(inputs))},
    }


def _scenarios(model: torch.nn.Module, inputs: Any) -> list:
    if not isinstance(inputs, dict):
        runs = [("forward", lambda: model(*inputs)), ("train", lambda: _in_training(model, lambda: model(*inputs)))]
        return runs + _backward_runs(model, lambda: model(*inputs))
    parameters = inspect.signature(type(model).forward).parameters
    runs = [("forward", lambda: model(**inputs))]
    bare = {k: v for k, v in inputs.items() if "mask" not in k}
    if len(bare) != len(inputs):
        runs.append(("without masks", lambda: model(**bare)))
    if "cache" in parameters or "past_key_values" in parameters:
        runs.append(("cache", lambda: _cached(model, inputs, parameters)))
    if "labels" in parameters:
        runs.append(("labels", lambda: _with_labels(model, bare)))
    runs.append(("train", lambda: _in_training(model, lambda: model(**inputs))))
    return runs + _backward_runs(model, lambda: model(**inputs))


def _backward_runs(model: torch.nn.Module, run: Any) -> list:
    """A run with gradients where the source defines an operation's own, which nothing else calls."""
    own = [c for c in torch.autograd.Function.__subclasses__() if c.__module__.split(".")[0] != "torch"]
    if not own:
        return []

    def backward() -> None:
        found = [value for value in flatten(run()).values() if value.requires_grad]
        sum(value.float().square().sum() for value in found).backward()
        model.zero_grad(set_to_none=True)

    return [("backward", backward)]


def _cached(model: torch.nn.Module, inputs: dict, parameters: Any) -> None:
    name = "cache" if "cache" in parameters else "past_key_values"
    ids = "decoder_input_ids" if "decoder_input_ids" in inputs else "input_ids"
    keep = {k: v for k, v in inputs.items() if k != "use_cache" and ("mask" not in k or k == "attention_mask" != ids)}
    if ids == "input_ids":
        keep.pop("attention_mask", None)
    first = model(**keep, use_cache=True)
    step = {**keep, ids: inputs[ids][:, -1:], name: getattr(first, name)}
    for key in ("token_type_ids", "position_ids", "inputs_embeds"):
        if key in step and torch.is_tensor(step[key]):
            step[key] = step[key][:, -1:]
    step = _without_placed(model, step, ids)
    longer = {**step, ids: inputs[ids][:, :3]}
    model(**{k: v for k, v in longer.items() if k not in ("token_type_ids", "position_ids")}, use_cache=True)


def _without_placed(model: torch.nn.Module, step: dict, ids: str) -> dict:
    """Run a step; where the source refuses inputs that the prompt had placeholders for, without those. What ran."""
    try:
        model(**step, use_cache=True)
    except (ValueError, RuntimeError, IndexError):
        if ids != "input_ids":
            raise
        shape = step[ids].shape
        kept = {k: v for k, v in step.items() if not torch.is_tensor(v) or v.shape[: len(shape)] == shape}
        if len(kept) == len(step):
            raise
        model(**kept, use_cache=True)
        return kept
    return step


def _with_labels(model: torch.nn.Module, inputs: dict) -> None:
    ids = inputs.get("decoder_input_ids", inputs.get("input_ids"))
    model(**inputs, labels=ids)


def _in_training(model: torch.nn.Module, run: Any) -> None:
    model.train()
    try:
        run()
    finally:
        model.eval()


def _tree(model: torch.nn.Module) -> dict[str, dict]:
    tree = {}
    for fqn, module in model.named_modules(remove_duplicate=False):
        buffers = [n for n, b in module._buffers.items() if b is not None]
        tree[fqn] = {
            "class": _qualified(type(module)),
            "params": [n for n, p in module._parameters.items() if p is not None],
            "buffers": [n for n in buffers if n not in module._non_persistent_buffers_set],
            "constants": [n for n in buffers if n in module._non_persistent_buffers_set],
        }  # fmt: skip
    return tree


def _classes(model: torch.nn.Module) -> dict[str, dict]:
    """Per module class: the kinds of its instances' attributes, and the files of its definition and bases."""
    classes: dict[str, dict] = {}
    for module in model.modules():
        entry = classes.setdefault(
            _qualified(type(module)) or "?",
            {"attributes": {}, "mro": [_qualified(c) for c in type(module).__mro__], "file": _file(type(module))},
        )
        for name, value in {**vars(module), **module._parameters, **module._buffers, **module._modules}.items():
            if not name.startswith("_") and name != "training":
                kinds = entry["attributes"].setdefault(name, [])
                kind = _attribute_kind(module, name, value)
                if kind not in kinds:
                    kinds.append(kind)
    return classes


def _attribute_kind(module: torch.nn.Module, name: str, value: Any) -> str:
    if value is not None and name in module._buffers:
        return "constant" if name in module._non_persistent_buffers_set else "buffer"
    return kind_of(value)


def _file(cls: type) -> str | None:
    try:
        return inspect.getsourcefile(cls)
    except (TypeError, OSError):
        return None


def _config_file(model: torch.nn.Module, target: dict) -> str | None:
    if not target.get("config_class"):
        return None
    return _file(importing.config_class(target))


def _config_dict(model: torch.nn.Module) -> dict | None:
    config = getattr(model, "config", None)
    return config.to_dict() if hasattr(config, "to_dict") else None


def _constructor(cls: type, target: dict) -> list[dict]:
    """Constructor parameters with their defaults as source text and the values given."""
    given = target.get("arguments") or target.get("init") or {}
    rows = []
    for index, (name, parameter) in enumerate(list(inspect.signature(cls.__init__).parameters.items())[1:]):
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        row: dict[str, Any] = {"name": name}
        if parameter.default is not parameter.empty:
            row["default"] = repr(parameter.default)
        if isinstance(given, dict) and name in given:
            row["value"] = given[name]
        elif isinstance(given, list) and index < len(given):
            row["value"] = given[index]
        rows.append(row)
    known = {row["name"] for row in rows}
    return (
        rows + [{"name": n, "value": v} for n, v in given.items() if n not in known]
        if isinstance(given, dict)
        else rows
    )


def _describe(value: Any) -> dict:
    if torch.is_tensor(value):
        return {"kind": "tensor", "dtype": str(value.dtype).removeprefix("torch."), "shape": list(value.shape)}
    return {"kind": kind_of(value)}


def _last_frame(error: BaseException) -> str:
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return f"{frame.filename}:{frame.lineno}"


def main(argv: list[str] | None = None) -> None:
    """Command line of the probe."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--target", required=True, type=Path)
    parser.add_argument("--source", type=Path, help="the run folder's source/, where it is written already")
    parser.add_argument("--out", required=True, type=Path)
    arguments = parser.parse_args(argv)
    torch.set_num_threads(1)
    facts = probe(json.loads(arguments.target.read_text()), arguments.source)
    arguments.out.write_text(json.dumps(facts, default=str))


if __name__ == "__main__":
    main()
