"""The second part of the demo: a sentence encoder's embeddings, by PyTorch and by the converted package."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float
from tokenizers import Tokenizer

from maxcode.two_sides import Sides

SENTENCES = (
    "A cat sleeps on the warm windowsill.",
    "The kitten naps in the sun by the window.",
    "Interest rates were raised by a quarter point.",
    "The central bank made borrowing more expensive.",
    "She plays the violin in an orchestra.",
    "He practises the piano every evening.",
    "Water boils at a lower temperature on a mountain.",
    "At high altitude, pasta takes longer to cook.",
    "The train to Lyon leaves at noon.",
    "When is the next departure for Lyon?",
)

Embeddings = Float[np.ndarray, "texts width"]


@dataclass(frozen=True)
class Agreement:
    """How far two sets of embeddings agree: the lowest cosine, and each text's nearest other text on both sides."""

    cosine: float
    torch_nearest: tuple[int, ...]
    nearest: tuple[int, ...]

    @property
    def same_neighbours(self) -> bool:
        return self.nearest == self.torch_nearest

    @property
    def holds(self) -> bool:
        """The issue's limit: cosine >= 0.999999 and the same neighbours."""
        return self.cosine >= 0.999999 and self.same_neighbours


def tokenize(folder: Path, sentences: tuple[str, ...] = SENTENCES) -> dict[str, list[list[int]]]:
    """A padded batch of token ids, mask and types, by the folder's tokenizer.json."""
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.enable_padding()
    tokenizer.no_truncation()
    rows = tokenizer.encode_batch(list(sentences))
    return {
        "input_ids": [row.ids for row in rows],
        "attention_mask": [row.attention_mask for row in rows],
        "token_type_ids": [row.type_ids for row in rows],
    }


def pool(hidden: Float[np.ndarray, "texts t width"], mask: list[list[int]]) -> Embeddings:
    """Mean over the tokens that the mask keeps, normalised."""
    keep = np.asarray(mask)[..., None]
    mean = (hidden.astype(np.float64) * keep).sum(1) / keep.sum(1)
    return mean / np.linalg.norm(mean, axis=1, keepdims=True)


def compare(both: Sides, inputs: dict[str, Any]) -> Agreement:
    """Embeddings of the same tokens on both sides."""
    arrays = {name: np.asarray(rows, np.int64) for name, rows in inputs.items()}
    outputs, _, _ = both.torch.call("forward", arrays, dtype="float32", lifted=False)
    expected = pool(outputs["last_hidden_state"], inputs["attention_mask"])
    actual = np.asarray(both.package.ask("embed", inputs=inputs)["embeddings"])
    return Agreement(float((expected * actual).sum(1).min()), nearest(expected), nearest(actual))


def nearest(embeddings: Embeddings) -> tuple[int, ...]:
    """The index of each row's most similar other row."""
    similarity = embeddings @ embeddings.T
    np.fill_diagonal(similarity, -np.inf)
    return tuple(int(i) for i in similarity.argmax(1))
