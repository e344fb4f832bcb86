"""The rest of torch's optimizers by torch's names and arguments."""

from collections.abc import Iterable
from typing import Any

from .optim import Optimizer
from .optim_adaptive import adadelta, adagrad, adamax, nadam, radam, rmsprop
from .optim_rare import adafactor, asgd, muon, rprop


class Adamax(Optimizer):
    """torch.optim.Adamax."""

    rule = staticmethod(adamax)

    def __init__(
        self, params: Iterable[Any], lr: float = 2e-3, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8,
        weight_decay: float = 0.0, *, maximize: bool = False,
    ):  # fmt: skip
        super().__init__(params, lr=lr, betas=betas, eps=eps, weight_decay=weight_decay, maximize=maximize)


class NAdam(Optimizer):
    """torch.optim.NAdam."""

    rule = staticmethod(nadam)

    def __init__(
        self, params: Iterable[Any], lr: float = 2e-3, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8,
        weight_decay: float = 0.0, momentum_decay: float = 4e-3, decoupled_weight_decay: bool = False, *,
        maximize: bool = False,
    ):  # fmt: skip
        hyper = {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "momentum_decay": momentum_decay}
        super().__init__(params, **hyper, decoupled_weight_decay=decoupled_weight_decay, maximize=maximize)


class RAdam(Optimizer):
    """torch.optim.RAdam."""

    rule = staticmethod(radam)

    def __init__(
        self, params: Iterable[Any], lr: float = 1e-3, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8,
        weight_decay: float = 0.0, decoupled_weight_decay: bool = False, *, maximize: bool = False,
    ):  # fmt: skip
        hyper = {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay}
        super().__init__(params, **hyper, decoupled_weight_decay=decoupled_weight_decay, maximize=maximize)


class RMSprop(Optimizer):
    """torch.optim.RMSprop."""

    rule = staticmethod(rmsprop)

    def __init__(
        self, params: Iterable[Any], lr: float = 1e-2, alpha: float = 0.99, eps: float = 1e-8,
        weight_decay: float = 0.0, momentum: float = 0.0, centered: bool = False, *, maximize: bool = False,
    ):  # fmt: skip
        hyper = {"lr": lr, "alpha": alpha, "eps": eps, "weight_decay": weight_decay, "momentum": momentum}
        super().__init__(params, **hyper, centered=centered, maximize=maximize)


class Adagrad(Optimizer):
    """torch.optim.Adagrad."""

    rule = staticmethod(adagrad)

    def __init__(
        self, params: Iterable[Any], lr: float = 1e-2, lr_decay: float = 0.0, weight_decay: float = 0.0,
        initial_accumulator_value: float = 0.0, eps: float = 1e-10, *, maximize: bool = False,
    ):  # fmt: skip
        hyper = {"lr": lr, "lr_decay": lr_decay, "weight_decay": weight_decay, "eps": eps}
        super().__init__(params, **hyper, initial_accumulator_value=initial_accumulator_value, maximize=maximize)


class Adadelta(Optimizer):
    """torch.optim.Adadelta."""

    rule = staticmethod(adadelta)

    def __init__(
        self, params: Iterable[Any], lr: float = 1.0, rho: float = 0.9, eps: float = 1e-6, weight_decay: float = 0.0, *,
        maximize: bool = False,
    ):  # fmt: skip
        super().__init__(params, lr=lr, rho=rho, eps=eps, weight_decay=weight_decay, maximize=maximize)


class Rprop(Optimizer):
    """torch.optim.Rprop."""

    rule = staticmethod(rprop)

    def __init__(
        self, params: Iterable[Any], lr: float = 1e-2, etas: tuple[float, float] = (0.5, 1.2),
        step_sizes: tuple[float, float] = (1e-6, 50), *, maximize: bool = False,
    ):  # fmt: skip
        super().__init__(params, lr=lr, etas=etas, step_sizes=step_sizes, maximize=maximize)


class ASGD(Optimizer):
    """torch.optim.ASGD."""

    rule = staticmethod(asgd)

    def __init__(
        self, params: Iterable[Any], lr: float = 1e-2, lambd: float = 1e-4, alpha: float = 0.75, t0: float = 1e6,
        weight_decay: float = 0.0, maximize: bool = False,
    ):  # fmt: skip
        hyper = {"lr": lr, "lambd": lambd, "alpha": alpha, "t0": t0, "weight_decay": weight_decay}
        super().__init__(params, **hyper, maximize=maximize)


class _OfMatrices(Optimizer):
    """An optimizer that looks at matrices as a whole, so they must be stored as matrices, each by itself."""

    largest = 2

    def add_param_group(self, group: Any) -> None:
        """Add a group.

        Raises:
          ValueError: a parameter is stored in a layout in which the rule would see other rows and columns.
        """
        super().add_param_group(group)
        for parameter in self.param_groups[-1]["params"]:
            stacked = parameter.leaf.index is not None
            if stacked or parameter.ndim > self.largest:
                why = (
                    "lies in a scanned stack (build with scan_layers=False)"
                    if stacked
                    else "is stored in another layout"
                )
                raise ValueError(f"{type(self).__name__}: {parameter.name} {why}; expected a matrix of its own")


class Adafactor(_OfMatrices):
    """torch.optim.Adafactor."""

    rule = staticmethod(adafactor)

    def __init__(
        self, params: Iterable[Any], lr: float = 1e-2, beta2_decay: float = -0.8,
        eps: tuple[float | None, float] = (None, 1e-3), d: float = 1.0, weight_decay: float = 0.0, *,
        maximize: bool = False,
    ):  # fmt: skip
        super().__init__(
            params, lr=lr, beta2_decay=beta2_decay, eps=eps, d=d, weight_decay=weight_decay, maximize=maximize
        )


class Muon(_OfMatrices):
    """torch.optim.Muon, of the matrices of linear layers."""

    rule = staticmethod(muon)

    def __init__(
        self, params: Iterable[Any], lr: float = 1e-3, weight_decay: float = 0.1, momentum: float = 0.95,
        nesterov: bool = True, ns_coefficients: tuple[float, float, float] = (3.4445, -4.775, 2.0315),
        eps: float = 1e-7, ns_steps: int = 5, adjust_lr_fn: str | None = None,
    ):  # fmt: skip
        hyper = {"lr": lr, "weight_decay": weight_decay, "momentum": momentum, "nesterov": nesterov}
        more = {"ns_coefficients": ns_coefficients, "eps": eps, "ns_steps": ns_steps, "adjust_lr_fn": adjust_lr_fn}
        super().__init__(params, **hyper, **more)

    def add_param_group(self, group: Any) -> None:
        """Add a group. Raises ValueError for parameters that are no matrix, or not stored [in, out]."""
        super().add_param_group(group)
        for parameter in self.param_groups[-1]["params"]:
            if parameter.ndim != 2 or not parameter.is_turned:
                raise ValueError(f"Muon: {parameter.name} is not the matrix of a linear layer")
