"""Loss module entries against torch's modules: values and gradients of torch's own samples and of edge cases."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from maxcode.coverage import modules
from tests.converter.rules.modules.test_modules import build

SAMPLED = (
    "GaussianNLLLoss",
    "MarginRankingLoss",
    "MultiLabelSoftMarginLoss",
    "MultiMarginLoss",
    "MultiLabelMarginLoss",
)
LIMIT = 4  # samples of each


@pytest.fixture(autouse=True)
def _x64():
    with jax.enable_x64(True):
        yield


def check(name, options, arguments):
    text = f"{name}({', '.join(f'{k}={v!r}' for k, v in options.items())})"
    module, ours = getattr(torch.nn, name)(**options), build(text)
    floats = [i for i, a in enumerate(arguments) if torch.is_tensor(a) and a.is_floating_point() and i < 3]
    leaves = [
        a.detach().clone().requires_grad_(i in floats) if torch.is_tensor(a) else a for i, a in enumerate(arguments)
    ]
    want = module(*leaves)
    arrays = [jnp.asarray(a.numpy()) if torch.is_tensor(a) else a for a in arguments]

    def loss(*chosen):
        whole = list(arrays)
        for i, value in zip(floats, chosen, strict=True):
            whole[i] = value
        value = ours(*whole)
        return value.sum(), value

    grads, found = jax.grad(loss, tuple(range(len(floats))), has_aux=True)(*(arrays[i] for i in floats))
    np.testing.assert_allclose(found, want.detach().numpy(), rtol=1e-10, atol=1e-12, err_msg=text)
    want.sum().backward()
    for grad, i in zip(grads, floats, strict=True):
        np.testing.assert_allclose(grad, leaves[i].grad, rtol=1e-9, atol=1e-11, err_msg=text)


def sampled(name):
    """(constructor options, call arguments) of torch's samples that plain values configure."""
    for sample in modules.samples(modules.infos()[name], training=False):
        options = sample.constructor_input.kwargs
        if not any(torch.is_tensor(value) or callable(value) for value in options.values()):
            arguments = (*sample.forward_input.args, *sample.forward_input.kwargs.values())
            yield options, tuple(a.detach() if torch.is_tensor(a) else a for a in arguments)


@pytest.mark.parametrize("name", [*SAMPLED, pytest.param("CTCLoss", marks=pytest.mark.slow)])
def test_loss_agrees_with_torch(name):
    torch.manual_seed(0)
    found = list(itertools.islice(sampled(name), LIMIT))
    assert found
    for options, arguments in found:
        check(name, options, arguments)


def arrays(*shape):
    torch.manual_seed(0)
    return [torch.randn(shape, dtype=torch.float64) for _ in range(3)]


def doubles(*values):
    return torch.tensor(values, dtype=torch.float64)


