"""What a user may name as a target, as a record: a hub id, a folder, a GGUF file, a class, or an architecture.

Everything that can be checked without importing the model is checked here, so that a wrong name costs no minutes.
"""

import dataclasses
import json
import keyword
import re
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from maxcode import names
from maxcode.errors import MaxCodeError
from maxcode.weight_files import check_safetensors_folder, read_gguf_architecture

_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*(/[\w.-]+)?")
_FORMS = (
    "a hub id, a folder, a .gguf file, file.py:Class, pkg.mod:Class, transformers:<type>[:<Class>], "
    "or a training program train.py[:function]"
)
# Folders beside the package, and modules that it imports: a package of such a name would hide them.
_TAKEN = (
    frozenset({"jax", "flax", "numpy", "safetensors", "jaxtyping", "weights", "report", "tests"})
    | sys.stdlib_module_names
)
_STORED = ("folder", "hub", "gguf")


@dataclass(frozen=True)
class Target:
    """What the user asked for (docs/interfaces.md §3); fields that only the oracle can know are None until resolved."""

    text: str
    kind: str  # transformers | folder | hub | gguf | module | pipeline
    type: str | None = None
    module: str | None = None
    class_name: str | None = None
    config_module: str | None = None
    config_class: str | None = None
    config: dict[str, Any] | None = None
    path: str | None = None
    gguf_file: str | None = None
    revision: str | None = None
    init: list[Any] | dict[str, Any] | None = None
    inputs: list[Any] | dict[str, Any] | None = None
    overrides: dict[str, Any] = field(default_factory=dict)
    full_size: bool = False
    seed: int = 0
    allow_pickle: bool = False
    trust_remote_code: bool = False
    weights: str = "noise"
    training: dict[str, Any] | None = None  # {"file", "entry"}: a program that trains, not a model alone

    def to_json(self) -> str:
        """The text of `target.json`."""
        return json.dumps(dataclasses.asdict(self), indent=1, ensure_ascii=False) + "\n"

    @property
    def local_path(self) -> Path | None:
        """The user's own file or folder, if the target is one."""
        return Path(self.path) if self.path and self.kind != "hub" else None


@dataclass(frozen=True)
class TargetOptions:
    """Options of the command line that belong to the target."""

    init: list[Any] | dict[str, Any] | None = None
    inputs: list[Any] | dict[str, Any] | None = None
    overrides: dict[str, Any] = field(default_factory=dict)
    full_size: bool = False
    revision: str | None = None
    seed: int = 0
    allow_pickle: bool = False
    trust_remote_code: bool = False


def parse_target(text: str, options: TargetOptions = TargetOptions()) -> Target:
    """The record of a target text and its options; only looks at what names refer to, not into files.

    A path that exists wins over a hub id of the same spelling.

    Raises:
      MaxCodeError: the text names nothing, or an option does not fit the kind of target.
    """
    target = _recognise(text)
    _check_options(target.kind, options)
    given = {f.name: getattr(options, f.name) for f in dataclasses.fields(options)}
    return dataclasses.replace(target, **given, weights="stored" if target.kind in _STORED else "noise")


def _recognise(text: str) -> Target:
    if not text.strip():
        raise MaxCodeError("TARGET", "is empty", _FORMS)
    if text.startswith("transformers:"):
        return _parse_transformers(text)
    path = Path(text).expanduser()
    if path.is_dir():
        return _parse_folder(text, path)
    if path.is_file():
        return _parse_file(text, path)
    left, colon, class_name = text.rpartition(":")
    if colon:
        return _parse_class(text, left, class_name)
    looks_local = (
        path.is_absolute() or text.startswith((".", "~")) or text.count("/") > 1 or text.endswith(("/", ".gguf", ".py"))
    )
    if not looks_local and _HUB_ID.fullmatch(text):
        return Target(text, "hub")
    siblings = [p.name for p in path.parent.iterdir()] if path.parent.is_dir() else []
    found = "no such file or folder" + names.suggest(path.name, siblings)
    raise MaxCodeError(text, found, _FORMS, "check the path")


def _parse_transformers(text: str) -> Target:
    _, model_type, *rest = text.split(":")
    if len(rest) > 1:
        raise MaxCodeError(text, "has too many colons", "transformers:<type>[:<Class>]")
    types = names.transformers_types()
    if model_type not in types:
        found = f"transformers has no model type {model_type!r}{names.suggest(model_type, types)}"
        raise MaxCodeError(text, found, f"one of its {len(types)} types", "check the spelling, or update transformers")
    class_name = rest[0] if rest else None
    known = names.transformers_classes(model_type)
    if class_name is not None and known and class_name not in known:
        found = f"{model_type!r} has no class {class_name!r}{names.suggest(class_name, known)}"
        public = ", ".join(sorted(n for n in known if re.search(r"(Model|For\w+)$", n)))
        raise MaxCodeError(text, found, f"one of {public}")
    return Target(text, "transformers", type=model_type, class_name=class_name)


