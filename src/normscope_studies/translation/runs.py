"""The runs of figures 2, 4 and 6: grids that all three find, where every run went, and arms
compared seed by seed.

Runs of one seed share their initial weights and the order of their batches, so that differences are
taken in pairs.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from normscope.compare.grid import Cell, Grid
from normscope.data.opening import open_corpus
from normscope.data.parallel.corpus import Corpus
from normscope.measure import Estimate, Sensitivity, lr_sensitivity
from normscope.optim import ScheduleConfig
from normscope.report.words import number, span
from normscope.tasks.translation import TRANSLATION

from ..engine.checks import refuse_missing
from ..engine.estimates import estimate
from ..engine.judging import Answer, between
from ..engine.ladders import sources
from ..engine.pieces import Pieces
from ..engine.trainings import NOTHING_LATER, LaterCells, train_all
from .arms import EN_DE, PAIRS, TranslationArm
from .config import RunsConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class TranslationCurve:
    """Validations of one run; the lists are of one length."""

    updates: Sequence[int]
    nll_nats: Sequence[float]
    """Negative log-likelihood per target token of the whole validation split."""
    loss_nats: Sequence[float]
    """The same, label-smoothed: what is minimised, and what the paper shows in bits."""
    bleu: Sequence[float]
    """sacreBLEU of the first sentences of the split."""
    summed_lr: Sequence[float]
    """Rate summed over the updates up to each validation, as the run logged it."""
    first_nats: float
    """The loss of the first batch, before the first update."""
    ended: str
    """finished or non-finite."""

    @property
    def final_nats(self) -> float:
        """The loss at the last checkpoint; of a run that did not stay finite, that of its first
        batch: it learned nothing.
        """
        return self.nll_nats[-1] if self.ended == "finished" else self.first_nats

    @property
    def final_bleu(self) -> float:
        """The BLEU at the last checkpoint; 0 for a run that did not stay finite."""
        return self.bleu[-1] if self.ended == "finished" else 0.0

    def nats_at(self, update: int) -> float:
        """Returns the loss at the last validation up to that update, or `final_nats`."""
        if self.ended != "finished":
            return self.first_nats
        return [nats for at, nats in zip(self.updates, self.nll_nats, strict=True) if at <= update][
            -1
        ]

    def updates_to(self, nats: float) -> float | None:
        """Returns where it first comes down to that loss, on a straight line between validations;
        None if never.
        """
        return updates_to(self.updates, self.nll_nats, nats)


def updates_to(updates: Sequence[int], nats: Sequence[float], wanted: float) -> float | None:
    """Returns where a curve first comes down to a loss, on a straight line between validations;
    None if never.
    """
    below = next((place for place, value in enumerate(nats) if value <= wanted), None)
    if not below:
        return None if below is None else float(updates[0])
    start, end = updates[below - 1 : below + 1]
    before, after = nats[below - 1 : below + 1]
    return float(start + (before - wanted) / (before - after) * (end - start))


@dataclass(frozen=True, slots=True, kw_only=True)
class Trained:
    """The runs of one figure."""

    curves: dict[TranslationArm, list[TranslationCurve]]
    """Curves by arm, one a seed in their order."""
    unigram_nats: Mapping[str, float]
    """The entropy of the validation targets one by one, which is reached without the source, by
    language pair.
    """
    texts: Sequence[str]
    """Words for what each pair is trained and validated on."""
    trained_by: dict[str, dict[str, Any]]
    """The source that made each run, by its name."""

    def finals(self, arm: TranslationArm) -> list[float]:
        """Returns the last losses in nats, one a seed."""
        return [curve.final_nats for curve in self.curves[arm]]

    def unigram(self, arm: TranslationArm) -> float:
        """Returns the baseline of its language pair."""
        return self.unigram_nats[arm.pair]

    def nats(self, arm: TranslationArm) -> str:
        """Returns the arm's last losses in words, without the unit."""
        return _several(self.finals(arm), 3)

    def bleu(self, arm: TranslationArm) -> str:
        """Returns the arm's last BLEU in words."""
        return _several([curve.final_bleu for curve in self.curves[arm]], 1)

    def excess(self, arm: TranslationArm, other: TranslationArm) -> Estimate:
        """Measures by how many nats the arm ends above the other, over seeds taken in pairs."""
        return less(self.finals(arm), self.finals(other))

    def gain_kept(self, arm: TranslationArm, best: TranslationArm) -> Estimate | None:
        """Returns the arm's gain over the unigram baseline as a share of the best one's; None where
        that has none for certain.
        """
        baseline = self.unigram(best)
        own = [baseline - loss for loss in self.finals(arm)]
        gains = [baseline - loss for loss in self.finals(best)]
        if between(estimate(gains), least=0.0) is not True:
            return None
        return estimate([a / b for a, b in zip(own, gains, strict=True)])

    def updates_shares(self, slow: TranslationArm, fast: TranslationArm) -> list[float | None]:
        """For each seed: updates after which `fast` is where `slow` ends, as a part of all; None if
        it never is.
        """
        pairs = zip(self.finals(slow), self.curves[fast], strict=True)
        reached = [curve.updates_to(nats) for nats, curve in pairs]
        return [None if update is None else update / slow.updates for update in reached]

    def lr_sensitivity(self, arms: Sequence[TranslationArm]) -> Sensitivity:
        """Measures the sensitivity of the last loss to the rate of arms that differ in their rate
        alone: as `measure.lr_sensitivity`.

        A run that did not stay finite counts as its loss at initialisation, that of its first
        batch.
        """
        by_rate = [self.curves[arm] for arm in arms]
        losses = []
        for of_seed in zip(*by_rate, strict=True):
            losses.append(
                [run.nll_nats[-1] if run.ended == "finished" else math.inf for run in of_seed]
            )
        return lr_sensitivity(losses, [run.first_nats for run in by_rate[0]])