SIGNS = torch.tensor([1, -1, 1])
CASES = [
    ("HingeEmbeddingLoss", {"margin": 0.5}, (arrays(3)[0], SIGNS)),
    ("HingeEmbeddingLoss", {"reduction": "none"}, (arrays(3, 4)[0], SIGNS[:, None])),
    ("SoftMarginLoss", {}, (arrays(3)[0], SIGNS)),
    ("SoftMarginLoss", {"reduction": "sum"}, (arrays(3, 2)[0], arrays(3, 2)[1].sign().long())),
    ("CosineEmbeddingLoss", {"margin": 0.2, "reduction": "none"}, (*arrays(3, 4)[:2], SIGNS)),
    ("CosineEmbeddingLoss", {}, (*arrays(4)[:2], torch.tensor(-1))),
    ("MarginRankingLoss", {"margin": 0.3, "reduction": "none"}, (*arrays(3)[:2], SIGNS)),
    # Margins that are just met, where torch passes the whole gradient.
    ("MarginRankingLoss", {"margin": 1.0}, (doubles(1, 0.5, -1), doubles(0, 0.5, 1), SIGNS.abs())),
    ("HingeEmbeddingLoss", {}, (doubles(1, 1, 0), SIGNS)),
    ("CosineEmbeddingLoss", {"margin": 0.0}, (doubles(1, 0), doubles(0, 1), torch.tensor(-1))),
    ("TripletMarginLoss", {"eps": 0.0}, [doubles(0, 0), doubles(1, 0), doubles(2, 0)]),
    ("MultiMarginLoss", {"p": 2, "margin": 0.3, "reduction": "none"}, (doubles(1, 0, 2), torch.tensor([1]))),
    ("MultiLabelMarginLoss", {"reduction": "none"}, (doubles(1, 0, 2), torch.tensor([1, 0, -1]))),
    ("TripletMarginLoss", {"p": 1.0, "swap": True, "reduction": "none"}, arrays(3, 5)),
    ("TripletMarginLoss", {}, arrays(5)),
    ("TripletMarginWithDistanceLoss", {"margin": 2.0, "swap": True}, arrays(3, 5)),
    ("GaussianNLLLoss", {"full": True, "eps": 0.5}, (*arrays(3, 5)[:2], arrays(3)[0].abs())),
    ("GaussianNLLLoss", {}, (*arrays(3, 5)[:2], 0.7)),
    ("PoissonNLLLoss", {}, arrays(3, 5)[:2]),
    ("PoissonNLLLoss", {"full": True, "log_input": False}, (arrays(5)[0].exp(), arrays(5)[1].abs() * 3)),
    ("MultiMarginLoss", {"p": 2, "margin": 0.3, "reduction": "none"}, (arrays(3, 5)[0], torch.tensor([1, 0, 4]))),
    (
        "MultiLabelMarginLoss",
        {},
        (arrays(3, 5)[0], torch.tensor([[1, 2, -1, 0, 0], [-1, 3, 3, 3, 3], [4, 3, 2, 1, 0]])),
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case[0]} {case[1]}")
def test_loss_of_own_inputs(case):
    check(*case)


def test_variance_of_another_shape_is_refused():
    with pytest.raises(ValueError, match="does not fit"):
        build("GaussianNLLLoss()")(jnp.ones((3, 4)), jnp.ones((3, 4)), jnp.ones((3, 2)))


def test_distance_of_triplets():
    loss = build("TripletMarginWithDistanceLoss(margin=0.5)")
    own = build("TripletMarginWithDistanceLoss(distance_function=max, margin=0.5)")
    assert own.keywords["distance_function"] is max
    assert loss(jnp.ones(3), jnp.ones(3), jnp.zeros(3)) == 0


def _sequences():
    torch.manual_seed(0)
    scores = torch.randn(9, 3, 5, dtype=torch.float64, requires_grad=True)
    targets = torch.tensor([[1, 1, 2, 3], [4, 2, 0, 0], [3, 3, 3, 3]])
    return scores, targets, torch.tensor([9, 7, 6]), torch.tensor([4, 2, 4])


@pytest.mark.parametrize("options", [{}, {"reduction": "sum", "zero_infinity": True}, {"reduction": "none"}])
@pytest.mark.parametrize("joined", [False, True])
def test_ctc_gradient_of_the_scores(options, joined):
    """The third target has repeats that six steps cannot hold: its loss is infinite."""
    scores, targets, steps, lengths = _sequences()
    rows = torch.cat([row[:n] for row, n in zip(targets, lengths)]) if joined else targets
    chosen = slice(None) if options.get("zero_infinity") or options.get("reduction") else slice(0, 2)
    if chosen != slice(None):
        scores, steps, lengths = scores.detach()[:, chosen].requires_grad_(), steps[chosen], lengths[chosen]
        rows = rows[:6] if joined else rows[chosen]
    want = torch.nn.CTCLoss(**options)(scores.log_softmax(-1), rows, steps, lengths)
    text = f"CTCLoss({', '.join(f'{k}={v!r}' for k, v in options.items())})"
    arrays = [jnp.asarray(a.numpy()) for a in (rows, steps, lengths)]
    found = jax.jit(lambda s: build(text)(jax.nn.log_softmax(s), *arrays))(scores.detach().numpy())
    np.testing.assert_allclose(found, want.detach().numpy(), rtol=1e-10)
    if options.get("reduction") != "none":
        grad = jax.grad(lambda s: build(text)(jax.nn.log_softmax(s), *arrays))(scores.detach().numpy())
        want.backward()
        np.testing.assert_allclose(grad, scores.grad, rtol=1e-9, atol=1e-11)


def test_ctc_of_one_sequence_and_of_no_labels():
    scores, targets, _, _ = _sequences()
    for reduction in ("mean", "sum", "none"):
        want = torch.nn.CTCLoss(reduction=reduction)(
            scores[:, 0].log_softmax(-1), targets[0], torch.tensor(9), torch.tensor(4)
        )
        found = build(f"CTCLoss(reduction={reduction!r})")(
            jax.nn.log_softmax(scores[:, 0].detach().numpy()), jnp.asarray(targets[0].numpy()), 9, 4
        )
        np.testing.assert_allclose(found, want.detach().numpy(), rtol=1e-10)
        assert found.shape == want.shape
    lengths = torch.tensor([9, 7, 6]), torch.tensor([0, 2, 1])
    want = torch.nn.CTCLoss(reduction="none")(scores.log_softmax(-1), targets, *lengths)
    found = build("CTCLoss(reduction='none')")(
        jax.nn.log_softmax(scores.detach().numpy()), *(jnp.asarray(a.numpy()) for a in (targets, *lengths))
    )
    np.testing.assert_allclose(found, want.detach().numpy(), rtol=1e-10)
