"""Dropout layers."""

from maxcode.converter.rule import module
from maxcode.converter.support.layers import (
    AlphaDropout,
    Dropout,
    Dropout1d,
    Dropout2d,
    Dropout3d,
    FeatureAlphaDropout,
)


@module("torch.nn.Dropout")
def dropout(p=0.5, inplace=False):
    return Dropout(p)


@module("torch.nn.Dropout1d")
def dropout1d(p=0.5, inplace=False):
    return Dropout1d(p)


@module("torch.nn.Dropout2d")
def dropout2d(p=0.5, inplace=False):
    return Dropout2d(p)


@module("torch.nn.Dropout3d")
def dropout3d(p=0.5, inplace=False):
    return Dropout3d(p)


@module("torch.nn.AlphaDropout")
def alpha_dropout(p=0.5, inplace=False):
    return AlphaDropout(p)


@module("torch.nn.FeatureAlphaDropout")
def feature_alpha_dropout(p=0.5, inplace=False):
    return FeatureAlphaDropout(p)
