"""Requests for hidden states reach the forwards that collect them, and their layers record."""

import ast
from pathlib import Path

from maxcode.converter import capture
from maxcode.converter.capture import Recorder
from maxcode.converter.context import Context, Definition
from maxcode.converter.emit import unparse
from maxcode.converter.source import Project

_CODE = """
class Layer(nn.Module):
    def forward(self, x):
        return x

class Base(PreTrainedModel):
    _can_record_outputs = {"hidden_states": %s, "attentions": Attention}

class Encoder(Base):
    def forward(self, x, **kwargs):
        return Record(last_hidden_state=self.layer(x, **kwargs))

class Model(Base):
    @capture_outputs(tie_last_hidden_states=False)
    def forward(self, x, **kwargs):
        return self.encoder(x, **kwargs)

class Net(Base):
    @%s
    def forward(self, x, **kwargs):
        outputs = self.model(x, **kwargs)
        return Record(maps=outputs.hidden_states[1:], hidden_states=outputs.hidden_states)
"""
_TREE = {"": "Net", "model": "Model", "model.encoder": "Encoder", "model.encoder.layer": "Layer"}


def _context(folder: Path, decorator: str = "filter_output_hidden_states", recorder: str = "Layer") -> Context:
    path = folder / "example.py"
    path.write_text(_CODE % (recorder, decorator))
    classes = {
        f"example.{name}": {"mro": [f"example.{name}", "example.Base", "lib.PreTrainedModel"], "attributes": {}}
        for name in ("Net", "Model")
    }
    tree = {fqn: {"class": f"example.{name}"} for fqn, name in _TREE.items()}
    context = Context(Project("example", str(path)), {"classes": classes, "tree": tree}, "example.Net")
    file = context.project.files["example"]
    for node in ast.walk(file.tree):
        node.file = file
        if isinstance(node, ast.Call) and ast.unparse(node.func).startswith("self."):
            name = ast.unparse(node.func).removeprefix("self.").capitalize()
            node.seen = {"callee": [f"module:example.{name}"], "kinds": ["record"]}
        if isinstance(node, ast.FunctionDef):
            capture.mark(node)
            node.decorator_list = []
        if isinstance(node, ast.ClassDef):
            capture.mark_class(node)
    context.definitions = [Definition(name, file, node) for name, node in file.definitions.items()]
    return context


def _texts(context: Context) -> dict[str, str]:
    return {d.name: unparse([d.node]) for d in context.definitions}


def test_a_filter_asks_and_leaves_out_its_own(tmp_path):
    context = _context(tmp_path)
    capture.attach(context)
    texts = _texts(context)
    assert "self.model(x, **kwargs, output_hidden_states=True)" in texts["Net"]
    assert "return Record(maps=outputs.hidden_states[1:])" in texts["Net"]
    assert "@capture_outputs(tie_last_hidden_states=False)" in texts["Model"]
    assert "def forward(self, x, *, output_hidden_states=False, **kwargs):" in texts["Model"]
    assert "@records_output()" in texts["Layer"]
    assert "output_hidden_states" not in texts["Encoder"]
    assert not context.gaps


def test_a_selection_asks_and_keeps_its_own(tmp_path):
    context = _context(tmp_path, "select_hidden_states('layer')")
    capture.attach(context)
    assert "self.model(x, **kwargs, output_hidden_states=layer)" in _texts(context)["Net"]
    assert "hidden_states=outputs.hidden_states)" in _texts(context)["Net"]


def test_a_selection_may_be_computed_from_the_model(tmp_path):
    context = _context(tmp_path, "select_hidden_states(lambda model: [model.first + 1])")
    capture.attach(context)
    assert "self.model(x, **kwargs, output_hidden_states=[self.first + 1])" in _texts(context)["Net"]


def test_nobody_asks(tmp_path):
    context = _context(tmp_path, "auto_docstring")
    capture.attach(context)
    assert not any("capture" in text or "records" in text for text in _texts(context).values())


def test_an_index_and_no_first_input(tmp_path):
    recorder = "OutputRecorder(Layer, index=2, capture_initial_hidden_state=False)"
    context = _context(tmp_path, recorder=recorder)
    capture.attach(context)
    assert "@records_output(2, initial=False)" in _texts(context)["Layer"]


def test_a_place_in_the_model_decides():
    recorder = Recorder("example.Layer", 0, True, "encoder.layers")
    assert recorder.matches(".model.encoder.layers.0", ["example.Layer"])
    assert not recorder.matches(".model.decoder.layers.0", ["example.Layer"])
    assert not recorder.matches(".model.encoder.layers.0", ["example.Other"])
    assert Recorder("Block", 0, True, "").matches(".model.lastBlock", [])


def test_some_layers_of_a_class_are_a_gap(tmp_path):
    context = _context(tmp_path, recorder='OutputRecorder(Layer, layer_name="encoder")')
    context.facts["tree"]["model.head"] = {"class": "example.Layer"}
    capture.attach(context)
    assert {g.code for g in context.gaps} == {"CV114"}
