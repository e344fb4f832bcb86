"""Run a PyTorch model from source with every expression recorded.

An import hook compiles chosen modules with each loaded expression wrapped in a recording call. What comes out is, per
source position, the kind, dtypes, shapes and constant value seen, and for calls the qualified name of what was really
called (Python's dynamism resolved).
"""

import ast
import importlib.abc
import importlib.machinery
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch

from maxcode.evaluator.oracle.script import CUTS, cut

RECORD, CALL, WATCH = "__maxcode_record__", "__maxcode_call__", "__maxcode_watch__"
Rewrite = Callable[[ast.Module], ast.Module]
_MAX_SHAPES = 6
_TORCH_NAMESPACES = ("torch.nn.functional", "torch", "torch.linalg", "torch.fft", "torch.special", "torch.nn.init")


class Recorder:
    """Facts by file and position; `site` keys are (line, column, end line, end column) as `ast` counts them."""

    def __init__(self) -> None:
        self.files: dict[str, dict[int, dict]] = {}
        self.positions: dict[str, list[tuple[int, int, int, int]]] = {}
        self._names = _torch_names()

    def value(self, path: str, site: int, value: Any) -> Any:
        """Note `value` at `site` and hand it on."""
        self._note(self._fact(path, site), value)
        return value

    def call(self, path: str, site: int, function: Callable, /, *args: Any, **kwargs: Any) -> Any:
        """Call `function`, noting its name and result."""
        fact = self._fact(path, site)
        name = self.callee_name(function)
        if name:
            _add(fact, "callee", name)
        result = function(*args, **kwargs)
        self._note(fact, result)
        return result

    def callee_name(self, function: Any) -> str | None:
        """Qualified name of a function, class, bound method or module instance (its class)."""
        if isinstance(function, torch.nn.Module):
            return "module:" + _qualified(type(function))
        owner = getattr(function, "__self__", None)
        if isinstance(owner, torch.Tensor) and not isinstance(owner, type):
            return f"torch.Tensor.{function.__name__}"
        known = self._names.get(id(function))
        if known:
            return known
        if hasattr(function, "func") and hasattr(function, "keywords"):  # functools.partial
            return self.callee_name(function.func)
        if _is_called_object(function):
            return f"{_qualified(type(function))}.__call__"
        return _qualified(function)

    def _fact(self, path: str, site: int) -> dict:
        return self.files[path].setdefault(site, {})

    def _note(self, fact: dict, value: Any) -> None:
        kind = kind_of(value)
        _add(fact, "kinds", kind)
        if isinstance(value, torch.Tensor):
            _add(fact, "dtypes", str(value.dtype).removeprefix("torch."))
            _add(fact, "ndims", value.dim())
            if len(fact.get("shapes", ())) < _MAX_SHAPES:
                _add(fact, "shapes", tuple(value.shape))
            if value.dim() == 0 or value.numel() == 1:
                return
            return
        if kind in ("module", "config", "class", "callable", "cache", "record"):
            name = self.callee_name(value) if kind != "config" else _qualified(type(value))
            _add(fact, "names", name or "?")
        if kind in ("int", "float", "bool", "str", "none", "dtype"):
            _literal(fact, value if kind != "dtype" else str(value))
        if kind == "dict" and all(isinstance(k, str) for k in value):
            for key in value:
                _add(fact, "keys", key)
        if kind in ("tuple", "list"):
            for item in list(value)[:16]:
                _add(fact, "elements", kind_of(item))
        try:
            _add(fact, "truth", bool(value))
        except Exception:
            fact.setdefault("truth", [])

    def to_json(self) -> dict:
        """Facts as lists: {"path": [[line, column, end line, end column, fact], ...]}."""
        return {
            path: [[*self.positions[path][site], fact] for site, fact in sorted(facts.items())]
            for path, facts in sorted(self.files.items())
        }


