"""The verdict on a configuration: its runs compared with the unigram baseline, and with the best
configuration.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from ..report.comparison.contents import Name, SeedResult, Status
from ..report.comparison.targets import TOKENS, TargetWords
from ..report.words import Tone, TonedWords, joined, number, percentage

LEARNED_BELOW, WORSE_ABOVE = 0.9, 1.05
"""Shares of the unigram baseline's loss: below the first a run counts as having learned to use its
input, and above the second as worse than the baseline. A model of nothing but unigrams ends up to
0.15 nats above it under label smoothing, which keeps a share of probability for tokens that do not
occur."""
MOST_OF_THE_GAIN = 0.75
"""Share of a gain over the unigram baseline from which another is taken to be as good."""


class Outcome(StrEnum):
    """The outcome of one run."""

    LEARNED = "learned"
    LESS = "learned less than the best"
    NEAR = "hardly better than the unigram baseline"
    """A loss below the baseline by less than a tenth, which does not count as learned."""
    BASELINE = "no better than the unigram baseline"
    WORSE = "worse than the unigram baseline"
    DIVERGED = "diverged"
    NEVER_PEAKED = "warm-up longer than the training: the peak rate was never reached"
    """An outcome that says nothing about the configuration at its peak rate, so that its loss is
    not judged.
    """
    FAILED = "failed"
    UNFINISHED = "unfinished"

    @property
    def learned(self) -> bool:
        """True where the run learned to use its input, however far it came."""
        return self in (Outcome.LEARNED, Outcome.LESS)

    @property
    def ended(self) -> bool:
        """True where the run came to its end, even at a value that is not finite."""
        return self not in (Outcome.FAILED, Outcome.UNFINISHED)

    @property
    def decided(self) -> bool:
        """True where the outcome says anything about the configuration."""
        return self.ended and self is not Outcome.NEVER_PEAKED


_TONES = {
    Outcome.LEARNED: Tone.GOOD,
    Outcome.LESS: Tone.MIXED,
    Outcome.NEAR: Tone.STUCK,
    Outcome.BASELINE: Tone.STUCK,
    Outcome.WORSE: Tone.BAD,
    Outcome.DIVERGED: Tone.BAD,
}


_BESIDE_BASELINE = {
    Outcome.NEAR: "hardly better",
    Outcome.BASELINE: "no better",
    Outcome.WORSE: "worse",
}
"""The outcomes that are no learning, from the lowest loss to the highest, in short."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedRuns:
    """A configuration with where its runs ended, as it is judged."""

    name: Name
    placement: str
    """The placement as it is registered."""
    warmup_updates: int
    setting: str
    """The other settings of its runs, such as "rate 3e-3": warm-ups are compared within one
    setting.
    """
    seeds: tuple[SeedResult, ...]
    named_as: str = ""
    """The registered placement that the doctor names in a model as its own code builds it; "" where
    it names none.
    """

    @property
    def known_placement(self) -> str:
        """The placement that its runs say something of."""
        return self.named_as or self.placement

    @property
    def losses(self) -> list[float]:
        """The last finite validation losses, in nats per token, of the seeds that have one."""
        given = [seed.valid_loss_nats for seed in self.seeds]
        return [loss for loss in given if loss is not None and math.isfinite(loss)]

    @property
    def mean_accuracy(self) -> float | None:
        """The share of right answers at the last validation, over the seeds that have one."""
        given = [seed.accuracy for seed in self.seeds if seed.accuracy is not None]
        return math.fsum(given) / len(given) if given else None

    @property
    def mean_loss(self) -> float:
        """The mean loss over the seeds that have one; NaN where none has."""
        losses = self.losses
        return math.fsum(losses) / len(losses) if losses else math.nan


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigurationOutcome:
    """A configuration with what became of each of its runs."""

    row: JudgedRuns
    outcomes: tuple[Outcome, ...]
    """One a seed."""
    gain_share: float | None
    """The gain of its mean loss over the unigram baseline, as a share of the best configuration's;
    None without one.
    """
    best: bool
    """True where its mean loss is the lowest of all configurations whose every run learned. One by
    itself is not.
    """

    @property
    def learned(self) -> bool | None:
        """True where all its runs learned, False where none did; None where they disagree or where
        one says nothing yet.
        """
        several = {outcome.learned if outcome.decided else None for outcome in self.outcomes}
        return several.pop() if len(several) == 1 else None


