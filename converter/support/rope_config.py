"""Rope parameters in one form: `rope_parameters` with `rope_type` and `rope_theta`,
or one such entry per layer type.
"""

from typing import Any, ClassVar

_REQUIRED = {
    "linear": ("factor",),
    "dynamic": ("factor",),
    "yarn": ("factor", "original_max_position_embeddings"),
    "longrope": ("short_factor", "long_factor", "original_max_position_embeddings"),
    "proportional": ("rope_theta",),
}
# A type that scales long wavelengths only; told by its parameters, as it goes by the name of its first model.
_BANDED = ("factor", "original_max_position_embeddings", "low_freq_factor", "high_freq_factor", "rope_theta")


def _required(entry: dict[str, Any]) -> tuple[str, ...]:
    """Parameters that an entry's rope type cannot do without."""
    is_banded = "low_freq_factor" in entry or "high_freq_factor" in entry
    return _BANDED if is_banded else _REQUIRED.get(entry["rope_type"], ())


class RopeConfig:
    """Gather the keys of older files (`rope_theta`, `rope_scaling`, `partial_rotary_factor`) into `rope_parameters`."""

    default_theta: ClassVar[Any] = 10_000.0
    default_rope_type = "default"
    ignore_keys_at_rope_validation: Any = frozenset()
    rope_parameters: Any

    def nested_rope_parameter_keys(self: Any, rope_parameters: dict[str, Any]) -> list[str]:
        """The layer types that have an entry of their own; empty if one entry serves all layers."""
        labels = getattr(self, "_rope_type_labels", None) or getattr(self, "layer_types", None) or ()
        return [key for key in rope_parameters if key in labels]

    def convert_rope_params_to_dict(self: Any, **kwargs: Any) -> dict[str, Any]:
        """Fill `rope_parameters` from older keys; returns the arguments that are left."""
        rope = kwargs.pop("rope_scaling", None) or getattr(self, "rope_parameters", None) or {}
        self.rope_parameters = rope
        defaults = {"rope_theta": kwargs.pop("rope_theta", getattr(self, "rope_theta", self.default_theta))}
        partial = kwargs.pop("partial_rotary_factor", getattr(self, "partial_rotary_factor", None))
        if partial is not None:
            defaults["partial_rotary_factor"] = partial
        for entry in [rope[key] for key in self.nested_rope_parameter_keys(rope)] or [rope]:
            for name, value in defaults.items():
                if entry is not None:
                    entry.setdefault(name, value)
        self.standardize_rope_params()
        return kwargs

    def standardize_rope_params(self: Any) -> None:
        """Give every entry a `rope_type`, a `rope_theta` and, where its type needs one, the original length."""
        rope, theta = getattr(self, "rope_parameters", None) or {}, getattr(self, "rope_theta", None)
        if not (rope or theta):
            return
        nested = self.nested_rope_parameter_keys(rope)
        for entry in [rope[key] for key in nested] if nested else [rope]:
            if entry is not None:
                self._standardize_rope_entry(entry, theta)
                self._set_original_length(entry, is_shared=not nested)
        self.rope_parameters = rope

    def _standardize_rope_entry(self: Any, entry: dict[str, Any], theta: float | None) -> None:
        entry.setdefault("rope_type", entry.get("type", "default"))
        entry.setdefault("rope_theta", theta)
        partial = getattr(self, "partial_rotary_factor", None)
        if partial is not None:
            entry.setdefault("partial_rotary_factor", partial)
        if entry["rope_type"] == "default":
            entry["rope_type"] = self.default_rope_type

    def _set_original_length(self: Any, entry: dict[str, Any], *, is_shared: bool) -> None:
        name = "original_max_position_embeddings"
        if name not in _required(entry):
            return
        if is_shared and hasattr(self, name):  # a field of its own wins over the entry
            entry[name] = getattr(self, name)
        else:
            entry.setdefault(name, self.max_position_embeddings)

    def validate_rope(self: Any, ignore_keys: set[str] | None = None) -> None:
        """Check that every entry has what its type needs; raises KeyError with the missing names.

        `ignore_keys` names what an entry may have beyond that, which nothing here minds.
        """
        rope = getattr(self, "rope_parameters", None)
        if not rope:
            return
        nested = self.nested_rope_parameter_keys(rope)
        for entry in [rope[key] for key in nested] if nested else [rope]:
            if entry is None:
                continue
            kind = entry.setdefault("rope_type", entry.get("type", "default"))
            if missing := [name for name in _required(entry) if name not in entry]:
                raise KeyError(f"rope_parameters of type {kind!r} lack {', '.join(missing)}: {dict(entry)}")
