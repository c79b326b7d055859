"""The model that rules look at: what is known of it, and what several rules ask of it.

`Patient` holds what a diagnosis knows. The functions below it tell gates and tables from other
weights, and which of them get a gradient. Those at the end say what a rule may need: each returns
why the patient lacks it, as a clause, or "" where it has it.
"""

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from ...optim.courses import RateCourse
from ...placement.printing import ranges
from ..laws.tried import UNTRIED, Tried
from ..learned import NOT_TRIED, LearningAnswer
from ..measured import ModelMeasurements
from ..observe.parameters import size_of
from ..record import Stack, Sublayer
from ..result import Advice
from ..trace.code_places import NO_PLACES, CodePlaces
from ..trace.forward import NonfiniteWeight, are_trained, joined, norm_parameters


@dataclass(frozen=True, slots=True, kw_only=True)
class Loading:
    """The outcome of loading a checkpoint into the model."""

    missing: tuple[str, ...]
    """Parameters of the model that the checkpoint lacks."""
    unexpected: tuple[str, ...]
    """Tensors of the checkpoint that the model has no place for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Patient:
    """All that rules may look at."""

    model: nn.Module
    stacks: tuple[Stack, ...]
    observed: ModelMeasurements
    dtype: torch.dtype
    """The dtype of the model's weights."""
    optimizer: torch.optim.Optimizer | None = None
    """The user's own, with its parameter groups."""
    loading: Loading | None = None
    """The loading of a checkpoint; None for a model with initial weights."""
    wanted_placement: str | None = None
    """The placement that the model's configuration names, where it names one."""
    clip_norm: float | None = None
    """The number that the norm of the whole gradient is clipped to; inf for no clipping, None where
    that is not known.
    """

    course: RateCourse | None = None
    """The first rates of the user's scheduler."""
    no_course: str = "no scheduler was given"
    """The reason why there are none, as a clause."""
    told_warmup_updates: int | None = None
    """The warm-up that the user gave, whatever a log says."""
    logged_warmup_updates: int | None = None
    """The updates over which the rate of the training's log rises."""
    nonfinite: tuple[NonfiniteWeight, ...] = ()
    """Weights that are infinite or NaN; stacks and measurements are then of a model with 0 in their
    place.
    """
    no_gradient: str = ""
    """The reason why no gradient can be taken of the forward pass, as a clause; "" where one
    was.
    """
    advice: Advice | None = None
    """The advice on its learning rate; None where it was not asked for."""
    tried: Tried = UNTRIED
    """The findings of the laws."""
    learning: LearningAnswer = NOT_TRIED
    """The answer of a trial by training."""
    places: CodePlaces = NO_PLACES
    """The places in the user's code where its modules are built and called."""
    measured: bool = True
    """False where the structure alone is known: `observed` has no numbers then."""
    weights: Mapping[str, Tensor] = field(init=False, repr=False, compare=False)
    """The model's parameters, those with several names under each of them."""
    _sizes: dict[int, float] = field(init=False, repr=False, compare=False, default_factory=dict)
    """The sizes of parameters by `id`, which no rule changes."""
    trained: bool = field(init=False)
    """True where the weights are not as they were drawn: a checkpoint was loaded, or it shows."""

    def __post_init__(self) -> None:
        # Once: rules ask for them hundreds of times, and each time all modules would be gone
        # through.
        object.__setattr__(
            self, "weights", dict(self.model.named_parameters(remove_duplicate=False))
        )
        object.__setattr__(self, "trained", self.loading is not None or are_trained(self.model))

    def size_of(self, weight: Tensor) -> float:
        """Returns the root mean square of the entries of one of the model's parameters, as
        `size_of` has it.

        Several rules ask, and each time all entries would be gone through.
        """
        if id(weight) not in self._sizes:
            self._sizes[id(weight)] = size_of(weight)
        return self._sizes[id(weight)]

    def sublayers(self) -> Iterator[Sublayer]:
        """Returns the sub-layers of all stacks."""
        return (sublayer for stack in self.stacks for sublayer in stack.sublayers)

    @property
    def groups(self) -> list[dict[str, Any]]:
        """Parameter groups of the optimiser; none without one."""
        return [] if self.optimizer is None else self.optimizer.param_groups

    @property
    def peaks(self) -> list[float]:
        """The largest rate of each of these groups; a scheduler that is not given keeps what it
        multiplies beside the present one.
        """
        if self.course is not None and len(self.course.peaks) == len(self.groups):
            return [*self.course.peaks]
        return [float(group.get("initial_lr", group.get("lr") or 0.0)) for group in self.groups]

    @property
    def base_rate(self) -> float | None:
        """The largest rate that the optimiser was built with, and that a scheduler multiplies; None
        without any.
        """
        rates = [group.get("initial_lr") for group in self.groups]
        return max((float(one) for one in rates if one is not None), default=None)

    @property
    def held(self) -> set[int]:
        """The `id`s of the parameters in these groups."""
        return {id(parameter) for group in self.groups for parameter in group["params"]}

    @property
    def was_differentiated(self) -> bool:
        """True where there was a loss with any gradient at all."""
        return any(norm != 0 for norm in self.observed.gradient_norms.values())

    def gets_gradient(self, name: str) -> bool:
        """Tells whether a parameter that asks for a gradient gets one, now or in a later update;
        without a loss it counts as getting one.
        """
        parameter, seen = self.weights.get(name), self.observed
        if parameter is None or not parameter.requires_grad:
            return False
        return (
            not self.was_differentiated
            or seen.gradient_norms.get(name, 0.0) != 0
            or name in seen.opening
        )

    def trained_in(self, of: Sublayer) -> list[str]:
        """Names of the parameters of a sub-layer that ask for a gradient; none where it is
        frozen.
        """
        return [
            name
            for name in of.measured.parameters
            if name in self.weights and self.weights[name].requires_grad
        ]


