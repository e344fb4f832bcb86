"""Containers."""

from maxcode.converter.rule import module
from maxcode.converter.support.container import ModuleDict, ModuleList, ParameterDict, ParameterList, Sequential


@module("torch.nn.Sequential")
def sequential(*args):
    return Sequential(*args)


@module("torch.nn.ModuleList")
def empty_module_list():
    return ModuleList()


@module("torch.nn.ModuleList")
def module_list(modules=None):
    return ModuleList(modules)


@module("torch.nn.ModuleDict")
def module_dict(modules=None):
    return ModuleDict(modules)


@module("torch.nn.ParameterList")
def parameter_list(values=None):
    return ParameterList(values)


@module("torch.nn.ParameterDict")
def parameter_dict(parameters=None):
    return ParameterDict(parameters)
