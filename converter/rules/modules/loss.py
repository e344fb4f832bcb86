"""Loss modules: callables `(input, target)` of the support library."""

from maxcode.converter.rule import module
from maxcode.converter.support import ctc, losses, margin_losses


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


@module("torch.nn.PoissonNLLLoss")
def poisson_nll_loss_module(log_input=True, full=False, *, eps=1e-8, reduction="mean"):
    return margin_losses.PoissonNLLLoss(log_input=log_input, full=full, eps=eps, reduction=reduction)


@module("torch.nn.GaussianNLLLoss")
def gaussian_nll_loss_module(*, full=False, eps=1e-6, reduction="mean"):
    return margin_losses.GaussianNLLLoss(full=full, eps=eps, reduction=reduction)


@module("torch.nn.HingeEmbeddingLoss")
def hinge_embedding_loss_module(margin=1.0, *, reduction="mean"):
    return margin_losses.HingeEmbeddingLoss(margin=margin, reduction=reduction)


@module("torch.nn.MarginRankingLoss")
def margin_ranking_loss_module(margin=0.0, *, reduction="mean"):
    return margin_losses.MarginRankingLoss(margin=margin, reduction=reduction)


@module("torch.nn.SoftMarginLoss")
def soft_margin_loss_module(*, reduction="mean"):
    return margin_losses.SoftMarginLoss(reduction=reduction)


@module("torch.nn.CosineEmbeddingLoss")
def cosine_embedding_loss_module(margin=0.0, *, reduction="mean"):
    return margin_losses.CosineEmbeddingLoss(margin=margin, reduction=reduction)


@module("torch.nn.MultiLabelSoftMarginLoss")
def multilabel_soft_margin_loss_module(weight=None, *, reduction="mean"):
    return margin_losses.MultiLabelSoftMarginLoss(weight=weight, reduction=reduction)


@module("torch.nn.MultiMarginLoss")
def multi_margin_loss_module(p=1, margin=1.0, weight=None, *, reduction="mean"):
    return margin_losses.MultiMarginLoss(p=p, margin=margin, weight=weight, reduction=reduction)


@module("torch.nn.MultiLabelMarginLoss")
def multilabel_margin_loss_module(*, reduction="mean"):
    return margin_losses.MultiLabelMarginLoss(reduction=reduction)


@module("torch.nn.TripletMarginLoss")
def triplet_margin_loss_module(margin=1.0, p=2.0, eps=1e-6, swap=False, *, reduction="mean"):
    return margin_losses.TripletMarginLoss(margin=margin, p=p, eps=eps, swap=swap, reduction=reduction)


@module("torch.nn.TripletMarginWithDistanceLoss")
def triplet_margin_with_distance_loss_module(*, distance_function=None, margin=1.0, swap=False, reduction="mean"):
    return margin_losses.TripletMarginWithDistanceLoss(
        distance_function=distance_function, margin=margin, swap=swap, reduction=reduction
    )


@module("torch.nn.CTCLoss")
def ctc_loss_module(blank=0, reduction="mean", zero_infinity=False):
    return ctc.CTCLoss(blank=blank, reduction=reduction, zero_infinity=zero_infinity)
