"""Optimizers with torch's names and arguments: parameter groups on the host, an optax transformation per group.

optimizer = AdamW(parameters(model), lr=3e-4)
state = optimizer.apply(grads, state, hyperparameters)  # inside jit
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import optax

from .optim_adam import adam, adamw
from .optim_sgd import sgd
from .parameters import Parameter

_TRACED = ("lr",)  # what schedulers change: an argument of the compiled step; the others are part of it


@jax.tree_util.register_pytree_with_keys_class
@dataclass(frozen=True)
class Hyperparameters:
    """Numbers of every group for one step: `traced` ones are arguments, `static` ones (name, value) are compiled in."""

    traced: tuple[dict[str, Any], ...]
    static: tuple[tuple[tuple[str, Any], ...], ...]

    def tree_flatten_with_keys(self) -> Any:
        """Children and static part, for jax."""
        return [(jax.tree_util.GetAttrKey("traced"), self.traced)], self.static

    @classmethod
    def tree_unflatten(cls, static: Any, children: Any) -> "Hyperparameters":
        """The inverse, for jax."""
        return cls(children[0], static)

    def of(self, group: int) -> dict[str, Any]:
        """The keywords of one group's rule."""
        return {**dict(self.static[group]), **self.traced[group]}


class Group(dict[str, Any]):
    """One parameter group; `changed` names what was set after it was made, so that it is an argument from then on."""

    def __init__(self, values: Mapping[str, Any]):
        super().__init__(values)
        self.changed: set[str] = set()

    def __setitem__(self, name: str, value: Any) -> None:
        if self.get(name) != value:
            self.changed.add(name)
        super().__setitem__(name, value)


class Optimizer:
    """Base of the optimizers; `rule` makes the optax transformation from a group's hyperparameters.

    Attributes:
      param_groups: as torch's: "params" and one entry per hyperparameter, which schedulers and users may change.
      state: (moments, gradients, key, step) between two training loops, None before the first; see train_state.py.
    """

    rule: Callable[..., optax.GradientTransformationExtraArgs]

    def __init__(self, params: Iterable[Any], **defaults: Any):
        self.defaults = defaults
        self.param_groups: list[Group] = []
        self.state: Any = None
        given = list(params)
        if not given:
            raise ValueError(f"{type(self).__name__}: no parameters were given")
        for group in given if isinstance(given[0], dict) else [{"params": given}]:
            self.add_param_group(group)

    def add_param_group(self, group: Mapping[str, Any]) -> None:
        """Add a group; what it does not say has the optimizer's defaults.

        Raises:
          ValueError: a parameter is in two groups, or the optimizer has run already.
        """
        if self.state is not None:
            raise ValueError(f"{type(self).__name__}: parameters cannot be added after the first step")
        members = group["params"]
        members = [members] if isinstance(members, Parameter) else list(members)
        members = [m[1] if isinstance(m, tuple) else m for m in members]
        known = {p.place for g in self.param_groups for p in g["params"]}
        if twice := [p.name for p in members if p.place in known]:
            raise ValueError(f"{type(self).__name__}: {twice[:3]} are in two parameter groups")
        self.param_groups.append(Group({**self.defaults, **group, "params": members}))

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget gradients that an earlier loop has added up."""
        if self.state is not None:
            self.state = (*self.state[:1], None, *self.state[2:])

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint keeps: the numbers of the groups, and the arrays of the moments in order."""
        moments, _, _, step = self.state or (None, None, None, None)
        groups = [{k: v for k, v in g.items() if k != "params"} for g in self.param_groups]
        return {"state": {"moments": jax.tree.leaves(moments), "step": step}, "param_groups": groups}

    def hyperparameters(self) -> Hyperparameters:
        """The numbers of the next step."""
        traced, static = [], []
        for group in self.param_groups:
            arguments = {n for n in self.defaults if n in _TRACED or n in group.changed}
            traced.append({n: group[n] for n in sorted(arguments) if not isinstance(group[n], bool | str | None)})
            rest = sorted(set(self.defaults) - set(traced[-1]))
            static.append(tuple((name, _hashable(group[name])) for name in rest))
        return Hyperparameters(tuple(traced), tuple(static))

    def places(self, variables: Mapping[int, int]) -> tuple[tuple[tuple[int, tuple[int, ...] | None], ...], ...]:
        """Per group, (number of the leaf, its slices or None for all of it); `variables` numbers leaves by variable."""
        return tuple(self._places(group, variables) for group in self.param_groups)

    def _places(self, group: Group, variables: Mapping[int, int]) -> tuple[tuple[int, tuple[int, ...] | None], ...]:
        slices: dict[int, list[Any]] = {}
        for parameter in group["params"]:
            variable, index = parameter.place
            if variable in variables:
                slices.setdefault(variables[variable], []).append((index, parameter))
        found = []
        for number, members in slices.items():
            whole = members[0][0] is None or len(members) == members[0][1].variable.get_raw_value().shape[0]
            found.append((number, None if whole else tuple(sorted(i for i, _ in members))))
        return tuple(sorted(found, key=lambda place: place[0]))

    def init(self, params: Any, places: Any, hyper: Hyperparameters) -> tuple[Any, ...]:
        """The state of every group's transformation for the tree `params`."""
        leaves = jax.tree.leaves(params)
        rules = [type(self).rule(**hyper.of(i)) for i in range(len(places))]
        return tuple(rule.init(_part(leaves, own)) for rule, own in zip(rules, places, strict=True))

    def apply(self, grads: Any, state: tuple[Any, ...], params: Any, places: Any, hyper: Hyperparameters) -> Any:
        """Parameters and state after one step; arguments are trees like the model's trained parameters."""
        leaves, structure = jax.tree.flatten(params)
        gradients, states = jax.tree.leaves(grads), []
        for number, (own, before) in enumerate(zip(places, state, strict=True)):
            values = hyper.of(number)
            part = _part(leaves, own)
            updates, after = type(self).rule(**values).update(_part(gradients, own), before, part, **values)
            states.append(after)
            for (leaf, rows), new in zip(own, optax.apply_updates(part, updates), strict=True):
                leaves[leaf] = new if rows is None else leaves[leaf].at[jnp.array(rows)].set(new)
        return jax.tree.unflatten(structure, leaves), tuple(states)


