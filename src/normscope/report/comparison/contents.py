"""What a report shows, as plain values: the caller measures and judges, this room only draws and writes."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

Status = Literal["finished", "non-finite", "running", "missing", "failed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """One quantity over updates, once per seed."""

    label: str
    style_key: str
    """`<group>|<variant>`: the group (the placement) decides the hue, the variant (the warm-up) dash and marker."""
    updates: Sequence[int]
    seeds_values: Sequence[Sequence[float]]
    """One row a seed, aligned with the start of `updates`. A shorter row ended early; a row whose last value is
    not finite was stopped by it and gets a cross. A non-finite value with finite ones after it is a gap."""

    def __post_init__(self) -> None:
        longest = max((len(row) for row in self.seeds_values), default=0)
        if longest > len(self.updates):
            raise ValueError(f"curve {self.label!r}: a seed has {longest} values for {len(self.updates)} updates")


@dataclass(frozen=True, slots=True, kw_only=True)
class GradientProfile:
    """Gradient norm of each block before the first update, once per seed."""

    label: str
    style_key: str
    blocks: Sequence[str]
    """`<stack> <number>`, such as "encoder 1"; lines are not drawn across stacks."""
    seeds_norms: Sequence[Sequence[float]]

    def __post_init__(self) -> None:
        for row in self.seeds_norms:
            if len(row) != len(self.blocks):
                raise ValueError(f"profile {self.label!r}: a seed has {len(row)} norms for {len(self.blocks)} blocks")


@dataclass(frozen=True, slots=True, kw_only=True)
class SeedResult:
    """Where one run ended. None = not measured."""

    seed: int
    status: Status
    updates: int
    valid_loss_nats: float | None = None
    bleu: float | None = None
    bleu_tokenised: float | None = None
    summed_lr: float
    message: str = ""

    def __post_init__(self) -> None:
        if self.status not in get_args(Status):
            raise ValueError(f"unknown status {self.status!r}; choose one of {', '.join(get_args(Status))}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """One row of the comparison: the same setting, once per seed."""

    label: str
    placement: str
    warmup_updates: int
    peak_lr: float
    optimizer: str
    seeds: Sequence[SeedResult]
    verdict: str
    """The caller's judgement in words; its first word ("learned", "partly", "stuck", "diverged") decides the dot."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Everything on the page."""

    title: str
    subtitle: str
    created: str
    """ISO 8601."""
    summary: Sequence[str]
    """One line an arm, in the order of `arms`."""
    arms: Sequence[Arm]
    chance_loss_nats: float | None
    """Unigram entropy of the validation targets: what a model that ignores its input can reach."""
    valid_curves: Sequence[Curve]
    train_curves: Sequence[Curve]
    gradient_profiles: Sequence[GradientProfile]
    schedules: Sequence[Curve]
    what: Sequence[tuple[str, str]]
    formulas: Sequence[tuple[str, str]]
    commands: Sequence[str]
    environment: Sequence[tuple[str, str]]

    def __post_init__(self) -> None:
        if len(self.summary) != len(self.arms):
            raise ValueError(f"need one summary line an arm, got {len(self.summary)} lines for {len(self.arms)} arms")
