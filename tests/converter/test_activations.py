"""Tables of activations: classes are called at once, and the entry with a weight stays a layer."""

import ast
from types import SimpleNamespace

from maxcode.converter.activations import made_activation, weighted_activation


def _read(text: str, *names: str, home: str = "transformers.activations") -> ast.expr:
    node = ast.parse(text, mode="eval").body
    file = SimpleNamespace(qualify=lambda name: f"{home}.{name}")
    for child in ast.walk(node):
        child.file = file
    node.seen = {"kinds": ["module"], "names": [f"module:{name}" for name in names]}
    return node


def test_a_class_that_is_made_is_the_function():
    assert ast.unparse(made_activation(_read("ACT2CLS[act]()"))) == "ACT2CLS[act]"
    assert made_activation(_read("ACT2CLS[act](0.1)")) is None
    assert made_activation(_read("ACT2CLS[act]()", home="package.tables")) is None
    assert made_activation(_read("TABLE[act]()")) is None


def test_the_one_with_a_weight_is_chosen_by_name():
    node = _read("ACT2FN[config.act]", "torch.nn.modules.activation.PReLU", "torch.nn.modules.activation.ReLU")
    assert ast.unparse(weighted_activation(node)) == "nn.PReLU() if config.act == 'prelu' else ACT2FN[config.act]"
    assert weighted_activation(_read("ACT2FN[config.act]", "torch.nn.modules.activation.ReLU")) is None
    assert weighted_activation(_read("TABLE[config.act]", "torch.nn.modules.activation.PReLU")) is None
