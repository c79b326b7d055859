"""The role of each parameter of a model, and the rate and decay that a role may have of its own;
and what clipping leaves of a group's rate: an update whose gradient is always clipped is that of a
smaller one.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import inf, sqrt
from typing import Any, Literal, get_args

from torch import nn

Role = Literal["embedding", "matrix", "norm", "gate", "bias", "head"]
ROLES: tuple[Role, ...] = get_args(Role)
_HEADS = ("lm_head", "head", "classifier", "score", "output_projection", "qa_outputs", "cls")
"""Modules that turn last hidden states into logits, by the names that public models give them."""


def roles(model: nn.Module) -> dict[str, Role]:
    """Returns the role of every parameter, by its name in `model.named_parameters()`.

    A module says it of its own parameters where it has an attribute `role`. Without one: embedding
    of tables of rows; norm of gains and shifts; bias of what a matrix's output is shifted by; head
    of a matrix in a module that is called as heads are; matrix of any other with two dimensions and
    more; and gate of every other number or vector. A parameter that two modules share, such as a
    tied table, has the role that it has in the first.
    """
    owners = dict(model.named_modules())
    found: dict[str, Role] = {}
    for name, parameter in model.named_parameters():
        owner, _, own = name.rpartition(".")
        found[name] = _role(owners[owner], owner, own, parameter.ndim)
    return found


def _role(module: nn.Module, path: str, name: str, dimensions: int) -> Role:
    declared = getattr(module, "role", None)
    if isinstance(module, nn.Embedding) or declared == "embedding":
        return "embedding"
    # Models of other libraries have norms of their own, and call them so.
    if "norm" in type(module).__name__.lower() or declared == "norm":
        return "norm"
    if name.endswith("bias"):
        return "gate" if declared == "gate" else "bias"
    if declared is not None:
        of: Role = declared
        return of
    if dimensions < 2:
        return "gate"
    return "head" if path.rpartition(".")[2] in _HEADS else "matrix"


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupConfig:
    """The parameters of one role."""

    lr_factor: float = 1.0
    """Times the rate of all; 0 keeps them where they start."""
    weight_decay: float | Literal["shared"] = "shared"
    """shared (that of the optimiser), or a number of their own."""

    def __post_init__(self) -> None:
        if not 0 <= self.lr_factor < float("inf"):
            raise ValueError(f"lr_factor must be 0 or more, and finite, got {self.lr_factor}")
        # A name that is none fails here too: it is no number.
        decay = 0.0 if self.weight_decay == "shared" else float(self.weight_decay)
        if not 0 <= decay < float("inf"):
            raise ValueError(
                f"weight_decay must be shared, or 0 or more and finite, got {self.weight_decay}"
            )


_NO_DECAY = GroupConfig(weight_decay=0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupsConfig:
    """The settings by role. Nobody means a decay to pull gains, gates and biases to 0: they have
    none unless asked for.
    """

    embedding: GroupConfig = GroupConfig()
    """Tables of rows, of tokens and of learned positions; tied to the output where that is tied."""
    matrix: GroupConfig = GroupConfig()
    """The matrices of attention and feed-forward."""
    norm: GroupConfig = _NO_DECAY
    """Gains and shifts of norms."""
    gate: GroupConfig = _NO_DECAY
    """The own numbers of a placement's formula: scales, gates, mixing weights."""
    bias: GroupConfig = _NO_DECAY
    head: GroupConfig = GroupConfig()
    """Matrices between the last hidden states and a loss."""


DECAY_EVERYWHERE = GroupsConfig(norm=GroupConfig(), gate=GroupConfig(), bias=GroupConfig())
"""One group in all but name: what an optimiser does that is given all parameters of a model at
once.
"""


def parted(
    weights: Mapping[str, nn.Parameter],
    of: Mapping[str, Role],
    groups: GroupsConfig,
    *,
    peak_lr: float,
    weight_decay: float,
) -> list[dict[str, Any]]:
    """Returns the parameter groups as torch's optimisers take them, one for each role that occurs,
    with `role` and `lr_factor`.

    weights, of: parameters and their roles by name. Every parameter stands in one group.
    """
    found = []
    for role in ROLES:
        members = [weight for name, weight in weights.items() if of[name] == role]
        own: GroupConfig = getattr(groups, role)
        if members:
            decay = weight_decay if own.weight_decay == "shared" else own.weight_decay
            settings = {"lr": peak_lr * own.lr_factor, "weight_decay": decay}
            found.append({"params": members, "role": role, "lr_factor": own.lr_factor, **settings})
    return found


