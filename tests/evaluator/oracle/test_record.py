"""Recordings say what PyTorch did: replayed by hand, and read back by the checks' own reader."""

import numpy as np
import pytest
import torch

from maxcode.evaluator.oracle.build import build, call
from maxcode.evaluator.oracle.record import SCENARIOS
from maxcode.evaluator.recording import Recordings

DENSE, EXPERTS, ENCODER, SEQ2SEQ, STATE_SPACE = "llama", "mixtral", "bert", "t5", "mamba2"


@pytest.mark.parametrize(
    ("name", "absent"), [(DENSE, set()), (EXPERTS, set()), (ENCODER, {"cache"}), (SEQ2SEQ, set()), (STATE_SPACE, set())]
)
def test_every_scenario(resolved, recorded, name, absent):
    absent = absent | {"loop"}  # of training programs alone
    index, run = recorded(resolved(name), list(SCENARIOS), tokens=8, length=520)
    assert set(index["scenarios"]) == set(SCENARIOS) - absent
    assert set(index["facts"]["reasons"]) == absent
    recordings = Recordings(run / "oracle")
    (long,) = recordings.get("long").cases
    assert long.inputs["input_ids"].shape == (3, 520)
    for scenario in ("exact", "long", "padding", "edges", "gradients", "modules"):
        assert recordings.get(scenario).record["dtype"] == "float64"


def test_exact_is_the_model(resolved, recorded):
    _, run = recorded(resolved(DENSE), ["exact"])
    case = Recordings(run / "oracle").get("exact").cases[0]
    model, inputs = build(resolved(DENSE), "float64", run / "source")
    with torch.no_grad():
        again = call(model, inputs, "float64").logits.numpy()
    np.testing.assert_array_equal(case.outputs["logits"], again)
    assert case.outputs["logits"].dtype == np.float64
    np.testing.assert_array_equal(case.inputs["input_ids"], inputs["input_ids"].numpy())


def test_low_precision_is_close_to_its_truth_but_not_equal(resolved, recorded):
    _, run = recorded(resolved(EXPERTS), ["float32", "bfloat16"])
    for dtype, low, high in (("float32", 1e-9, 1e-5), ("bfloat16", 1e-4, 0.1)):
        cases = Recordings(run / "oracle").get(dtype).cases
        assert len(cases) == 4
        assert all(low < c.record["own_error"]["logits"] < high for c in cases)
        assert all(len(c.record["choices"]) == 3 for c in cases)  # one router a layer
        assert len({c.named("truth")["logits"].tobytes() for c in cases}) == 4


def test_cached_steps_equal_the_full_forward(resolved, recorded):
    _, run = recorded(resolved(DENSE), ["cache"], tokens=8)
    (case,) = Recordings(run / "oracle").get("cache").cases
    length, steps = case.record["length"], case.record["steps"]
    full = case.outputs["logits"]
    assert full.shape[1] == length + steps
    np.testing.assert_allclose(case.array("step_logits"), full[:, length - 1 : -1], rtol=0, atol=1e-12)
    assert case.array("greedy")[0, 0] == full[0, length - 1].argmax()


def test_padding_counts_positions(resolved, recorded):
    _, run = recorded(resolved(DENSE), ["padding"])
    for case in Recordings(run / "oracle").get("padding").cases:
        counts = case.array("counts")
        np.testing.assert_array_equal(counts, case.inputs["attention_mask"].astype(bool))
        assert not counts.all()
        assert bool(counts[1, 0]) == (case.id == "right")


def test_gradients_by_finite_difference(resolved, recorded):
    target = resolved(DENSE)
    _, run = recorded(target, ["gradients"])
    (case,) = Recordings(run / "oracle").get("gradients").cases
    model, inputs = build(target, "float64", run / "source")
    name, parameter = list(model.named_parameters())[5]
    weight = torch.from_numpy(np.array(case.named("loss_weights")["logits"]))
    losses = []
    with torch.no_grad():
        for step in (1e-5, -2e-5):
            parameter[0, 1] += step
            losses.append(float((call(model, inputs, "float64").logits * weight).mean()))
    expected = case.tensors[case.record["gradients"][name]][0, 1]
    assert (losses[0] - losses[1]) / 2e-5 == pytest.approx(expected, rel=1e-5)
    assert len(case.record["gradients"]) == len(list(model.parameters()))


def test_first_training_step_by_hand(resolved, recorded):
    target = resolved(DENSE)
    _, run = recorded(target, ["training"])
    (case,) = Recordings(run / "oracle").get("training").cases
    assert case.record["loss_output"] == "loss"
    assert case.array("losses").shape == (20,)
    model, _ = build(target, "float64", run / "source")
    given = [case.tree(batch) for batch in case.record["batches"][:2]]
    batches = [
        {n: torch.from_numpy(v.copy()) if hasattr(v, "copy") else v for n, v in batch.items()} for batch in given
    ]
    first = call(model, batches[0], "float64").loss
    first.backward()
    o = case.record["optimizer"]
    with torch.no_grad():
        for parameter in model.parameters():  # bias-corrected moments of the first step are the gradient and its square
            parameter.mul_(1 - o["learning_rate"] * o["weight_decay"])
            parameter.sub_(o["learning_rate"] * parameter.grad / (parameter.grad.abs() + o["eps"]))
        second = call(model, batches[1], "float64").loss
    np.testing.assert_allclose(case.array("losses")[:2], [first.item(), second.item()], rtol=1e-10)


def test_plain_module(net_file, recorded):
    target = {"text": "net", "kind": "module", "path": str(net_file), "module": "small_net", "class_name": "Net"}
    index, run = recorded(target, ["exact", "cache", "gradients", "training", "modules", "dtypes"])
    assert index["facts"]["batch_norm"]
    assert "generate" in index["facts"]["reasons"]["cache"]
    recordings = Recordings(run / "oracle")
    (case,) = recordings.get("training").cases
    start = torch.from_numpy(np.array(case.named("buffers")["bn.running_mean"]))
    model, _ = build(target, "float64", run / "source")
    assert not torch.equal(start, model.bn.running_mean)
    (case,) = recordings.get("modules").cases
    calls = case.record["modules"]
    assert [c["fqn"] for c in calls] == ["conv", "bn", "drop", "head", ""]
    np.testing.assert_array_equal(case.tensors[calls[-1]["outputs"]["output"]], case.outputs["output"])
    (case,) = recordings.get("dtypes").cases
    assert {c["dtypes"]["output"] for c in case.record["modules"]} == {"bfloat16"}


def test_a_source_that_mixes_dtypes_says_so(net_file, recorded):
    """Its tensor of the default dtype meets a bfloat16 weight, which PyTorch refuses: a reason, no error."""
    text = net_file.read_text().replace("self.head(", "self.head(torch.ones(1) + ").replace("class Net", "class Mixed")
    path = net_file.with_name("mixed_net.py")
    path.write_text(text)
    target = {"text": "net", "kind": "module", "path": str(path), "module": "mixed_net", "class_name": "Mixed"}
    index, _ = recorded(target, ["exact", "float32", "bfloat16", "dtypes"])
    assert index["scenarios"] == ["exact", "float32"]
    for name in ("bfloat16", "dtypes"):
        assert index["facts"]["reasons"][name].startswith("PyTorch does not run the source in bfloat16: ")
