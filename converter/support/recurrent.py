"""Recurrent layers with torch's arguments, weight names and states, scanned over time.

Weights keep torch's layout: `weight_ih_l0` [gates * hidden, input], `weight_hh_l0` [gates * hidden, hidden], and so on;
the backward direction's names end in `_reverse`.
"""

import math
from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
from flax import nnx
from jax import lax
from jaxtyping import Array

from .module import Module, compute_dtype, matmul_precision, param, uniform
from .random import dropout
from .recurrent_steps import STEPS, Step, Weights, gates_of


class _Recurrent(Module):
    """Layers and directions of one kind of step, and the scan over time that is common to all."""

    mode: str
    step: Step

    def _build(
        self, input_size: int, hidden_size: int, num_layers: int, options: dict[str, Any], config: Any, rngs: Any
    ) -> None:
        for name, value in options.items():
            setattr(self, name, value)
        if not 0 <= self.dropout <= 1:
            raise ValueError(f"{type(self).__name__}: dropout is {self.dropout!r}, expected a probability")
        if not 0 <= self.proj_size < hidden_size:
            raise ValueError(
                f"{type(self).__name__}: proj_size {self.proj_size} is not below hidden_size {hidden_size}"
            )
        self.input_size, self.hidden_size, self.num_layers = input_size, hidden_size, num_layers
        self.dtype, self.precision = compute_dtype(config), matmul_precision(config)
        bound, rows = 1 / math.sqrt(hidden_size), gates_of(self.mode) * hidden_size
        state = self.proj_size or hidden_size
        for layer in range(num_layers):
            width = input_size if layer == 0 else state * self._directions
            shapes = {"weight_ih": (rows, width), "weight_hh": (rows, state)}
            if self.bias:
                shapes |= {"bias_ih": (rows,), "bias_hh": (rows,)}
            if self.proj_size:
                shapes["weight_hr"] = (self.proj_size, hidden_size)
            for direction in range(self._directions):
                for kind, shape in shapes.items():
                    setattr(self, _name(kind, layer, direction), param(uniform(shape, bound), None, config, rngs=rngs))

    @property
    def _directions(self) -> int:
        return 2 if self.bidirectional else 1

    def _weights(self, layer: int, direction: int) -> Weights:
        def read(kind: str) -> Array | None:
            variable = vars(self).get(_name(kind, layer, direction))
            return None if variable is None else variable[...].astype(self.dtype)

        kinds = ("weight_ih", "weight_hh", "bias_ih", "bias_hh", "weight_hr")
        return Weights(*(read(kind) for kind in kinds), precision=self.precision)

    def _run(self, input: Array, states: tuple[Array, ...] | None) -> tuple[Array, tuple[Array, ...]]:
        """Outputs and last states of [t, n, input] (batch_first: [n, t, input]; or [t, input], states without n)."""
        if input.ndim not in (2, 3) or input.shape[-1] != self.input_size:
            raise ValueError(
                f"{type(self).__name__}: input of shape {input.shape}, expected 2 or 3 axes, {self.input_size} last"
            )
        single = input.ndim == 2
        if single:
            input = input[:, None]
            states = None if states is None else tuple(state[:, None] for state in states)
        elif self.batch_first:
            input = input.swapaxes(0, 1)
        states = self._initial(input, states)
        x, last = input, []
        for layer in range(self.num_layers):
            sides = []
            for direction in range(self._directions):
                at = layer * self._directions + direction
                start = tuple(state[at] for state in states)
                weights = self._weights(layer, direction)
                carry, y = _scan(self.step, weights, x, start, reverse=direction == 1)
                sides.append(y)
                last.append(carry)
            x = sides[0] if len(sides) == 1 else jnp.concatenate(sides, axis=-1)
            if layer < self.num_layers - 1:
                x = dropout(x, self.dropout, self.training)
        ends = tuple(jnp.stack(parts) for parts in zip(*last, strict=True))
        if single:
            return x[:, 0], tuple(end[:, 0] for end in ends)
        return (x.swapaxes(0, 1) if self.batch_first else x), ends

    def _initial(self, input: Array, states: tuple[Array, ...] | None) -> tuple[Array, ...]:
        """The given states, checked, or zeros: [layers * directions, n, hidden] (the output one projected)."""
        widths = (self.proj_size or self.hidden_size, self.hidden_size)[: 2 if self.mode == "LSTM" else 1]
        shapes = [(self.num_layers * self._directions, input.shape[1], width) for width in widths]
        if states is None:
            return tuple(jnp.zeros(shape, input.dtype) for shape in shapes)
        found = [tuple(state.shape) for state in states]
        if found != shapes:
            raise ValueError(f"{type(self).__name__}: initial states of shapes {found}, expected {shapes}")
        return states