def less(values: Sequence[float], others: Sequence[float]) -> Estimate:
    """Returns the mean difference over seeds taken in pairs."""
    return estimate([a - b for a, b in zip(values, others, strict=True)])


def sooner(shares: Sequence[float | None]) -> Estimate | Answer:
    """Returns the share of the updates after which it is there; where it is not in every seed,
    whether it is in any.

    That it never is takes more than one seed to say, and seeds that differ decide nothing.
    """
    reached = [share for share in shares if share is not None]
    if len(reached) == len(shares):
        return estimate(reached)
    return False if not reached and len(shares) > 1 else None


def never_there(shares: Mapping[str, Sequence[float | None]]) -> str:
    """Returns a sentence on the settings in which some seed is never there, with how many are not;
    empty where all are.
    """
    words = []
    for setting, row in shares.items():
        count = sum(share is None for share in row)
        if count:
            words.append(f"{setting}, in {count} of {len(row)}")
    return f"Never, by seeds: {'; '.join(words)}." if words else ""


def _several(values: Sequence[float], decimals: int) -> str:
    """Returns one number, or the range of several."""
    return number(values[0], decimals) if len(values) == 1 else span(values, decimals)


def trained(
    config: RunsConfig,
    arms: Iterable[TranslationArm],
    pieces: Pieces,
    *,
    seeds: range | None = None,
    stage: str = "the trainings",
    later: LaterCells = NOTHING_LATER,
) -> Trained:
    """Trains what the folder of the runs lacks, the first seed of all arms first.

    seeds: those that the configuration names, where it is None. stage, later: as of
    `trainings.train_all`. Raises UserError for text that is not there, and for a training that
    fails.
    """
    cells = cells_of(config, arms, folder_of(config, pieces), seeds=seeds)
    pairs = {arm.pair: config.training(arm.pair, ScheduleConfig(), config.updates) for arm in cells}
    corpora = {pair: open_corpus(one.data) for pair, one in pairs.items()}
    every = sorted((cell for runs in cells.values() for cell in runs), key=lambda cell: cell.seed)
    train_all(every, stage, pieces, later=later)
    curves = {}
    for arm, runs in cells.items():
        curves[arm] = [curve_of(cell) for cell in runs]
    return Trained(
        curves=curves,
        unigram_nats={pair: TRANSLATION.chance_nats(corpus) for pair, corpus in corpora.items()},
        texts=[_text(pair, corpus) for pair, corpus in corpora.items()],
        trained_by={
            f"{cell.folder.path.parents[1].name}/{name}": source
            for cell in every
            for name, source in sources([cell]).items()
        },
    )


