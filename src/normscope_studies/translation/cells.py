"""The runs themselves: an arm and a seed, each in a run folder that any study of the same settings finds again."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from normscope.compare.grid import write_configs
from normscope.compare.locks import alone
from normscope.compare.pool import run_cells
from normscope.compare.state import BesideRuns, CellState
from normscope.errors import UserError
from normscope.optim import ScheduleConfig
from normscope.runs.claiming import refuse_other_configuration
from normscope.runs.config import replaced, resolve
from normscope.settings.tables import as_table
from normscope.tasks.translation.objective import TranslationRunConfig
from normscope.train import RunFolder
from normscope.train.device import available_cores, choose_device

from ..engine.pieces import Pieces
from .arms import OPTIMIZERS, PLACEMENTS, Arm
from .config import RunsConfig, refuse_missing

_FOLDER = "translation-cells"


@dataclass(frozen=True, slots=True)
class Cell(BesideRuns):
    """One run."""

    arm: Arm
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


def folder_of(config: RunsConfig, pieces: Pieces) -> Path:
    """Where the runs lie: beside the study's folder, so that the three figures share them."""
    return Path(config.cells) if config.cells else pieces.folder.resolve().parent / _FOLDER


def cells_of(config: RunsConfig, arms: Iterable[Arm], folder: Path) -> list[Cell]:
    """The runs of all arms, those of the first seed first; nothing is written.

    A run's name has its arm, its seed, and a hash of the settings that all arms share, so that runs of two sizes lie
    side by side, and one that two figures ask for is one. Raises UserError for a corpus that is not there, for
    values that a configuration does not allow, and where a run folder holds something else.
    """
    arms = list(dict.fromkeys(arms))
    for pair in dict.fromkeys(arm.pair for arm in arms):
        setting = "corpus" if pair == "de-en" else "en_de_corpus"
        refuse_missing(getattr(config, setting), setting)
    cells = []
    for seed in range(1, config.seeds + 1):
        for arm in arms:
            asked = _config(config, arm, seed)
            run = RunFolder(folder / "runs" / f"{arm.name}_seed-{seed}_{config.digest(arm.pair)}")
            resolved = resolve(asked, run)
            refuse_other_configuration(run, resolved)
            cells.append(Cell(arm, seed, run, resolved))
    return cells


def train(cells: Sequence[Cell], config: RunsConfig, pieces: Pieces) -> None:
    """Train what is not finished; on CPUs one run a core, each of one thread.

    Where all are over nothing is written: a page can be made while another study trains in the folder. Raises
    UserError where a training failed or another study trains in this folder; Interrupted after every run under way has
    saved.
    """
    total = sum(cell.arm.updates for cell in cells)

    def watch(states: list[CellState[Cell]]) -> None:
        # A run that ended early takes no more updates.
        done = sum(state.cell.arm.updates if state.over else state.update for state in states)
        pieces.watch("updates of the trainings", done, total)

    states = [CellState(cell, cell.arm.updates) for cell in cells]
    for state in states:
        state.read_new_events()
    if all(state.over for state in states):
        watch(states)
    else:
        with alone(cells[0].folder.path.parents[1], "runs of the figures"):
            write_configs(cells)
            processes = available_cores() if choose_device(config.device).type == "cpu" else 1
            states = run_cells(cells, engine=pieces.engine(processes), watch=watch)
    failed = [f"{s.cell.name}: {s.message} (log: {s.cell.log_file})" for s in states if s.status == "failed"]
    if failed:
        raise UserError("\n".join(failed))


def _config(config: RunsConfig, arm: Arm, seed: int) -> TranslationRunConfig:
    schedule: ScheduleConfig = arm.schedule
    return replaced(
        config.training(arm.pair),
        seed=seed,
        model__placement=arm.placement,
        optimizer__name=arm.optimizer,
        optimizer__peak_lr=arm.peak_lr,
        train__duration=arm.updates,
        **{f"schedule__{key}": value for key, value in as_table(schedule).items()},
    )