def is_librarys(model: nn.Module, parameters: Sequence[str]) -> bool:
    """Tells whether an installed package's class makes the module of these parameters, and calls it
    unchanged.

    Such a wiring is what its checkpoints are trained with, and nothing that a user wrote.
    """
    path = parameters[0].rpartition(".")[0] if parameters else ""
    above, _, name = path.rpartition(".")
    while name.isdigit() and isinstance(model.get_submodule(above), nn.ModuleList):
        # One of a row, which the class made that has the row. In a Sequential a user may have put
        # it beside what was there.
        above, _, name = above.rpartition(".")
    owner = model.get_submodule(above)
    made = any(
        name in getattr(vars(one).get("__init__"), "__code__", _NOTHING).co_names
        for one in type(owner).__mro__
    )
    own_forward = "forward" in vars(owner)
    return bool(path) and is_installed(owner) and made and not own_forward


def is_installed(module: nn.Module) -> bool:
    """Tells whether an installed package has the module's class."""
    source = getattr(sys.modules.get(type(module).__module__), "__file__", None) or ""
    return "site-packages" in source


_NOTHING = (lambda: None).__code__


def batches_unseen(model: nn.Module, sublayers: Iterable[Sublayer]) -> bool:
    """Tells whether norms over the batch stand in sub-layers and were given none in training mode:
    in evaluation mode they divide by 1.
    """
    unseen = tuple(
        f"{path}."
        for path, module in model.named_modules()
        if isinstance(module, nn.modules.batchnorm._BatchNorm)
        and module.num_batches_tracked is not None
        and not int(module.num_batches_tracked)
    )
    return bool(unseen) and any(
        name.startswith(unseen) for one in sublayers for name in one.measured.parameters
    )


def gates_at_zero(model: nn.Module, width: int) -> list[str]:
    """Names of trainable parameters that are 0 and may multiply a whole branch.

    Single numbers wherever they are, and vectors of the stream's width, unless they stand beside a
    matrix or beside other parameters that are not 0: biases and the shifts of norms do.
    """
    found = [name for name, p in model.named_parameters() if p.numel() == 1 and _is_trained_zero(p)]
    alone = norm_parameters(model)
    for path, module in model.named_modules():
        own = dict(module.named_parameters(recurse=False))
        if all(joined(path, name) in alone and _is_trained_zero(p) for name, p in own.items()):
            found += [joined(path, name) for name, p in own.items() if p.numel() == width > 1]
    return found


