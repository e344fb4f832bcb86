"""Recurrent layers and a cell: two directions, projected outputs, states handed from one layer to the next."""

import torch
from torch import nn


class Encoder(nn.Module):
    """Bidirectional layers whose last states are joined per direction."""

    def __init__(self, vocab_size, width):
        super().__init__()
        self.embed = nn.Embedding(vocab_size, width)
        self.rnn = nn.LSTM(width, width, num_layers=2, batch_first=True, dropout=0.1, bidirectional=True)
        self.bridge = nn.Linear(2 * width, width)

    def forward(self, ids):
        output, (hidden, cell) = self.rnn(self.embed(ids))
        directions = hidden.view(self.rnn.num_layers, 2, ids.shape[0], -1)
        last = torch.cat([directions[-1, 0], directions[-1, 1]], dim=-1)
        return output, torch.tanh(self.bridge(last))


class Decoder(nn.Module):
    """A cell called once per step, then a projected layer over its states."""

    def __init__(self, width):
        super().__init__()
        self.cell = nn.GRUCell(2 * width, width)
        self.rnn = nn.LSTM(width, 2 * width, proj_size=width)
        self.smooth = nn.RNN(width, width, nonlinearity="relu")

    def forward(self, memory, state):
        states = []
        for step in range(memory.shape[1]):
            state = self.cell(memory[:, step], state)
            states.append(state)
        output, _ = self.rnn(torch.stack(states))
        smoothed, last = self.smooth(output, state.unsqueeze(0))
        return smoothed.transpose(0, 1), last[0]


class Net(nn.Module):
    """Sequence labeller."""

    def __init__(self, vocab_size=11, width=6):
        super().__init__()
        self.encoder = Encoder(vocab_size, width)
        self.decoder = Decoder(width)
        self.head = nn.Linear(width, vocab_size)

    def forward(self, ids):
        memory, state = self.encoder(ids)
        hidden, last = self.decoder(memory, state)
        return {"logits": self.head(hidden), "state": last}


def get_inputs():
    return [torch.randint(0, 11, (2, 5))]
