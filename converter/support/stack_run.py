"""Running a layer stack: single layers one by one, repeated periods as one `lax.scan`."""

import contextlib
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
from flax import nnx
from jax import lax
from jaxtyping import Array

from .random import key_scope, split_for_layers
from .stack_layers import LayerIndexUsedError, ThisLayer, renumber, variables
from .stack_plan import find_plan

if TYPE_CHECKING:
    from .stack import LayerStack

REMAT_POLICIES = {
    "full": None,
    "minimal": jax.checkpoint_policies.dots_with_no_batch_dims_saveable,
}


class _CarryChangedError(Exception):
    """The carry leaves a period with another structure, shape or dtype than it entered with."""


@dataclass(frozen=True)
class _Segment:
    """Periods to scan: from stored period `first`, `count` times `joined` stored periods at once."""

    first: int
    joined: int
    count: int


class Run:
    """One pass through a stack: what stays the same from layer to layer."""

    def __init__(self, stack: "LayerStack", step: Callable[..., Any], cache: Any, collect: bool):
        self.stack, self.step, self.cache, self.collect = stack, step, cache, collect
        policy = stack.remat_policy or "none"
        if policy != "none" and policy not in REMAT_POLICIES:
            raise ValueError(f"remat_policy is {policy!r}, expected one of {['none', *REMAT_POLICIES]}")
        # Rematerialisation is for gradients; calls with a cache have none.
        self.remat = None if policy == "none" or cache is not None else policy
        self.keys: Array | None = None
        self.extras: list[Any] = []

    def all(self, carry: tuple[Any, ...], start: int, stop: int, key: Callable[[int], Hashable] | None) -> Any:
        """Run the layers from start to stop and return what LayerStack.run promises."""
        self.keys = split_for_layers(self.stack.length)
        single = len(carry) == 1
        at, scanned = start, False
        while at < stop:
            segment = None if scanned else self._next_segment(at, stop, key)
            end = stop if segment is None else self._number(segment.first)
            for i in range(at, end):
                carry = self._one(i, carry)
            at = end
            if segment is not None:
                carry, at = self._segment(segment, carry)
                scanned = at == self._number(segment.first + segment.joined * segment.count)
        result = carry[0] if single else carry
        return (result, self.extras) if self.collect else result

    def _number(self, period: int) -> int:
        """The first layer of a stored period."""
        return self.stack.plan.prefix + period * self.stack.plan.period

    def _next_segment(self, at: int, stop: int, key: Callable[[int], Hashable] | None) -> _Segment | None:
        """Choose the periods to scan between layers `at` and `stop`, or None when single steps are all that is left."""
        plan = self.stack.plan
        if not plan.repeats or self.stack.note.text:
            return None
        first = max(0, -(-(at - plan.prefix) // plan.period))
        last = min(plan.repeats, (stop - plan.prefix) // plan.period)
        if last - first < 2:
            return None
        labels: list[Hashable] = [None] * (last - first)
        if key is not None:
            layers = [range(self._number(p), self._number(p + 1)) for p in range(first, last)]
            labels = [tuple(key(i) for i in period) for period in layers]
        found = find_plan(labels)
        return _Segment(first + found.prefix, found.period, found.repeats) if found.repeats else None

    def _segment(self, segment: _Segment, carry: tuple[Any, ...]) -> tuple[tuple[Any, ...], int]:
        """Scan the segment, or run its first period singly where it cannot be; returns the carry and the next layer."""
        first, last = self._number(segment.first), self._number(segment.first + segment.joined)
        end = self._number(segment.first + segment.joined * segment.count)
        if self.cache is not None and self.cache.recording and self._may_scan():
            return self._record(segment, carry)
        collected = len(self.extras)
        try:
            if self._may_scan():
                return self._scan(segment, carry), end
        except _CarryChangedError:
            # For example a position bias that the first layer makes: from the second period on the carry may be stable.
            pass
        except LayerIndexUsedError as error:
            self.stack.note.text, last = str(error), end
        del self.extras[collected:]
        for i in range(first, last):
            carry = self._one(i, carry)
        return carry, last

    def _may_scan(self) -> bool:
        """Whether the next layers may share one trace, beside what the plan and the keys say."""
        return True

    def _record(self, segment: _Segment, carry: tuple[Any, ...]) -> tuple[tuple[Any, ...], int]:
        """Run one period for a cache that learns what its layers store, and tell it which layers are alike."""
        first, last = self._number(segment.first), self._number(segment.first + segment.joined)
        entered, collected = _snapshot(carry), len(self.extras)
        for i in range(first, last):
            carry = self._one(i, carry)
        if not _same_kind(entered, carry):
            return carry, last
        for group in self._groups(segment):
            with self.cache.recorded(group):
                pass
        self.extras += self.extras[collected:] * (segment.count - 1)
        return carry, self._number(segment.first + segment.joined * segment.count)

    def _groups(self, segment: _Segment) -> tuple[tuple[int, ...], ...]:
        """The cache's numbers of the layers at each position of the scanned period."""
        first, size = self._number(segment.first), segment.joined * self.stack.plan.period
        repeats = range(segment.count)
        return tuple(tuple(self.stack.number(first + t * size + position) for t in repeats) for position in range(size))

    def _call(
        self, i: int, layer: nnx.Module, carry: tuple[Any, ...], key: Array | None
    ) -> tuple[tuple[Any, ...], Any]:
        with key_scope(key):
            out = self.step(i, layer, *carry)
        out, extra = out if self.collect else (out, None)
        return (out,) if len(carry) == 1 else tuple(out), extra

    def _one(self, i: int, carry: tuple[Any, ...]) -> tuple[Any, ...]:
        """Run a single layer."""
        key = None if self.keys is None else self.keys[i]
        (part, at), index = self.stack.locate(i)
        home = getattr(self.stack, str(part))[at]
        layer = self.stack[i]
        if self.remat is None and index is None:
            carry, extra = self._call(i, layer, carry, key)
        else:
            pure = _Body(layer, lambda layer, carry, key: self._call(i, layer, carry, key))
            values = [variable.get_raw_value() for variable in variables(layer)]
            call = pure if self.remat is None else jax.checkpoint(pure, policy=REMAT_POLICIES[self.remat])
            carry, extra, changed = call(values, carry, key)
            targets = variables(home)
            for k, value in changed.items():
                old = targets[k].get_raw_value()
                targets[k].set_value(value if index is None else old.at[index].set(value))
        self._keep(extra)
        return carry

    def _keep(self, extra: Any) -> None:
        """Keep what one layer gave beside the carry."""
        if self.collect:
            self.extras.append(extra)

    def _scan(self, segment: _Segment, carry: tuple[Any, ...]) -> tuple[Any, ...]:
        """Scan the segment's periods; Buffers that layers change are written back."""
        state = _Stored(self.stack, segment, by_index=self.cache is not None)
        size, first = segment.joined * self.stack.plan.period, self._number(segment.first)
        groups = self._groups(segment)
        opened = None if self.cache is None else self.cache.open(groups)

        def body(carries: Any, x: Any) -> Any:
            carry, opened = carries
            t, slices = x
            entered, extras, changed = _snapshot(carry), [], []
            for position in range(size):
                pure = _Body(state.layer(position), self._bind_call(first + position))
                key = None if self.keys is None else self.keys[first + t * size + position]
                with _bound(self.cache, opened, position, t) as bound:
                    carry, extra, new = pure(state.values(position, t, slices), carry, key)
                opened = None if bound is None else bound.state
                extras.append(extra)
                changed.append(new)
            if not _same_kind(entered, carry):
                raise _CarryChangedError
            return (jax.tree.map(_strong, carry), opened), (extras, changed)

        if self.remat is not None:
            body = jax.checkpoint(body, policy=REMAT_POLICIES[self.remat], prevent_cse=False)
        carry = jax.tree.map(jnp.asarray, carry)
        (carry, opened), (extras, changed) = lax.scan(body, (carry, opened), (jnp.arange(segment.count), state.scanned))
        if self.cache is not None:
            self.cache.close(groups, opened)
        state.write_back(changed)
        for t in range(segment.count):
            for extra in extras:
                self._keep(_take(extra, t))
        return carry

    def _bind_call(self, i: int) -> Callable[..., Any]:
        def call(layer: nnx.Module, carry: tuple[Any, ...], key: Array | None) -> Any:
            renumber(layer, ThisLayer) if self.stack.relative else None
            return self._call(i, layer, carry, key)

        return call


class _Body:
    """A layer's step as a pure function of the values of its variables; it also returns those that changed."""

    def __init__(self, layer: nnx.Module, call: Callable[..., Any]):
        self.parts, self.call = nnx.split(layer, nnx.Variable, ...), call

    def __call__(self, values: list[Array], carry: Any, key: Array | None) -> tuple[Any, Any, dict[int, Array]]:
        graph, state, rest = self.parts
        layer = nnx.merge(graph, *jax.tree.map(lambda leaf: leaf, (state, rest)))  # variables of this trace
        found = variables(layer)
        for variable, value in zip(found, values, strict=True):
            variable.set_value(value)
        carry, extra = self.call(layer, carry, key)
        after = [variable.get_raw_value() for variable in found]
        return carry, extra, {k: new for k, (new, old) in enumerate(zip(after, values, strict=True)) if new is not old}


class _Stored:
    """The stacked variables of a segment, as scan inputs or read by index.

    Scanned inputs are what gradients want. Where they are only a part of the stack, or periods are joined, they have to
    be copied first, which costs a decoding step more than its products: with a cache the stack is read by index.
    """

    def __init__(self, stack: "LayerStack", segment: _Segment, by_index: bool):
        self.stack, self.segment, self.by_index = stack, segment, by_index
        self.variables = [variables(template) for template in stack.periods]
        self.scanned = None if by_index else [[self._cut(v) for v in found] for found in self.variables]

    def layer(self, position: int) -> nnx.Module:
        """The stacked template of a position."""
        return self.stack.periods[position % self.stack.plan.period]

    def values(self, position: int, t: Array, slices: Any) -> list[Array]:
        """The values of the layer at `position` of the scanned period `t`."""
        join, home = divmod(position, self.stack.plan.period)
        if not self.by_index:
            return slices[home] if self.segment.joined == 1 else [leaf[join] for leaf in slices[home]]
        index = self.segment.first + t * self.segment.joined + join
        read = lax.dynamic_index_in_dim
        return [read(v.get_raw_value(), index, keepdims=False) for v in self.variables[home]]

    def write_back(self, changed: list[dict[int, Array]]) -> None:
        """Store changed values: changed[position][k] [count, ...] belongs to the k-th variable of that position."""
        step = self.segment.joined
        stop = self.segment.first + step * self.segment.count
        for position, values in enumerate(changed):
            join, home = divmod(position, self.stack.plan.period)
            for k, value in values.items():
                variable = self.variables[home][k]
                variable.set_value(variable.get_raw_value().at[self.segment.first + join : stop : step].set(value))

    def _cut(self, variable: nnx.Variable) -> Array:
        raw, part = variable.get_raw_value(), self.segment
        stop = part.first + part.joined * part.count
        if (part.first, stop) != (0, raw.shape[0]):
            raw = raw[part.first : stop]
        # Reshaping makes XLA copy the whole stack: only where it must.
        return raw if part.joined == 1 else raw.reshape(part.count, part.joined, *raw.shape[1:])


def _bound(cache: Any, opened: Any, position: int, t: Array) -> Any:
    return contextlib.nullcontext() if cache is None else cache.bound(opened, position, t)


def _take(tree: Any, index: int) -> Any:
    return jax.tree.map(lambda leaf: leaf[index], tree)


def _snapshot(carry: Any) -> Any:
    """The carry with containers of its own, for layers that store into those they are given."""
    return jax.tree.map(lambda leaf: leaf, carry)


def _strong(leaf: Array) -> Array:
    return lax.convert_element_type(leaf, leaf.dtype)


def _same_kind(before: Any, after: Any) -> bool:
    """Say whether two carries agree in structure, shapes and dtypes."""
    return jax.tree.structure(before) == jax.tree.structure(after) and all(
        jnp.shape(a) == jnp.shape(b) and jnp.result_type(a) == jnp.result_type(b)
        for a, b in zip(jax.tree.leaves(before), jax.tree.leaves(after), strict=True)
    )
