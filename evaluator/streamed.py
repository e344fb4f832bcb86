"""A package's model larger than memory: its layers are filled with weights while they run, and emptied after.

A layer is an element of an outermost list of modules. It runs eagerly and unscanned, so that nothing but the layer at
work has to be there.
"""

import contextlib
from collections.abc import Iterator
from typing import Any

import numpy as np
from flax import nnx

from maxcode.evaluator.capture import watching
from maxcode.evaluator.package import Package, accepted, named_outputs, to_jax, walk


class StreamedRunner:
    """`runner(inputs) -> {output name: array}`, as package.Runner, of a model that is never whole in memory."""

    def __init__(self, package: Package, dtype: str):
        overrides = package.overrides(dtype, scan_layers=False)
        self.model = package.module.Model.abstract(package.config(**overrides))
        self.weights = package.submodule("pretrained").Weights(self.model, package.source)
        self.layers, held = split_by_layer(self.model)
        self.weights.fill(held)

    def __call__(self, inputs: dict[str, Any]) -> dict[str, np.ndarray]:
        given = to_jax(accepted(self.model, inputs))
        with watching(self.model, lambda *call: None, self._filled):
            outputs = self.model(**given)
        return {name: np.asarray(value) for name, value in named_outputs(outputs).items()}

    @contextlib.contextmanager
    def _filled(self, fqn: str) -> Iterator[None]:
        variables = self.layers.get(fqn, [])
        self.weights.fill(variables)
        try:
            yield
        finally:
            self.weights.empty(variables)


def split_by_layer(model: nnx.Module) -> tuple[dict[str, list[nnx.Variable]], list[nnx.Variable]]:
    """Variables of each layer by its fqn, and those to hold all the time: outside layers, or in more than one."""
    owners: dict[int, set[str | None]] = {}
    for fqn, module in walk(model):
        for value in vars(module).values() if hasattr(module, "__dict__") else ():
            if isinstance(value, nnx.Variable):
                owners.setdefault(id(value), set()).add(layer_of(fqn))
    layers: dict[str, list[nnx.Variable]] = {}
    held = []
    for _, node in nnx.iter_graph(model):
        if isinstance(node, nnx.Variable):
            (owner, *more) = owners.get(id(node), {None})
            (held if owner is None or more else layers.setdefault(owner, [])).append(node)
    return layers, held


def layer_of(fqn: str) -> str | None:
    """The outermost element of a list that a module is or lies in: `model.layers.3` of `model.layers.3.mlp`."""
    parts = fqn.split(".")
    at = next((i for i, part in enumerate(parts) if part.isdigit()), None)
    return None if at is None else ".".join(parts[: at + 1])
