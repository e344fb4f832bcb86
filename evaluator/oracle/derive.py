"""Sample inputs derived from a transformers model: its forward signature decides which, its configuration how large."""

import inspect
from typing import Any

from torch import nn

from maxcode.evaluator.oracle.errors import OracleError

Spec = dict[str, Any]


def input_specs(model: nn.Module, batch: int = 2, length: int = 12) -> dict[str, Spec]:
    """Specs (see inputs.py) of the arguments that a first call needs.

    Token ids avoid the special ids where the vocabulary allows; row 1 is right-padded. Every required parameter of
    `forward` has to be known here.

    Raises:
      OracleError: `forward` needs an argument that no rule covers.
    """
    config, parameters = model.config, inspect.signature(model.forward).parameters
    specs: dict[str, Spec] = {}
    main = getattr(model, "main_input_name", "input_ids")
    for name, parameter in parameters.items():
        required = parameter.default is parameter.empty and parameter.kind is parameter.POSITIONAL_OR_KEYWORD
        if name == main or required or name in _COMPANIONS:
            spec = _spec(name, config, batch, length, main)
            if spec is not None:
                specs[name] = spec
            elif required or name == main:
                do = "give --inputs with a spec for it"
                raise OracleError(f"{type(model).__name__}.forward", f"argument {name!r}", "known arguments", do)
    if "use_cache" in parameters or getattr(config, "use_cache", None):
        specs["use_cache"] = {"kind": "const", "value": False}
    return specs


_COMPANIONS = ("attention_mask", "decoder_input_ids")


def _spec(name: str, config: Any, batch: int, length: int, main: str) -> Spec | None:
    if name in ("input_ids", "decoder_input_ids"):
        size = length if name == main else max(4, length - 5)
        return _ids(batch, size, text_config(config))
    if name == "attention_mask":
        if main != "input_ids":
            return None
        return {"kind": "mask", "dtype": "int64", "shape": [batch, length], "pad_right": [0, 3]}
    if name == "pixel_values":
        return {"kind": "image", "dtype": "float32", "shape": [batch, *_image_shape(config)]}
    if name in ("input_features", "input_values"):
        return _audio(name, config, batch)
    if name == "inputs_embeds":
        return {"kind": "float", "dtype": "float32", "shape": [batch, length, text_config(config).hidden_size]}
    return None


def _ids(batch: int, length: int, config: Any) -> Spec:
    vocabulary = int(getattr(config, "vocab_size", 32))
    return {
        "kind": "ids",
        "dtype": "int64",
        "shape": [batch, length],
        "low": min(3, vocabulary - 1),
        "high": vocabulary,
    }


def text_config(config: Any) -> Any:
    """The configuration that holds the vocabulary: the one of the text tower, or `config` itself."""
    if getattr(config, "vocab_size", None) is None and hasattr(config, "get_text_config"):
        return config.get_text_config()
    return config


def _image_shape(config: Any) -> list[int]:
    vision = getattr(config, "vision_config", config)
    size = getattr(vision, "image_size", 32)
    height, width = size if isinstance(size, list | tuple) else (size, size)
    return [getattr(vision, "num_channels", getattr(vision, "in_channels", 3)), height, width]


def _audio(name: str, config: Any, batch: int) -> Spec:
    audio = getattr(config, "audio_config", config)
    if name == "input_values":
        return {"kind": "audio", "dtype": "float32", "shape": [batch, 1600]}
    bins = getattr(audio, "num_mel_bins", getattr(audio, "input_feat_per_channel", 80))
    frames = 2 * getattr(audio, "max_source_positions", 32)
    return {"kind": "audio", "dtype": "float32", "shape": [batch, bins, frames]}