def _is_trained_zero(parameter: nn.Parameter) -> bool:
    return parameter.requires_grad and not bool(parameter.detach().any())


def named(of: Iterable[Any]) -> list[str]:
    """Returns the names, or those of what has one, each once."""
    return list(dict.fromkeys(one if isinstance(one, str) else one.name for one in of))


def listed(of: Iterable[Any], shown: int = 3) -> str:
    """Names for a report, each once; several that are too many and differ in one number alone are
    told by a span of it, as "layers.[0–3, 7].mlp", and what is still too much as "a, b, c and 4
    more"."""
    several = named(of)
    if len(several) > shown:
        several = _spanned(several)
    rest = len(several) - shown
    return ", ".join(several[:shown]) + (f" and {rest} more" if rest > 0 else "")


def numbered(blocks: Sequence[int]) -> str:
    """Names blocks, as in "block 2", or "blocks 2–4"."""
    return f"block{'s' if len(blocks) > 1 else ''} {ranges(list(blocks))}"


def _spanned(names: Sequence[str]) -> list[str]:
    """Names that differ in one number alone are one, with all of these numbers; then again for
    their other numbers.
    """
    several = [tuple(name.split(".")) for name in names]
    for at in range(max(map(len, several), default=0)):
        groups: dict[tuple[str, ...], list[tuple[str, ...]]] = {}
        for parts in several:
            numbered = at < len(parts) and parts[at].isdecimal()
            groups.setdefault(
                (*parts[:at], "*", *parts[at + 1 :]) if numbered else parts, []
            ).append(parts)
        several = []
        for key, found in groups.items():
            numbers = sorted(int(parts[at]) for parts in found) if len(found) > 1 else []
            starts = [number for number in numbers if number - 1 not in numbers]
            ends = [number for number in numbers if number + 1 not in numbers]
            spans = ", ".join(
                f"{a}" if a == b else f"{a}–{b}" for a, b in zip(starts, ends, strict=True)
            )
            several.append((*key[:at], f"[{spans}]", *key[at + 1 :]) if spans else found[0])
    return [".".join(parts) for parts in several]


# What rules need: each gives the reason why the patient lacks it, as a clause, or "" where it has
# it.


def _need(has: Callable[[Patient], bool], reason: str) -> Callable[[Patient], str]:
    return lambda patient: "" if has(patient) else reason


an_optimizer = _need(
    lambda of: of.optimizer is not None, "no optimiser with its parameter groups was given"
)
two_warmups = _need(
    lambda of: (
        sum(
            one is not None for one in (of.course, of.told_warmup_updates, of.logged_warmup_updates)
        )
        > 1
    ),
    "not two of these are known: the warm-up that is meant, the scheduler, and a log of the rate",
)
a_clip = _need(
    lambda of: of.clip_norm is not None, "no norm was given that gradients are clipped to"
)
gradients = _need(lambda of: bool(of.observed.gradient_norms), "no gradients were taken")
logits = _need(lambda of: of.observed.classes is not None, "the output is not known to be logits")
a_known_loss = _need(
    lambda of: of.observed.targets is not None,
    "no cross-entropy of logits with targets of the user's was given",
)
a_checkpoint = _need(lambda of: of.loading is not None, "no checkpoint was loaded")
a_configured_placement = _need(
    lambda of: of.wanted_placement is not None, "no configuration names a placement"
)
initial_weights = _need(lambda of: not of.trained, "the weights have been trained")
trained_weights = _need(lambda of: of.trained, "the weights are as they were drawn")


def a_course(patient: Patient) -> str:
    return patient.no_course if patient.course is None else ""


def a_judged_rate(patient: Patient) -> str:
    if patient.advice is None:
        return "no advice on the learning rate was asked for"
    return "" if patient.advice.wanted_rate is not None else "no learning rate was given"


def a_law(name: str) -> Callable[[Patient], str]:
    """Returns the need of a rule that a law, a field of `Tried`, was tried on the model."""
    return lambda patient: patient.tried.lacking(name)


def a_training(patient: Patient) -> str:
    """Returns why no copy was trained; "" where one was."""
    return patient.learning.reason
