"""Resolve the global names that converted text still uses: support library, configuration, records, kept imports."""

import ast
import builtins

from maxcode.converter import plumbing as tables
from maxcode.converter.context import Context, Definition
from maxcode.converter.library import defines
from maxcode.converter.output_records import is_record

# Code made or looked up at run time, which nothing can convert.
_DYNAMIC = frozenset({"exec", "eval", "compile", "globals", "locals", "__import__"})


def import_names(context: Context, definition: Definition) -> None:
    """Import what a definition's code reads; names that nothing provides are gaps."""
    Names(context, definition).run()


class Names:
    """Resolves one definition's names; `used` collects those whose definition the package has to provide."""

    def __init__(self, context: Context, definition: Definition) -> None:
        self.context, self.definition, self.configs = context, definition, context.config_classes
        self.own = {d.name for d in context.definitions} | context.provided

    def run(self) -> None:
        """Import what the definition's code reads; unresolved names are gaps."""
        node = self.definition.node
        bases = getattr(node, "bases", [])
        for child in _loaded_names(node):
            if child.id in self.own or not hasattr(child, "file") or self.is_provided(child):
                continue
            if child.id in _DYNAMIC and not self._is_local(child.id):
                self.context.gap("CV107", child, child.id, "makes or looks up code at run time", "write the code out")
                continue
            if any(child is b for b in bases) and self._is_dropped_base(child.id):
                continue
            if not hasattr(builtins, child.id) and not self._is_local(child.id):
                qualified = self.definition.file.qualify(child.id) or child.id
                if not qualified.startswith("torch"):
                    self.context.gap(
                        "CV104", child, qualified, "no rule says what this name is in JAX", "add it to plumbing.py"
                    )
                else:
                    self.context.gap("CV105", child, qualified, "is used in a way that no rule converts", "")

    def is_provided(self, child: ast.Name) -> bool:
        """Whether a name is imported by this pass; does the import."""
        file = self.definition.file
        qualified = file.imports.get(child.id)
        if qualified is None:
            here = file.qualify(child.id)
            if here is None or not is_record(self.context, here):
                return False
            qualified = here
        new = self.resolve(qualified, child.id)
        if new is None:
            return False
        child.id = new
        return True

    def resolve(self, qualified: str, local: str) -> str | None:
        """The name to write for an imported one, after importing it; None when nothing provides it."""
        short = tables.last(qualified)
        root = qualified.split(".")[0]
        if short in self.configs and self.context.definition(qualified) is None:
            self.context.external[f"config:{short}"] = f"from .config import {short}"
            return short
        if qualified.startswith(tables.FRAMEWORKS):
            home = tables.namesake(qualified)
            if home is not None and defines(home, short):
                return self.context.use(home, short).id
            if (provided := tables.supported(qualified)) is not None:
                return self.context.use(*provided).id
        if is_record(self.context, qualified):
            return self._record(qualified, short)
        if (layers := tables.LAYER_PACKAGES.get(qualified.rpartition(".")[0])) is not None:
            return self.context.use(layers, short).id if defines(layers, short) else None
        if root in tables.KEPT_PACKAGES:
            module, _, name = qualified.rpartition(".")
            statement = f"from {module} import {name}" if module else f"import {qualified}"
            alias = f" as {local}" if local != (name or qualified) else ""
            self.context.imports.add(statement + alias)
            return local
        return None

    def _record(self, qualified: str, short: str) -> str:
        located = self.context.project.lookup(qualified)
        if located is not None and isinstance(located[1], ast.ClassDef):
            self.context.records[short] = located
        self.context.external[f"outputs:{short}"] = f"from .outputs import {short}"
        return short

    def _is_dropped_base(self, name: str) -> bool:
        return name in tables.DROPPED_BASES

    def _is_local(self, name: str) -> bool:
        if name in {d.name for d in self.context.definitions}:
            return True
        if any(name in names for names in self.context.support.values()):
            return True
        if name in ("jnp", "jax", "nnx", "lax", "ops", "random", "float32", "np", "math", "self", "Array", "losses"):
            return True
        return any(
            (isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store) and n.id == name)
            or (isinstance(n, ast.arg) and n.arg == name)
            or (isinstance(n, ast.FunctionDef | ast.ExceptHandler) and n.name == name)
            for n in ast.walk(self.definition.node)
        )


def _loaded_names(node: ast.AST) -> list[ast.Name]:
    found, stack = [], [node]
    while stack:
        current = stack.pop()
        if isinstance(current, ast.Name) and isinstance(current.ctx, ast.Load):
            found.append(current)
        for field, value in ast.iter_fields(current):
            if field in ("annotation", "returns"):
                continue
            stack += [v for v in (value if isinstance(value, list) else [value]) if isinstance(v, ast.AST)]
    return found
