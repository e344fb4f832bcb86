"""Input embeddings found by name, as the framework finds them."""

import ast

import pytest

from maxcode.converter.context import Context
from maxcode.converter.embeddings import found_module
from maxcode.converter.source import Project

SOURCE = """
class Text:
    pass


class Tower:
    _input_embed_layer = "patches"


class Own:
    def get_input_embeddings(self):
        return self.words


class Net:
    base_model_prefix = "inner"
"""


def find(tmp_path, receiver="self", *, method="get_input_embeddings", **children):
    path = tmp_path / "net.py"
    path.write_text(SOURCE)
    tree = {"": {"class": "net.Net"}} | {k.replace("__", "."): {"class": v} for k, v in children.items()}
    classes = {row["class"]: {"mro": []} for row in tree.values()}
    context = Context(Project("net", str(path)), {"tree": tree, "classes": classes}, "net.Net")
    found = found_module(context, "net.Net", ast.parse(receiver, mode="eval").body, method)
    return found and ast.unparse(found)


LAYER = "torch.nn.Embedding"


@pytest.mark.parametrize(
    ("receiver", "children", "expected"),
    [
        ("self", {"embed_tokens": LAYER}, "self.embed_tokens"),
        ("self", {"model": "net.Text", "model__embed_tokens": LAYER}, "self.model.embed_tokens"),
        ("self", {"language_model": "net.Text", "language_model__embed_tokens": LAYER},
         "self.language_model.embed_tokens"),
        ("self", {"inner": "net.Text", "inner__embed_tokens": LAYER}, "self.inner.embed_tokens"),
        ("self.tower", {"tower": "net.Tower", "tower__embeddings": "net.Text", "tower__embeddings__patches": LAYER},
         "self.tower.embeddings.patches"),
        ("self", {"language_model": "net.Own", "language_model__words": LAYER}, None),
        ("other", {"embed_tokens": LAYER}, None),
    ],
)  # fmt: skip
def test_the_frameworks_search_is_followed(tmp_path, receiver, children, expected):
    assert find(tmp_path, receiver, **children) == expected


@pytest.mark.parametrize(
    ("method", "children", "expected"),
    [
        ("get_decoder", {"decoder": "net.Text"}, "self.decoder"),
        ("get_decoder", {"inner": "net.Text", "inner__decoder": "net.Text"}, "self.inner.decoder"),
        ("get_decoder", {"inner": "net.Text"}, "self.inner"),
        ("get_encoder", {"inner": "net.Text", "inner__encoder": "net.Text"}, "self.inner.encoder"),
        ("get_encoder", {"inner": "net.Text"}, "self"),
    ],
)
def test_encoder_and_decoder_are_found(tmp_path, method, children, expected):
    assert find(tmp_path, method=method, **children) == expected
