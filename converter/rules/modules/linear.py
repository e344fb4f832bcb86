"""Linear maps and tables."""

from maxcode.converter.arguments import is_omitted, is_true
from maxcode.converter.rule import module
from maxcode.converter.support.adaptive_softmax import AdaptiveLogSoftmaxWithLoss
from maxcode.converter.support.bags import EmbeddingBag
from maxcode.converter.support.layers import Embedding, Identity, Linear
from maxcode.converter.support.weighted import Bilinear

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


@module("torch.nn.EmbeddingBag", weights={"weight": ("weight", "v e -> v e")}, limits=_EMBEDDING)
def embedding_bag(
    num_embeddings, embedding_dim, max_norm=None, norm_type=2.0, scale_grad_by_freq=False, mode="mean", sparse=False,
    _weight=None, include_last_offset=False, padding_idx=None, device=None, dtype=None,
):  # fmt: skip
    return EmbeddingBag(
        num_embeddings, embedding_dim, mode=mode, include_last_offset=include_last_offset, padding_idx=padding_idx
    )


@module("torch.nn.Bilinear", weights={"weight": ("weight", ""), "bias": ("bias", "")})
def bilinear(in1_features, in2_features, out_features, bias=True, device=None, dtype=None):
    return Bilinear(in1_features, in2_features, out_features, bias=bias)


@module("torch.nn.AdaptiveLogSoftmaxWithLoss")
def adaptive_log_softmax_with_loss(
    in_features, n_classes, cutoffs, div_value=4.0, head_bias=False, device=None, dtype=None
):
    return AdaptiveLogSoftmaxWithLoss(in_features, n_classes, cutoffs, div_value=div_value, head_bias=head_bias)


@module("torch.nn.Identity")
def identity(*args):
    return Identity()