def kind_of(value: Any) -> str:
    """The kind of a value, in the converter's vocabulary."""
    if isinstance(value, torch.nn.Parameter):
        return "param"
    if isinstance(value, torch.Tensor):
        return "tensor"
    if value is None:
        return "none"
    for types, kind in (
        (bool, "bool"), (torch.Size, "tuple"), (int, "int"), (float, "float"), (complex, "complex"), (str, "str"),
        (torch.dtype, "dtype"), (torch.device, "device"), (slice, "slice"), (tuple, "tuple"), (list, "list"),
    ):  # fmt: skip
        if isinstance(value, types):
            return kind
    if isinstance(value, torch.nn.Module):
        return "module"
    bases = {c.__name__ for c in type(value).__mro__}
    if bases & {"ModelOutput", "BaseOutput"}:
        return "record"
    if bases & {"PreTrainedConfig", "PretrainedConfig"}:
        return "config"
    if bases & {"Cache", "CacheLayerMixin"}:
        return "cache"
    if isinstance(value, Mapping):
        return "dict"
    if isinstance(value, type):
        return "class"
    return "callable" if callable(value) else "unknown"


def _add(fact: dict, field: str, item: Any) -> None:
    seen = fact.setdefault(field, [])
    if item not in seen and len(seen) < 64:
        seen.append(item)


def _literal(fact: dict, value: Any) -> None:
    if isinstance(value, float) and value != value:
        fact["varies"] = True
        return
    literals = fact.setdefault("literals", [])
    if not any(type(x) is type(value) and x == value for x in literals) and len(literals) < 8:
        literals.append(value)


def _qualified(obj: Any) -> str | None:
    module, name = getattr(obj, "__module__", None), getattr(obj, "__qualname__", None)
    if name is None:
        return _qualified(type(obj)) if not isinstance(obj, type) else None
    owner = getattr(obj, "__self__", None)
    if module is None and owner is not None and not isinstance(owner, type(sys)):
        return f"{type(owner).__module__}.{name}"
    return f"{module}.{name}" if module else name


def _is_called_object(function: Any) -> bool:
    """Whether a value is an object of a class in Python that defines `__call__`: not a class, function or method."""
    cls = type(function)
    root = cls.__module__.split(".")[0]
    return not hasattr(function, "__qualname__") and root not in ("torch", "builtins", "functools", "typing")


def _torch_names() -> dict[int, str]:
    names: dict[int, str] = {}
    for namespace in _TORCH_NAMESPACES:
        module = sys.modules.get(namespace)
        for name, value in vars(module).items() if module else ():
            if callable(value) and not name.startswith("_") and not isinstance(value, type):
                names.setdefault(id(value), f"{namespace}.{name}")
    return names


class _Wrap(ast.NodeTransformer):
    """Wrap loaded expressions inside functions; leave annotations, decorators, defaults and targets alone."""

    def __init__(self, path: str, positions: list) -> None:
        self.path, self.positions, self.depth = path, positions, 0

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        self.depth += 1
        node.body = [self.visit(statement) for statement in node.body]
        self.depth -= 1
        return node

    visit_AsyncFunctionDef = visit_FunctionDef  # type: ignore[assignment]  # same fields

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        depth, self.depth = self.depth, 0
        node.body = [self.visit(statement) for statement in node.body]
        self.depth = depth
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        if node.value is not None:
            node.value = self.visit(node.value)
        return node

    def visit_JoinedStr(self, node: ast.JoinedStr) -> ast.AST:
        return node

    def visit_Lambda(self, node: ast.Lambda) -> ast.AST:
        node.body = self.visit(node.body)
        return node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        if isinstance(node.func, ast.Name) and node.func.id in ("super", "locals", "vars", "__import__"):
            return node
        site = self._site(node)
        func = node.func
        if isinstance(func, ast.Attribute):
            func.value = self.visit(func.value)
        else:
            func = self.visit(func)
        args = [self.visit(argument) for argument in node.args]
        keywords = [ast.keyword(k.arg, self.visit(k.value)) for k in node.keywords]
        if not self.depth and ast.unparse(node.func) != "hasattr":
            return ast.copy_location(ast.Call(func, args, keywords), node)
        prefix = [ast.Constant(self.path), ast.Constant(site), func]
        return ast.copy_location(ast.Call(ast.Name(CALL, ast.Load()), [*prefix, *args], keywords), node)

    def _wrap(self, node: ast.expr) -> ast.AST:
        noted = self.depth or isinstance(node, ast.Compare)  # of a module's constants, what asks about the environment
        if not noted or not isinstance(getattr(node, "ctx", ast.Load()), ast.Load):
            return self.generic_visit(node)
        site = self._site(node)
        inner = self.generic_visit(node)
        arguments = [ast.Constant(self.path), ast.Constant(site), inner]
        return ast.copy_location(ast.Call(ast.Name(RECORD, ast.Load()), arguments, []), node)

    visit_Name = visit_Attribute = visit_Subscript = visit_BinOp = visit_UnaryOp = visit_Compare = visit_BoolOp = _wrap
    visit_IfExp = visit_Tuple = visit_List = _wrap

    def _site(self, node: ast.expr) -> int:
        self.positions.append((node.lineno, node.col_offset, node.end_lineno, node.end_col_offset))
        return len(self.positions) - 1


