"""Finding a target's classes: installed modules, single files, and code shipped inside a model folder."""

import importlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from maxcode.evaluator.oracle.errors import OracleError
from maxcode.evaluator.oracle.target import Target


def model_class(target: Target) -> type:
    """The `nn.Module` class of a resolved target.

    Raises:
      OracleError: the module does not import, or holds no such class.
    """
    return _lookup(target, target["module"], target["class_name"])


def config_of(target: Target) -> Any:
    """The configuration object with eager attention and experts everywhere, or None for plain modules."""
    if target["config"] is None or target["config_class"] is None:
        return None
    return make_eager(config_class(target).from_dict(dict(target["config"])))


def config_class(target: Target) -> type:
    """The configuration class of a resolved target that has one."""
    return _lookup(target, target["config_module"], target["config_class"])


def make_eager(config: Any) -> Any:
    """Sets both eager switches on a configuration and all configurations inside it; returns it."""
    from transformers import PreTrainedConfig

    seen, queue = set(), [config]
    while queue:
        current = queue.pop()
        if isinstance(current, list | tuple):
            queue.extend(current)
        elif isinstance(current, dict):
            queue.extend(current.values())
        elif isinstance(current, PreTrainedConfig) and id(current) not in seen:
            seen.add(id(current))
            current._attn_implementation = "eager"
            current._experts_implementation = "eager"
            queue.extend(vars(current).values())
    return config


def source_module(target: Target) -> ModuleType:
    """The module a plain target is defined in (for its own `get_inputs` and `get_init_inputs`)."""
    if target["kind"] == "module" and target["path"]:
        return import_file(Path(target["path"]), target["module"])
    return _import(target["module"])


def import_file(path: Path, name: str | None = None) -> ModuleType:
    """Imports one file under `name` (default: its stem); its folder is searched for the modules beside it."""
    if not path.is_file():
        raise OracleError(str(path), "no such file", "a Python file", "check the path of the target")
    name = name or file_module_name(path)
    loaded = sys.modules.get(name)
    if loaded is not None and getattr(loaded, "__file__", None) == str(path.resolve()):
        return loaded
    folder = str(path.resolve().parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    if name == path.stem:  # through the import system, so that an instrumenting finder sees the file
        found = _import_beside(path, name)
        if found is not None:
            return found
    spec = importlib.util.spec_from_file_location(name, path.resolve())
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        raise _does_not_import(path, error) from error
    return module


def _import_beside(path: Path, name: str) -> ModuleType | None:
    """The module found for `name` on the search path where that is this very file."""
    importlib.invalidate_caches()
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        return None
    if spec is None or not spec.origin or Path(spec.origin).resolve() != path.resolve():
        return None
    try:
        return importlib.import_module(name)
    except (Exception, SystemExit) as error:
        raise _does_not_import(path, error) from error


def _does_not_import(path: Path, error: BaseException) -> OracleError:
    return OracleError(str(path), f"{type(error).__name__}: {error}", "a file that imports", "fix the file")


def file_module_name(path: Path) -> str:
    """The file's stem, with a suffix where an installed module has that name."""
    taken = path.stem in sys.stdlib_module_names or path.stem in sys.modules
    return f"{path.stem}_source" if taken else path.stem


def _lookup(target: Target, module_name: str, class_name: str) -> Any:
    if target["kind"] == "module" and target["path"]:
        module = source_module(target)
    elif target["trust_remote_code"] and module_name.startswith("transformers_modules."):
        module = _import_remote(module_name, target["path"])
    else:
        module = _import(module_name)
    found = getattr(module, class_name, None)
    if not isinstance(found, type):
        classes = sorted(n for n, v in vars(module).items() if isinstance(v, type) and v.__module__ == module.__name__)
        raise OracleError(
            f"{module.__name__}:{class_name}", "no such class", f"one of {', '.join(classes) or 'none defined'}",
            "correct the class name",
        )  # fmt: skip
    return found


def _import_remote(name: str, folder: str) -> ModuleType:
    """A module of the checkpoint's own code, by the ordinary import, so that an instrumenting finder sees it."""
    from transformers.dynamic_module_utils import get_cached_module_file

    get_cached_module_file(folder, f"{name.rpartition('.')[2]}.py")  # where transformers keeps copies, on sys.path
    importlib.invalidate_caches()
    return _import(name)


def _import(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except (Exception, SystemExit) as error:
        found = f"{type(error).__name__}: {error}"
        raise OracleError(str(name), found, "an importable module", "install it, or correct the target") from error
