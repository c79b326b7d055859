"""Figure 5's pre-trainings: Post-LN and Pre-LN, each at two rates, and what their curves say."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from normscope.compare.grid import Cell, Grid
from normscope.data.documents.pairs import pack_pairs
from normscope.data.opening import open_documents
from normscope.tasks.masked_lm import MASKED_LM
from normscope.train.run_folder import RunFolder

from ..engine.pieces import Pieces
from ..engine.trainings import train_all
from ..translation.runs import updates_to
from .config import ArmPair, Figure5Config, PretrainingArm

IS_RANDOM = 4
"""Column of a packed pair that says whether its second part is of another document."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PretrainingCurve:
    """Validations of one pre-training; the lists are of one length."""

    folder: RunFolder
    updates: Sequence[int]
    loss_nats: Sequence[float]
    """Masked tokens and next sentences together, as BERT minimises them and the paper shows
    them.
    """
    nll_nats: Sequence[float]
    """Masked tokens alone."""
    next_sentence_accuracy: Sequence[float]
    ended: str
    """finished or non-finite."""

    @property
    def finished(self) -> bool:
        return self.ended == "finished"


PretrainingCurves = Mapping[PretrainingArm, Sequence[PretrainingCurve]]
"""The curves by arm, one a seed."""


def cells_of(config: Figure5Config, pieces: Pieces) -> list[Cell]:
    """Returns the pre-trainings, the first seed of every arm first."""
    base, folder = config.training(), pieces.folder / "pre-training"
    cells: list[Cell] = []
    for placement, warmup_updates, peak_lr in config.arms:
        grid = Grid(
            placements_and_warmups=((placement, warmup_updates),),
            peak_lrs=(peak_lr,),
            optimizers=("adamw",),
            seeds=config.seeds,
        )
        cells += grid.cells(base, folder)
    return sorted(cells, key=lambda cell: cell.seed)


def pretrained(config: Figure5Config, cells: Sequence[Cell], pieces: Pieces) -> PretrainingCurves:
    """Trains what the folder lacks, the first seed of every arm first.

    Raises UserError for a corpus that is not there, a run folder that holds something else, or a
    training that failed.
    """
    train_all(cells, "the pre-trainings", pieces)
    found: dict[PretrainingArm, list[PretrainingCurve]] = {arm: [] for arm in config.arms}
    for cell in cells:
        arm = PretrainingArm(cell.arm.placement, cell.arm.warmup_updates, cell.arm.peak_lr)
        found[arm].append(_curve(cell))
    return found


def _curve(cell: Cell) -> PretrainingCurve:
    events = cell.folder.events()
    validations = [event for event in events if event["event"] == "validation"]
    return PretrainingCurve(
        folder=cell.folder,
        updates=[event["update"] for event in validations],
        loss_nats=[event["loss_nats"] for event in validations],
        nll_nats=[event["nll_nats"] for event in validations],
        next_sentence_accuracy=[event["next_sentence_accuracy"] for event in validations],
        ended=events[-1]["event"],
    )


def ends(runs: Sequence[PretrainingCurve], chance_nats: float) -> list[float]:
    """Returns the last losses, one a seed; a run that did not stay finite counts as chance."""
    return [run.loss_nats[-1] if run.finished else chance_nats for run in runs]


def shares(
    pair: ArmPair, curves: PretrainingCurves, *, updates: int, chance_nats: float
) -> list[float | None]:
    """Returns for each seed the updates after which Pre-LN is where Post-LN ends, as a part of the
    `updates` of a run; None where it never is.
    """
    found: list[float | None] = []
    wanted = ends(curves[pair.post], chance_nats)
    for nats, pre in zip(wanted, curves[pair.pre], strict=True):
        reached = updates_to(pre.updates, pre.loss_nats, nats)
        found.append(None if reached is None else reached / updates)
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Chance:
    """The result of a model that ignores its input."""

    nll_nats: float
    """Entropy of the validation tokens taken one by one."""
    next_sentence_accuracy: float
    """The accuracy of always saying the same. A sequence of one sentence has a random second part
    always, so it is above a half.
    """
    next_sentence_nats: float
    """The loss of always saying how likely the two are."""

    @property
    def loss_nats(self) -> float:
        """The sum of both losses."""
        return self.nll_nats + self.next_sentence_nats


def chance(config: Figure5Config) -> Chance:
    """Returns the chance results on the pairs that every pre-training is validated on."""
    corpus = open_documents(config.training().data)
    pairs = pack_pairs(corpus.splits["valid"], sequence_length=config.sequence_length, seed=0)
    share = float(pairs[: config.valid_sequences, IS_RANDOM].mean())
    both = np.array([share, 1 - share])
    both = both[both > 0]
    return Chance(
        nll_nats=MASKED_LM.chance_nats(corpus),
        next_sentence_accuracy=max(share, 1 - share),
        next_sentence_nats=float(-(both * np.log(both)).sum()),
    )
