"""Arguments that a decorator takes from the configuration are written out."""

import ast

from maxcode.converter.defaults import merge_defaults


def test_an_argument_that_is_not_given_comes_from_the_configuration():
    function = ast.parse('''
@merge_with_config_defaults
def forward(self, x, vision_feature_layer=None):
    """What it does."""
    return x, vision_feature_layer
''').body[0]
    merge_defaults(function)
    function.decorator_list = []
    space: dict = {}
    exec(ast.unparse(function), space)
    owner = type("Owner", (), {"config": type("Config", (), {"vision_feature_layer": -2})})
    assert space["forward"](owner, 1) == (1, -2)
    assert space["forward"](owner, 1, 3) == (1, 3)


def test_others_stay():
    function = ast.parse("def forward(self, vision_feature_layer=None):\n    return 1").body[0]
    before = ast.unparse(function)
    merge_defaults(function)
    assert ast.unparse(function) == before
