"""Reading and choosing entries."""

import json
from collections import Counter

import pytest

from maxcode.atlas.entries import read_atlas, sample, select
from maxcode.errors import MaxCodeError
from tests.maxcode.atlas.conftest import entry_line


def test_the_packaged_atlas_is_whole():
    entries = read_atlas()
    assert len(entries) == 500
    assert len({entry.slug for entry in entries}) == 500
    assert {"causal-lm", "encoder", "seq2seq", "vision", "vision-text", "audio", "other"} == {e.family for e in entries}


def test_a_target_has_class_configuration_and_inputs(atlas_file):
    config = {"hidden_size": 8, "limits": [{"__float__": "-Infinity"}, 1.0]}
    (entry,) = read_atlas(atlas_file("some", config=config))
    target = entry.target()
    assert (target.type, target.class_name, target.config_class) == ("some", "SomeModel", "SomeConfig")
    assert target.config == {"hidden_size": 8, "limits": [float("-inf"), 1.0]}
    assert target.weights == "noise"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "holds no entry"),
        ("{", "atlas.jsonl:1: not JSON"),
        ("[1]", "an entry without id"),
        (json.dumps({"id": "a"}), "an entry without model_type, family"),
        (json.dumps(entry_line("a")) + "\n\n" + json.dumps(entry_line("a")), "atlas.jsonl:3: id 'a:AModel' a second"),
    ],
)
def test_what_is_no_atlas_is_refused(tmp_path, text, said):
    path = tmp_path / "atlas.jsonl"
    path.write_text(text)
    with pytest.raises(MaxCodeError, match=said):
        read_atlas(path)


def test_a_missing_file_is_refused(tmp_path):
    with pytest.raises(MaxCodeError, match="cannot be read"):
        read_atlas(tmp_path / "none.jsonl")


def test_filters_choose_by_field_and_pattern():
    entries = read_atlas()
    assert {e.family for e in select(entries, ["family=audio,other"])} == {"audio", "other"}
    chosen = [e.id for e in select(entries, ["id=llama*:*", "family=causal-lm"])]
    assert "llama:LlamaForCausalLM" in chosen
    assert all(name.startswith("llama") for name in chosen)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("audio", "expected field=value"),
        ("familly=audio", "no field 'familly' \\(did you mean 'family'"),
        ("family=none", "keeps no entry"),
    ],
)
def test_a_filter_that_cannot_be_meant_is_refused(text, said):
    with pytest.raises(MaxCodeError, match=said):
        select(read_atlas(), [text])


def test_a_sample_has_all_families_in_proportion_and_does_not_change():
    entries = read_atlas()
    chosen = sample(entries, 60)
    assert len(chosen) == 60
    assert chosen == sample(list(reversed(entries)), 60)[::-1]
    counts = Counter(e.family for e in chosen)
    for family, number in Counter(e.family for e in entries).items():
        assert abs(counts[family] - number * 60 / len(entries)) <= 1
    assert {e.id for e in sample(entries, 30)} <= {e.id for e in chosen}
    assert len(sample(entries[:5], 60)) == 5
