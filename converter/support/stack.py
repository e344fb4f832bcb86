"""A stack of layers, held and run as prefix + repeated periods + suffix, with the periods as one `lax.scan`."""

from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import Any

from flax import nnx

from .module import Module, abstract_parameters
from .stack_layers import (
    first_number,
    shared_with_others,
    signature,
    stack_layers,
    take_layer,
    variables,
)
from .stack_plan import Plan, find_plan
from .stack_run import Run


class Note:
    """A remark of the last run, no part of the stack's identity: all notes are equal."""

    text: str | None = None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Note)

    def __hash__(self) -> int:
        return hash(Note)


class LayerStack(Module):
    """Layers `make(i, rngs=rngs)` for i < length; equal ones are stored stacked on a leading axis "layers".

    `prefix` and `suffix` hold single layers, `periods` one stacked module per position in the period. With
    `config.scan_layers` False, or where nothing repeats, all layers are single and `reason` says why; `note.text` says
    why a run could not scan.
    """

    runner = Run

    def __init__(self, make: Callable[..., nnx.Module], length: int, *, config: Any, rngs: nnx.Rngs):
        self.length = length
        self.remat_policy = getattr(config, "remat_policy", "none")
        plan, self.relative, self.reason = _plan_layers(make, length, getattr(config, "scan_layers", True))
        self.plan, self.note = plan, Note()
        self.store(make(i, rngs=rngs) for i in range(length))

    def store(self, layers: Iterable[nnx.Module]) -> None:
        """Hold these layers, one after the other, as planned."""
        plan = self.plan
        templates: list[Any] = [None] * plan.period
        values: list[list[list[Any]]] = [[] for _ in range(plan.period)]
        single = []
        for i, layer in enumerate(layers):
            if not plan.prefix <= i < plan.stop:
                single.append(layer)
                continue
            position = (i - plan.prefix) % plan.period
            if templates[position] is None:
                templates[position], values[position] = layer, [[] for _ in variables(layer)]
            for leaves, variable in zip(values[position], variables(layer), strict=True):
                leaves.append(variable.get_raw_value())
        for template, leaves in zip(templates, values, strict=True):
            stack_layers(template, leaves)
        self.prefix, self.suffix = nnx.List(single[: plan.prefix]), nnx.List(single[plan.prefix :])
        self.periods = nnx.List(templates)

    def __len__(self) -> int:
        return self.length

    def __iter__(self) -> Iterator[nnx.Module]:
        return (self[i] for i in range(self.length))

    def __getitem__(self, i: int | slice) -> Any:
        """Return layer i (a copy, where it is stored stacked), or a list of layers."""
        if isinstance(i, slice):
            return [self[j] for j in range(*i.indices(self.length))]
        home, index = self._home(i)
        if index is None:
            return home
        return take_layer(home, index, index * self.plan.period if self.relative else 0)

    def locate(self, i: int) -> tuple[tuple[str | int, ...], int | None]:
        """Return where layer i is stored: the attribute path below the stack, and its index if it is stored stacked."""
        i = self._check(i)
        plan = self.plan
        if i < plan.prefix:
            return ("prefix", i), None
        if i >= plan.stop:
            return ("suffix", i - plan.stop), None
        repeat, position = divmod(i - plan.prefix, plan.period)
        return ("periods", position), repeat

    def number(self, i: int) -> int:
        """Return the number by which a cache knows layer i: the layer's own, or i."""
        home, index = self._home(i)
        own = first_number(home)
        return i if own is None else own + (index or 0) * self.plan.period * self.relative

    def run(
        self,
        step: Callable[..., Any],
        *carry: Any,
        cache: Any = None,
        key: Callable[[int], Hashable] | None = None,
        start: int = 0,
        stop: int | None = None,
        collect: bool = False,
    ) -> Any:
        """Run `carry = step(i, layer, *carry)` for the layers from `start` to `stop`.

        Returns the carry: one value, or a tuple as given. With `collect`, the step returns (carry, extra) and the
        result is (carry, [extra of each layer]). `i` is an int; layers that share a body see the number of the first of
        them, so what the step reads by `i` must be told by `key(i)`. `cache` is opened layer by layer (its protocol:
        open, bound, close, recorded; see cache.py). Each layer draws dropout from its own key.
        """
        stop = self.length if stop is None else min(stop, self.length)
        return self.runner(self, step, cache, collect).all(carry, start, stop, key)

    def _check(self, i: int) -> int:
        if not -self.length <= i < self.length:
            raise IndexError(f"LayerStack: layer {i} of {self.length}; expected an index below {self.length}")
        return i % self.length

    def _home(self, i: int) -> tuple[nnx.Module, int | None]:
        (part, at), index = self.locate(i)
        return getattr(self, str(part))[at], index


def _plan_layers(make: Callable[..., nnx.Module], length: int, scan: bool) -> tuple[Plan, bool, str | None]:
    """Build the layers as shapes only and find what repeats: the plan, how numbers count, why nothing is scanned."""
    unrolled = Plan(length, 0, 0, length)
    if not scan or length < 2:
        return unrolled, False, "scan_layers is False" if not scan else "fewer than two layers"
    with abstract_parameters():
        layers = [make(i, rngs=nnx.Rngs(0)) for i in range(length)]
    if shared_with_others(layers):
        return unrolled, False, "layers share parameters with each other"
    plans = [
        (find_plan([signature(x, i, relative) for i, x in enumerate(layers)]), relative) for relative in (True, False)
    ]
    plan, relative = min(plans, key=lambda found: found[0].traced)
    if not plan.repeats:
        return unrolled, False, "no two neighbouring groups of layers are equal in structure"
    return plan, relative, None
