"""The runs of figures 2, 4 and 6: an arm and a seed, each in a run folder that all three find, and where it went."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from normscope.compare.compare import alone
from normscope.compare.manifest import sources
from normscope.compare.state import BesideRuns, CellState
from normscope.data.opening import open_corpus
from normscope.runs.config import refuse_other_configuration, replaced, resolve
from normscope.settings.tables import as_table
from normscope.tasks.translation import TRANSLATION, TranslationRunConfig
from normscope.train import RunFolder

from ..engine.ladders import train_all
from ..engine.models import refuse_missing
from ..engine.pieces import Pieces
from .config import DE_EN, OPTIMIZERS, PLACEMENTS, RunsConfig, TranslationArm


@dataclass(frozen=True, slots=True)
class _TranslationCell(BesideRuns):
    """One run."""

    arm: TranslationArm
    seed: int
    folder: RunFolder
    config: TranslationRunConfig

    @property
    def name(self) -> str:
        return self.folder.path.name

    def columns(self) -> dict[str, str]:
        """What tells it from the others, by heading."""
        arm = self.arm
        return {
            "pair": arm.pair,
            "placement": PLACEMENTS[arm.placement],
            "optimiser": OPTIMIZERS[arm.optimizer],
            "rate": f"{arm.peak_lr:g}",
            "schedule": arm.schedule_words,
            "seed": str(self.seed),
        }


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
    """Of the first batch, before the first update."""
    ended: str
    """finished or non-finite."""

    @property
    def final_nats(self) -> float:
        """At the last checkpoint; of a run that did not stay finite, that of its first batch: it learned nothing."""
        return self.nll_nats[-1] if self.ended == "finished" else self.first_nats

    @property
    def final_bleu(self) -> float:
        """At the last checkpoint; 0 for a run that did not stay finite."""
        return self.bleu[-1] if self.ended == "finished" else 0.0

    def nats_at(self, update: int) -> float:
        """At the last validation up to that update. Raises ValueError where there is none."""
        found = [nats for at, nats in zip(self.updates, self.nll_nats, strict=True) if at <= update]
        if not found:
            raise ValueError(f"no validation up to update {update}")
        return found[-1]


ArmCurves = dict[TranslationArm, list[TranslationCurve]]
"""By arm, one a seed in their order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _PairText:
    """What a language pair is trained and validated on."""

    unigram_nats: float
    """Entropy of the validation targets taken one by one: what is reached without looking at the source."""
    train_pairs: int
    train_tokens: int
    """Of the target side."""
    valid_pairs: int
    valid_tokens: int
    vocabulary: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Trained:
    """The runs of one figure."""

    curves: ArmCurves
    texts: dict[str, _PairText]
    """By language pair."""
    trained_by: dict[str, dict[str, Any]]
    """By run: the source that made it."""

    def unigram(self, arm: TranslationArm) -> float:
        """The baseline of its language pair."""
        return self.texts[arm.pair].unigram_nats


def trained(config: RunsConfig, arms: Iterable[TranslationArm], pieces: Pieces) -> Trained:
    """Train what the folder of the runs lacks.

    Raises UserError for text that is not there, and for a training that fails.
    """
    arms = list(arms)
    cells = cells_of(config, arms, folder_of(config, pieces))
    texts = {pair: _text(config, pair) for pair in dict.fromkeys(arm.pair for arm in arms)}
    train(cells, pieces)
    return Trained(curves=curves_of(cells), texts=texts, trained_by=sources(cells))


def _text(config: RunsConfig, pair: str) -> _PairText:
    corpus = open_corpus(config.training(pair).data)
    train_split, valid = corpus.splits["train"], corpus.splits["valid"]
    return _PairText(
        unigram_nats=TRANSLATION.chance_nats(corpus),
        train_pairs=len(train_split),
        train_tokens=int(train_split.target.lengths.sum()),
        valid_pairs=len(valid),
        valid_tokens=int(valid.target.lengths.sum()),
        vocabulary=len(corpus.codec.target.vocabulary),
    )


def folder_of(config: RunsConfig, pieces: Pieces) -> Path:
    """Where the runs lie: beside the study's folder, so that the three figures share them."""
    return Path(config.cells) if config.cells else pieces.folder.resolve().parent / "translation-cells"


def cells_of(config: RunsConfig, arms: Iterable[TranslationArm], folder: Path) -> list[_TranslationCell]:
    """The runs of all arms, those of the first seed first; nothing is written.

    A run's name has its arm, its seed, and a hash of the settings that all arms share, so that runs of two sizes lie
    side by side, and one that two figures ask for is one. Raises UserError for a corpus that is not there, for
    values that a configuration does not allow, and where a run folder holds something else.
    """
    arms = list(dict.fromkeys(arms))
    for pair in dict.fromkeys(arm.pair for arm in arms):
        setting = "corpus" if pair == DE_EN else "en_de_corpus"
        refuse_missing(getattr(config, setting), setting, "normscope data prepare")
    cells = []
    for seed in range(1, config.seeds + 1):
        for arm in arms:
            asked = replaced(
                config.training(arm.pair),
                seed=seed,
                model__placement=arm.placement,
                optimizer__name=arm.optimizer,
                optimizer__peak_lr=arm.peak_lr,
                train__duration=arm.updates,
                **{f"schedule__{key}": value for key, value in as_table(arm.schedule).items()},
            )
            run = RunFolder(folder / "runs" / f"{arm.name}_seed-{seed}_{config.digest(arm.pair)}")
            resolved = resolve(asked, run)
            refuse_other_configuration(run, resolved)
            cells.append(_TranslationCell(arm, seed, run, resolved))
    return cells


def train(cells: Sequence[_TranslationCell], pieces: Pieces) -> None:
    """Train what is not finished; on CPUs one run a core, each of one thread.

    Where all are over nothing is written: a page can be made while another study trains in the folder. Raises
    UserError where a training failed or another study trains in this folder; Interrupted after every run under way has
    saved.
    """
    states, total = [CellState(cell, cell.arm.updates) for cell in cells], sum(cell.arm.updates for cell in cells)
    for state in states:
        state.read_new_events()
    stage = "the trainings"
    if all(state.over for state in states):
        pieces.watch(f"updates of {stage}", total, total)
        return
    with alone(cells[0].folder.path.parents[1], "runs of the figures"):
        train_all(cells, stage, pieces)


def curves_of(cells: Iterable[_TranslationCell]) -> ArmCurves:
    """Of runs that are over. Raises KeyError for an event of another version."""
    found: ArmCurves = {}
    for cell in cells:
        found.setdefault(cell.arm, []).append(_curve(cell))
    return found


def _curve(cell: _TranslationCell) -> TranslationCurve:
    events = cell.folder.events()
    trained = [event for event in events if event["event"] == "update"]
    validations = [event for event in events if event["event"] == "validation"]
    sums = [
        math.fsum(event["lr"] for event in trained if event["update"] <= validation["update"])
        for validation in validations
    ]
    return TranslationCurve(
        updates=[event["update"] for event in validations],
        nll_nats=[event["nll_nats"] for event in validations],
        loss_nats=[event["loss_nats"] for event in validations],
        bleu=[event["bleu"] for event in validations],
        summed_lr=sums,
        first_nats=trained[0]["nll_nats"] if trained else math.inf,
        ended=events[-1]["event"],
    )
