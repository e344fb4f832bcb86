"""Losses, on the support library's."""

import jax.numpy as jnp

from maxcode.converter.arguments import is_omitted
from maxcode.converter.rule import op
from maxcode.converter.support import ctc, losses, margin_losses

_OLD = {
    "size_average and reduce are deprecated; use reduction": lambda size_average, reduce: (
        not is_omitted(size_average) or not is_omitted(reduce)
    )
}


@op("torch.nn.functional.cross_entropy", limits=_OLD)
def cross_entropy(
    input, target, weight=None, size_average=None, ignore_index=-100, reduce=None, reduction="mean", label_smoothing=0.0
):
    return losses.cross_entropy(
        input, target, weight, ignore_index=ignore_index, reduction=reduction, label_smoothing=label_smoothing
    )


@op(
    "torch.nn.functional.linear_cross_entropy",
    limits={"options of chunking are not converted; leave them out": lambda options: not is_omitted(options)},
)
def linear_cross_entropy(
    input, linear_weight, target, *, linear_bias=None, weight=None, reduction="mean", ignore_index=None,
    label_smoothing=0.0, options=None,
):  # fmt: skip
    """Cross entropy of a linear layer's scores; weights [classes, ..., features] give scores of more positions."""
    scores = jnp.tensordot(input, linear_weight, (-1, -1))
    return losses.cross_entropy(
        scores if linear_bias is None else scores + linear_bias,
        target,
        weight,
        ignore_index=-100 if ignore_index is None else ignore_index,
        reduction=reduction,
        label_smoothing=label_smoothing,
    )


@op("torch.nn.functional.nll_loss", limits=_OLD)
def nll_loss(input, target, weight=None, size_average=None, ignore_index=-100, reduce=None, reduction="mean"):
    return losses.nll_loss(input, target, weight, ignore_index=ignore_index, reduction=reduction)


@op("torch.nn.functional.mse_loss", limits=_OLD)
def mse_loss(input, target, size_average=None, reduce=None, reduction="mean"):
    return losses.mse_loss(input, target, reduction=reduction)


@op("torch.nn.functional.l1_loss", limits=_OLD)
def l1_loss(input, target, size_average=None, reduce=None, reduction="mean"):
    return losses.l1_loss(input, target, reduction=reduction)


@op("torch.nn.functional.smooth_l1_loss", limits=_OLD)
def smooth_l1_loss(input, target, size_average=None, reduce=None, reduction="mean", beta=1.0):
    return losses.smooth_l1_loss(input, target, reduction=reduction, beta=beta)


@op("torch.nn.functional.huber_loss")
def huber_loss(input, target, reduction="mean", delta=1.0):
    return losses.huber_loss(input, target, reduction=reduction, delta=delta)


@op("torch.nn.functional.binary_cross_entropy", limits=_OLD)
def binary_cross_entropy(input, target, weight=None, size_average=None, reduce=None, reduction="mean"):
    return losses.binary_cross_entropy(input, target, weight, reduction=reduction)


@op("torch.nn.functional.binary_cross_entropy_with_logits", limits=_OLD)
def binary_cross_entropy_with_logits(
    input, target, weight=None, size_average=None, reduce=None, reduction="mean", pos_weight=None
):
    return losses.binary_cross_entropy_with_logits(input, target, weight, reduction=reduction, pos_weight=pos_weight)


@op("torch.nn.functional.kl_div", limits=_OLD)
def kl_div(input, target, size_average=None, reduce=None, reduction="mean", log_target=False):
    return losses.kl_div(input, target, reduction=reduction, log_target=log_target)


@op("torch.nn.functional.cosine_embedding_loss", "torch.cosine_embedding_loss", limits=_OLD)
def cosine_embedding_loss(input1, input2, target, margin=0, size_average=None, reduce=None, reduction="mean"):
    return margin_losses.cosine_embedding_loss(input1, input2, target, margin=margin, reduction=reduction)


@op("torch.nn.functional.gaussian_nll_loss")
def gaussian_nll_loss(input, target, var, full=False, eps=1e-6, reduction="mean"):
    return margin_losses.gaussian_nll_loss(input, target, var, full=full, eps=eps, reduction=reduction)


@op("torch.nn.functional.hinge_embedding_loss", "torch.hinge_embedding_loss", limits=_OLD)
def hinge_embedding_loss(input, target, margin=1.0, size_average=None, reduce=None, reduction="mean"):
    return margin_losses.hinge_embedding_loss(input, target, margin=margin, reduction=reduction)


@op("torch.nn.functional.margin_ranking_loss", "torch.margin_ranking_loss", limits=_OLD)
def margin_ranking_loss(input1, input2, target, margin=0, size_average=None, reduce=None, reduction="mean"):
    return margin_losses.margin_ranking_loss(input1, input2, target, margin=margin, reduction=reduction)


@op("torch.nn.functional.multi_margin_loss", limits=_OLD)
def multi_margin_loss(input, target, p=1, margin=1.0, weight=None, size_average=None, reduce=None, reduction="mean"):
    return margin_losses.multi_margin_loss(input, target, weight, p=p, margin=margin, reduction=reduction)


@op("torch.nn.functional.multilabel_margin_loss", limits=_OLD)
def multilabel_margin_loss(input, target, size_average=None, reduce=None, reduction="mean"):
    return margin_losses.multilabel_margin_loss(input, target, reduction=reduction)


@op("torch.nn.functional.multilabel_soft_margin_loss", limits=_OLD)
def multilabel_soft_margin_loss(input, target, weight=None, size_average=None, reduce=None, reduction="mean"):
    return margin_losses.multilabel_soft_margin_loss(input, target, weight, reduction=reduction)


@op("torch.nn.functional.poisson_nll_loss", "torch.poisson_nll_loss", limits=_OLD)
def poisson_nll_loss(
    input, target, log_input=True, size_average=None, full=False, eps=1e-8, reduce=None, reduction="mean"
):
    return margin_losses.poisson_nll_loss(input, target, log_input=log_input, full=full, eps=eps, reduction=reduction)


@op("torch.nn.functional.soft_margin_loss", limits=_OLD)
def soft_margin_loss(input, target, size_average=None, reduce=None, reduction="mean"):
    return margin_losses.soft_margin_loss(input, target, reduction=reduction)


@op("torch.nn.functional.triplet_margin_loss", "torch.triplet_margin_loss", limits=_OLD)
def triplet_margin_loss(
    anchor, positive, negative, margin=1.0, p=2, eps=1e-6, swap=False, size_average=None, reduce=None,
    reduction="mean",
):  # fmt: skip
    return margin_losses.triplet_margin_loss(
        anchor, positive, negative, margin=margin, p=p, eps=eps, swap=swap, reduction=reduction
    )


@op("torch.nn.functional.triplet_margin_with_distance_loss")
def triplet_margin_with_distance_loss(
    anchor, positive, negative, *, distance_function=None, margin=1.0, swap=False, reduction="mean"
):
    return margin_losses.triplet_margin_with_distance_loss(
        anchor, positive, negative, distance_function=distance_function, margin=margin, swap=swap, reduction=reduction
    )


@op("torch.nn.functional.ctc_loss", "torch.ctc_loss")
def ctc_loss(log_probs, targets, input_lengths, target_lengths, blank=0, reduction="mean", zero_infinity=False):
    return ctc.ctc_loss(
        log_probs,
        targets,
        input_lengths,
        target_lengths,
        blank=blank,
        reduction=reduction,
        zero_infinity=zero_infinity,
    )
