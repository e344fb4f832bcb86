"""Settings of every test: no network, few threads, JAX on the CPU; shared small fixtures."""

import os

import pytest

for _name, _value in {
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "OMP_NUM_THREADS": "1",
    "JAX_PLATFORMS": "cpu",
    "TF_CPP_MIN_LOG_LEVEL": "2",
}.items():
    os.environ.setdefault(_name, _value)


def pytest_addoption(parser):
    """`--update-golden`: write the golden files anew instead of comparing with them; the diff is then reviewed."""
    parser.addoption("--update-golden", action="store_true", help="rewrite tests/golden/*/jax_model.py")


@pytest.fixture
def update_golden(request):
    """Whether to rewrite the golden files."""
    return request.config.getoption("--update-golden")
