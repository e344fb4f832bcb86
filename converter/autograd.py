"""Classes that give an operation a gradient of its own (`torch.autograd.Function`)."""

from maxcode.converter.context import Definition

BASES = frozenset({"torch.autograd.Function", "torch.autograd.function.Function"})
METHODS = frozenset({"forward", "backward", "setup_context"})
# What the run sees called of torch on such a class and on its context; the support library has the same names.
_OWN = ("torch.autograd.function.Function.", "torch.autograd.function.FunctionCtx.")


def is_gradient_function(definition: Definition) -> bool:
    """Whether a definition is a class derived directly from `torch.autograd.Function`."""
    return any(definition.qualified_base(base) in BASES for base in getattr(definition.node, "bases", ()))


def is_own_call(qualified: str) -> bool:
    """Whether a called torch function is one of these classes' or their contexts'."""
    return qualified.startswith(_OWN)
