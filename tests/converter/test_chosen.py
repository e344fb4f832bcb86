"""Keywords that a choice between two dictionaries gives become a choice between two calls."""

import ast

import pytest

from maxcode.converter.chosen import choose_keywords

_HEAD = "def f(x, size):\n    options = {'scale': 2} if size is None else {'size': size}\n"


def _rewritten(code: str) -> str:
    function = ast.parse(code).body[0]
    choose_keywords(function)
    return ast.unparse(function)


def test_a_choice_of_keywords_is_a_choice_of_calls():
    found = _rewritten(_HEAD + "    return resize(x, **options, mode='a')")
    assert "return resize(x, scale=2, mode='a') if size is None else resize(x, size=size, mode='a')" in found
    assert "options" not in found


@pytest.mark.parametrize(
    "rest",
    [
        "    size = size * 2\n    return resize(x, **options)",  # what it is made of changes
        "    options['mode'] = 'a'\n    return resize(x, **options)",
        "    return resize(x, **options), len(options)",
        "    options = {}\n    return resize(x, **options)",
        "    return resize(x, options)",
    ],
)
def test_a_dictionary_that_may_be_another_is_left(rest):
    assert _rewritten(_HEAD + rest) == ast.unparse(ast.parse(_HEAD + rest))
