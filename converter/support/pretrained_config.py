"""What every Hugging Face configuration has besides its own fields: common fields, the keys of older files, rope
parameters in one form, nested and per-layer configurations."""

import dataclasses
import difflib
from collections.abc import Mapping
from typing import Any, ClassVar, Self

from .config_base import Config, config_class, thaw
from .rope_config import RopeConfig

# Settings of `generate` that old configuration files carry; they belong into generation_config.json.
GENERATION_KEYS = frozenset(
    """assistant_confidence_threshold assistant_lookbehind bad_words_ids begin_suppress_tokens diversity_penalty
    do_sample early_stopping encoder_no_repeat_ngram_size encoder_repetition_penalty epsilon_cutoff eta_cutoff
    exponential_decay_length_penalty forced_bos_token_id forced_eos_token_id length_penalty max_length min_length
    no_repeat_ngram_size num_assistant_tokens num_assistant_tokens_schedule num_beam_groups num_beams
    num_return_sequences output_scores remove_invalid_values repetition_penalty return_dict_in_generate
    suppress_tokens target_lookbehind temperature top_k top_p typical_p use_cache""".split()  # noqa: SIM905
)


@dataclasses.dataclass(frozen=True)
class SubConfigSpec:
    """How to build a nested configuration: its class, or classes by `model_type` when the file decides."""

    config_class: Any
    model_type: str = ""
    init_kwargs: dict[str, Any] | None = None
    optional: bool = False

    def create(self, key: str, value: Any) -> Any:
        """The nested configuration for the value of `key` (None, a dictionary or a configuration)."""
        if isinstance(value, Config):
            return value
        if value is None:
            value = self.init_kwargs or {}
        if not isinstance(value, dict):
            raise TypeError(f"{key} is a {type(value).__name__}, expected a dictionary, a configuration or None")
        return self._class(key, value)(**value)

    def _class(self, key: str, value: Mapping[str, Any]) -> Any:
        if not isinstance(self.config_class, Mapping):
            return self.config_class
        model_type = value.get("model_type", self.model_type)
        if model_type not in self.config_class:
            raise ValueError(
                f"{key} is a configuration of type {model_type!r}; this package was converted for "
                f"{', '.join(self.config_class)}; convert again from this configuration"
            )
        return self.config_class[model_type]


class LayerConfigs:
    """The configuration of each layer: indexed by layer number, or by layer type where layers of a type agree."""

    def __init__(self, config: "PreTrainedConfig"):
        self._config = config
        self._overrides = getattr(config, "_per_layer_overrides", {})

    def __len__(self) -> int:
        return self._config.num_hidden_layers

    def __getitem__(self, layer: int | str) -> Any:
        if isinstance(layer, str):
            return self._of_type(layer)
        if not -len(self) <= layer < len(self):
            raise IndexError(f"layer {layer} of {len(self)} layers")
        return self._config._with_layer(self._overrides.get(layer % len(self), {}))

    def _of_type(self, layer_type: str) -> Any:
        types = getattr(self._config, "layer_types", None) or ()
        found = [self._overrides.get(i, {}) for i, name in enumerate(types) if name == layer_type]
        if not found or any(overrides != found[0] for overrides in found):
            raise ValueError(f"no layers of type {layer_type!r} with one configuration; layer_types is {list(types)}")
        return self._config._with_layer(found[0])


