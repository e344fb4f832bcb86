"""A PyTorch model larger than memory in its dtype: layers get their weights when they run, and give them back.

The weights stay in memory as they are stored (bfloat16, say, where the model computes in float64). A layer is an
element of an outermost list of modules; everything outside such lists is held all the time.
"""

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

from torch import Tensor, nn

Place = tuple[nn.Module, str]  # a module and the name of its parameter


@contextlib.contextmanager
def without_storage() -> Iterator[None]:
    """Parameters that are registered meanwhile have a shape and a dtype only; buffers are real."""
    register = nn.Module.register_parameter

    def on_meta(module: nn.Module, name: str, parameter: nn.Parameter | None) -> None:
        if parameter is not None and not parameter.is_meta:
            parameter = nn.Parameter(parameter.detach().to("meta"), requires_grad=parameter.requires_grad)
        register(module, name, parameter)

    nn.Module.register_parameter = on_meta
    try:
        yield
    finally:
        nn.Module.register_parameter = register


def stream(model: nn.Module, state: Mapping[str, Tensor]) -> nn.Module:
    """Fill what `model` (built `without_storage`) holds all the time; its layers fill themselves from `state`.

    `state` has exactly the names of the model's `state_dict()`. Values are cast to the parameters' own dtypes.
    """
    layers = dict(_layers(model))
    held, by_layer = _split(model, layers)
    _fill(held, state)
    _fill_buffers(model, state)
    for name, places in by_layer.items():
        layers[name].register_forward_pre_hook(_filler(places, state), prepend=True)
        layers[name].register_forward_hook(_emptier(places), always_call=True)
    return model


def _layers(module: nn.Module, prefix: str = "") -> Iterator[tuple[str, nn.Module]]:
    """Elements of the outermost lists, by name."""
    for name, child in module.named_children():
        if isinstance(module, nn.ModuleList):
            yield f"{prefix}{name}", child
        else:
            yield from _layers(child, f"{prefix}{name}.")


def _split(model: nn.Module, layers: Mapping[str, nn.Module]) -> tuple[dict[str, Place], dict[str, dict[str, Place]]]:
    """Parameters (name -> place) held all the time, and those of single layers; what two layers share is held."""
    owners: dict[int, set[str | None]] = {}
    places: dict[str, tuple[Place, str | None]] = {}
    for path, module in model.named_modules(remove_duplicate=False):
        layer = next((name for name in layers if path == name or path.startswith(f"{name}.")), None)
        for name, parameter in module._parameters.items():
            if parameter is not None:
                places[f"{path}.{name}" if path else name] = (module, name), layer
                owners.setdefault(id(parameter), set()).add(layer)
    held: dict[str, Place] = {}
    by_layer: dict[str, dict[str, Place]] = {name: {} for name in layers}
    for full, ((module, name), layer) in places.items():
        alone = layer is not None and len(owners[id(module._parameters[name])]) == 1
        (by_layer[layer] if alone else held)[full] = module, name
    return held, by_layer


def _fill(places: Mapping[str, Place], state: Mapping[str, Tensor]) -> None:
    """Real parameters in place of the shapes; shared ones stay shared."""
    made: dict[int, nn.Parameter] = {}
    for full, (module, name) in places.items():
        shape = module._parameters[name]
        if id(shape) not in made:
            value = state[full].to(shape.dtype)
            made[id(shape)] = nn.Parameter(value, requires_grad=False)
        module._parameters[name] = made[id(shape)]


def _fill_buffers(model: nn.Module, state: Mapping[str, Tensor]) -> None:
    for full, buffer in model.named_buffers(remove_duplicate=False):
        if full in state:
            buffer.copy_(state[full])


def _filler(places: Mapping[str, Place], state: Mapping[str, Tensor]) -> Any:
    def fill(module: nn.Module, args: tuple) -> None:
        _fill(places, state)

    return fill


def _emptier(places: Mapping[str, Place]) -> Any:
    def empty(module: nn.Module, args: tuple, output: Any) -> None:
        for owner, name in places.values():
            if (parameter := owner._parameters[name]) is not None and not parameter.is_meta:
                owner._parameters[name] = nn.Parameter(parameter.detach().to("meta"), requires_grad=False)

    return empty
