"""Output records: pytrees with the manners of the source's output objects."""

import jax
import jax.numpy as jnp
import pytest

from maxcode.converter.support.records import output_record


@output_record
class Output:
    """An output."""

    loss: jax.Array | None = None
    logits: jax.Array | None = None
    hidden_states: tuple[jax.Array, ...] | None = None


@output_record
class Longer(Output):
    aux: jax.Array


def test_fields_that_are_none_do_not_count():
    out = Output(logits=jnp.ones(2), hidden_states=(jnp.zeros(1),))
    assert list(out.keys()) == list(out) == ["logits", "hidden_states"]
    assert out[0] is out.logits is out["logits"]
    assert out.to_tuple() == (out.logits, out.hidden_states) == out[:2]
    assert len(out) == 2
    assert "loss" not in out
    assert "logits" in out
    assert out.get("loss", 3) == 3
    with pytest.raises(KeyError, match="no value for 'loss'"):
        out["loss"]


def test_records_are_pytrees():
    out = jax.jit(lambda x: Output(logits=x + 1))(jnp.ones(2))
    assert isinstance(out, Output)
    assert out.loss is None
    assert out.logits.tolist() == [2, 2]
    assert len(jax.tree.leaves(out)) == 1
    assert jax.tree.map(lambda x: x * 2, out).logits.tolist() == [4, 4]
    assert out.replace(loss=jnp.zeros(())).keys() == ["loss", "logits"]
    assert (Output.__doc__, Output.__module__) == ("An output.", __name__)


def test_records_extend():
    out = Longer(aux=jnp.ones(1), loss=jnp.zeros(()))
    assert out.keys() == ["loss", "aux"]
    assert isinstance(out, Output)
    assert len(jax.tree.leaves(out)) == 2
    assert Longer().to_tuple() == ()
