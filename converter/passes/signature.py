"""Method names, base classes and annotations: `forward` becomes `__call__`, tensors become arrays."""

import ast

from maxcode.converter import plumbing as tables
from maxcode.converter import registry
from maxcode.converter.autograd import BASES, is_gradient_function
from maxcode.converter.context import Context, Definition, broken
from maxcode.converter.example import Example
from maxcode.converter.infer import _TENSOR_ANNOTATIONS
from maxcode.converter.library import support_module
from maxcode.converter.nodes import COMMENT_FIELDS, has_fields
from maxcode.converter.passes.names import Names

_HASHES = {"eq", "frozen", "unsafe_hash"}
_MODULE_BASES = frozenset({"torch.nn.Module", "torch.nn.modules.module.Module", "torch.nn.modules.Module"})


def convert_signature(context: Context, definition: Definition) -> None:
    """Rewrite bases, method names and annotations of a definition."""
    Signature(context, definition, Names(context, definition)).visit(definition.node)


class Signature(ast.NodeTransformer):
    """One definition."""

    def __init__(self, context: Context, definition: Definition, names: Names) -> None:
        self.context, self.definition, self.names = context, definition, names
        self.is_module = definition.is_class and self._is_module_class(definition)

    def _is_module_class(self, definition: Definition) -> bool:
        if is_gradient_function(definition):
            return False
        return definition.qualified in self.context.facts.get("classes", {}) or any(
            isinstance(s, ast.FunctionDef) and s.name == "forward" for s in definition.node.body
        )

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.ClassDef:
        node.keywords = []
        bases = [b for base in node.bases if (b := self._base(base)) is not None]
        node.bases = list({ast.unparse(b): b for b in bases}.values())
        if any(self._is_module_base(b) for b in node.bases if ast.unparse(b) != "Module"):
            node.bases = [b for b in node.bases if ast.unparse(b) != "Module"]
        if not node.bases and not self.is_module and any(getattr(s, "name", "") == "__call__" for s in node.body):
            node.bases = [self.context.use("registered", "Valued")]
        node.decorator_list = [_hashable(d) for d in node.decorator_list]
        self.generic_visit(node)
        fields = [s.annotation for s in node.body if isinstance(s, ast.AnnAssign)] if has_fields(node) else []
        holds_arrays = any(isinstance(n, ast.Name) and n.id == "Array" for f in fields for n in ast.walk(f))
        if holds_arrays and node.decorator_list:  # compiled code may give one back
            self.context.imports.add("import jax")
            node.decorator_list.insert(0, ast.parse("jax.tree_util.register_dataclass", mode="eval").body)
        return node

    def _base(self, base: ast.expr) -> ast.expr | None:
        root = ast.unparse(base).partition(".")[0]
        qualified = self.definition.qualified_base(base)
        if qualified in BASES:
            return self.context.use("autograd", "Function")
        if qualified in _MODULE_BASES or qualified == "torch.nn.Module":
            return self.context.use("layers", "Module")
        if registry.canonical(qualified) in registry.MODULES:
            short = qualified.rsplit(".", 1)[-1]
            return self.context.use(support_module(short) or "layers", short)
        if qualified.rsplit(".", 1)[-1] in ("ABC", "GenerationMixin", "object", "Protocol", *tables.DROPPED_BASES):
            return None
        if qualified.startswith(tables.LOADERS):
            return None
        if self.context.definition(qualified) is not None or not isinstance(base, ast.Name):
            return base
        new = self.names.resolve(qualified, root) if root in self.definition.file.imports else None
        if new is not None:
            return ast.Name(new, ast.Load())
        if self._is_known(root):
            return base
        self.context.gap(
            "CV104", base, qualified, "no rule says what this base class is in JAX", "add it to plumbing.py"
        )
        return None

    def _is_module_base(self, base: ast.expr) -> bool:
        """Whether a base brings `Module` along: all do but plain classes of the source (mixins)."""
        name = ast.unparse(base)
        found = next((d for d in self.context.definitions if d.is_class and d.name == name), None)
        if found is None or self._is_module_class(found):
            return True
        return any(ast.unparse(b) == "Module" or self._is_module_base(b) for b in found.node.bases)

    def _is_known(self, name: str) -> bool:
        return any(name in names for names in self.context.support.values()) or name in {
            d.name for d in self.context.definitions
        }

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.FunctionDef:
        if node.name == "forward" and self.is_module:
            node.name = "__call__"
            if self.definition.qualified == self.context.entry_forward:
                node.decorator_list.insert(0, self.context.use("settings", "at_config_settings"))
        node.returns = self._annotation(node.returns)
        for argument in (
            *node.args.posonlyargs,
            *node.args.args,
            *node.args.kwonlyargs,
            node.args.vararg,
            node.args.kwarg,
        ):
            if argument is not None:
                argument.annotation = self._annotation(argument.annotation)
        for argument in node.args.kwonlyargs:
            if argument.arg == "rngs" and argument.annotation is None:
                argument.annotation = ast.parse("nnx.Rngs", mode="eval").body
        self.generic_visit(node)
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.stmt:
        if node in getattr(self.definition.node, "body", ()) and has_fields(self.definition.node):
            node.annotation = self._annotation(node.annotation) or ast.Name("object", ast.Load())
            node.value = self.visit(node.value) if node.value is not None else None
            return node
        self.generic_visit(node)
        if node.value is None or not isinstance(node.target, ast.Name | ast.Attribute):
            return node
        new = ast.Assign([node.target], node.value)
        for field in COMMENT_FIELDS:
            if hasattr(node, field):
                setattr(new, field, getattr(node, field))
        return ast.copy_location(new, node)

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        self.generic_visit(node)
        if node.attr == "forward":
            text = ast.unparse(node.value)
            if text == "self" or text.startswith("super("):
                node.attr = "__call__"
            elif isinstance(node.ctx, ast.Load):
                return node.value
        return node

    def _annotation(self, node: ast.expr | None) -> ast.expr | None:
        if node is None:
            return None
        converted = _Annotation(self).visit(ast.parse(ast.unparse(node), mode="eval").body)
        if converted is None or any(getattr(n, "dropped", False) for n in ast.walk(converted)):
            return None
        return _quoted(converted)


