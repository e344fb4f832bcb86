"""`resolve`: what the user typed becomes a class, a configuration and inputs (docs/interfaces.md §3.1)."""

import importlib
import inspect
import json
from pathlib import Path
from typing import Any

import torch

from maxcode.evaluator.oracle import importing, sizes, stored, tiny
from maxcode.evaluator.oracle.build import build_inputs, call, construct, init_arguments
from maxcode.evaluator.oracle.errors import OracleError
from maxcode.evaluator.oracle.flatten import bind
from maxcode.evaluator.oracle.progress import progress
from maxcode.evaluator.oracle.target import Target, load_target
from maxcode.evaluator.tuples import tagged


def resolve(target: Target) -> Target:
    """A copy of the target with class, configuration, path, revision, inputs; plain modules run once.

    Raises:
      OracleError: unknown type, class, hub id or architecture; missing weights, constructor arguments or inputs.
    """
    progress("resolve", target["text"])
    resolved = _BY_KIND[target["kind"]](dict(target))
    if not resolved["config_class"]:
        resolved["arguments"] = named_arguments(resolved)
        _check_module(resolved)
    return resolved


# -- architectures of transformers, random weights ------------------------------------------------------------------


def _transformers(target: Target) -> Target:
    model_type, _, class_name = _type_and_class(target)
    if target["module"] and target["config_class"]:  # named in full already
        cls, config_class = importing.model_class(target), importing.config_class(target)
    else:
        cls = architecture(model_type, class_name)
        config_class = cls.config_class
    target |= _names(cls) | {"config_module": config_class.__module__, "config_class": config_class.__name__}
    changes = sizes.nested(target.get("overrides") or {})
    if target["config"] is not None:
        return sizes.settled(target, config_class.from_dict(dict(target["config"])), changes)
    if target.get("full_size"):
        return sizes.room_for(sizes.settled(target, config_class(), changes))
    return sizes.first_running(target, tiny.candidates(config_class), changes)


def _type_and_class(target: Target) -> tuple[str, str, str | None]:
    text = target.get("type") or target["text"].removeprefix("transformers:")
    model_type, separator, class_name = text.partition(":")
    return model_type, separator, target["class_name"] or class_name or None


def architecture(model_type: str, class_name: str | None) -> type:
    """The model class of a type: causal LM, else sequence-to-sequence, else base class, by transformers' own mappings.

    Raises:
      OracleError: an unknown type, or a class that its modeling module lacks.
    """
    from transformers import CONFIG_MAPPING
    from transformers.models.auto import modeling_auto as auto

    if model_type not in CONFIG_MAPPING:
        from difflib import get_close_matches

        near = get_close_matches(model_type, list(CONFIG_MAPPING.keys()), n=5, cutoff=0.5)
        expected = f"a type of this transformers release, such as {', '.join(near)}" if near else "a type it knows"
        raise OracleError(f"transformers:{model_type}", "unknown type", expected, "correct the type")
    config_class = CONFIG_MAPPING[model_type]
    module = config_class.__module__.replace(".configuration_", ".modeling_")
    names = (
        auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
        auto.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES,
        auto.MODEL_MAPPING_NAMES,
    )
    if class_name is None:
        class_name = next((table[model_type] for table in names if model_type in table), None)
    if isinstance(class_name, list | tuple):
        class_name = class_name[0]
    if class_name is None:
        raise OracleError(f"transformers:{model_type}", "no default class", "a class name", "add :<Class>")
    import transformers

    if isinstance(found := getattr(transformers, class_name, None), type):
        return found
    place = {
        "kind": "transformers",
        "path": None,
        "trust_remote_code": False,
        "module": module,
        "class_name": class_name,
    }
    return importing.model_class(place)


# -- checkpoints ----------------------------------------------------------------------------------------------------


def _folder(target: Target) -> Target:
    folder = Path(target["path"])
    if not folder.is_dir():
        raise OracleError(str(folder), "no such folder", "a Hugging Face model folder", "check the path")
    target["path"] = str(folder.resolve())
    config = _read_config(folder)
    if target["weights"] == "stored":
        stored.check_files(folder, target["allow_pickle"])
    if REGISTERED in config and not config.get("model_type"):
        return _registered(target, folder, config)
    return _from_architectures(target, folder, config)


REGISTERED = "_class_name"  # the key by which a layer library's configuration names its class


def _registered(target: Target, folder: Path, raw: dict[str, Any]) -> Target:
    """A class of diffusers, whose configuration holds the constructor's arguments."""
    diffusers = importlib.import_module("diffusers")  # only who converts its models has it
    cls = getattr(diffusers, str(raw[REGISTERED]), None)
    if not isinstance(cls, type):
        found = f"{REGISTERED} {raw[REGISTERED]!r}, which diffusers {diffusers.__version__} does not have"
        raise OracleError(str(folder / "config.json"), found, "a model class of diffusers", "update diffusers")
    known = inspect.signature(cls.__init__).parameters
    init = {name: value for name, value in raw.items() if name in known}
    return target | _names(cls) | {"init": init, "config": None, "config_class": None, "config_module": None}


def _read_config(folder: Path) -> dict[str, Any]:
    path = folder / "config.json"
    try:
        config = json.loads(path.read_text())
    except FileNotFoundError:
        raise OracleError(str(path), "no such file", "a config.json beside the weights", "check the folder") from None
    except ValueError as error:
        raise OracleError(str(path), f"no JSON ({error})", "a config.json", "fetch it again") from None
    if not isinstance(config, dict) or not (config.get("model_type") or config.get(REGISTERED)):
        raise OracleError(str(path), "no model_type", "a configuration of transformers", "add its model_type")
    return config