_OWN_KEYS = {"params", "lr_factor", "weight_decay"}


def given_groups(
    model: nn.Module,
    given: Iterable[Mapping[str, Any]],
    groups: GroupsConfig,
    *,
    peak_lr: float,
    weight_decay: float,
) -> list[dict[str, Any]]:
    """Groups of the caller's own, each of `params` and where wanted `lr_factor` and `weight_decay`;
    others as `parted`.

    Raises ValueError for a group that is none, and for a parameter that is not the model's or
    stands in two.
    """
    names = {weight: name for name, weight in model.named_parameters()}
    of = roles(model)
    found = list[dict[str, Any]]()
    taken = set[nn.Parameter]()
    for group in given:
        if not isinstance(group, Mapping) or "params" not in group or not group.keys() <= _OWN_KEYS:
            has = (
                f"the keys {', '.join(map(str, group))}"
                if isinstance(group, Mapping)
                else type(group).__name__
            )
            raise ValueError(
                "a group is a dict of params, a list of parameters, and where wanted lr_factor, a "
                f"multiple of the experiment's rate, and weight_decay; got {has}"
            )
        members = list(group["params"])
        for weight in members:
            if weight not in names or weight in taken:
                what = "is in two groups" if weight in taken else "is no parameter of the model"
                raise ValueError(f"{names.get(weight, 'what a group holds')} {what}")
            taken.add(weight)
        settings = GroupConfig(
            lr_factor=group.get("lr_factor", 1.0), weight_decay=group.get("weight_decay", "shared")
        )
        one = GroupsConfig(**dict.fromkeys(ROLES, settings))
        mine = {names[weight]: weight for weight in members}
        found += parted(mine, of, one, peak_lr=peak_lr, weight_decay=weight_decay)
    rest = {name: weight for weight, name in names.items() if weight not in taken}
    return found + parted(rest, of, groups, peak_lr=peak_lr, weight_decay=weight_decay)


HIDDEN = 1000.0
"""Times by which the gradient exceeds the clip, or the rate the one that its updates have, before
it is worth saying. Recipes clip to 1 where gradients start at 1 to 30; three decades are no choice
of a recipe."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Clipping:
    """One update with gradient clipping. Raises ValueError for numbers that are not positive."""

    gradient_norm: float
    """The norm of the whole gradient, before it is clipped; inf for one that overflowed."""
    clip_norm: float
    """Largest norm that the gradient keeps; inf for no clipping."""
    rate: float
    epsilon: float | None
    """Added to the gradient's own size by optimisers that divide by it, such as Adam; 0 for those
    that divide without, such as Lion. None for optimisers whose update grows with the gradient,
    such as SGD."""
    entries: int = 1
    """Numbers that the gradient has: with `epsilon`, what a typical one of them is."""

    def __post_init__(self) -> None:
        for name in ("gradient_norm", "clip_norm", "rate", "entries"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be positive, got {getattr(self, name)}")
        if self.epsilon is not None and not 0 <= self.epsilon < inf:
            raise ValueError(f"epsilon must be 0 or more, got {self.epsilon}")

    @property
    def factor(self) -> float:
        """The factor of the gradient; 1 where it is not clipped."""
        return min(1.0, self.clip_norm / self.gradient_norm)

    @property
    def effective_rate(self) -> float:
        """The rate at which an update of this size is made without clipping.

        With SGD it falls with the factor. With Adam it stays, until the typical entry of the
        clipped gradient falls to `epsilon`, which is exact where all entries are equal (Kingma & Ba
        2015, arXiv:1412.6980, algorithm 1).
        """
        if self.epsilon is None:
            return self.rate * self.factor
        typical = self.gradient_norm / sqrt(self.entries)
        if self.epsilon == 0 or typical == inf:
            return self.rate
        return (
            self.rate
            * self.factor
            * (typical + self.epsilon)
            / (self.factor * typical + self.epsilon)
        )

    @property
    def is_far_below(self) -> bool:
        """True where the clip is a thousand times below the gradient."""
        return self.factor * HIDDEN <= 1

    @property
    def hides_rate(self) -> bool:
        """True where the updates are those of a rate a thousand times smaller."""
        return self.effective_rate * HIDDEN <= self.rate


def epsilon_of(group: Mapping[str, Any]) -> float | None:
    """`Clipping.epsilon` of an optimiser's parameter group, from the settings that it has.

    What has an ε, or two decays (Lion), or bounds of its steps (Rprop), divides by the gradient's
    own size.
    """
    if "eps" in group:
        return float(group["eps"])
    return 0.0 if {"betas", "etas"} & group.keys() else None
