"""Names that a source works out while it runs are spelled as the run saw them, and only where every run agrees."""

import ast
from types import SimpleNamespace

from maxcode.converter.dynamic import built_class, spelled_assignment, spelled_attribute

_AUTO = "transformers.models.auto.auto_factory._BaseAutoModelClass.from_config"


def _call(text: str, *literals: str) -> ast.Call:
    node = ast.parse(text, mode="eval").body
    if literals:
        node.args[1].seen = {"kinds": ["str"], "literals": list(literals)}
    return node


def _file(names: dict | None = None) -> SimpleNamespace:
    file = SimpleNamespace(imports=dict(names or {}), definitions={})
    file.qualify = file.imports.get
    return file


def _dispatch(file: SimpleNamespace, *names: str) -> ast.Call:
    node = _call("AutoModel.from_config(config, dtype=dtype)")
    node.seen, node.file = {"callee": [_AUTO], "kinds": ["module"], "names": list(names)}, file
    return node


def test_an_attribute_of_one_name_is_spelled():
    assert ast.unparse(spelled_attribute(_call("getattr(self, self.prefix)", "model"))) == "self.model"
    assert ast.unparse(spelled_attribute(_call("getattr(self, 'model')"))) == "self.model"


def test_an_attribute_of_several_names_a_default_or_no_identifier_is_left():
    assert spelled_attribute(_call("getattr(self, name)", "first", "second")) is None
    assert spelled_attribute(_call("getattr(self, name, None)", "first")) is None
    assert spelled_attribute(_call("getattr(self, name)", "0")) is None
    assert spelled_attribute(_call("getattr(self, name)")) is None


def test_an_assignment_of_one_name_is_spelled():
    call = _call("setattr(self, self.prefix, Body(width))", "model")
    assert ast.unparse(spelled_assignment(ast.Expr(call))) == "self.model = Body(width)"
    assert spelled_assignment(ast.Expr(_call("setattr(self, name, x)", "a", "b"))) is None


def test_a_dispatched_class_is_the_one_that_was_built():
    file = _file()
    made = built_class(_dispatch(file, "module:package.modeling.Model"))
    assert ast.unparse(made) == "Model(config)"
    assert file.imports == {"Model": "package.modeling.Model"}
    assert made.seen["callee"] == ["package.modeling.Model"]


def test_a_dispatch_with_several_classes_or_a_taken_name_is_left():
    assert built_class(_dispatch(_file(), "module:a.Model", "module:b.Model")) is None
    assert built_class(_dispatch(_file({"Model": "other.Model"}), "module:a.Model")) is None
    plain = _dispatch(_file(), "module:a.Model")
    plain.seen["callee"] = ["a.Builder.from_config"]
    assert built_class(plain) is None
