"""Tiny random pipelines in diffusers' own form: `python -m tests.diffusion.tiny_pipelines KIND FOLDER`.

Shapes follow the published pipelines (parts, conditioning, packing of latents); sizes are small and odd on purpose.
"""

import sys
from pathlib import Path
from typing import Any

import torch


def _clip(cls: Any, width: int, projection: int) -> Any:
    from transformers import CLIPTextConfig

    sizes = {"hidden_size": width, "intermediate_size": 37, "num_attention_heads": 4, "num_hidden_layers": 3}
    return cls(CLIPTextConfig(vocab_size=99, projection_dim=projection, max_position_embeddings=77, **sizes))


def _vae(channels: int, **options: Any) -> Any:
    from diffusers import AutoencoderKL

    return AutoencoderKL(
        block_out_channels=(32, 64), in_channels=3, out_channels=3, down_block_types=("DownEncoderBlock2D",) * 2,
        up_block_types=("UpDecoderBlock2D",) * 2, latent_channels=channels, norm_num_groups=8, sample_size=32,
        **options,
    )  # fmt: skip


def sdxl() -> Any:
    """U-Net with added text and size conditioning, two text encoders, classifier-free guidance."""
    from diffusers import EulerDiscreteScheduler, StableDiffusionXLPipeline, UNet2DConditionModel
    from transformers import CLIPTextModel, CLIPTextModelWithProjection

    unet = UNet2DConditionModel(
        sample_size=8, in_channels=4, out_channels=4, down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"),
        up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"), block_out_channels=(32, 64), layers_per_block=2,
        attention_head_dim=(2, 4), use_linear_projection=True, addition_embed_type="text_time",
        addition_time_embed_dim=8, transformer_layers_per_block=(1, 2), projection_class_embeddings_input_dim=80,
        cross_attention_dim=64, norm_num_groups=8,
    )  # fmt: skip
    scheduler = EulerDiscreteScheduler(
        beta_start=0.00085, beta_end=0.012, beta_schedule="scaled_linear", timestep_spacing="leading", steps_offset=1
    )
    return StableDiffusionXLPipeline(
        vae=_vae(4), text_encoder=_clip(CLIPTextModel, 32, 32), tokenizer=None, tokenizer_2=None, unet=unet,
        text_encoder_2=_clip(CLIPTextModelWithProjection, 32, 32), scheduler=scheduler,
    )  # fmt: skip


def flux(layers: int = 2, single: int = 3) -> Any:
    """Two streams and one, rotary positions in three axes, guidance as an input, packed latents."""
    from diffusers import FlowMatchEulerDiscreteScheduler, FluxPipeline, FluxTransformer2DModel
    from transformers import CLIPTextModel, T5Config, T5EncoderModel

    transformer = FluxTransformer2DModel(
        patch_size=1, in_channels=16, num_layers=layers, num_single_layers=single, attention_head_dim=16,
        num_attention_heads=2, joint_attention_dim=32, pooled_projection_dim=32, axes_dims_rope=(4, 4, 8),
        guidance_embeds=True,
    )  # fmt: skip
    t5 = T5EncoderModel(T5Config(vocab_size=99, d_model=32, d_kv=8, d_ff=37, num_layers=2, num_heads=4))
    return FluxPipeline(
        scheduler=FlowMatchEulerDiscreteScheduler(use_dynamic_shifting=True, shift=3.0),
        vae=_vae(4, shift_factor=0.0609, scaling_factor=0.3611, use_quant_conv=False, use_post_quant_conv=False),
        text_encoder=_clip(CLIPTextModel, 32, 32), tokenizer=None, text_encoder_2=t5, tokenizer_2=None,
        transformer=transformer,
    )  # fmt: skip


def qwen_image(layers: int = 3) -> Any:
    """Masked text stream, complex rotary tables, a causal 3-D autoencoder, guidance that keeps the norm."""
    from diffusers import (
        AutoencoderKLQwenImage,
        FlowMatchEulerDiscreteScheduler,
        QwenImagePipeline,
        QwenImageTransformer2DModel,
    )
    from transformers import Qwen2_5_VLConfig, Qwen2_5_VLForConditionalGeneration

    transformer = QwenImageTransformer2DModel(
        patch_size=2, in_channels=16, out_channels=4, num_layers=layers, attention_head_dim=16, num_attention_heads=3,
        joint_attention_dim=16, axes_dims_rope=(8, 4, 4),
    )  # fmt: skip
    vae = AutoencoderKLQwenImage(
        base_dim=24, z_dim=4, dim_mult=[1, 2, 4], num_res_blocks=1, temperal_downsample=[False, True],
        latents_mean=[0.1, -0.2, 0.05, 0.3], latents_std=[1.1, 0.9, 1.3, 0.8],
    )  # fmt: skip
    text = {
        "hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2,
        "num_key_value_heads": 2, "vocab_size": 199, "max_position_embeddings": 512,
        "rope_parameters": {"rope_type": "default", "mrope_section": [1, 1, 2], "rope_theta": 1000000.0},
    }  # fmt: skip
    vision = {
        "depth": 2, "hidden_size": 16, "intermediate_size": 16, "num_heads": 2, "out_hidden_size": 16,
        "fullatt_block_indexes": [1],
    }  # fmt: skip
    encoder = Qwen2_5_VLForConditionalGeneration(Qwen2_5_VLConfig(text_config=text, vision_config=vision))
    scheduler = FlowMatchEulerDiscreteScheduler(
        use_dynamic_shifting=True, base_shift=0.5, max_shift=0.9, shift_terminal=0.02, max_image_seq_len=8192
    )
    return QwenImagePipeline(
        scheduler=scheduler, vae=vae, text_encoder=encoder, tokenizer=None, transformer=transformer
    )


KINDS = {"sdxl": sdxl, "flux": flux, "qwen-image": qwen_image}


def write(kind: str, folder: Path, **sizes: Any) -> Path:
    """Build a pipeline with seeded random weights and save it; returns the folder."""
    torch.manual_seed(0)
    pipeline = KINDS[kind](**sizes)
    pipeline.save_pretrained(str(folder), safe_serialization=True)
    return folder


if __name__ == "__main__":
    write(sys.argv[1], Path(sys.argv[2]))
