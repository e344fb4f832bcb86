"""The last resort for a second configuration: as many layers, twice the inner width."""

from transformers import DepthAnythingConfig, Dinov2Config, ViTConfig

from maxcode.evaluator.oracle import tiny


def test_layers_that_are_named_by_number_stay_and_the_inner_width_doubles():
    backbone = Dinov2Config(num_hidden_layers=4, hidden_size=8, num_attention_heads=2, mlp_ratio=2, out_indices=[1, 2])
    *_, last = tiny.grown(DepthAnythingConfig(backbone_config=backbone))
    assert last.backbone_config.mlp_ratio == 4
    assert last.backbone_config.num_hidden_layers == 4


def test_more_layers_come_first():
    found = list(tiny.grown(ViTConfig(num_hidden_layers=2, intermediate_size=16)))
    assert found[0].num_hidden_layers > 2
    assert (found[-1].num_hidden_layers, found[-1].intermediate_size) == (2, 32)
