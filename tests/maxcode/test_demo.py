"""The demo and the bench: their own arithmetic here; on the real models (PyPI packages) where marked slow."""

import json
import os
import subprocess
import sys
import types
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file
from typer.testing import CliRunner

from maxcode import bench, bench_figures, demo, embeddings
from maxcode.bench_figures import Figure, beside, differing
from maxcode.embeddings import Agreement
from maxcode.errors import MaxCodeError
from maxcode.two_sides import minilm, sides, smollm

ROOT = Path(__file__).resolve().parents[2]
THREADS = 1


class Scripted:
    """A side that gives prepared answers."""

    def __init__(self, **answers):
        self.answers = answers

    def ask(self, command, **fields):
        return self.answers[command]


def both_sides(torch_tokens, tokens, loaded=()):
    ours = Scripted(encode={"tokens": [1]}, generate={"tokens": [tokens], "seconds": 2.0, "loaded": list(loaded)})
    return types.SimpleNamespace(torch=Scripted(generate={"tokens": [torch_tokens], "seconds": 4.0}), package=ours)


def test_answers_hold_every_token():
    torch, ours = demo.ask(both_sides([5, 6], [5, 7]), "?")
    assert (torch.tokens, ours.tokens) == ((5, 6), (5, 7))
    assert (torch.seconds, ours.seconds) == (4.0, 2.0)


def test_a_package_process_with_torch_in_it_is_refused():
    with pytest.raises(MaxCodeError, match="torch"):
        demo.ask(both_sides([5], [5], loaded=["torch"]), "?")


def test_nearest_is_never_the_text_itself():
    assert embeddings.nearest(np.array([[1.0, 0], [0.9, 0.1], [0, 1]])) == (1, 0, 1)


def test_pooling_leaves_padding_out():
    hidden = np.array([[[3.0, 4.0], [100.0, 0.0]]])
    np.testing.assert_allclose(embeddings.pool(hidden, [[1, 0]]), [[0.6, 0.8]])


@pytest.mark.parametrize(
    ("cosine", "nearest", "holds"), [(0.9999991, (1, 0), True), (0.999998, (1, 0), False), (1.0, (0, 1), False)]
)
def test_agreement_needs_cosine_and_neighbours(cosine, nearest, holds):
    assert Agreement(cosine, (1, 0), nearest).holds is holds


def test_ratios_are_of_medians():
    figure = beside("x", 0.65, [(1.0, 0.5), (2.0, 1.0), (100.0, 0.6)])
    assert figure.value == pytest.approx(0.3)
    assert figure.holds


def test_limits_work_both_ways():
    assert Figure("a", 4.9, 5, "", at_most=False).holds is False
    assert Figure("a", 4.9, 5, "").holds is True


def test_differing_names_changed_and_missing_files(tmp_path):
    for side, content in (("one", b"1"), ("two", b"2")):
        (tmp_path / side / "report").mkdir(parents=True)
        for name in ("same", "report/timings"):
            (tmp_path / side / name).write_bytes(b"=" if name == "same" else content)
        (tmp_path / side / "changed").write_bytes(content)
    (tmp_path / "one" / "extra").write_bytes(b"")
    assert differing(tmp_path / "one", tmp_path / "two") == ["changed", "extra"]


def test_bench_refuses_unknown_figures():
    result = CliRunner().invoke(_app(bench.main), ["--only", "nothing"])
    assert result.exit_code == 2
    assert "nothing" in result.output


def _app(function):
    import typer

    app = typer.Typer()
    app.command()(function)
    return app


@pytest.fixture(scope="module")
def conversions(tmp_path_factory):
    """Both real models, converted; the encoder twice."""
    root = tmp_path_factory.mktemp("real")
    source = minilm(root / "source")
    made = {
        "chat": (smollm(), root / "chat"),
        "encoder": (source, root / "encoder"),
        "again": (source, root / "b" / "encoder"),
    }
    return {name: demo.convert(target, output, gate=False)[0] for name, (target, output) in made.items()}


@pytest.mark.slow
def test_real_chat_model_gives_the_same_64_greedy_tokens(conversions, tmp_path):
    with sides(conversions["chat"], THREADS, tmp_path) as both:
        torch, ours = demo.ask(both, demo.QUESTION)
        text = both.package.ask("decode", tokens=ours.tokens)["text"]
    assert len(ours.tokens) == 64
    assert ours.tokens == torch.tokens
    assert text.startswith("The capital of France is Paris.")


@pytest.mark.slow
def test_real_tokenizer_and_template_are_transformers_own(conversions, tmp_path):
    from transformers import AutoTokenizer

    gguf = smollm()
    theirs = AutoTokenizer.from_pretrained(str(gguf.parent), gguf_file=gguf.name)
    messages = [{"role": "user", "content": demo.QUESTION}]
    expected = theirs.apply_chat_template(messages, add_generation_prompt=True, return_dict=False)
    with sides(conversions["chat"], THREADS, tmp_path) as both:
        assert both.package.ask("encode", question=demo.QUESTION)["tokens"] == expected


@pytest.mark.slow
def test_real_embeddings_agree(conversions, tmp_path):
    with sides(conversions["encoder"], THREADS, tmp_path) as both:
        found = embeddings.compare(both, embeddings.tokenize(conversions["encoder"]))
    assert found.holds, found
    assert found.nearest == (1, 0, 3, 2, 5, 4, 7, 6, 9, 8)


@pytest.mark.slow
def test_real_conversions_are_byte_identical(conversions):
    assert differing(conversions["encoder"], conversions["again"]) == []


@pytest.mark.slow
def test_real_weights_go_back_byte_for_byte(conversions, tmp_path):
    command = [sys.executable, "-m", "maxcode.cli", "checkpoint", "to-hf", str(conversions["encoder"])]
    subprocess.run([*command, "-o", str(tmp_path / "hf"), "--quiet"], check=True, cwd=ROOT)
    source = conversions["encoder"].parent / "source" / "model.safetensors"
    back, original = load_file(tmp_path / "hf" / "model.safetensors"), load_file(source)
    assert back.keys() == original.keys()
    assert all(back[name].tobytes() == original[name].tobytes() for name in original)
    waived = json.loads((conversions["encoder"] / "weights.json").read_text())["waived"]
    assert all(entry["reason"] for entry in waived)


@pytest.mark.slow
def test_real_compile_time_hardly_grows_with_layers(conversions, tmp_path):
    setting = bench_figures.Setting(conversions["chat"], tmp_path, len(os.sched_getaffinity(0)), 3)
    [figure] = bench_figures.compile_growth(setting)
    assert figure.holds, figure
