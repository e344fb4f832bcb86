"""What is left of a loop's statements once plumbing is gone."""

import ast
import textwrap

from maxcode.converter.diffusion.prune import Prune


def pruned(source, known=None, parts=(), values=(), bound=()):
    body = ast.parse(textwrap.dedent(source)).body
    found = Prune(known or {}, set(parts), set(values), set(bound)).run(body)
    return "\n".join(ast.unparse(statement) for statement in found)


def test_callbacks_and_progress_go():
    source = """
    if callback is not None:
        latents = callback(latents)
    with self.model.cache_context("cond"):
        y = self.model(x)
    if i == 3 or i % 2 == 0:
        progress_bar.update()
    self._current_timestep = t
    """
    assert pruned(source, {"callback": None}, {"model"}) == "y = self.model(x)"


def test_a_name_that_the_loop_binds_is_not_folded():
    source = "if done is None:\n    x = 1\ndone = f(x)"
    assert pruned(source, {"done": None}, bound={"done"}) == source


def test_branches_of_devices_fold_away():
    source = """
    if latents.dtype != kept:
        if torch.backends.mps.is_available():
            latents = latents.to(kept)
    wide = self.vae.dtype == torch.float16 and self.vae.config.force
    if wide:
        x = 2
    else:
        x = 1
    y = x.to(self.vae.dtype)
    """
    assert pruned(source, parts={"vae"}) == "x = 1\ny = x"


def test_values_of_the_pipeline_become_names():
    assert pruned("y = a + self.scale * self.model(b)", parts={"model"}, values={"scale"}) == (
        "y = a + scale * self.model(b)"
    )


def test_an_empty_branch_turns_its_test():
    assert pruned("if a:\n    progress_bar.update()\nelse:\n    x = 1") == "if not a:\n    x = 1"
