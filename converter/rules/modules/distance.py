"""Layers of two inputs without weights: similarity and distance of vectors."""

from dataclasses import dataclass

from maxcode.converter.rule import helper, module
from maxcode.converter.rules.ops.normalization import cosine_similarity, pairwise_distance


@helper
@dataclass(frozen=True)
class CosineSimilarity:
    """The cosine of the angle between vectors along an axis."""

    dim: int = 1
    eps: float = 1e-8

    def __call__(self, x1, x2):
        return cosine_similarity(x1, x2, self.dim, self.eps)


@module("torch.nn.CosineSimilarity")
def cosine_similarity_layer(dim=1, eps=1e-8):
    return CosineSimilarity(dim=dim, eps=eps)


@helper
@dataclass(frozen=True)
class PairwiseDistance:
    """The p-norm of the differences along the last axis."""

    p: float = 2.0
    eps: float = 1e-6
    keepdim: bool = False

    def __call__(self, x1, x2):
        return pairwise_distance(x1, x2, self.p, self.eps, self.keepdim)


@module("torch.nn.PairwiseDistance")
def pairwise_distance_layer(p=2.0, eps=1e-6, keepdim=False):
    return PairwiseDistance(p=p, eps=eps, keepdim=keepdim)
