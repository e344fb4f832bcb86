"""One step of each recurrent layer, and its cells: layers that are called once per step."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array

from .layers import project
from .module import Leaf, Module, compute_dtype, matmul_precision, param, uniform


@dataclass(frozen=True)
class Weights:
    """Weights of one layer and direction in torch's layout [gates * hidden, width]; biases [gates * hidden] or None."""

    weight_ih: Array
    weight_hh: Array
    bias_ih: Array | None = None
    bias_hh: Array | None = None
    weight_hr: Array | None = None
    precision: Any = None

    def of_input(self, x: Array) -> Array:
        """The input's share of the gates, [..., gates * hidden]."""
        return project(x, self.weight_ih.T, self.bias_ih, self.precision)

    def of_state(self, h: Array) -> Array:
        """The state's share of the gates, [..., gates * hidden]."""
        return project(h, self.weight_hh.T, self.bias_hh, self.precision)


Step = Callable[[Weights, Array, tuple[Array, ...]], tuple[Array, ...]]


def _tanh_step(weights: Weights, gates: Array, states: tuple[Array, ...]) -> tuple[Array, ...]:
    return (jnp.tanh(gates + weights.of_state(states[0])),)


def _relu_step(weights: Weights, gates: Array, states: tuple[Array, ...]) -> tuple[Array, ...]:
    return (jax.nn.relu(gates + weights.of_state(states[0])),)


def _gru_step(weights: Weights, gates: Array, states: tuple[Array, ...]) -> tuple[Array, ...]:
    (h,) = states
    reset_x, update_x, new_x = jnp.split(gates, 3, axis=-1)
    reset_h, update_h, new_h = jnp.split(weights.of_state(h), 3, axis=-1)
    new = jnp.tanh(new_x + jax.nn.sigmoid(reset_x + reset_h) * new_h)
    return (new + jax.nn.sigmoid(update_x + update_h) * (h - new),)


def _lstm_step(weights: Weights, gates: Array, states: tuple[Array, ...]) -> tuple[Array, ...]:
    h, c = states
    enter, forget, cell, leave = jnp.split(gates + weights.of_state(h), 4, axis=-1)
    c = jax.nn.sigmoid(forget) * c + jax.nn.sigmoid(enter) * jnp.tanh(cell)
    h = jax.nn.sigmoid(leave) * jnp.tanh(c)
    return (h if weights.weight_hr is None else project(h, weights.weight_hr.T, None, weights.precision)), c


# How each kind of layer goes from the input's share of its gates and the states to the next states, output first.
STEPS: dict[str, Step] = {"tanh": _tanh_step, "relu": _relu_step, "gru": _gru_step, "lstm": _lstm_step}


def gates_of(mode: str) -> int:
    """How many gates a mode ("RNN_TANH", "RNN_RELU", "GRU", "LSTM") has."""
    return {"GRU": 3, "LSTM": 4}.get(mode, 1)


class _Cell(Module):
    weight_ih: Any = Leaf()
    weight_hh: Any = Leaf()
    bias_ih: Any = Leaf()
    bias_hh: Any = Leaf()
    gates = 1

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        *,
        config: Any = None,
        rngs: nnx.Rngs | None = None,
    ):
        self.input_size, self.hidden_size, self.bias = input_size, hidden_size, bias
        self.dtype, self.precision = compute_dtype(config), matmul_precision(config)
        rows, bound = self.gates * hidden_size, 1 / math.sqrt(hidden_size)
        shapes = {"weight_ih": (rows, input_size), "weight_hh": (rows, hidden_size)}
        shapes |= {"bias_ih": (rows,) if bias else None, "bias_hh": (rows,) if bias else None}
        for name, shape in shapes.items():
            made = None if shape is None else param(uniform(shape, bound), None, config, rngs=rngs)
            setattr(self, name, made)

    def _next(self, step: Step, input: Array, states: Sequence[Array] | None, count: int = 1) -> tuple[Array, ...]:
        """The next states for input [n, input_size] or [input_size]; zeros where no states are given."""
        shape = (*input.shape[:-1], self.hidden_size)
        states = (jnp.zeros(shape, input.dtype),) * count if states is None else tuple(states)
        found = [tuple(state.shape) for state in states]
        if found != [shape] * count:
            raise ValueError(f"{type(self).__name__}: states of shapes {found}, expected {[shape] * count}")
        weights = Weights(self.weight_ih, self.weight_hh, self.bias_ih, self.bias_hh, precision=self.precision)
        return step(weights, weights.of_input(input), states)


class RNNCell(_Cell):
    """h = tanh or relu of (W_ih x + b_ih + W_hh h + b_hh), one step."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        nonlinearity: str = "tanh",
        *,
        config: Any = None,
        rngs: nnx.Rngs | None = None,
    ):
        if nonlinearity not in ("tanh", "relu"):
            raise ValueError(f"RNNCell: nonlinearity is {nonlinearity!r}, expected 'tanh' or 'relu'")
        self.nonlinearity = nonlinearity
        super().__init__(input_size, hidden_size, bias, config=config, rngs=rngs)

    def __call__(self, input: Array, hx: Array | None = None) -> Array:
        """Next state [n, hidden_size] of input [n, input_size], also without n. Raises ValueError for other shapes."""
        return self._next(STEPS[self.nonlinearity], input, None if hx is None else (hx,))[0]


class GRUCell(_Cell):
    """One step of a GRU."""

    gates = 3

    def __call__(self, input: Array, hx: Array | None = None) -> Array:
        """Next state [n, hidden_size] of input [n, input_size], also without n. Raises ValueError for other shapes."""
        return self._next(STEPS["gru"], input, None if hx is None else (hx,))[0]


class LSTMCell(_Cell):
    """One step of an LSTM."""

    gates = 4

    def __call__(self, input: Array, hx: Sequence[Array] | None = None) -> tuple[Array, Array]:
        """Next (h, c), each [n, hidden_size], of input [n, input_size], also without n. Raises ValueError otherwise."""
        h, c = self._next(STEPS["lstm"], input, hx, 2)
        return h, c
