"""A package as the evaluator holds it."""

from types import ModuleType

import jax.numpy as jnp

from maxcode.evaluator.package import _lift_defaults

TEXT = """
import jax.numpy as jnp
float32 = jnp.float32

def table(n, dtype=float32, *, other=float32, scale=2):
    return dtype, other, scale

class Net:
    @classmethod
    def make(cls, dtype=float32):
        return dtype

    def run(self, x=jnp.float16):
        return x
"""


def test_lifting_reaches_defaults_that_were_bound_at_import():
    module = ModuleType("lifted_module")
    exec(TEXT, vars(module))
    _lift_defaults(module)
    assert module.table(1) == (jnp.float64, jnp.float64, 2)
    assert module.Net.make() is jnp.float64
    assert module.Net().run() is jnp.float16