def _text(pair: str, corpus: Corpus) -> str:
    splits = corpus.splits["train"], corpus.splits["valid"]
    (train, train_tokens), (valid, valid_tokens) = (
        (len(one), int(one.target.lengths.sum())) for one in splits
    )
    return (
        f"{PAIRS[pair]}, {train:,} pairs ({train_tokens:,} target tokens, joint vocabulary of "
        f"{len(corpus.codec.target.vocabulary):,}) to train on, {valid:,} ({valid_tokens:,} target "
        "tokens) held out"
    )


def folder_of(config: RunsConfig, pieces: Pieces) -> Path:
    """Returns where the runs lie: beside the study's folder, as the three figures share them."""
    return (
        Path(config.cells) if config.cells else pieces.folder.resolve().parent / "translation-cells"
    )


def cells_of(
    config: RunsConfig,
    arms: Iterable[TranslationArm],
    folder: Path,
    *,
    seeds: range | None = None,
) -> dict[TranslationArm, list[Cell]]:
    """Returns the runs of all arms, one a seed; nothing is written.

    A grid's folder is named by what its runs share, and a hash of the settings that all arms share,
    so that runs of two sizes lie side by side, and one that two figures ask for is one. Raises
    UserError for a corpus that is not there, for values that a configuration does not allow, and
    where a run folder holds something else.
    """
    found = {}
    seeds = seeds or range(1, config.seeds + 1)
    for arm in arms:
        reads_en_de = arm.pair == EN_DE and not config.reverses(arm.pair)
        setting = "en_de_corpus" if reads_en_de else "corpus"
        refuse_missing(getattr(config, setting), setting, "normscope data prepare")
        grid = Grid(
            placements_and_warmups=((arm.placement, arm.schedule.warmup_updates),),
            peak_lrs=(arm.peak_lr,),
            optimizers=(arm.optimizer,),
            seeds=len(seeds),
        )
        base = config.training(arm.pair, arm.schedule, arm.updates)
        base = replace(base, seed=base.seed + seeds.start - 1)
        found[arm] = grid.cells(base, folder / f"{arm.folder_name}_{config.digest(arm.pair)}")
    return found


def curve_of(cell: Cell) -> TranslationCurve:
    """Reads the curve of a run that is over. Raises KeyError for an event of another version."""
    events = cell.folder.events()
    updates = [event for event in events if event["event"] == "update"]
    validations = [event for event in events if event["event"] == "validation"]
    sums = []
    for event in validations:
        if "summed_lr" in event:  # of a kept training, whose updates have their loss alone
            sums.append(event["summed_lr"])
            continue
        until = [one["lr"] for one in updates if one["update"] <= event["update"]]
        sums.append(math.fsum(until))
    return TranslationCurve(
        updates=[event["update"] for event in validations],
        nll_nats=[event["nll_nats"] for event in validations],
        loss_nats=[event["loss_nats"] for event in validations],
        bleu=[event["bleu"] for event in validations],
        summed_lr=sums,
        first_nats=updates[0]["nll_nats"] if updates else math.inf,
        ended=events[-1]["event"],
    )
