"""Diffusion pipelines: a pipeline class's sampling loop and decoding, as one scan over the converted parts."""
