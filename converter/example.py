"""Examples that a pass carries: its documentation, and its tests (tests/converter/passes/test_examples.py)."""

import textwrap
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Example:
    """What a pass turns a piece of source into.

    Args:
      before: definitions of a file that imports torch, `nn` and `F`. A comment `# x: tensor` says what the run saw of
        every `x`: a kind, for tensors also `tensor[2]` (the rank) or `tensor[bool]` (the dtype). Parameters may be
        annotated instead.
      after: the same definitions after the pass.
      attributes: kinds of the instances' attributes, by class and name.
      gap: the code of the gap that must be recorded, if any.
    """

    before: str
    after: str
    attributes: dict[str, dict[str, list[str]]] = field(default_factory=dict)
    gap: str = ""

    def texts(self) -> tuple[str, str]:
        """Both texts, dedented."""
        return textwrap.dedent(self.before).strip(), textwrap.dedent(self.after).strip()


def unchanged(code: str, gap: str = "") -> Example:
    """Code that a pass leaves alone."""
    return Example(code, code, gap=gap)
