"""The files around a package."""

import pytest

from maxcode.package_files import example_call

IDS = {"kind": "ids", "dtype": "int64", "shape": [2, 12], "low": 0, "high": 9}
MASK = {"kind": "mask", "dtype": "int64", "shape": [2, 12]}


@pytest.mark.parametrize(
    ("inputs", "call"),
    [
        ({"input_ids": IDS}, 'outputs = model(input_ids=jnp.zeros((2, 12), "int32"))'),
        ({"m": MASK}, 'outputs = model(m=jnp.ones((2, 12), "int32"))'),
        ([{"shape": [3]}], 'outputs = model(jnp.zeros((3,), "float32"))'),
        ({"x": {"shape": [2]}, "scale": 0.5}, 'outputs = model(x=jnp.zeros((2,), "float32"), scale=0.5)'),
        (
            {"x": {"shape": [2]}, "use_cache": {"kind": "const", "value": False}},
            'outputs = model(x=jnp.zeros((2,), "float32"))',
        ),
        ({"x": {"kind": "list", "items": []}}, ""),
        (None, ""),
    ],
)
def test_the_readme_shows_a_call_that_fits(inputs, call):
    assert example_call({"inputs": inputs}) == call
