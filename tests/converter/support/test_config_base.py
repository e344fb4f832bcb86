"""Configurations are frozen, hashable, survive JSON, and can be static attributes of a module under jit."""

import copy
import dataclasses
import json
import pickle

import jax
import jax.numpy as jnp
import pytest
from flax import nnx

from maxcode.converter.support.config_base import RUN_FIELDS, Config, FrozenDict, FrozenList, config_class, freeze, thaw
from maxcode.converter.support.pretrained_config import PreTrainedConfig, SubConfigSpec


@config_class
class Part(PreTrainedConfig):
    model_type = "part"
    width: int = 4


@config_class
class Whole(PreTrainedConfig):
    model_type = "whole"
    attribute_map = {"hidden_size": "width", "renamed": "other"}  # noqa: RUF012
    sub_configs_defaults = {"part": Part, "pick": SubConfigSpec({"part": Part}, "part", optional=True)}  # noqa: RUF012
    layer_type_renames = {"old": "new"}  # noqa: RUF012

    width: int = 8
    num_hidden_layers: int = 2
    max_position_embeddings: int = 64
    layer_types: list[str] | None = None
    rope_parameters: dict | None = None
    limits: tuple = (0.0, float("inf"))
    part: Part | dict | None = None
    pick: Part | dict | None = None

    def __post_init__(self, **kwargs):
        if self.layer_types is None:
            self.layer_types = ["new"] * self.num_hidden_layers
        self.other = self.width * 2
        super().__post_init__(**kwargs)
        self.part.width = self.width  # a whole may change what it holds until it is done


@config_class
class Plain(Config):
    size: int
    names: list = dataclasses.field(default_factory=lambda: ["a"])


def test_fields_aliases_and_derived_values():
    config = Whole(width=5)
    assert (config.width, config.hidden_size, config.renamed, config.part.width) == (5, 5, 10, 5)
    assert Whole(hidden_size=5).width == 5
    assert Whole(hidden_size=5).other == 16  # the source, too, sets aliases after its derivations
    assert config.pick is None
    assert dataclasses.is_dataclass(config)
    assert {"width", "dtype", "id2label"} <= {field.name for field in dataclasses.fields(config)}
    assert not hasattr(config, "nothing")


def test_nothing_can_be_changed():
    config = Whole(rope_theta=5.0)
    for change in (
        lambda: setattr(config, "width", 1),
        lambda: setattr(config, "new_name", 1),
        lambda: setattr(config.part, "width", 1),
        lambda: delattr(config, "width"),
    ):
        with pytest.raises(dataclasses.FrozenInstanceError):
            change()
    for change in (
        lambda: config.layer_types.append("x"),
        lambda: config.layer_types.__setitem__(0, "x"),
        lambda: config.rope_parameters.update(a=1),
        lambda: config.rope_parameters.pop("rope_type"),
    ):
        with pytest.raises(TypeError, match=r"config\.replace"):
            change()


def test_frozen_values_behave_like_lists_and_dictionaries():
    value = freeze({"a": [1, [2, 3]], "b": {"c": (4, {5})}})
    assert value == {"a": [1, [2, 3]], "b": {"c": (4, frozenset({5}))}}
    assert isinstance(value, dict)
    assert isinstance(value["a"], list)
    assert value["a"] + [9] == [1, [2, 3], 9]
    assert hash(value["a"][:1]) == hash(FrozenList([1]))
    assert hash(value) == hash(freeze(thaw(value)))
    assert type(thaw(value)["a"]) is list
    assert pickle.loads(pickle.dumps(value)) == copy.deepcopy(value) == value
    assert json.loads(json.dumps(FrozenDict(x=FrozenList([1])))) == {"x": [1]}


def test_equality_and_hash_follow_the_values():
    assert Whole() == Whole()
    assert hash(Whole()) == hash(Whole())
    assert Whole() != Whole(width=3)
    assert Whole() != Whole(part={"width": 8, "extra": 1})
    assert Whole() != Whole(dtype="bfloat16")
    assert len({Whole(), Whole(), Whole(layer_types=["new", "x"])}) == 2


def test_replace_sets_what_is_asked_and_derives_nothing():
    config = Whole(width=3)
    changed = config.replace(width=7, dtype="bfloat16")
    assert (changed.width, changed.other, changed.part.width) == (7, 6, 3)
    assert changed.part.dtype == "bfloat16"
    assert (config.width, config.part.dtype) == (3, "float32")
    assert config.replace(num_labels=3).id2label == {0: "LABEL_0", 1: "LABEL_1", 2: "LABEL_2"}
    with pytest.raises(TypeError, match="widht"):
        config.replace(widht=1)


