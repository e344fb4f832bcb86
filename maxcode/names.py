"""Names that a target may use, read from source files without importing them: importing would run their code."""

import ast
import difflib
import importlib.util
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from maxcode.errors import MaxCodeError


@dataclass(frozen=True)
class Signature:
    """What a call may pass: argument names without `self`; those in `required` have no default."""

    positional: tuple[str, ...]
    required: tuple[str, ...]
    keyword_only: tuple[str, ...]
    takes_any: bool  # has *args or **kwargs

    def problem(self, values: list | dict | None) -> str | None:
        """Why these values cannot be passed, or None."""
        given = set(values) if isinstance(values, dict) else set(self.positional[: len(values or [])])
        missing = [name for name in self.required if name not in given]
        if missing:
            return f"arguments missing: {', '.join(missing)}"
        if self.takes_any or values is None:
            return None
        if isinstance(values, list):
            too_many = len(values) > len(self.positional)
            return f"{len(values)} values for {len(self.positional)} arguments" if too_many else None
        unknown = [name for name in values if name not in (*self.positional, *self.keyword_only)]
        return f"no argument named {', '.join(unknown)}{suggest(unknown[0], self.positional)}" if unknown else None

    def describe(self) -> str:
        """The arguments as a reader expects them."""
        optional = [f"{n}=…" for n in (*self.positional, *self.keyword_only) if n not in self.required]
        return ", ".join([*self.required, *optional]) or "none"


def suggest(name: str, known: Iterable[str]) -> str:
    """` (did you mean …?)`, or nothing when no known name is near."""
    near = difflib.get_close_matches(name, list(known), n=3, cutoff=0.6)
    return f" (did you mean {' or '.join(repr(n) for n in near)}?)" if near else ""


def parse_file(path: Path) -> ast.Module | str:
    """The syntax tree of a Python file, or a text that says why there is none."""
    try:
        return ast.parse(path.read_bytes(), filename=str(path))
    except SyntaxError as error:
        return f"line {error.lineno}: {error.msg}"
    except (OSError, ValueError) as error:
        return str(error)


