"""The paper's Figure 6: a small fixed rate in place of warm-up (Xiong et al. 2020, appendix H)."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

from normscope.measure import Estimate
from normscope.optim import ScheduleConfig
from normscope.report.words import number

from .engine.claims import claim
from .engine.estimates import plain_estimate
from .engine.page import Claim, StudyFigure
from .engine.study import Study
from .translation.again import judged_again
from .translation.arms import TranslationArm, controlled, coupled
from .translation.config import ADAM_LRS, PAPER_ADAM_LRS, RunsConfig, figure_scales
from .translation.page import answer, epochs_figure, with_caveat
from .translation.runs import Trained, less

_SOURCE = "Xiong et al. 2020, appendix H and figure 6"
_OURS = "not in the paper, whose large rate without warm-up hardly has a rate"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Figure6Config(RunsConfig):
    """Post-LN under Adam at a large rate, and at a tenth of it that stays."""

    peak_lr: float = ADAM_LRS[-1]
    small_lr: float = ADAM_LRS[-1] / 10
    """1e-4 beside 1e-3 in the paper."""
    small_epochs: int = 27
    """Epochs that the paper follows the small rate; the others end after `epochs`."""

    RATES: ClassVar[Mapping[str, tuple[str, ...]]] = {"adam": ("peak_lr", "small_lr")}

    def __post_init__(self) -> None:
        RunsConfig.__post_init__(self)
        if not 0 < self.small_lr < self.peak_lr:
            raise ValueError(
                f"small_lr={self.small_lr} must be positive and below peak_lr={self.peak_lr}"
            )
        if self.small_epochs < self.epochs:
            raise ValueError(
                f"small_epochs={self.small_epochs} must be at least epochs={self.epochs}"
            )

    def legend(self) -> dict[str, TranslationArm]:
        """Returns the arms by their words in the legend; the paper's three first."""
        long, warm = self.long_warmup_updates, f"warm-up {self.long_warmup_updates:,}"
        small, large = f"{self.small_lr:g}", f"{self.peak_lr:g}"
        updates = self.small_epochs * self.epoch_updates

        def arm(schedule: ScheduleConfig) -> TranslationArm:
            return TranslationArm(peak_lr=self.peak_lr, schedule=schedule, updates=self.updates)

        return {
            f"{small} fixed, no warm-up": TranslationArm(
                peak_lr=self.small_lr, schedule=ScheduleConfig(), updates=updates
            ),
            f"{large}, no warm-up, the paper's schedule": arm(coupled(1)),
            f"{large}, {warm}": arm(coupled(long)),
            f"{large}, no warm-up, the decay of {warm}": arm(controlled(0, long)),
            f"{large} fixed, no warm-up": arm(ScheduleConfig()),
        }

    def arms(self) -> list[TranslationArm]:
        """Returns the small rate, then the large one: without warm-up, with it, on its decay, and
        fixed.
        """
        return list(self.legend().values())

    def ends(self) -> dict[str, int]:
        """Returns the updates at which the small rate is examined: where the others end, and where
        it ends itself.
        """
        return {
            f"after {epochs} epochs": epochs * self.epoch_updates
            for epochs in (self.epochs, self.small_epochs)
        }


def small_less(
    config: _Figure6Config, other: TranslationArm, found: Trained, *, update: int
) -> Estimate:
    """Returns the loss of the small rate at that update less the last one of another arm, in nats,
    over seeds in pairs.
    """
    return less(
        [run.nats_at(update) for run in found.curves[config.arms()[0]]], found.finals(other)
    )


def claims(config: _Figure6Config, found: Trained) -> list[Claim]:
    """The first two are the paper's; each compares the small rate with another arm's last loss."""
    small, without, long, decayed, fixed = config.arms()
    value = "the small rate's loss less the other's last one, in nats"
    at_small, at_large = (
        f"Post-LN at the fixed rate {config.small_lr:g} ends",
        f"than at {config.peak_lr:g}",
    )

    def at_ends(other: TranslationArm) -> dict[str, Estimate]:
        return {
            when: small_less(config, other, found, update=update)
            for when, update in config.ends().items()
        }

    others = {"a large rate that decays as with warm-up": decayed, "a large rate that stays": fixed}
    after_as_many = {
        words: small_less(config, arm, found, update=config.updates)
        for words, arm in others.items()
    }
    made = [
        claim(
            "a small fixed rate does better than a large one without warm-up",
            f"Without warm-up, {at_small} lower {at_large} on the paper's schedule.",
            source=_SOURCE,
            value=value,
            holds=at_ends(without),
            greatest=0.0,
            beside=f"Last losses: {found.nats(small)} and {found.nats(without)} nats; the "
            f"unigram baseline is {number(found.unigram(without))}.",
        ),
        claim(
            "a small fixed rate does worse than warm-up",
            f"Without warm-up, {at_small} higher {at_large} with warm-up.",
            source=_SOURCE,
            value=value,
            holds=at_ends(long),
            least=0.0,
        ),
        claim(
            "it is the size of the rate",
            f"After as many updates and without warm-up, {at_small} lower {at_large}, also where "
            "that sums up to more than with warm-up.",
            source=_OURS,
            value=value,
            holds=after_as_many,
            greatest=0.0,
        ),
    ]
    return with_caveat(made, found)


def figures(config: _Figure6Config, found: Trained) -> list[StudyFigure]:
    """The paper's figure 6, and BLEU beside it."""
    told = "Post-LN at a small fixed rate and at a large one, without and with warm-up"
    panels, epoch = {"": config.legend()}, config.epoch_updates
    return [
        epochs_figure(
            "figure_6", "Post-LN at a small fixed rate", panels, found, epoch=epoch, told=told
        )
    ]


def _data(config: _Figure6Config, found: Trained) -> dict[str, Any]:
    less_others: dict[str, dict[str, Any]] = {}
    for words, arm in list(config.legend().items())[1:]:
        less_others[words] = {
            when: plain_estimate(small_less(config, arm, found, update=update))
            for when, update in config.ends().items()
        }
    return {"small_less_others_nats": less_others}


SCALES = figure_scales(
    _Figure6Config,
    smoke={"small_epochs": 3},
    paper={"peak_lr": PAPER_ADAM_LRS[-1], "small_lr": 1e-4},
    multi30k={"peak_lr": 1.0, "small_lr": 0.1},
)
STUDY = Study(
    title="A small fixed rate in place of warm-up: the paper's Figure 6",
    question=(
        "Does Post-LN without warm-up learn at a small fixed rate, and is that as good as a large "
        "rate with warm-up?"
    ),
    help="The paper's Figure 6: does a small fixed rate do?",
    scales=SCALES,
    run=partial(answer, claims=claims, figures=figures, data=_data),
    judged_again=partial(judged_again, claims=claims, derived=_data),
)
