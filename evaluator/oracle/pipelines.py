"""`pipeline`: run a diffusion pipeline in float64 and write what its loop saw, what its parts were given, and facts.

`DIR/pipeline.json` and `DIR/pipeline.safetensors` (docs/interfaces.md §7.3). Prompts are embeddings drawn at random, so
that no tokenizer is needed; the initial noise is the pipeline's own and part of the recording.
"""

import importlib
import inspect
import json
import sys
from pathlib import Path
from typing import Any

import torch

from maxcode.evaluator.oracle import looping
from maxcode.evaluator.oracle.errors import OracleError
from maxcode.evaluator.oracle.flatten import bind
from maxcode.evaluator.oracle.inputs import generator
from maxcode.evaluator.oracle.instrument import InstrumentingFinder, Recorder
from maxcode.evaluator.oracle.lift import computing_in
from maxcode.evaluator.oracle.store import Recording

STEPS = 10
_TEXT_WIDTH = ("joint_attention_dim", "cross_attention_dim", "caption_channels", "text_dim", "text_embed_dim")
_DENOISERS = ("transformer", "unet")
SCENARIOS = {
    "plain": {"guidance_scale": 1.0, "true_cfg_scale": 1.0},
    "guided": {"guidance_scale": 3.5, "true_cfg_scale": 4.0},
}


def record_pipeline(folder: Path, out: Path, steps: int = STEPS) -> dict[str, Any]:
    """Run every scenario of the pipeline in `folder`; writes the recording, returns its JSON.

    Raises:
      OracleError: no such pipeline class, a call that fails, or a loop of another form.
    """
    recorder, watcher = Recorder(), looping.Watcher()
    sys.meta_path.insert(0, InstrumentingFinder(recorder, _is_pipeline_file, looping.watched, watcher))
    pipeline = _load(folder)
    recording = Recording("pipeline", "pipeline", "float64")
    parts: dict[str, Any] = {}
    for name, options in SCENARIOS.items():
        arguments = _arguments(pipeline, options, name == "guided", steps)
        if name == "guided" and not _is_guided(arguments):
            continue
        watcher.__init__()
        with computing_in("float64"), torch.no_grad(), _seen_inputs(pipeline, parts):
            _call(pipeline, arguments)
        watcher.require(steps)
        case = recording.case(name, _plain(watcher.before))
        case["image"] = recording.tree(f"{name}/image", _plain(watcher.image))
        case["steps"] = recording.put(f"{name}/steps", torch.stack(watcher.steps))
    cls = type(pipeline)
    about = {
        "module": cls.__module__, "class_name": cls.__name__, "file": inspect.getsourcefile(cls),
        "facts": recorder.to_json(), "components": _specs(pipeline, parts), "steps": steps,
        "scheduler": type(pipeline.scheduler).__name__,
        "parts": sorted(_modules(pipeline)),
    }  # fmt: skip
    recording.note(**about)
    recording.write(out)
    return json.loads((out / "pipeline.json").read_text())


def _is_pipeline_file(fullname: str, origin: str) -> bool:
    package, _, name = fullname.rpartition(".")
    return package.startswith("diffusers.pipelines.") and name.startswith("pipeline_")


def _load(folder: Path) -> Any:
    diffusers = importlib.import_module("diffusers")  # only who converts its models has it
    index = json.loads((folder / "model_index.json").read_text())
    named = index.get("_class_name")
    cls = getattr(diffusers, str(named), None)
    if not isinstance(cls, type):
        found = f"_class_name {named!r}, which diffusers {diffusers.__version__} does not have"
        raise OracleError(str(folder / "model_index.json"), found, "a pipeline of diffusers", "update diffusers")
    absent = {name: None for name, value in index.items() if value == [None, None]}  # the loader asks for them by name
    try:
        pipeline = cls.from_pretrained(str(folder), local_files_only=True, **absent)
    except Exception as error:
        found = f"{type(error).__name__}: {error}"
        raise OracleError(str(folder), found, f"parts of {named}", "check the folder") from error
    for name, part in pipeline.components.items():
        if type(part).__module__.startswith("diffusers.") and hasattr(part, "config"):
            pipeline.register_modules(**{name: _lifted(part)})
    pipeline.set_progress_bar_config(disable=True)
    return pipeline


def _lifted(part: Any) -> Any:
    """A part built again under the lift, so that tables made by its constructor are float64 as well."""
    with computing_in("float64"):
        fresh = type(part).from_config(part.config)
    if isinstance(part, torch.nn.Module):
        fresh.load_state_dict(part.state_dict())
        fresh = fresh.to(torch.float64).eval()
    return fresh


def _call(pipeline: Any, arguments: dict[str, Any]) -> None:
    try:
        pipeline(**arguments)
    except Exception as error:
        found = f"{type(error).__name__}: {error}"
        shown = {k: list(v.shape) if torch.is_tensor(v) else v for k, v in arguments.items()}
        raise OracleError(type(pipeline).__name__, found, f"a call that runs with {shown}", "report this") from error


