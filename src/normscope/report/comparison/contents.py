"""The content of a comparison's page, as plain values: the caller measures and judges, this room
draws and writes.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from ..words import TonedWords, short_name
from .targets import TOKENS, TargetWords


class Status(StrEnum):
    """The status of one run."""

    FINISHED = "finished"
    NON_FINITE = "non-finite"
    """A run that stopped at a value that is not finite."""
    DECIDED = "decided"
    """A run that was stopped early, at chance for as many validations as the rule asks for; its
    message says so.
    """
    RUNNING = "running"
    UNFINISHED = "unfinished"
    """A run that was stopped, and that its command resumes."""
    MISSING = "missing"
    """Nothing of it is there."""
    FAILED = "failed"
    """A run whose process ended without finishing it."""

    @property
    def has_loss(self) -> bool:
        """True where the run is judged by its last validation loss."""
        return self in (Status.FINISHED, Status.DECIDED)


@dataclass(frozen=True, slots=True)
class Name:
    """The name of a configuration, which also decides how it is drawn, the same in every figure of
    a page.
    """

    group: str
    """The placement: the hue and the rows of pictures."""
    variant: str = ""
    """The other property that distinguishes it, such as its warm-up: dash and marker."""

    def __post_init__(self) -> None:
        # Placements and optimisers of the user's own have names of their own.
        object.__setattr__(self, "group", short_name(self.group))
        object.__setattr__(self, "variant", short_name(self.variant))

    def __str__(self) -> str:
        return f"{self.group}, {self.variant}" if self.variant else self.group


@dataclass(frozen=True, slots=True, order=True)
class BlockPlace:
    """A place in a model: the block's number, from 1, in the stack of that name."""

    stack: str
    number: int

    def __str__(self) -> str:
        return f"{self.stack} {self.number}".strip()