def _from_architectures(target: Target, folder: Path, raw: dict[str, Any]) -> Target:
    remote = raw.get("auto_map") or {}
    if "AutoConfig" in remote:
        return _remote(target, folder, remote)
    named = target["class_name"] or next(iter(raw.get("architectures") or []), None)
    cls = architecture(raw["model_type"], named)
    return _with_config(target, cls, _load_config(target, cls.config_class, folder))


def _remote(target: Target, folder: Path, remote: dict[str, str]) -> Target:
    if not target["trust_remote_code"]:
        found = f"model code of its own ({', '.join(sorted(remote.values()))})"
        raise OracleError(
            str(folder), found, "an architecture of transformers", "read it, then pass --trust-remote-code"
        )
    from transformers.dynamic_module_utils import get_class_from_dynamic_module

    wanted = next((n for n in ("AutoModelForCausalLM", "AutoModelForSeq2SeqLM", "AutoModel") if n in remote), None)
    if wanted is None:
        raise OracleError(str(folder), f"auto_map {sorted(remote)}", "a model class in it", "name the class")
    cls = get_class_from_dynamic_module(remote[wanted], str(folder))
    config_class = get_class_from_dynamic_module(remote["AutoConfig"], str(folder))
    return _with_config(target, cls, _load_config(target, config_class, folder))


def _load_config(target: Target, config_class: Any, folder: Path) -> Any:
    try:
        return config_class.from_pretrained(str(folder), local_files_only=True)
    except Exception as error:
        raise sizes.refused(target, error) from error


def _with_config(target: Target, cls: type, config: Any) -> Target:
    target |= _names(cls) | {"config_module": type(config).__module__, "config_class": type(config).__name__}
    return sizes.settled(target, config, sizes.nested(target.get("overrides") or {}))


def _hub(target: Target) -> Target:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    options = {"revision": target["revision"], "allow_patterns": _HUB_FILES}
    if target["allow_pickle"]:
        options["allow_patterns"] = [*_HUB_FILES, "*.bin"]
    try:
        path = snapshot_download(target["text"], **options)
    except (LocalEntryNotFoundError, HfHubHTTPError, HFValidationError, OSError) as error:
        found = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else 'no answer from the hub'}"
        do = "check the id and the network, or give the path of a local folder"
        raise OracleError(target["text"], found, "a model on the hub or in its local cache", do) from error
    target |= {"path": path, "revision": Path(path).name}  # a snapshot folder is named by its commit
    return _folder(target) | {"revision": Path(path).name}


_HUB_FILES = ["*.json", "*.safetensors", "*.model", "*.txt", "*.jinja", "*.py", "LICENSE*", "tokenizer*"]


def _gguf(target: Target) -> Target:
    folder, name = Path(target["path"]), target["gguf_file"]
    if name is None or folder.is_file():
        folder, name = folder.parent, folder.name
    from transformers import AutoConfig

    try:
        with stored.one_gguf_reader():
            stored.check_gguf(folder / name)
            config = AutoConfig.from_pretrained(str(folder), gguf_file=name, local_files_only=True)
    except OracleError:
        raise
    except Exception as error:
        found = f"{type(error).__name__}: {error}"
        expected = "a GGUF architecture that transformers reads"
        raise OracleError(str(folder / name), found, expected, "use the model's safetensors folder") from error
    target |= {"path": str(folder.resolve()), "gguf_file": name}
    return _with_config(target, architecture(config.model_type, target["class_name"]), config)


# -- plain modules --------------------------------------------------------------------------------------------------


def _module(target: Target) -> Target:
    if target["training"] and "until" not in target["training"]:
        from maxcode.evaluator.oracle.training_target import resolve_training

        target = load_target(resolve_training(target))
        return target
    if target["path"]:
        path = Path(target["path"])
        target |= {"path": str(path.resolve()), "module": target["module"] or importing.file_module_name(path)}
    cls = importing.model_class(target)
    if not issubclass(cls, torch.nn.Module):
        raise OracleError(target["text"], f"{cls.__name__} is no module", "a torch.nn.Module", "name another class")
    return target


def named_arguments(target: Target) -> dict[str, Any]:
    """The constructor's arguments by name, however they were given: they become the package's config.json.

    Raises:
      OracleError: one of them has no JSON form, or stands for `*args`.
    """
    args, kwargs = init_arguments(target)
    cls = importing.model_class(target)
    named = bind(cls, args, kwargs)
    where = f"{target['text']} {cls.__name__}.__init__"
    do = "write a subclass whose constructor makes it from such values"
    if starred := [name for name in named if "." in name]:
        raise OracleError(where, f"{starred[0]!r} stands for *args", "arguments with names of their own", do)
    for name, value in named.items():
        try:
            named[name] = json.loads(json.dumps(tagged(value), allow_nan=False))
        except (TypeError, ValueError):
            found = f"argument {name!r} is a {type(value).__name__}, which config.json cannot hold"
            raise OracleError(where, found, "numbers, texts, true, false, null, lists or objects of them", do) from None
    return named


def _check_module(target: Target) -> None:
    """Builds and runs it once, so that missing arguments show now and not in a later stage."""
    model = construct(target)
    inputs = build_inputs(target, model, "float32")
    try:
        with torch.no_grad():
            call(model, inputs, "float32")
    except Exception as error:
        found = f"{type(error).__name__}: {error}"
        shown = {name: list(v.shape) if torch.is_tensor(v) else v for name, v in inputs.items()}
        raise OracleError(
            f"{target['text']} forward", found, f"a call that runs with {shown}", "correct --inputs"
        ) from error


def _names(cls: type) -> dict[str, str]:
    return {"module": cls.__module__, "class_name": cls.__name__}


_BY_KIND = {"transformers": _transformers, "folder": _folder, "hub": _hub, "gguf": _gguf, "module": _module}