def _parse_folder(text: str, path: Path) -> Target:
    if (path / "model_index.json").is_file():
        return Target(text, "pipeline", path=str(path.resolve()))
    ggufs = sorted(path.glob("*.gguf"))
    if ggufs and not any(path.glob("*.safetensors*")):
        if len(ggufs) > 1:
            raise MaxCodeError(text, f"holds {len(ggufs)} GGUF files", "one", f"name one, such as {ggufs[0]}")
        return Target(text, "gguf", path=str(path.resolve()), gguf_file=ggufs[0].name)
    return Target(text, "folder", path=str(path.resolve()))


def _parse_file(text: str, path: Path) -> Target:
    if path.suffix == ".gguf":
        return Target(text, "gguf", path=str(path.resolve().parent), gguf_file=path.name)
    if path.suffix == ".py":
        tree = names.parse_file(path)
        if not isinstance(tree, str) and names.trains(tree):
            return _training(text, path, None)
        known = list(names.classes(tree)) if not isinstance(tree, str) else []
        do = f"name one of its classes: {', '.join(f'{text}:{n}' for n in known)}" if known else "name a class"
        raise MaxCodeError(text, "no class is named", "file.py:Class", do)
    raise MaxCodeError(text, f"a {path.suffix or 'plain'} file is no target", _FORMS, "name the folder that holds it")


def _parse_class(text: str, left: str, class_name: str) -> Target:
    path = Path(left).expanduser()
    if not class_name.isidentifier():
        raise MaxCodeError(text, f"{class_name!r} is no class name", "file.py:Class or pkg.mod:Class")
    if path.is_file():
        tree = names.parse_file(path)
        if not isinstance(tree, str) and names.is_program(tree, class_name):
            return _training(text, path, class_name)
        return Target(text, "module", class_name=class_name, path=str(path.resolve()))
    if left.endswith(".py") or "/" in left:
        siblings = [p.name for p in path.parent.glob("*.py")] if path.parent.is_dir() else []
        raise MaxCodeError(left, "no such file" + names.suggest(path.name, siblings), "file.py:Class", "check the path")
    if not all(part.isidentifier() for part in left.split(".")):
        raise MaxCodeError(text, f"{left!r} is neither a file nor a module name", _FORMS)
    return Target(text, "module", module=left, class_name=class_name)


def _training(text: str, path: Path, entry: str | None) -> Target:
    """A training program: the file's own statements, or one of its functions."""
    return Target(text, "module", path=str(path.resolve()), training={"file": str(path.resolve()), "entry": entry})


def _check_options(kind: str, options: TargetOptions) -> None:
    fits = {
        "--init": (options.init is not None, ("module",)),
        "--full-size": (options.full_size, ("transformers",)),
        "--revision": (options.revision is not None, ("hub",)),
        "--trust-remote-code": (options.trust_remote_code, ("hub", "folder")),
        "--set": (bool(options.overrides), ("transformers", *_STORED)),
    }
    for option, (given, kinds) in fits.items():
        if given and kind not in kinds:
            do = "give constructor arguments with --init" if option == "--set" else "leave it out"
            raise MaxCodeError(option, f"does not apply to a {kind} target", f"a {' or '.join(kinds)} target", do)


def validate(target: Target, *, with_weights: bool = True) -> None:
    """Look into the target's files, still without importing any of them.

    Raises:
      MaxCodeError: what `maxcode convert` could not use, with what to do about it.
    """
    if target.training is not None:
        return
    if target.kind == "pipeline":
        return  # its parts are targets of their own
    if target.kind == "module":
        _validate_class(target)
    elif target.kind == "gguf":
        _validate_gguf(Path(str(target.path)) / str(target.gguf_file))
    elif target.path is not None:
        folder = Path(target.path)
        _validate_config(folder, target)
        if with_weights:
            _validate_weights(folder, target.allow_pickle)


