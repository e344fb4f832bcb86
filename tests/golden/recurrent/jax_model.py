"""Net in JAX, converted by MaxCode from torch_model.py."""

import jax.numpy as jnp
from flax import nnx

from .layers import Embedding, Linear
from .module import Module
from .recurrent import LSTM, RNN
from .recurrent_steps import GRUCell
from .settings import at_config_settings


class Encoder(Module):
    """Bidirectional layers whose last states are joined per direction. Source: torch_model.py:7."""

    def __init__(self, vocab_size, width, *, config, rngs: nnx.Rngs):
        self.embed = Embedding(vocab_size, width, axes=("vocab", None), config=config, rngs=rngs)
        self.rnn = LSTM(
            width, width, num_layers=2, batch_first=True, dropout=0.1, bidirectional=True, config=config, rngs=rngs
        )
        self.bridge = Linear(2 * width, width, config=config, rngs=rngs)

    def __call__(self, ids):
        output, (hidden, cell) = self.rnn(self.embed(ids))
        directions = hidden.reshape(self.rnn.num_layers, 2, ids.shape[0], -1)
        last = jnp.concatenate([directions[-1, 0], directions[-1, 1]], axis=-1)
        return output, jnp.tanh(self.bridge(last))


class Decoder(Module):
    """A cell called once per step, then a projected layer over its states. Source: torch_model.py:23."""

    def __init__(self, width, *, config, rngs: nnx.Rngs):
        self.cell = GRUCell(2 * width, width, config=config, rngs=rngs)
        self.rnn = LSTM(width, 2 * width, proj_size=width, config=config, rngs=rngs)
        self.smooth = RNN(width, width, nonlinearity="relu", config=config, rngs=rngs)

    def __call__(self, memory, state):
        states = []
        for step in range(memory.shape[1]):
            state = self.cell(memory[:, step], state)
            states.append(state)
        output, _ = self.rnn(jnp.stack(states, axis=0))
        smoothed, last = self.smooth(output, jnp.expand_dims(state, 0))
        return smoothed.swapaxes(0, 1), last[0]


class Net(Module):
    """Sequence labeller. Source: torch_model.py:42."""

    @classmethod
    def from_config(cls, config, *, rngs: nnx.Rngs):
        """Build with random weights."""
        return cls(vocab_size=config.vocab_size, width=config.width, config=config, rngs=rngs)

    def __init__(self, vocab_size=11, width=6, *, config, rngs: nnx.Rngs):
        self.config = config
        self.encoder = Encoder(vocab_size, width, config=config, rngs=rngs)
        self.decoder = Decoder(width, config=config, rngs=rngs)
        self.head = Linear(width, vocab_size, axes=(None, "vocab"), config=config, rngs=rngs)

    @at_config_settings
    def __call__(self, ids):
        memory, state = self.encoder(ids)
        hidden, last = self.decoder(memory, state)
        return {"logits": self.head(hidden), "state": last}