@dataclass(frozen=True, slots=True, kw_only=True)
class RunCurve:
    """One quantity over updates, once per seed."""

    name: Name
    updates: Sequence[int]
    seeds_values: Sequence[Sequence[float]]
    """One row a seed, aligned with the start of `updates`. A shorter row ended early; a row whose
    last value is not finite was stopped by it and gets a cross. A non-finite value with finite ones
    after it is a gap."""

    def __post_init__(self) -> None:
        longest = max((len(row) for row in self.seeds_values), default=0)
        if longest > len(self.updates):
            raise ValueError(
                f"curve {self.name}: a seed has {longest} values for {len(self.updates)} updates"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class GradientProfile:
    """Gradient norm of each block, once per seed."""

    names: Sequence[Name]
    """The configurations that it is of: those that differ in their schedule alone start with the
    same gradients.
    """
    blocks: Sequence[BlockPlace]
    """The blocks in order of depth, stack by stack; lines are not drawn across stacks."""
    seeds_norms: Sequence[Sequence[float]]
    update: int = 0
    """The update at which it was measured; 0 is before the first update."""

    def __post_init__(self) -> None:
        if not self.names:
            raise ValueError("a profile is of one configuration or several, and this is of none")
        for row in self.seeds_norms:
            if len(row) != len(self.blocks):
                raise ValueError(
                    f"profile {self.name}: a seed has {len(row)} norms for {len(self.blocks)} "
                    "blocks"
                )

    @property
    def name(self) -> Name:
        """The first of its configurations, whose look it has."""
        return self.names[0]

    @property
    def label(self) -> str:
        """All of them: "Post-LN, no warm-up; warm-up 200"."""
        variants: dict[str, list[str]] = {}
        for name in self.names:
            variants.setdefault(name.group, []).append(name.variant)
        groups = [str(Name(group, "; ".join(own))) for group, own in variants.items()]
        return "; ".join(groups)


@dataclass(frozen=True, slots=True, kw_only=True)
class SeedResult:
    """The end of one run; None stands for what was not measured."""

    seed: int
    status: Status
    updates: int
    valid_loss_nats: float | None = None
    scores: Mapping[str, float] = field(default_factory=dict)
    """The scores by the heading of their column, such as "BLEU, test"."""
    accuracy: float | None = None
    """The share of right answers at the last validation, of a classification."""
    summed_lr: float
    """The cumulative learning rate: the sum over all updates that the run made."""
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedConfiguration:
    """One row of the comparison: the same setting, run once per seed."""

    name: Name
    warmup_updates: int
    peak_lr: float
    optimizer: str
    seeds: Sequence[SeedResult]
    verdict: TonedWords
    summary: str
    """One sentence with its number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RateSensitivity:
    """Learning-rate sensitivity (Wortsman et al. 2023, arXiv:2309.14322), in nats per target
    token.
    """

    value: float
    low: float
    """NaN for one seed, as `high` is."""
    high: float
    best_lr: float
    """The rate with the lowest mean loss."""
    seeds: int
    replaced: int
    """The number of runs that counted as the loss at initialisation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RateCurve:
    """The final loss over the rate of what is the same but for rate and seed."""

    name: Name
    peak_lrs: Sequence[float]
    """Rising."""
    seeds: Sequence[int]
    seeds_losses: Sequence[Sequence[float]]
    """A row a seed, aligned with `peak_lrs`; NaN for a run that has not come to its end. A run that
    diverged, or ended worse than it began, has its loss at initialisation."""
    seeds_replaced: Sequence[Sequence[bool]]
    """True for each loss that is replaced by the one at initialisation."""
    initial_nats: Sequence[float]
    """For each seed, the loss at initialisation: of its first batch, before the first update. NaN
    where not known.
    """
    sensitivity: RateSensitivity | None
    summary: str
    """One sentence with the sensitivity, or why there is none, and with the best rate."""
    vertex_lr: float = math.nan
    """The best rate by a parabola through the mean losses; NaN where the lowest is at an end, or
    there are fewer than three rates."""
    vertex_low: float = math.nan
    """Ends of its 95 % interval over resamples of the seeds; NaN for one seed."""
    vertex_high: float = math.nan
    further_lr: float = math.nan
    """The rate to train next, where the lowest loss is at an end; NaN elsewhere."""
    configurations: Sequence[Name] = ()
    """The configuration at each rate; empty where that is not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonPage:
    """Everything on the page."""

    title: str
    subtitle: str
    conclusion: tuple[str, str]
    """The outcome of the configurations, in numbers, and the paper's statement on it: a sentence
    each.
    """
    created: str
    """ISO 8601."""
    configurations: Sequence[ComparedConfiguration]
    unigram_loss_nats: float | None
    """Unigram entropy of the validation targets: what a model that ignores its input can reach."""
    words: TargetWords = TOKENS
    """For what losses are means over."""
    valid_curves: Sequence[RunCurve]
    """The curves of the configurations that the figures over updates draw: all, or of many rates
    the best of each curve's.
    """
    train_curves: Sequence[RunCurve]
    gradient_profiles: Sequence[GradientProfile]
    gradient_curves: Sequence[RunCurve]
    """The norm of the whole gradient at every update, before it is clipped."""
    schedules: Sequence[RunCurve]
    rate_curves: Sequence[RateCurve] = ()
    """The curves over rates, where more than one rate was compared."""
    shared_lrs: Sequence[float] = ()
    """The rates that all of these curves have, over which the sensitivity is taken; rising."""
    clocks: Mapping[Name, Mapping[str, Sequence[float]]] = field(default_factory=dict)
    """The other axes of the configurations whose curves can be drawn over something else than
    updates: each update, rising, by "update", and by the name of its axis what had gone by then.
    """
    undrawn_curves: Sequence[RunCurve] = ()
    """Validation losses of the configurations that the figures leave out, for those who look for
    one of them.
    """
    later_profiles: Sequence[GradientProfile] = ()
    """Gradient norms of each block's matrices while the runs trained, where that was recorded."""
    what: Sequence[tuple[str, str]]
    formulas: Sequence[tuple[str, str]]
    commands: Sequence[str]
    environment: Sequence[tuple[str, str]]

    @property
    def drawn(self) -> Sequence[ComparedConfiguration]:
        """The configurations that the figures over updates draw."""
        names = {curve.name for curve in self.valid_curves}
        return [
            configuration for configuration in self.configurations if configuration.name in names
        ]
