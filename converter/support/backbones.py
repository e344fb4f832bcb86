"""Backbones: models whose output is the feature maps of some of their stages."""

from typing import Any


def backbone_config(config: Any) -> Any:
    """The configuration of a model's backbone: its `backbone_config`, or the model's own where it has none."""
    found = getattr(config, "backbone_config", None)
    return config if found is None else found


class BackboneMixin:
    """Which stages a backbone gives, by its configuration; the model itself sets `num_features`, channels by stage."""

    config: Any
    num_features: Any

    @property
    def stage_names(self) -> Any:
        """Names of all stages, in order."""
        return self.config.stage_names

    @property
    def out_features(self) -> Any:
        """Names of the stages whose feature maps are returned."""
        return self.config.out_features

    @property
    def out_indices(self) -> Any:
        """Positions of those stages."""
        return self.config.out_indices

    @property
    def out_feature_channels(self) -> dict[str, int]:
        """Channels by stage."""
        return {stage: self.num_features[i] for i, stage in enumerate(self.stage_names)}

    @property
    def channels(self) -> list[int]:
        """Channels of the feature maps that are returned."""
        return [self.out_feature_channels[name] for name in self.out_features]