def test_json_round_trip_keeps_infinity_and_run_fields(tmp_path):
    config = Whole.from_dict({"width": 3, "unknown": {"k": [1]}}, scan_layers=False, matmul_precision="highest")
    text = config.to_json(tmp_path / "config.json")
    assert "Infinity" in text
    assert json.loads(text)["run"] == {"scan_layers": False, "matmul_precision": "highest"}
    assert json.loads(text)["limits"] == [0.0, {"__float__": "Infinity"}]
    again = Whole.from_json(tmp_path / "config.json")
    assert again.run_fields() == config.run_fields()
    assert again.unknown == {"k": [1]}
    assert again.limits == [0.0, float("inf")]
    assert "run" not in Whole().to_dict()


def test_stored_dtype_of_the_file_is_not_the_compute_dtype():
    assert Whole.from_dict({"dtype": "float16", "torch_dtype": "float16"}).dtype == "float32"
    assert Whole.from_dict({"part": {"dtype": "float16"}}, dtype="bfloat16").part.dtype == "bfloat16"


def test_misspelt_override_is_refused_with_a_hint():
    with pytest.raises(TypeError, match="did you mean num_hidden_layers"):
        Whole.from_dict({}, num_hiden_layers=3)
    assert Whole.from_dict({"extra": 1}, extra=2).extra == 2


def test_plain_configuration_needs_and_knows_its_fields():
    with pytest.raises(TypeError, match="'size'"):
        Plain()
    with pytest.raises(TypeError, match=r"no field zise; it has .*size"):
        Plain(size=1, zise=2)
    assert Plain(size=1).names == ["a"]
    assert Plain.from_dict(Plain(size=2, dtype="bfloat16").to_dict()) == Plain(size=2, dtype="bfloat16")
    assert set(Plain(size=1).to_dict()) == {"size", "names"}


def test_older_layer_types_labels_and_wrong_counts():
    assert Whole(layer_types=["old", "new"]).layer_types == ["new", "new"]
    assert Whole(num_labels=3).label2id == {"LABEL_0": 0, "LABEL_1": 1, "LABEL_2": 2}
    assert Whole(id2label={"0": "x"}).num_labels == 1
    with pytest.raises(ValueError, match="2 but layer_types has 1"):
        Whole(layer_types=["new"])
    with pytest.raises(KeyError, match="factor"):
        Whole(rope_scaling={"type": "linear"})


def test_nested_values_of_wrong_kinds_are_refused():
    with pytest.raises(ValueError, match=r"pick is a configuration of type 'other'.*part"):
        Whole(pick={"model_type": "other"})
    with pytest.raises(TypeError, match="part is a int"):
        Whole(part=3)
    assert Whole(pick={}).pick == Part()


def test_configurations_of_single_layers():
    config = Whole(per_layer_config={"1": {"width": 2}}, layer_types=["new", "x"])
    assert [config.per_layer_config[i].width for i in (0, 1, -1)] == [8, 2, 2]
    assert config.per_layer_config["x"].width == 2
    assert Whole.from_dict(config.to_dict()).per_layer_config[1].width == 2
    with pytest.raises(IndexError):
        config.per_layer_config[2]
    with pytest.raises(ValueError, match="'none'"):
        config.per_layer_config["none"]


def test_text_configuration_of_flat_encoder_decoders():
    @config_class
    class Ends(PreTrainedConfig):
        is_encoder_decoder: bool = True
        encoder_layers: int = 2
        decoder_layers: int = 3
        decoder_ffn_dim: int = 4

    config = Ends()
    assert config.get_text_config() is config
    assert config.get_text_config(decoder=True).num_hidden_layers == 3
    assert config.get_text_config(decoder=True).ffn_dim == 4
    assert config.get_text_config(encoder=True).num_hidden_layers == 2


def test_static_attribute_of_a_module_under_jit():
    class Net(nnx.Module):
        def __init__(self, config):
            self.config, self.types = config, config.layer_types
            self.scale = nnx.Param(jnp.ones(config.width))

        def __call__(self, x):
            return x * self.scale[...] if self.config.layer_types[0] == "new" else x

    traces = []

    @jax.jit
    def run(state, x, graph):
        traces.append(1)
        return nnx.merge(graph, state)(x)

    run = jax.jit(run.__wrapped__, static_argnums=2)
    for _ in range(2):
        graph, state = nnx.split(Net(Whole()))
        assert run(state, jnp.ones(8), graph).shape == (8,)
    assert len(traces) == 1  # equal configurations share one compilation


def test_run_fields_are_the_documented_ones():
    assert RUN_FIELDS == {
        "dtype": "float32", "weight_dtype": "float32", "matmul_precision": "default", "scan_layers": True,
        "remat_policy": "none", "attention": "eager", "experts": "auto",
    }  # fmt: skip
