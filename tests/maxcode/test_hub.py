"""The hub's own loading code, kept quiet."""

from huggingface_hub.utils import are_progress_bars_disabled, logging

from maxcode import hub


def test_the_hub_says_nothing_of_its_own():
    before = logging.get_verbosity(), are_progress_bars_disabled()
    with hub._without_chatter():
        assert logging.get_verbosity() == logging.ERROR
        assert are_progress_bars_disabled()
    assert (logging.get_verbosity(), are_progress_bars_disabled()) == before
