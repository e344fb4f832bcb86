import jax, pytest
import jax.numpy as jnp
from tests.golden.harness import both_outputs, convert_text, error_of, load_package if False else both_outputs
