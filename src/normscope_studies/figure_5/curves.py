"""Figure 5 (a): the pre-trainings, and how far each had come at every validation."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from normscope.compare.grid import Cell, Grid, write_configs
from normscope.compare.pool import run_cells
from normscope.compare.state import CellState
from normscope.data.documents.opening import open_documents
from normscope.data.documents.pairs import Pair, pack_pairs
from normscope.errors import UserError
from normscope.tasks.masked_lm import MASKED_LM
from normscope.train.device import available_cores, choose_device
from normscope.train.run_folder import RunFolder

from ..engine.pieces import Pieces
from .config import PLACEMENTS, Figure5Config


class Arm(NamedTuple):
    """What differs between the pre-trainings."""

    placement: str
    warmup_updates: int
    peak_lr: float

    @property
    def title(self) -> str:
        warmup = f"warm-up {self.warmup_updates:,}" if self.warmup_updates else "no warm-up"
        return f"{PLACEMENTS[self.placement]}, {warmup}, rate {self.peak_lr:g}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """Validations of one pre-training; the lists are of one length."""

    folder: RunFolder
    updates: Sequence[int]
    loss_nats: Sequence[float]
    """Masked tokens and next sentences together, as BERT minimises them and the paper shows them."""
    nll_nats: Sequence[float]
    """Masked tokens alone."""
    next_sentence_accuracy: Sequence[float]
    ended: str
    """finished or non-finite."""

    def updates_to(self, loss_nats: float) -> float | None:
        """Where the curve first comes down to that loss, between two validations on a straight line; None if never."""
        below = [i for i, loss in enumerate(self.loss_nats) if loss <= loss_nats]
        if not below:
            return None
        i = below[0]
        if i == 0:
            return float(self.updates[0])
        before, after = self.loss_nats[i - 1], self.loss_nats[i]
        share = (before - loss_nats) / (before - after)
        return float(self.updates[i - 1] + share * (self.updates[i] - self.updates[i - 1]))


Curves = dict[Arm, list[Curve]]
"""By arm, one a seed."""


def pretrained(config: Figure5Config, cells: list[Cell], pieces: Pieces) -> Curves:
    """Train what the folder lacks, the first seed of every arm first.

    Raises UserError for a corpus that is not there, a run folder that holds something else, or a training that failed.
    """
    total = sum(int(cell.config.train.duration) for cell in cells)

    def watch(states: list[CellState[Cell]]) -> None:
        pieces.watch("updates of the pre-trainings", sum(state.update for state in states), total)

    write_configs(cells)
    processes = available_cores() if choose_device(config.device).type == "cpu" else 1
    states = run_cells(cells, engine=pieces.engine(processes), watch=watch)
    for state in states:
        if state.status == "failed":
            raise UserError(f"{state.cell.name}: {state.message} (log: {state.cell.log_file})")
    found: Curves = {Arm(*arm): [] for arm in config.arms}
    for cell in cells:
        arm = Arm(cell.arm.placement, cell.arm.warmup_updates, cell.arm.peak_lr)
        found[arm].append(_curve(cell))
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Chance:
    """What a model that ignores its input comes to."""

    nll_nats: float
    """Entropy of the validation tokens taken one by one."""
    next_sentence_accuracy: float
    """Of always saying the same. A sequence of one sentence has a random second part always, so it is above a half."""


def chance(config: Figure5Config) -> Chance:
    """On the pairs that every pre-training is validated on."""
    corpus = open_documents(config.training().data)
    pairs = pack_pairs(corpus.splits["valid"], sequence_length=config.sequence_length, seed=0)
    share = float(pairs.rows[: config.valid_sequences, Pair._fields.index("is_random")].mean())
    return Chance(nll_nats=MASKED_LM.chance_nats(corpus), next_sentence_accuracy=max(share, 1 - share))


def cells_of(config: Figure5Config, pieces: Pieces) -> list[Cell]:
    """The pre-trainings, the first seed of every arm first."""
    base, folder = config.training(), pieces.folder / "pre-training"
    cells = []
    for placement, warmup_updates, peak_lr in config.arms:
        grid = Grid(
            placements_and_warmups=((placement, warmup_updates),),
            peak_lrs=(peak_lr,),
            optimizers=("adamw",),
            seeds=config.seeds,
        )
        cells += grid.cells(base, folder)
    return sorted(cells, key=lambda cell: cell.seed)


def _curve(cell: Cell) -> Curve:
    events = cell.folder.events()
    validations = [event for event in events if event["event"] == "validation"]
    return Curve(
        folder=cell.folder,
        updates=[event["update"] for event in validations],
        loss_nats=[event["loss_nats"] for event in validations],
        nll_nats=[event["nll_nats"] for event in validations],
        next_sentence_accuracy=[event["next_sentence_accuracy"] for event in validations],
        ended=events[-1]["event"],
    )