class _Fill(ast.NodeTransformer):
    """Puts the statements in that a rewrite left room for (`pass` with an attribute `filled`), unrecorded."""

    def visit_Pass(self, node: ast.Pass) -> ast.stmt:
        return getattr(node, "filled", node)


class _Loader(importlib.machinery.SourceFileLoader):
    def __init__(self, fullname: str, path: str, recorder: Recorder, rewrite: Rewrite, watcher: Any) -> None:
        super().__init__(fullname, path)
        self.recorder, self.rewrite, self.watcher = recorder, rewrite, watcher

    def get_code(self, fullname: str) -> Any:
        """Compile the module with its expressions wrapped."""
        tree = ast.parse(self.get_data(self.path), self.path)
        if self.path in CUTS:
            tree = cut(tree, CUTS[self.path])
        positions = self.recorder.positions[self.path] = []
        self.recorder.files[self.path] = {}
        tree = _Wrap(self.path, positions).visit(self.rewrite(tree))
        tree = ast.fix_missing_locations(_Fill().visit(tree))
        return compile(tree, self.path, "exec", dont_inherit=True)

    def exec_module(self, module: Any) -> None:
        """Run the module with the recording functions among its globals."""
        vars(module)[RECORD] = self.recorder.value
        vars(module)[CALL] = self.recorder.call
        vars(module)[WATCH] = self.watcher
        was_enabled = torch.jit._state._enabled.enabled
        torch.jit._state.disable()  # what the module scripts runs as Python, so that it is seen
        try:
            super().exec_module(module)
        finally:
            if was_enabled:
                torch.jit._state.enable()


class InstrumentingFinder(importlib.abc.MetaPathFinder):
    """Instruments modules for which `wanted(fullname, origin)` holds; install before the model's module is imported."""

    def __init__(
        self,
        recorder: Recorder,
        wanted: Callable[[str, str], bool],
        rewrite: Rewrite = lambda tree: tree,
        watcher: Any = None,
    ) -> None:
        """`rewrite` puts calls of `watcher` (by the name WATCH) into a module."""
        self.recorder, self.wanted, self.rewrite, self.watcher = recorder, wanted, rewrite, watcher
        self.modules: dict[str, str] = {}  # instrumented modules and their files

    def find_spec(self, fullname: str, path: Iterable[str] | None = None, target: Any = None) -> Any:
        """A spec with the recording loader, or None to leave the module to the ordinary finders."""
        spec = importlib.machinery.PathFinder.find_spec(fullname, path)
        if spec is None or not isinstance(spec.loader, importlib.machinery.SourceFileLoader):
            return None
        if not self.wanted(fullname, spec.origin or ""):
            return None
        self.modules[fullname] = spec.loader.path
        spec.loader = _Loader(fullname, spec.loader.path, self.recorder, self.rewrite, self.watcher)
        return spec
