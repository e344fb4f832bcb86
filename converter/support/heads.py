"""What model heads share."""

from jaxtyping import Array


def slice_logits_to_keep(hidden_states: Array, logits_to_keep: int | Array = 0) -> Array:
    """Keep the last `logits_to_keep` positions (0 keeps all) of hidden states [b, t, e], or the given ones."""
    if isinstance(logits_to_keep, int):
        return hidden_states[:, -logits_to_keep:] if logits_to_keep else hidden_states
    return hidden_states[:, logits_to_keep]