@config_class
class PreTrainedConfig(RopeConfig, Config):
    """Fields and derivations common to all configurations; subclasses call `super().__post_init__(**kwargs)`."""

    model_type: ClassVar[str] = ""
    tags_tuples: ClassVar[bool] = False
    sub_configs_defaults: ClassVar[dict[str, Any]] = {}
    layer_type_renames: ClassVar[dict[str, str]] = {}  # names that older files use in `layer_types`

    transformers_version: str | None = None
    architectures: list[str] | None = None
    output_hidden_states: bool | None = False
    return_dict: bool | None = True
    chunk_size_feed_forward: int = 0
    is_encoder_decoder: bool = False
    id2label: dict[int, str] | None = None
    label2id: dict[str, int] | None = None
    problem_type: str | None = None

    def __init_subclass__(cls, **kwargs: Any):
        super().__init_subclass__(**kwargs)
        specs = vars(cls).get("sub_configs_defaults", {}).items()
        if specs:
            cls.sub_configs_defaults = {k: v if isinstance(v, SubConfigSpec) else SubConfigSpec(v) for k, v in specs}

    def __init__(self, **values: Any):
        if values.get("dtype") is None:
            values.pop("dtype", None)
        super().__init__(**values)

    def __post_init__(self, **kwargs: Any):
        for key, spec in self.sub_configs_defaults.items():
            if getattr(self, key) is not None or not spec.optional:
                setattr(self, key, spec.create(key, getattr(self, key)))
        self._set_labels(kwargs.get("num_labels"))
        if hasattr(self, "rope_parameters") or (kwargs.get("rope_scaling") and kwargs.get("rope_theta")):
            kwargs = self.convert_rope_params_to_dict(**kwargs)
        self._name_or_path = str(kwargs.pop("name_or_path", ""))
        self._output_attentions = kwargs.pop("output_attentions", False)
        per_layer_config = kwargs.pop("per_layer_config", None)
        if kwargs.get("model_type") == self.model_type:
            del kwargs["model_type"]
        dropped = ("torch_dtype", "_commit_hash", "attn_implementation", "experts_implementation")
        kwargs = {key: value for key, value in kwargs.items() if key not in GENERATION_KEYS and key not in dropped}
        self.__dict__["_extra_keys"] = tuple(kwargs)
        for key, value in kwargs.items():
            setattr(self, key, value)
        if per_layer_config is not None:
            self.per_layer_config = per_layer_config
        self._rename_layer_types()

    def _set_labels(self, num_labels: int | None) -> None:
        if self.id2label is None:
            given = self.num_labels if num_labels is None else num_labels
            self.num_labels = 2 if given is None else given
        else:
            self.id2label = {int(key): value for key, value in self.id2label.items()}
        if self.problem_type == "single_label_classification" and self.num_labels == 1:
            raise ValueError("problem_type is single_label_classification with 1 label; set num_labels or problem_type")

    def _rename_layer_types(self) -> None:
        for name in ("layer_types", "mtp_layer_types"):
            types = getattr(self, name, None)
            renamed = [self.layer_type_renames.get(kind, kind) for kind in types or ()]
            if types is not None and renamed != list(types):
                setattr(self, name, renamed)

    @property
    def num_labels(self) -> int | None:
        """Number of classes, the length of `id2label`."""
        return None if self.id2label is None else len(self.id2label)

    @num_labels.setter
    def num_labels(self, num_labels: int) -> None:
        if self.id2label is None or self.num_labels != num_labels:
            self.id2label = {i: f"LABEL_{i}" for i in range(num_labels)}
            self.label2id = {label: i for i, label in self.id2label.items()}

    @property
    def output_attentions(self) -> bool:
        """Whether models return attention weights."""
        return self._output_attentions

    @output_attentions.setter
    def output_attentions(self, value: bool) -> None:
        self._output_attentions = value

    @property
    def name_or_path(self) -> str:
        """Where the source was loaded from."""
        return self._name_or_path

    @property
    def use_return_dict(self) -> bool | None:
        """Older name of `return_dict`."""
        return self.return_dict

    @property
    def _attn_implementation(self) -> str:
        return "eager"  # the code path that was converted; `attention` chooses the backend within it

    @_attn_implementation.setter
    def _attn_implementation(self, value: Any) -> None:
        pass  # sources set it on nested configurations; here it cannot differ

    _experts_implementation = _attn_implementation

    @property
    def is_heterogeneous(self) -> bool:
        """Whether layers override fields."""
        return hasattr(self, "_per_layer_overrides")

    @property
    def per_layer_config(self) -> LayerConfigs:
        """The configuration of each layer."""
        return LayerConfigs(self)

    @per_layer_config.setter
    def per_layer_config(self, overrides: Mapping[Any, Mapping[str, Any]] | None) -> None:
        vars(self).pop("_per_layer_overrides", None)
        if overrides is not None:
            self._per_layer_overrides = {int(layer): dict(fields) for layer, fields in overrides.items()}

    def _with_layer(self, overrides: Mapping[str, Any]) -> Self:
        if not self.is_heterogeneous:
            return self
        new = self._draft()
        vars(new).pop("_per_layer_overrides")
        for name, value in {"skip": [], **overrides}.items():
            setattr(new, name, thaw(value))
        new._finish()
        return new

    def get_text_config(self, decoder: bool | None = None, encoder: bool | None = None) -> Any:
        """The nested configuration of the text model, or this one; for flat encoder-decoder configurations one end.

        Raises:
            ValueError: when several nested text configurations qualify.
        """
        both = decoder == encoder
        names = (("text_encoder",) if both or encoder else ()) + (
            ("decoder", "generator", "text_config") if both or decoder else ()
        )
        found = [name for name in names if getattr(self, name, None) is not None]
        if len(found) > 1:
            raise ValueError(f"several text configurations: {', '.join(found)}; take the one that you mean by name")
        if found:
            return getattr(self, found[0])
        return self if both or not self.is_encoder_decoder else self._one_end("decoder" if decoder else "encoder")

    def _one_end(self, prefix: str) -> Self:
        names = {f"{prefix}_layers": "num_hidden_layers", f"{prefix}_attention_heads": "num_attention_heads"}
        new = self._draft()
        for key, value in self._state().items():
            if key.startswith(prefix):
                vars(new).pop(key)
                setattr(new, names.get(key, key[len(prefix) + 1 :]), thaw(value))
        new._finish()
        return new

    def validate_architecture(self) -> None:
        """Heads that fill the embedding; subclasses check more."""
        sizes: list[Any] = [getattr(self, name, None) for name in ("head_dim", "num_heads", "embed_dim")]
        if None not in sizes and sizes[0] * sizes[1] != sizes[2]:
            raise ValueError(f"embed_dim is {sizes[2]}, not head_dim {sizes[0]} times num_heads {sizes[1]}")

    def validate_layer_type(self) -> None:
        """One layer type per layer."""
        types, layers = getattr(self, "layer_types", None), getattr(self, "num_hidden_layers", None)
        if types is not None and layers is not None and len(types) != layers:
            raise ValueError(f"num_hidden_layers is {layers} but layer_types has {len(types)} entries")

    @classmethod
    def from_dict(cls, values: Mapping[str, Any], **overrides: Any) -> Self:
        """Build from a config.json's content; `overrides` win and may be run fields.

        Keys that are no fields become attributes, as in the source. The file's `dtype` says how the checkpoint was
        stored and is not read: pass `dtype=` and `weight_dtype=` to choose.

        Raises:
            TypeError: for an override that neither the class nor the file knows.
        """
        values = {key: value for key, value in values.items() if key not in ("dtype", "torch_dtype")}
        config = super().from_dict(values, **overrides)
        if unknown := [name for name in overrides if name in vars(config)["_extra_keys"] and name not in values]:
            known = [field.name for field in dataclasses.fields(cls)] + list(cls.attribute_map)
            close = difflib.get_close_matches(unknown[0], known, 3)
            hint = f"did you mean {' or '.join(close)}?" if close else f"it has {', '.join(known)}"
            raise TypeError(f"{cls.__name__} has no field {', '.join(unknown)}; {hint}")
        return config

    def to_dict(self) -> dict[str, Any]:
        """The content of a config.json that `from_dict` and the source read."""
        values = {**super().to_dict(), "model_type": type(self).model_type}
        values["output_attentions"] = values.pop("_output_attentions", False)
        if "_per_layer_overrides" in values:
            values["per_layer_config"] = values.pop("_per_layer_overrides")
        return values