def judged(rows: Sequence[JudgedRuns], unigram_nats: float) -> list[ConfigurationOutcome]:
    """Judge all configurations of a comparison: each by itself, and beside the best."""
    alone = []
    sound = []
    for row in rows:
        own = tuple(outcome(row, seed, unigram_nats, math.nan) for seed in row.seeds)
        alone.append(own)
        if own and all(one.learned for one in own):
            sound.append(row)
    best = min(sound, key=lambda row: row.mean_loss, default=None)
    if best is None or len(rows) == 1:
        return [
            ConfigurationOutcome(row=row, outcomes=own, gain_share=None, best=False)
            for row, own in zip(rows, alone, strict=True)
        ]
    most = unigram_nats - best.mean_loss
    found = []
    for row, own in zip(rows, alone, strict=True):
        # The best is not less than itself, in whichever seed.
        beside = (
            own
            if row is best
            else tuple(outcome(row, seed, unigram_nats, most) for seed in row.seeds)
        )
        share = (unigram_nats - row.mean_loss) / most if row.losses else None
        found.append(
            ConfigurationOutcome(row=row, outcomes=beside, gain_share=share, best=row is best)
        )
    return found


def outcome(row: JudgedRuns, seed: SeedResult, unigram_nats: float, most_nats: float) -> Outcome:
    """Judge one run by how it ended and, where it finished, by its loss.

    most_nats: gain of the best configuration over the unigram baseline; NaN where there is none.
    """
    if seed.status is Status.NON_FINITE:
        return Outcome.DIVERGED
    if seed.status is Status.FAILED:
        return Outcome.FAILED
    if seed.valid_loss_nats is None or not seed.status.has_loss:
        return Outcome.UNFINISHED
    if row.warmup_updates > seed.updates:
        return Outcome.NEVER_PEAKED
    if seed.valid_loss_nats < LEARNED_BELOW * unigram_nats:
        less = unigram_nats - seed.valid_loss_nats < MOST_OF_THE_GAIN * most_nats
        return Outcome.LESS if less else Outcome.LEARNED
    if seed.valid_loss_nats < unigram_nats:
        return Outcome.NEAR
    return Outcome.WORSE if seed.valid_loss_nats > WORSE_ABOVE * unigram_nats else Outcome.BASELINE


def verdict(one: ConfigurationOutcome, words: TargetWords = TOKENS) -> TonedWords:
    """Returns a configuration's verdict: the outcome that all its seeds share, or how many of them
    had which. words: those of its data.
    """
    kinds = list(dict.fromkeys(one.outcomes))
    if len(kinds) == 1:
        said = _said(kinds[0], words)
        return TonedWords(
            f"{said}, the best" if one.best else said, _TONES.get(kinds[0], Tone.PLAIN)
        )
    if one.learned:
        return TonedWords(
            f"{Outcome.LEARNED}, {_share(one, Outcome.LESS)} less than the best", Tone.MIXED
        )
    if learned := sum(outcome.learned for outcome in one.outcomes):
        return TonedWords(f"undecided: {learned} of {len(one.outcomes)} seeds learned", Tone.MIXED)
    if still_open := [kind for kind in Outcome if kind in kinds and not kind.decided]:
        return TonedWords(" or ".join(still_open), Tone.PLAIN)
    if Outcome.DIVERGED in kinds:
        return TonedWords(f"did not learn, and {_share(one, Outcome.DIVERGED)} diverged", Tone.BAD)
    least, *others = [kind for kind in _BESIDE_BASELINE if kind in kinds]
    rest = joined([f"{_share(one, kind)} {_BESIDE_BASELINE[kind]}" for kind in others])
    return TonedWords(f"{_said(least, words)}, and {rest}", Tone.STUCK)


def _said(kind: Outcome, words: TargetWords) -> str:
    """Returns an outcome in the words of its data."""
    beside = _BESIDE_BASELINE.get(kind)
    return str(kind) if beside is None else f"{beside} than the {words.baseline}"


def summary(one: ConfigurationOutcome, unigram_nats: float, words: TargetWords = TOKENS) -> str:
    """Returns the configuration in a sentence, with how far it came in numbers and from how many
    seeds. words: those of its data.
    """
    row, loss = one.row, one.row.mean_loss
    if not row.losses:
        return f"{row.name} ({_seeds(row)})"
    baseline = f"the {words.baseline} ({number(unigram_nats, 2)})"
    far = f"beside {baseline}"
    if one.best:
        far = f"the lowest here, {far}"
    elif one.gain_share is not None and one.learned:
        far = f"{percentage(one.gain_share, 0)} of the best configuration's gain over {baseline}"
    if words.is_classification and row.mean_accuracy is not None:
        return (
            f"{row.name}: {percentage(row.mean_accuracy, 1)} right of the validation; loss "
            f"{words.loss(loss)}, {far}, {_seeds(row)}"
        )
    return f"{row.name}: validation loss {words.loss(loss)}, {far}, {_seeds(row)}"


def _seeds(row: JudgedRuns) -> str:
    return "one seed" if len(row.seeds) == 1 else f"{len(row.seeds)} seeds"


def _share(one: ConfigurationOutcome, kind: Outcome) -> str:
    return f"{one.outcomes.count(kind)} of {len(one.outcomes)} seeds"