def _part(leaves: list[Any], places: Any) -> list[Any]:
    return [leaves[i] if rows is None else leaves[i][jnp.array(rows)] for i, rows in places]


def _hashable(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


class SGD(Optimizer):
    """torch.optim.SGD."""

    rule = staticmethod(sgd)

    def __init__(
        self, params: Iterable[Any], lr: float = 1e-3, momentum: float = 0.0, dampening: float = 0.0,
        weight_decay: float = 0.0, nesterov: bool = False, *, maximize: bool = False,
    ):  # fmt: skip
        hyper = {"lr": lr, "momentum": momentum, "dampening": dampening, "weight_decay": weight_decay}
        super().__init__(params, **hyper, nesterov=nesterov, maximize=maximize)


class Adam(Optimizer):
    """torch.optim.Adam."""

    rule = staticmethod(adam)

    def __init__(
        self, params: Iterable[Any], lr: float = 1e-3, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8,
        weight_decay: float = 0.0, amsgrad: bool = False, *, maximize: bool = False,
        decoupled_weight_decay: bool = False,
    ):  # fmt: skip
        hyper = {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "amsgrad": amsgrad}
        super().__init__(params, **hyper, maximize=maximize, decoupled_weight_decay=decoupled_weight_decay)


class AdamW(Optimizer):
    """torch.optim.AdamW."""

    rule = staticmethod(adamw)

    def __init__(
        self, params: Iterable[Any], lr: float = 1e-3, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8,
        weight_decay: float = 1e-2, amsgrad: bool = False, *, maximize: bool = False,
    ):  # fmt: skip
        hyper = {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "amsgrad": amsgrad}
        super().__init__(params, **hyper, maximize=maximize)
