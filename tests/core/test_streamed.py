"""Models larger than memory: the exact check runs them layer by layer."""

import sys

import jax
import numpy as np
import pytest
from flax import nnx

from maxcode.evaluator.checks import exact
from maxcode.evaluator.checks.registry import Context
from maxcode.evaluator.package import DoesNotFit, Package, Runner, cast_floats
from maxcode.evaluator.streamed import StreamedRunner
from tests.core import stored

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")
NAMES = {"llama": "a stack that scans", "t5": "two stacks, and a tied table", "bert": "no cache"}


@pytest.fixture(scope="module", params=NAMES)
def package(request, tmp_path_factory):
    """The package of one type, and the inputs of its first case."""
    name, folder = request.param, tmp_path_factory.mktemp(request.param)
    stored.write_package(name, stored.conversion_of(name, f"streamed_{name}"), folder, f"streamed_{name}")
    (case, *_) = stored.load(name)["cases"]
    inputs = {key: np.asarray(value, dtype) for key, (value, dtype) in case["inputs"].items()}
    yield Package(folder / "package", folder / "source"), cast_floats(inputs, np.float64)
    for module in [m for m in sys.modules if m.partition(".")[0] == f"streamed_{name}"]:
        del sys.modules[module]


def test_streamed_equals_whole(package):
    found, inputs = package
    with jax.enable_x64(True):
        found.lift()
        overrides = found.overrides("float64")
        whole, streamed = Runner(found.build(**overrides))(inputs), StreamedRunner(found, "float64")(inputs)
    assert whole.keys() == streamed.keys()
    for name, value in whole.items():
        np.testing.assert_allclose(streamed[name], value, rtol=1e-11, atol=1e-13)


def test_one_layer_is_held_at_a_time(package, monkeypatch):
    found, inputs = package
    with jax.enable_x64(True):
        runner = StreamedRunner(found, "float64")
        layers, most = runner.layers.values(), 0
        assert len(layers) > 1
        fill = runner.weights.fill

        def counted(variables):
            nonlocal most
            fill(variables)
            most = max(most, sum(is_held(layer) for layer in layers))

        monkeypatch.setattr(runner.weights, "fill", counted)
        runner(inputs)
    assert most == 1
    assert not any(map(is_held, layers))


def is_held(layer: list[nnx.Variable]) -> bool:
    return any(not isinstance(variable.get_value(), jax.ShapeDtypeStruct) for variable in layer)


def test_exact_streams_what_does_not_fit_and_other_checks_say_so(package, monkeypatch, tmp_path):
    found, _ = package
    monkeypatch.setattr("maxcode.evaluator.package.room_for_weights", lambda: 1000)
    context = Context(found, None, found.source, tmp_path / "results.json")
    found._models.clear()
    with jax.enable_x64(True):
        assert isinstance(exact.lifted_runner(context), StreamedRunner)
    with pytest.raises(DoesNotFit, match="GiB of weights"):
        found.build(**found.overrides("float32"))