def _arguments(pipeline: Any, options: dict[str, float], guided: bool, steps: int) -> dict[str, Any]:
    known = inspect.signature(pipeline.__call__).parameters
    side = 8 * getattr(pipeline, "vae_scale_factor", 8)
    given = {"height": side, "width": side + side // 2, "num_inference_steps": steps, "output_type": "pt"}
    given |= options | {"generator": torch.Generator().manual_seed(0)}
    for prefix in ("", "negative_") if guided else ("",):
        given |= {f"{prefix}{name}": value for name, value in _prompt(pipeline, prefix).items()}
    return {name: value for name, value in given.items() if name in known}


def _is_guided(arguments: dict[str, Any]) -> bool:
    return "negative_prompt_embeds" in arguments


def _prompt(pipeline: Any, prefix: str) -> dict[str, Any]:
    """Embeddings of a prompt of seven positions, as wide as the denoiser takes them."""
    denoiser = next((m for n in _DENOISERS if (m := getattr(pipeline, n, None)) is not None), None)
    config = getattr(denoiser, "config", {})
    width = next((config[name] for name in _TEXT_WIDTH if isinstance(config.get(name), int)), None)
    if width is None:
        without = f"a denoiser {type(denoiser).__name__} whose configuration names no width of text"
        raise OracleError(type(pipeline).__name__, without, f"one of {', '.join(_TEXT_WIDTH)}", "report this")
    second = getattr(getattr(pipeline, "text_encoder_2", None), "config", None)
    pooled = config.get("pooled_projection_dim") or getattr(second, "projection_dim", None)
    draw = generator(f"{prefix}prompt", 0)
    found: dict[str, Any] = {"prompt_embeds": torch.randn(1, 7, width, generator=draw, dtype=torch.float64)}
    found["prompt_embeds_mask"] = torch.ones(1, 7, dtype=torch.int64)
    if pooled:
        found["pooled_prompt_embeds"] = torch.randn(1, pooled, generator=draw, dtype=torch.float64)
    return found


def _modules(pipeline: Any) -> dict[str, torch.nn.Module]:
    return {n: m for n, m in pipeline.components.items() if isinstance(m, torch.nn.Module)}


class _seen_inputs:  # noqa: N801 - a context manager, used as a function
    """Notes the first arguments of every part's call, and the first image that the autoencoder decodes."""

    def __init__(self, pipeline: Any, parts: dict[str, Any]) -> None:
        self.pipeline, self.parts, self.handles = pipeline, parts, []

    def __enter__(self) -> None:
        for name, module in _modules(self.pipeline).items():
            self.handles.append(module.register_forward_pre_hook(self._hook(name), with_kwargs=True))

    def _hook(self, name: str) -> Any:
        def note(module: Any, args: tuple, kwargs: dict) -> None:
            self.parts.setdefault(name, bind(module.forward, args, kwargs))

        return note

    def __exit__(self, *_: object) -> None:
        for handle in self.handles:
            handle.remove()


def _specs(pipeline: Any, parts: dict[str, Any]) -> dict[str, Any]:
    """Input specs (see `inputs`) of the parts that have no configuration to derive them from."""
    found = {name: {k: _spec(v) for k, v in given.items() if v is not None} for name, given in parts.items()}
    for given in found.values():
        given.pop("return_dict", None)
    vae = getattr(pipeline, "vae", None)
    if vae is not None:
        side = 8 * getattr(pipeline, "vae_scale_factor", 8)
        channels = vae.config.get("in_channels") or vae.config.get("input_channels") or 3
        is_video = any(p.dim() == 5 for p in vae.parameters())
        found["vae"] = {"sample": {"shape": [1, channels, *([1] * is_video), side, side], "dtype": "float32"}}
    return found


def _spec(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _spec(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_spec(item) for item in value]
    if not torch.is_tensor(value):
        return value
    shape = list(value.shape)
    low, high = (float(value.min()), float(value.max())) if value.numel() else (0.0, 1.0)
    if not value.is_floating_point():
        return {
            "shape": shape,
            "dtype": str(value.dtype).removeprefix("torch."),
            "low": int(low),
            "high": int(high) + 1,
        }
    if low == high:
        low, high = min(low, 0.0), max(high, 1.0)
    drawn = {"low": low, "high": high} if low >= 0 or value.numel() < 16 else {}
    return {"shape": shape, "dtype": "float32", **drawn}


def _plain(names: dict[str, Any]) -> dict[str, Any]:
    """Names whose values are tensors, numbers, texts, None or lists of them; of others the kind alone."""
    return {name: _value(value) for name, value in names.items()}


def _value(value: Any) -> Any:
    if torch.is_tensor(value) or value is None or isinstance(value, bool | int | float | str):
        return value
    if type(value).__name__ == "ndarray":
        return torch.from_numpy(value.copy())
    if isinstance(value, dict) and all(isinstance(k, str) for k in value):
        return {key: _value(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_value(item) for item in value]
    return {"$kind": type(value).__name__}
