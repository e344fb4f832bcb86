"""Dtypes of roots and exponentials by the module that computes them."""

import torch
from torch import nn
from torch.nn import functional as F

from maxcode.evaluator.oracle.operations import Operations


class Norm(nn.Module):
    def __init__(self, upcast):
        super().__init__()
        self.upcast = upcast

    def forward(self, x):
        wide = x.float() if self.upcast else x
        return (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)).to(x.dtype)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = Norm(True), Norm(False)

    def forward(self, x):
        x = self.second(self.first(x))
        weights = F.softmax(x, dim=-1, dtype=torch.float32).to(x.dtype)
        return F.gelu(weights) + F.gelu(x, approximate="tanh") + F.softplus(x.float()).to(x.dtype) + x.sigmoid_()


def test_dtypes_are_recorded_by_innermost_module_and_family():
    model, x = Net(), torch.randn(2, 8, dtype=torch.bfloat16)
    with Operations(model) as watched:
        model(x)
    assert watched.record() == {
        "": {
            "erf": ["bfloat16"], "exp": ["bfloat16", "float32"], "log": ["float32"], "tanh": ["bfloat16"],
        },
        "first": {"root": ["float32"]},
        "second": {"root": ["bfloat16"]},
    }  # fmt: skip


def test_hooks_are_gone_after_the_run():
    model = Net()
    with Operations(model):
        pass
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())


def test_what_is_widened_on_purpose_is_counted_by_size():
    model, x = Net(), torch.randn(2, 8, dtype=torch.bfloat16)
    with Operations(model) as watched:
        model(x)
    # the norm that upcasts; softmax with a dtype, and the cast before softplus
    assert watched.widened() == {"": {"16": 2}, "first": {"16": 1}}
