"""Hidden states of the layers below a model, collected while it runs, as the source does with forward hooks.

A model's forward opens a scope, layers record in the scope that is open, and a layer stack hands on what its layers
recorded. Where nobody asks, the scope is closed and nothing is kept.
"""

import contextlib
import functools
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any

from flax import nnx
from jaxtyping import Array

from .stack import LayerStack
from .stack_run import Run


class Scope:
    """What layers have recorded; `started` says whether a scope around it has values already."""

    def __init__(self, started: bool = False):
        self.values: list[Array] = []
        self.started = started

    def __bool__(self) -> bool:
        return self.started or bool(self.values)


_open: ContextVar[Scope | None] = ContextVar("_open", default=None)


@contextlib.contextmanager
def _opened(scope: Scope | None) -> Iterator[Scope | None]:
    token = _open.set(scope)
    try:
        yield scope
    finally:
        _open.reset(token)


def capture_outputs(*, tie_last_hidden_states: bool = True) -> Callable[[Callable], Callable]:
    """Decorate a forward that takes `output_hidden_states`: asked for them, its record holds all hidden states.

    Asked for one or more by index, negative ones from the end, it holds None in the places of the others.
    The last one is the record's `last_hidden_state` (`vision_hidden_states` where it has those) unless
    `tie_last_hidden_states`, here or in the configuration, is False.
    """

    def decorate(forward: Callable) -> Callable:
        @functools.wraps(forward)
        def wrapper(self: Any, *args: Any, output_hidden_states: Any = False, **kwargs: Any) -> Any:
            with _opened(Scope() if output_hidden_states else None) as scope:
                outputs = forward(self, *args, output_hidden_states=output_hidden_states, **kwargs)
            if scope is None:
                return outputs
            tied = getattr(self.config, "tie_last_hidden_states", None)
            states = list(scope.values)
            if states and (tie_last_hidden_states if tied is None else tied):
                names = ("vision_hidden_states", "last_hidden_state")
                found = [getattr(outputs, name) for name in names if hasattr(outputs, name)]
                states[-1:] = found[:1] or states[-1:]
            return outputs.replace(hidden_states=tuple(_selected(states, output_hidden_states)))

        return wrapper

    return decorate


def _selected(states: list[Array], wanted: Any) -> list[Array | None]:
    if isinstance(wanted, bool):
        return list(states)
    indices = [wanted] if isinstance(wanted, int) else wanted
    kept = {range(len(states))[i] for i in indices if -len(states) <= i < len(states)}
    return [state if i in kept else None for i, state in enumerate(states)]


def records_output(index: int = 0, *, initial: bool = True) -> Callable[[Callable], Callable]:
    """Decorate a layer's forward: its output (or item `index` of it) is a hidden state, and so is the first input."""

    def decorate(forward: Callable) -> Callable:
        @functools.wraps(forward)
        def wrapper(self: Any, *args: Any, **kwargs: Any) -> Any:
            output = forward(self, *args, **kwargs)
            if (scope := _open.get()) is not None:
                if initial and not scope:
                    scope.values.append(args[0])
                state = output[index] if isinstance(output, tuple) else output
                if state is not None:
                    scope.values.append(state)
            return output

        return wrapper

    return decorate


class CapturingRun(Run):
    """One pass through a stack whose layers may record: a trace hands what they record out beside the carry."""

    def _call(self, i: int, layer: nnx.Module, carry: tuple[Any, ...], key: Array | None) -> Any:
        outer = _open.get()
        with _opened(None if outer is None else Scope(started=bool(outer))) as scope:
            carry, extra = super()._call(i, layer, carry, key)
        return carry, (extra, [] if scope is None else scope.values)

    def _keep(self, extra: Any) -> None:
        own, recorded = extra
        super()._keep(own)
        if (scope := _open.get()) is not None:
            scope.values += recorded

    def _record(self, segment: Any, carry: tuple[Any, ...]) -> tuple[tuple[Any, ...], int]:
        values = [] if (scope := _open.get()) is None else scope.values
        before = len(values)
        carry, end = super()._record(segment, carry)
        if end > self._number(segment.first + segment.joined):
            values += values[before:] * (segment.count - 1)
        return carry, end

    def _may_scan(self) -> bool:
        """The first layer that records does so with its input, unlike those after it."""
        scope = _open.get()
        return scope is None or bool(scope)


class CapturingStack(LayerStack):
    """A layer stack below a model that is asked for hidden states."""

    runner = CapturingRun
