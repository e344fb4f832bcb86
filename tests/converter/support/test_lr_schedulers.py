"""Schedulers beside torch's own, number by number: the arithmetic is the same, so the rates are."""

import jax.numpy as jnp
import pytest
import torch
from flax import nnx

from maxcode.converter.support import combined_schedulers, cyclic_schedulers, lr_schedulers, optim, warmup_schedules
from maxcode.converter.support.parameters import parameters

STEPS = 60


class Ours:
    """The support library under torch's names."""

    def __getattr__(self, name):
        found = [getattr(m, name) for m in (lr_schedulers, cyclic_schedulers, combined_schedulers) if hasattr(m, name)]
        return found[0]


def torch_side(cls, **options):
    weights = [torch.nn.Parameter(torch.ones(2)) for _ in range(2)]
    return torch.optim.lr_scheduler, getattr(torch.optim, cls)(
        [{"params": [weights[0]]}, {"params": [weights[1]], "lr": 0.03}], **options
    )


def our_side(cls, **options):
    model = nnx.Dict(a=nnx.Param(jnp.ones(2)), b=nnx.Param(jnp.ones(2)))
    first, second = parameters(model)
    return Ours(), getattr(optim, cls)([{"params": [first]}, {"params": [second], "lr": 0.03}], **options)


MAKERS = {
    "step": lambda s, o: s.StepLR(o, 7, 0.5),
    "multistep": lambda s, o: s.MultiStepLR(o, [3, 3, 20, 41], 0.3),
    "constant": lambda s, o: s.ConstantLR(o, 0.25, 9),
    "linear": lambda s, o: s.LinearLR(o, 0.1, 0.9, 17),
    "exponential": lambda s, o: s.ExponentialLR(o, 0.93),
    "polynomial": lambda s, o: s.PolynomialLR(o, 30, 2.0),
    "cosine": lambda s, o: s.CosineAnnealingLR(o, 20, 1e-4),
    "cosine-odd": lambda s, o: s.CosineAnnealingLR(o, T_max=7),
    "restarts": lambda s, o: s.CosineAnnealingWarmRestarts(o, 5, 2, 1e-3),
    "restarts-same": lambda s, o: s.CosineAnnealingWarmRestarts(o, T_0=8),
    "lambda": lambda s, o: s.LambdaLR(o, lambda n: n / 10 if n < 10 else 10 / n),
    "lambdas": lambda s, o: s.LambdaLR(o, [lambda n: 0.9**n, lambda n: 1 / (1 + n)]),
    "multiplicative": lambda s, o: s.MultiplicativeLR(o, lambda n: 0.97 if n % 2 else 1.0),
    "cyclic": lambda s, o: s.CyclicLR(o, 1e-3, [0.1, 0.2], 6, 9),
    "cyclic2": lambda s, o: s.CyclicLR(o, 1e-3, 0.1, 5, mode="triangular2", base_momentum=0.7),
    "cyclic-exp": lambda s, o: s.CyclicLR(o, 1e-3, 0.1, 5, mode="exp_range", gamma=0.99, cycle_momentum=False),
    "cyclic-own": lambda s, o: s.CyclicLR(o, 0.01, 0.1, 4, scale_fn=lambda x: 1 / x, scale_mode="cycle"),
    "onecycle": lambda s, o: s.OneCycleLR(o, 0.5, total_steps=STEPS + 1),
    "onecycle-three": lambda s, o: s.OneCycleLR(
        o, [0.5, 0.1], epochs=8, steps_per_epoch=8, three_phase=True, anneal_strategy="linear", pct_start=0.4
    ),
    "sequential": lambda s, o: s.SequentialLR(
        o, [s.LinearLR(o, 0.1, total_iters=5), s.CosineAnnealingLR(o, 30), s.ExponentialLR(o, 0.9)], [5, 35]
    ),
    "sequential-constant": lambda s, o: s.SequentialLR(
        o, schedulers=[s.ConstantLR(o, 0.1, total_iters=4), s.StepLR(o, 6, 0.7)], milestones=[9]
    ),
    "chained": lambda s, o: s.ChainedScheduler([s.ConstantLR(o, 0.2, 8), s.ExponentialLR(o, 0.95)]),
    "nested": lambda s, o: s.SequentialLR(
        o, [s.SequentialLR(o, [s.ConstantLR(o, 0.5, 2), s.ExponentialLR(o, 0.9)], [3]), s.StepLR(o, 4)], [10]
    ),
}


