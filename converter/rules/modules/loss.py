"""Loss modules: callables `(input, target)` of the support library."""

from maxcode.converter.rule import module
from maxcode.converter.support import losses


@module("torch.nn.CrossEntropyLoss")
def cross_entropy_loss(weight=None, ignore_index=-100, reduction="mean", label_smoothing=0.0):
    return losses.CrossEntropyLoss(
        weight=weight, ignore_index=ignore_index, reduction=reduction, label_smoothing=label_smoothing
    )


@module("torch.nn.NLLLoss")
def nll_loss_module(weight=None, ignore_index=-100, reduction="mean"):
    return losses.NLLLoss(weight=weight, ignore_index=ignore_index, reduction=reduction)


@module("torch.nn.BCELoss")
def bce_loss_module(weight=None, reduction="mean"):
    return losses.BCELoss(weight=weight, reduction=reduction)


@module("torch.nn.BCEWithLogitsLoss")
def bce_with_logits_loss_module(weight=None, reduction="mean", pos_weight=None):
    return losses.BCEWithLogitsLoss(weight=weight, reduction=reduction, pos_weight=pos_weight)


@module("torch.nn.MSELoss")
def mse_loss_module(reduction="mean"):
    return losses.MSELoss(reduction=reduction)


@module("torch.nn.L1Loss")
def l1_loss_module(reduction="mean"):
    return losses.L1Loss(reduction=reduction)


@module("torch.nn.SmoothL1Loss")
def smooth_l1_loss_module(reduction="mean", beta=1.0):
    return losses.SmoothL1Loss(reduction=reduction, beta=beta)


@module("torch.nn.HuberLoss")
def huber_loss_module(reduction="mean", delta=1.0):
    return losses.HuberLoss(reduction=reduction, delta=delta)


@module("torch.nn.KLDivLoss")
def kl_div_loss_module(reduction="mean", log_target=False):
    return losses.KLDivLoss(reduction=reduction, log_target=log_target)
