"""Who calls whom: which converted functions a call site reaches, by the instrumented run or by name."""

import ast
from dataclasses import dataclass

from maxcode.converter.context import Context, Definition, callees, seen


@dataclass(frozen=True)
class Function:
    """A converted function or method."""

    owner: Definition
    node: ast.FunctionDef

    @property
    def parameters(self) -> list[str]:
        """Names of the explicit parameters, `self` included."""
        arguments = self.node.args
        return [a.arg for a in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]

    @property
    def is_method(self) -> bool:
        """Whether the first parameter is bound by the call."""
        static = any(isinstance(d, ast.Name) and d.id == "staticmethod" for d in self.node.decorator_list)
        return self.owner.is_class and not static

    @property
    def key(self) -> tuple[str, str]:
        """Identity: owner and name."""
        return self.owner.qualified, self.node.name


class CallGraph:
    """Resolves call sites among the reached definitions."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self.by_qualified = {d.qualified: d for d in context.definitions}

    def functions(self) -> list[Function]:
        """Every converted function and method."""
        return [Function(d, f) for d in self.context.definitions for f in d.functions()]

    def targets(self, call: ast.Call, owner: Definition | None = None) -> list[Function]:
        """The converted functions that a call may run; empty when it runs none of ours."""
        found = [self._named(name) for name in callees(call)]
        if not callees(call):
            found = [self._static(call, owner)]
        # Attention interfaces are chosen at run time among functions of one signature: the source's own stands for all.
        return [f for f in found if f is not None]

    def _named(self, name: str) -> Function | None:
        if name.startswith("module:"):
            return self.method(name.removeprefix("module:"), "forward")
        if name in self.by_qualified:
            definition = self.by_qualified[name]
            if definition.is_class:
                return self.method(name, "__init__")
            return next((Function(definition, f) for f in definition.functions()), None)
        owner, _, method = name.rpartition(".")
        return self.method(owner, method) if owner in self.by_qualified else None

    def method(self, qualified: str, name: str) -> Function | None:
        """A method of a class or of its nearest converted base."""
        definition = self.by_qualified.get(qualified)
        while definition is not None and isinstance(definition.node, ast.ClassDef):
            for function in definition.functions():
                if function.name == name:
                    return Function(definition, function)
            definition = self.base(definition)
        return None

    def base(self, definition: Definition) -> Definition | None:
        """The first converted base class."""
        for base in getattr(definition.node, "bases", ()):
            qualified = definition.file.qualify(ast.unparse(base).split(".")[0])
            if qualified in self.by_qualified:
                return self.by_qualified[qualified]
        return None

    def _static(self, call: ast.Call, owner: Definition | None) -> Function | None:
        if owner is None:
            return None
        if isinstance(call.func, ast.Name):
            qualified = owner.file.qualify(call.func.id)
            return self._named(qualified) if qualified else None
        if (
            isinstance(call.func, ast.Attribute)
            and isinstance(call.func.value, ast.Name)
            and call.func.value.id == "self"
        ):
            classes = self.context.child_classes(owner.qualified).get(call.func.attr, ())
            if len(classes) == 1:
                return self.method(next(iter(classes)), "forward")
            return self.method(owner.qualified, call.func.attr)
        names = seen(call.func).get("names", ())
        return self._named(names[0]) if names else None