def rates(side, maker, cls="SGD", **options):
    namespace, optimizer = side(cls, **({"lr": 0.1} | options))
    scheduler = maker(namespace, optimizer)
    trail = []
    for _ in range(STEPS):
        optimizer.step() if side is torch_side else None
        scheduler.step()
        groups = [{k: g[k] for k in ("lr", "momentum", "betas") if k in g} for g in optimizer.param_groups]
        trail.append((scheduler.get_last_lr(), groups))
    return trail


@pytest.mark.parametrize("name", MAKERS)
@pytest.mark.parametrize("cls", ["SGD", "AdamW"])
def test_rates_are_torchs(name, cls):
    options = {"momentum": 0.9} if cls == "SGD" else {}
    assert rates(our_side, MAKERS[name], cls, **options) == rates(torch_side, MAKERS[name], cls, **options)


PLATEAUS = [
    {},
    {"factor": 0.5, "patience": 2, "cooldown": 3},
    {"mode": "max", "threshold": 0.05, "threshold_mode": "abs", "patience": 1, "min_lr": [0.01, 0.001]},
    {"mode": "max", "patience": 0, "threshold": 0.1, "eps": 0.02},
]


@pytest.mark.parametrize("options", PLATEAUS, ids=str)
def test_a_metric_that_does_not_improve_lowers_the_rates(options):
    metrics = [1.0, 0.9, 0.95, 0.94, 0.94, 0.2, 0.3, 0.3, 0.19, 0.19, 0.19, 0.19, 0.5, 0.1] * 3
    trails = []
    for side in (our_side, torch_side):
        namespace, optimizer = side("SGD", lr=0.1)
        scheduler = namespace.ReduceLROnPlateau(optimizer, **options)
        trail = []
        for metric in metrics:
            scheduler.step(metric)
            trail.append(scheduler.get_last_lr())
        trails.append(trail)
    assert trails[0] == trails[1]
    assert trails[0][0] != trails[0][-1]


def test_resuming_is_refused():
    _, optimizer = our_side("SGD", lr=0.1)
    with pytest.raises(ValueError, match="last_epoch is 3"):
        lr_schedulers.StepLR(optimizer, 2, last_epoch=3)


def test_one_cycle_ends():
    _, optimizer = our_side("SGD", lr=0.1, momentum=0.9)
    scheduler = cyclic_schedulers.OneCycleLR(optimizer, 0.1, total_steps=3)
    for _ in range(3):
        scheduler.step()
    with pytest.raises(ValueError, match="step 4 of 3"):
        scheduler.step()


def test_schedulers_of_a_users_own_keep_torchs_protocol():
    class Warmup(lr_schedulers.LRScheduler):
        def __init__(self, optimizer, steps, last_epoch=-1):
            self.steps = steps
            super().__init__(optimizer, last_epoch)

        def get_lr(self):
            return [base * min(1.0, (self.last_epoch + 1) / self.steps) for base in self.base_lrs]

    _, optimizer = our_side("SGD", lr=0.1)
    scheduler = Warmup(optimizer, 4)
    seen = [optimizer.param_groups[0]["lr"]]
    for _ in range(4):
        scheduler.step()
        seen.append(scheduler.get_last_lr()[0])
    assert seen == [0.025, 0.05, 0.1 * 0.75, 0.1, 0.1]


WARMUPS = [
    ("get_constant_schedule", ()),
    ("get_constant_schedule_with_warmup", (7,)),
    ("get_linear_schedule_with_warmup", (5, 40)),
    ("get_cosine_schedule_with_warmup", (5, 40)),
    ("get_cosine_with_hard_restarts_schedule_with_warmup", (4, 50, 3)),
    ("get_polynomial_decay_schedule_with_warmup", (4, 50, 1e-3, 2.0)),
    ("get_inverse_sqrt_schedule", (6,)),
]


@pytest.mark.parametrize(("name", "arguments"), WARMUPS, ids=lambda v: v if isinstance(v, str) else "")
def test_warmup_schedules_are_those_of_transformers(name, arguments):
    import transformers.optimization

    def maker(module):
        return lambda _, optimizer: getattr(module, name)(optimizer, *arguments)

    assert rates(our_side, maker(warmup_schedules)) == rates(torch_side, maker(transformers.optimization))