def _name(kind: str, layer: int, direction: int) -> str:
    return f"{kind}_l{layer}" + ("_reverse" if direction else "")


def _scan(step: Step, weights: Weights, x: Array, start: tuple[Array, ...], *, reverse: bool) -> Any:
    """Run one direction of one layer over x [t, n, width]: last states, outputs [t, n, hidden]."""

    def advance(states: tuple[Array, ...], gates: Array) -> tuple[tuple[Array, ...], Array]:
        states = step(weights, gates, states)
        return states, states[0]

    return lax.scan(advance, start, weights.of_input(x), reverse=reverse)


class _SingleState(_Recurrent):
    def __call__(self, input: Array, hx: Array | None = None) -> tuple[Array, Array]:
        """Outputs [t, n, directions * hidden] and last state [layers * directions, n, hidden] of [t, n, input_size].

        With `batch_first` inputs and outputs are [n, t, ...]; without n, states are without it too. `hx` defaults to
        zeros. Raises ValueError for other shapes.
        """
        output, (state,) = self._run(input, None if hx is None else (hx,))
        return output, state


class RNN(_SingleState):
    """h = tanh or relu of (W_ih x + b_ih + W_hh h + b_hh)."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        nonlinearity: str = "tanh",
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        *,
        config: Any = None,
        rngs: nnx.Rngs | None = None,
    ):
        if nonlinearity not in ("tanh", "relu"):
            raise ValueError(f"RNN: nonlinearity is {nonlinearity!r}, expected 'tanh' or 'relu'")
        self.mode, self.step, self.nonlinearity = f"RNN_{nonlinearity.upper()}", STEPS[nonlinearity], nonlinearity
        options = {"bias": bias, "batch_first": batch_first, "dropout": dropout, "bidirectional": bidirectional}
        self._build(input_size, hidden_size, num_layers, options | {"proj_size": 0}, config, rngs)


class GRU(_SingleState):
    """Gated recurrent units (Cho et al., 2014), the reset gate applied after the hidden product."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        *,
        config: Any = None,
        rngs: nnx.Rngs | None = None,
    ):
        self.mode, self.step = "GRU", STEPS["gru"]
        options = {"bias": bias, "batch_first": batch_first, "dropout": dropout, "bidirectional": bidirectional}
        self._build(input_size, hidden_size, num_layers, options | {"proj_size": 0}, config, rngs)


class LSTM(_Recurrent):
    """Long short-term memory (Hochreiter and Schmidhuber, 1997), outputs projected where `proj_size` is given."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        proj_size: int = 0,
        *,
        config: Any = None,
        rngs: nnx.Rngs | None = None,
    ):
        self.mode, self.step = "LSTM", STEPS["lstm"]
        options = {"bias": bias, "batch_first": batch_first, "dropout": dropout, "bidirectional": bidirectional}
        self._build(input_size, hidden_size, num_layers, options | {"proj_size": proj_size}, config, rngs)

    def __call__(self, input: Array, hx: Sequence[Array] | None = None) -> tuple[Array, tuple[Array, Array]]:
        """Outputs and (h, c), the last states; shapes as for the other layers, h and outputs proj_size wide if given.

        Raises ValueError for other shapes.
        """
        output, (state, cell) = self._run(input, None if hx is None else tuple(hx))
        return output, (state, cell)
