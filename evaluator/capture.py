"""Watching every module call of a JAX model, by the source's module names."""

import contextlib
import functools
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

from flax import nnx

from maxcode.evaluator.package import walk

Observer = Callable[[str, int, nnx.Module, Any], None]  # fqn, number of the call of that fqn, module, output
Entered = Callable[[str, int, nnx.Module, tuple, dict[str, Any]], None]  # the same before, with the call's arguments


@contextlib.contextmanager
def watching(
    model: nnx.Module,
    observe: Observer,
    around: Callable[[str], Any] = lambda fqn: contextlib.nullcontext(),
    entered: Entered = lambda *call: None,
) -> Iterator[None]:
    """While active, `observe` sees every call of a module below `model`, when it ends (innermost first).

    Each call runs inside the context manager `around(fqn)`, after `entered` has seen its arguments.

    The classes' `__call__` is wrapped, so it works inside a trace on a merged model. Calls of modules that are not
    below `model` (a scanned stack builds its layers anew) are not seen: build with `scan_layers=False`.
    """
    named = {id(module): fqn for fqn, module in walk(model)}
    kept = [module for _, module in walk(model)]  # ids stay taken
    classes = {type(module) for module in kept if isinstance(module, nnx.Module) and callable(module)}
    state = _State(named, observe, around, entered)
    originals = {cls: cls.__dict__.get("__call__") for cls in classes}
    wrappers = {cls: state.wrap(cls.__call__) for cls in classes}
    for cls, wrapper in wrappers.items():
        cls.__call__ = wrapper
    try:
        yield
    finally:
        for cls, original in originals.items():
            if original is None:
                del cls.__call__
            else:
                cls.__call__ = original


class _State:
    def __init__(self, named: dict[int, str], observe: Observer, around: Callable[[str], Any], entered: Entered):
        self.named, self.observe, self.around, self.entered = named, observe, around, entered
        self.active: set[int] = set()
        self.counts: Counter[str] = Counter()

    def wrap(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def call(module, *args, **kwargs):
            fqn = self.named.get(id(module))
            if fqn is None or id(module) in self.active:  # a parent class's call is part of this one
                return original(module, *args, **kwargs)
            self.active.add(id(module))
            self.entered(fqn, self.counts[fqn], module, args, kwargs)
            try:
                with self.around(fqn):
                    output = original(module, *args, **kwargs)
            finally:
                self.active.discard(id(module))
            self.observe(fqn, self.counts[fqn], module, output)
            self.counts[fqn] += 1
            return output

        return call