def _quoted(annotation: ast.expr) -> ast.expr:
    """The annotation as one string where a part of it is: `"A" | None` cannot be evaluated."""
    parts = [n for n in ast.walk(annotation) if isinstance(n, ast.Constant) and isinstance(n.value, str)]
    if not parts or parts == [annotation]:
        return annotation
    return ast.Constant(ast.unparse(_Unquoted().visit(annotation)))


class _Unquoted(ast.NodeTransformer):
    def visit_Constant(self, node: ast.Constant) -> ast.expr:
        return ast.Name(node.value, ast.Load()) if isinstance(node.value, str) else node


def _hashable(decorator: ast.expr) -> ast.expr:
    """`@dataclass` with a hash by value: a module that keeps such an object is hashed with it when it is compiled."""
    made = decorator if isinstance(decorator, ast.Call) else ast.Call(decorator, [], [])
    if tables.last(ast.unparse(made.func)) == "dataclass" and not {k.arg for k in made.keywords} & _HASHES:
        made.keywords.append(ast.keyword("unsafe_hash", ast.Constant(True)))
        return made
    return decorator


class _Annotation(ast.NodeTransformer):
    """Rewrite one annotation; parts that mean nothing in JAX are marked dropped."""

    def __init__(self, signature: Signature) -> None:
        self.signature = signature

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        return self._named(ast.unparse(node))

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return self._named(node.id)

    def visit_Constant(self, node: ast.Constant) -> ast.expr:
        if isinstance(node.value, str):
            return self._named(node.value) if node.value.isidentifier() else self._drop()
        return node

    def _drop(self) -> ast.expr:
        node = ast.Constant(None)
        node.dropped = True
        return node

    def _named(self, text: str) -> ast.expr:
        short = text.rsplit(".", 1)[-1]
        root = text.split(".")[0]
        file, names, context = self.signature.definition.file, self.signature.names, self.signature.context
        qualified = file.qualify(root) or ""
        if short in _TENSOR_ANNOTATIONS and (qualified.startswith("torch") or root == "torch"):
            return ast.Name("Array", ast.Load())
        if text in ("int", "float", "bool", "str", "tuple", "list", "dict", "None", "object", "type"):
            return ast.Name(text, ast.Load())
        if short == "Any" and (root == "typing" or qualified in ("", "typing.Any")):
            context.imports.add("from typing import Any")
            return ast.Name("Any", ast.Load())
        if short == "Module" and qualified.startswith("torch"):
            return context.use("layers", "Module")
        if root in file.imports and not qualified.startswith("torch") and root == text:
            new = names.resolve(qualified, root)
            if new:
                return ast.Name(new, ast.Load())
        own = context.definition(f"{file.module}.{text}")
        if own is not None:
            # A class that stands further down is named by a string.
            later = context.definitions.index(own) >= context.definitions.index(self.signature.definition)
            return ast.Constant(text) if later else ast.Name(text, ast.Load())
        return self._drop()


def ensures(context: Context, definition: Definition) -> list[str]:
    """Module classes are called, not forwarded."""
    left = [f for f in definition.functions() if f.name == "forward" and not _is_static(f)]
    return [broken(f, "is still called forward") for f in left]


def _is_static(function: ast.FunctionDef) -> bool:
    return any(ast.unparse(decorator) == "staticmethod" for decorator in function.decorator_list)


EXAMPLES = (
    Example(
        """
        class Net(nn.Module):
            def forward(self, x: torch.Tensor, n: Optional[int] = None) -> torch.Tensor:
                y: torch.Tensor = super().forward(x)
                return self.inner.forward(y)
        """,
        """
        class Net(Module):
            @at_config_settings
            def __call__(self, x: Array, n=None) -> Array:
                y = super().__call__(x)
                return self.inner(y)
        """,
    ),
)