def _validate_config(folder: Path, target: Target) -> None:
    path = folder / "config.json"
    if not path.is_file():
        do = "name a folder in Hugging Face form"
        raise MaxCodeError(str(folder), "no config.json in it", "a folder with config.json and weights", do)
    try:
        config = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise MaxCodeError(str(path), f"not JSON ({error})", "a model configuration", "download it again") from None
    if isinstance(config, dict) and isinstance(config.get("_class_name"), str) and "model_type" not in config:
        return  # a layer library's class; the oracle knows which there are
    model_type = config.get("model_type") if isinstance(config, dict) else None
    if not isinstance(model_type, str):
        raise MaxCodeError(
            str(path), "has no model_type", "a transformers configuration", "use file.py:Class for other models"
        )
    if model_type in names.transformers_types():
        return
    if "auto_map" not in config:
        found = f"transformers has no model type {model_type!r}{names.suggest(model_type, names.transformers_types())}"
        raise MaxCodeError(str(path), found, "a known type", "update transformers, or use file.py:Class")
    if not target.trust_remote_code:
        found = f"model type {model_type!r} needs the repository's own code"
        raise MaxCodeError(str(path), found, "", "read that code, then give --trust-remote-code")


def _validate_weights(folder: Path, allow_pickle: bool) -> None:
    if check_safetensors_folder(folder):
        return
    pickles = sorted(p.name for p in folder.glob("*.bin") if p.name != "training_args.bin")
    if pickles and allow_pickle:
        return
    if pickles:
        do = "convert it to safetensors, or give --allow-pickle to load it weights-only"
        raise MaxCodeError(str(folder / pickles[0]), "the weights are a pickle, which can run code", "safetensors", do)
    do = "download the weights, or convert the architecture alone with --no-weights"
    raise MaxCodeError(str(folder), "no weights in it", "model.safetensors or an index with its shards", do)


def _validate_gguf(path: Path) -> None:
    architecture = read_gguf_architecture(path)
    known, aliases = names.gguf_architectures()
    if known and architecture not in known | aliases:
        found = f"GGUF architecture {architecture!r} is not known to transformers{names.suggest(architecture, known)}"
        raise MaxCodeError(
            str(path), found, f"one of {', '.join(sorted(known))}", "use the original safetensors folder"
        )


def _validate_class(target: Target) -> None:
    path = Path(target.path) if target.path else names.find_module(str(target.module))
    if path is None:
        do = "install it, or run where it can be imported"
        raise MaxCodeError(target.text, f"no module named {target.module!r}", "an importable module", do)
    tree = names.parse_file(path)
    if isinstance(tree, str):
        raise MaxCodeError(str(path), f"cannot be parsed: {tree}", "a Python file", "correct the file")
    known = names.classes(tree)
    bound, open_ended = names.bound_names(tree)
    class_name = str(target.class_name)
    if class_name not in known and class_name not in bound and not open_ended:
        found = f"no class {class_name!r}{names.suggest(class_name, known)}"
        raise MaxCodeError(str(path), found, f"one of {', '.join(known) or '(it has no classes)'}", "check the name")
    if class_name in known:
        _check_arguments(target, path, "--init", known, "__init__", "get_init_inputs" in names.functions(tree))
        _check_arguments(target, path, "--inputs", known, "forward", "get_inputs" in names.functions(tree))


def _check_arguments(
    target: Target, path: Path, option: str, known: dict[str, Any], method: str, has_function: bool
) -> None:
    values = target.init if option == "--init" else target.inputs
    signature = names.method_signature(known[str(target.class_name)], method, known)
    if signature is None or (values is None and has_function):
        return
    problem = signature.problem(values)
    if problem is not None:
        function = "get_init_inputs()" if option == "--init" else "get_inputs()"
        raise MaxCodeError(
            f"{path}:{target.class_name}.{method}",
            problem,
            f"values for: {signature.describe()}",
            f"give {option} '<JSON list or object>', or write {function} in the file",
        )


def default_output(target: Target) -> Path:
    """The output folder when none is given: the last part of the target's name, as an identifier."""
    program = str(target.training["entry"] or Path(target.training["file"]).stem) if target.training else ""
    source = program or target.class_name or target.type or target.gguf_file or Path(target.path or target.text).name
    if target.kind == "hub":
        source = target.text.rpartition("/")[2]
    return Path(package_name(source.removesuffix(".gguf")))


def package_name(text: str) -> str:
    """A Python package name made from a folder's name; never a keyword, nor a name that the package itself needs."""
    name = re.sub(r"\W+", "_", text, flags=re.ASCII).strip("_").lower() or "model"
    if not name.isidentifier():
        return f"m_{name}"
    return f"{name}_model" if keyword.iskeyword(name) or name in _TAKEN else name
