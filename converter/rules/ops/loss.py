"""Losses, on the support library's."""

from maxcode.converter.arguments import is_omitted
from maxcode.converter.rule import op
from maxcode.converter.support import losses

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
