"""Which constructors need a run configuration and `rngs` beside their source's arguments."""

import ast

from maxcode.converter import plumbing as tables
from maxcode.converter import registry
from maxcode.converter.calls import CallGraph, Function
from maxcode.converter.context import Context, Definition, callees

PARAMETER = frozenset({"torch.nn.parameter.Parameter", "torch.nn.Parameter"})
BUFFER = frozenset({"torch.nn.parameter.Buffer", "torch.nn.Buffer"})


class Needs:
    """Which extra keywords (the run configuration, `rngs`) each module class takes."""

    def __init__(self, context: Context) -> None:
        registry.load()
        self.context, self.graph = context, CallGraph(context)
        self.keywords: dict[str, tuple[str, ...]] = {}
        for definition in context.definitions:
            self.of(definition)
        for function in self.graph.functions():
            self.of_function(function)

    def of_function(self, function: Function) -> tuple[str, ...]:
        """Keywords to add to a constructor, or to a function or method that makes layers for one (`_make_layer`)."""
        if function.node.name in ("forward", "__call__"):
            return ()
        if function.owner.is_class and function.node.name == "__init__":
            return self.of(function.owner)
        key = ".".join(function.key)
        if key not in self.keywords:
            self.keywords[key] = ()
            calls = [n for statement in function.node.body for n in ast.walk(statement) if isinstance(n, ast.Call)]
            if any(self._makes_parameters(function.owner, node) for node in calls):
                taken = set(function.parameters)
                self.keywords[key] = tuple(k for k in (self.context.run_name, "rngs") if k not in taken)
        return self.keywords[key]

    def of_call(self, node: ast.Call, owner: Definition) -> tuple[str, ...]:
        """Keywords to add to the call of a function or method of ours that makes layers."""
        targets = [t for t in self.graph.targets(node, owner) if t.node.name != "__init__"]
        return tuple(dict.fromkeys(k for target in targets for k in self.of_function(target)))

    def of(self, definition: Definition) -> tuple[str, ...]:
        """Keywords to add to the constructor of a converted class."""
        key = definition.qualified
        if key in self.keywords:
            return self.keywords[key]
        self.keywords[key] = ()  # a class cannot contain itself
        constructor = next((f for f in definition.functions() if f.name == "__init__"), None)
        if constructor is None:
            base = self.graph.base(definition)
            self.keywords[key] = self.of(base) if base else ()
        elif any(
            self._makes_parameters(definition, node) for node in ast.walk(constructor) if isinstance(node, ast.Call)
        ):
            taken = {a.arg for a in (*constructor.args.args, *constructor.args.kwonlyargs)}
            self.keywords[key] = tuple(k for k in (self.context.run_name, "rngs") if k not in taken)
        return self.keywords[key]

    def _makes_parameters(self, definition: Definition, node: ast.Call) -> bool:
        if getattr(node, "is_stack", False):
            return True
        qualified = class_name(definition, node)
        if is_super_init(node):
            base = self.graph.base(definition)
            return bool(self.of(base)) if base is not None else torch_base(definition) is not None
        if self.of_call(node, definition):
            return True
        if self.context.is_plain and ast.unparse(node.func) == "self.register_buffer":
            return True
        if qualified is None:
            return False
        if qualified in BUFFER:
            return self.context.is_plain or not _is_recomputed(node)
        canonical = registry.canonical(qualified)
        if qualified in PARAMETER or (canonical.startswith("torch.nn.") and tables.last(canonical)[:1].isupper()):
            return True
        if qualified.startswith(tables.FRAMEWORKS) and not self.context.definition(qualified):
            return registry.canonical(qualified) in registry.MODULES
        found = self.context.definition(qualified)
        return found is not None and found.is_class and bool(self.of(found))


def torch_base(definition: Definition) -> str | None:
    """The torch layer that a class derives from directly ("torch.nn.Embedding"), if any."""
    for base in getattr(definition.node, "bases", ()):
        qualified = registry.canonical(definition.qualified_base(base))
        if qualified in registry.MODULES and qualified.startswith("torch.nn."):
            return qualified
    return None


def class_name(definition: Definition, node: ast.Call) -> str | None:
    """Qualified name of the class that a call constructs, by the run or by the file's imports."""
    found = callees(node)
    if len(found) == 1 and "module" not in found[0][:7]:
        return found[0]
    if found:
        return None
    text = ast.unparse(node.func)
    root, _, rest = text.partition(".")
    if not all(isinstance(n, ast.Attribute | ast.Name | ast.expr_context) for n in ast.walk(node.func)):
        return None
    qualified = definition.file.qualify(root)
    return (f"{qualified}.{rest}" if rest else qualified) if qualified else None


def _is_recomputed(node: ast.Call) -> bool:
    """Whether a buffer is made non-persistent."""
    return any(k.arg == "persistent" and isinstance(k.value, ast.Constant) and not k.value.value for k in node.keywords)


def is_super_init(node: ast.Call) -> bool:
    text = ast.unparse(node.func)
    return text.startswith("super(") and text.endswith(".__init__")