def bound_names(tree: ast.Module) -> tuple[set[str], bool]:
    """Names that a module binds anywhere, and whether it may bind more (star imports, `__getattr__`)."""
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            names.add(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names.update((alias.asname or alias.name).split(".")[0] for alias in node.names)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
    return names, bool(names & {"*", "__getattr__"})


def classes(tree: ast.Module) -> dict[str, ast.ClassDef]:
    """Top-level classes by name."""
    return {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}


def functions(tree: ast.Module) -> set[str]:
    """Names of top-level functions."""
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


def trains(tree: ast.Module) -> bool:
    """Whether a file takes training steps: somewhere it calls `backward()` and some `step()`."""
    called = {n.func.attr for n in ast.walk(tree) if isinstance(n, ast.Call) and isinstance(n.func, ast.Attribute)}
    return {"backward", "step"} <= called


def is_program(tree: ast.Module, name: str) -> bool:
    """Whether `name` is part of a training program rather than a model: a function, or a class that trains itself."""
    if name in functions(tree):
        return True
    node = classes(tree).get(name)
    if node is None or any(ast.unparse(base).endswith("Module") for base in node.bases):
        return False
    return trains(ast.Module([node], [])) or (trains(tree) and not node.bases)


def method_signature(owner: ast.ClassDef, method: str, known: dict[str, ast.ClassDef]) -> Signature | None:
    """The signature of a method, looked up through base classes in the same file; None when it is defined elsewhere."""
    for node in owner.body:
        if isinstance(node, ast.FunctionDef) and node.name == method:
            return _signature(node.args)
    for base in owner.bases:
        if isinstance(base, ast.Name) and base.id in known and base.id != owner.name:
            return method_signature(known[base.id], method, known)
    return None


def _signature(args: ast.arguments) -> Signature:
    positional = [a.arg for a in (*args.posonlyargs, *args.args)]
    required = positional[: len(positional) - len(args.defaults)][1:]
    keyword = [a.arg for a in args.kwonlyargs]
    required += [name for name, default in zip(keyword, args.kw_defaults, strict=True) if default is None]
    return Signature(tuple(positional[1:]), tuple(required), tuple(keyword), bool(args.vararg or args.kwarg))


def find_module(name: str) -> Path | None:
    """The source file of a dotted module name in the working folder or on sys.path; imports nothing."""
    first, *rest = name.split(".")
    for root in (Path.cwd(), *(Path(entry) for entry in sys.path if entry)):
        found = _below(root / first, rest)
        if found is not None:
            return found
    try:
        spec = importlib.util.find_spec(first)  # a top-level name: finding it imports nothing
    except (ImportError, ValueError):
        return None
    for place in (spec.submodule_search_locations or []) if spec else []:
        found = _below(Path(place), rest)
        if found is not None:
            return found
    return Path(spec.origin) if spec and spec.origin and not rest and Path(spec.origin).is_file() else None


def _below(base: Path, rest: list[str]) -> Path | None:
    path = base.joinpath(*rest)
    for candidate in (path.with_name(path.name + ".py"), path / "__init__.py"):
        if candidate.is_file():
            return candidate
    return None


@cache
def transformers_types() -> dict[str, str]:
    """Model types of the installed transformers: type -> folder below `transformers/models`."""
    folder = _transformers() / "models" / "auto"
    trees = [parse_file(folder / file) for file in ("auto_mappings.py", "configuration_auto.py")]
    pairs = [pair for tree in trees if isinstance(tree, ast.Module) for pair in _string_pairs(tree)]
    folders = {name: value for name, value in pairs if not value.endswith("Config")}
    types = sorted({name for name, value in pairs if value.endswith("Config")})
    return {name: folders.get(name, name.replace("-", "_")) for name in types}


def transformers_classes(model_type: str) -> set[str]:
    """Class names in the modeling files of a model type; empty when its folder is not found."""
    folder = _transformers() / "models" / transformers_types().get(model_type, model_type)
    trees = [parse_file(path) for path in sorted(folder.glob("modeling_*.py"))]
    return {name for tree in trees if isinstance(tree, ast.Module) for name in classes(tree)}


def gguf_architectures() -> tuple[set[str], set[str]]:
    """Architectures that transformers' GGUF loader names as its own, and every other word in the loader (aliases)."""
    package, known, words = _transformers(), set(), set()
    for path in (*(package / "integrations").glob("**/*gg*.py"), package / "modeling_gguf_pytorch_utils.py"):
        tree = parse_file(path)
        for node in ast.walk(tree) if isinstance(tree, ast.Module) else []:
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Dict):
                names = {target.id for target in node.targets if isinstance(target, ast.Name)}
                if names & {"GGUF_CONFIG_MAPPING", "GGUF_CONFIG_ARCHS"}:
                    known |= {
                        k.value
                        for k in node.value.keys
                        if isinstance(k, ast.Constant) and k.value not in ("general", "tokenizer")
                    }
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                words.add(node.value)
    return known, words


def _transformers() -> Path:
    spec = importlib.util.find_spec("transformers")
    if spec is None or spec.origin is None:
        raise MaxCodeError("transformers", "is not installed", "a dependency of maxcode", "run pip install maxcode")
    return Path(spec.origin).parent


def _string_pairs(tree: ast.Module) -> Iterable[tuple[str, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Tuple) and len(node.elts) == 2:
            pairs = [(node.elts[0], node.elts[1])]
        elif isinstance(node, ast.Dict):
            pairs = [(key, value) for key, value in zip(node.keys, node.values, strict=True) if key is not None]
        else:
            continue
        for key, value in pairs:
            texts = [
                node.value for node in (key, value) if isinstance(node, ast.Constant) and isinstance(node.value, str)
            ]
            if len(texts) == 2:
                yield texts[0], texts[1]
