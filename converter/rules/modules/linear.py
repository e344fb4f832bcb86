"""Linear maps and tables."""

from maxcode.converter.arguments import is_omitted, is_true
from maxcode.converter.rule import module
from maxcode.converter.support.layers import Embedding, Identity, Linear

_EMBEDDING = {
    "max_norm changes the weights while reading": lambda max_norm: not is_omitted(max_norm),
    "scale_grad_by_freq is not converted": lambda scale_grad_by_freq: is_true(scale_grad_by_freq),
}


@module("torch.nn.Linear", weights={"weight": ("kernel", "o i -> i o"), "bias": ("bias", "o -> o")})
def linear(in_features, out_features, bias=True, device=None, dtype=None):
    return Linear(in_features, out_features, bias=bias)


@module("transformers.pytorch_utils.Conv1D", weights={"weight": ("kernel", "i o -> i o"), "bias": ("bias", "o -> o")})
def linear_transposed(nf, nx):
    return Linear(nx, nf)


@module("torch.nn.Embedding", weights={"weight": ("embedding", "v e -> v e")}, limits=_EMBEDDING)
def embedding(
    num_embeddings, embedding_dim, padding_idx=None, max_norm=None, norm_type=2.0, scale_grad_by_freq=False,
    sparse=False, _weight=None, _freeze=False, device=None, dtype=None,
):  # fmt: skip
    return Embedding(num_embeddings, embedding_dim, padding_idx=padding_idx)


@module("torch.nn.Identity")
def identity(*args):
    return Identity()
