"""Recurrent layers and cells; their weights keep torch's names and layouts, so no table lists them."""

from maxcode.converter.rule import module
from maxcode.converter.support.recurrent import GRU, LSTM, RNN
from maxcode.converter.support.recurrent_steps import GRUCell, LSTMCell, RNNCell


@module("torch.nn.LSTM")
def lstm(
    input_size, hidden_size, num_layers=1, bias=True, batch_first=False, dropout=0.0, bidirectional=False, proj_size=0,
    device=None, dtype=None,
):  # fmt: skip
    return LSTM(
        input_size, hidden_size, num_layers=num_layers, bias=bias, batch_first=batch_first, dropout=dropout,
        bidirectional=bidirectional, proj_size=proj_size,
    )  # fmt: skip


@module("torch.nn.GRU")
def gru(
    input_size, hidden_size, num_layers=1, bias=True, batch_first=False, dropout=0.0, bidirectional=False,
    device=None, dtype=None,
):  # fmt: skip
    return GRU(
        input_size, hidden_size, num_layers=num_layers, bias=bias, batch_first=batch_first, dropout=dropout,
        bidirectional=bidirectional,
    )  # fmt: skip


@module("torch.nn.RNN")
def rnn(
    input_size, hidden_size, num_layers=1, nonlinearity="tanh", bias=True, batch_first=False, dropout=0.0,
    bidirectional=False, device=None, dtype=None,
):  # fmt: skip
    return RNN(
        input_size, hidden_size, num_layers=num_layers, nonlinearity=nonlinearity, bias=bias, batch_first=batch_first,
        dropout=dropout, bidirectional=bidirectional,
    )  # fmt: skip


@module("torch.nn.LSTMCell")
def lstm_cell(input_size, hidden_size, bias=True, device=None, dtype=None):
    return LSTMCell(input_size, hidden_size, bias=bias)


@module("torch.nn.GRUCell")
def gru_cell(input_size, hidden_size, bias=True, device=None, dtype=None):
    return GRUCell(input_size, hidden_size, bias=bias)


@module("torch.nn.RNNCell")
def rnn_cell(input_size, hidden_size, bias=True, nonlinearity="tanh", device=None, dtype=None):
    return RNNCell(input_size, hidden_size, bias=bias, nonlinearity=nonlinearity)
