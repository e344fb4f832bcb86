"""Layers that are made once, as a parameter's default (`activation=nn.ReLU()`): such as have no parameters."""

import ast

from maxcode.converter.context import Context, Definition
from maxcode.converter.layer_values import is_layer_class
from maxcode.converter.passes.needs import class_name


def convert_defaults(
    context: Context, definition: Definition, function: ast.FunctionDef, making: ast.NodeTransformer
) -> None:
    """Convert the layers among a function's defaults by `making`; one with parameters is a gap."""
    arguments = function.args
    for defaults in (arguments.defaults, arguments.kw_defaults):
        for index, default in enumerate(defaults):
            if isinstance(default, ast.Call) and is_layer_class(class_name(definition, default) or ""):
                made = defaults[index] = making.visit(default)
                if any(isinstance(n, ast.Name) and n.id == "rngs" for n in ast.walk(made)):
                    reason = "a layer with parameters is the default of an argument, one for all calls"
                    context.gap("CV126", default, ast.unparse(default), reason, "make it in the constructor")
