"""A grid of runs: combinations of placement, warm-up, rate, optimiser and seed, each in a run
folder of its own.

What a command or a configuration gives of its axes is used. The demonstration is such a grid, of
the embedded toy language, in which the need for warm-up is soon plain.
"""

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from ..data.opening import DataConfig
from ..errors import UserError, user_errors
from ..files import is_of_the_disk, make_folders, write_over
from ..limits.kinds import TEXT, sealed_lines
from ..limits.names import plain, refuse_leading_out
from ..limits.ours import SealedJson, refuse_other, refuse_unusual
from ..model import ModelConfig
from ..optim import OPTIMIZERS
from ..placement import named
from ..runs.config import for_another_machine, refuse_other_configuration, replaced, resolve
from ..runs.trained import read_scores
from ..settings.tables import spelled, to_toml
from ..tasks.registry import task_of
from ..tasks.run_config import RunConfig
from ..tasks.translation import TranslationRunConfig
from ..train import RunFolder, TrainConfig
from .axes import Axes
from .query_key import normed


@dataclass(frozen=True, slots=True, order=True)
class Arm:
    """A configuration that is compared: a setting that is run once per seed."""

    placement: str
    warmup_updates: int
    peak_lr: float
    optimizer: str

    @property
    def name(self) -> str:
        """Safe as a file name."""
        return f"{self.placement}_warmup-{self.warmup_updates}_lr-{self.peak_lr!r}_{self.optimizer}"

    @property
    def warmup_label(self) -> str:
        return f"warm-up {self.warmup_updates}" if self.warmup_updates else "no warm-up"


@dataclass(frozen=True, slots=True)
class Cell:
    """One run of the grid; its configuration and its output lie in folders beside that of all runs,
    under its name.
    """

    arm: Arm
    seed: int
    folder: RunFolder
    config: RunConfig

    @property
    def name(self) -> str:
        return f"{self.arm.name}_seed-{self.seed}"

    @property
    def configuration(self) -> str:
        """The configuration as TOML, with a last line by which a file of it is known to be ours."""
        return sealed_lines(to_toml(self.config))

    @property
    def config_file(self) -> Path:
        return self.above / "cells" / f"{self.folder.path.name}.toml"

    @property
    def log_file(self) -> Path:
        return self.above / "logs" / f"{self.folder.path.name}.txt"

    @property
    def above(self) -> Path:
        """The folder of the grid: that in which the folder of all runs lies."""
        run = self.folder.path  # may be one relative word, which has no folder above it
        return (run if len(run.parents) > 1 else run.absolute()).parents[1]

    def evaluation_file(self, split: str) -> Path:
        return self.folder.path / f"evaluation-{split}.json"

    def columns(self) -> dict[str, str]:
        """Returns the properties that distinguish the cell from the others, by heading."""
        return {
            "placement": self.arm.placement,
            "warm-up": str(self.arm.warmup_updates),
            "rate": f"{self.arm.peak_lr:g}",
            "optimiser": self.arm.optimizer,
            "seed": str(self.seed),
        }

    def evaluations(self) -> dict[str, dict[str, Any]]:
        """Returns the scores of the best checkpoint by split; a file that is not whole counts as
        none. Raises UserError where the disk fails, since another try may find them.
        """
        found = {}
        for file in sorted(self.folder.path.glob("evaluation-*.json")):
            try:
                scores = read_scores(file)
            except UserError as error:
                if is_of_the_disk(error):
                    raise
            else:
                found[scores["split"]] = scores
        return found

    def is_evaluated(self, split: str) -> bool:
        """Tells whether the scores of this split are those of the finished run's best
        checkpoint.
        """
        try:
            last = self.folder.ending()
        except UserError:
            return False  # its training says what is damaged
        is_finished = last is not None and last["event"] == "finished"
        best = last.get("best_update") if last is not None and is_finished else None
        return best is not None and self.evaluations().get(split, {}).get("update") == best

    def evaluation_commands(self, split: str | None) -> list[list[str]]:
        """Returns the commands that translate a split with the best checkpoint and score it, as
        `run_cells` takes them; empty where that is done.
        """
        if split is None or self.is_evaluated(split):
            return []
        words = ["--split", split, "--save", str(self.evaluation_file(split))]
        if self.config.imports:
            words.append("--trust")
        return [["-m", "normscope", "evaluate", str(self.folder.path), *words]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """The axes of a comparison. Raises UserError for an empty or repeated axis."""

    placements_and_warmups: tuple[tuple[str, int], ...]
    """Pairs of a placement and its warm-up in updates: often every combination, but Post-LN with
    warm-up against Pre-LN without is a comparison too."""
    peak_lrs: tuple[float, ...]
    optimizers: tuple[str, ...]
    seeds: int
    """The number of seeds: the one of the configuration and those that follow it."""
    threads: int | Literal["auto"] = 1
    """The threads of every run whose configuration leaves them open."""

    def __post_init__(self) -> None:
        for axis in ("placements_and_warmups", "peak_lrs", "optimizers"):
            values = getattr(self, axis)
            if not values or len(set(values)) < len(values):
                raise UserError(
                    f"{axis.replace('_', ' ')}: give one or more different values, got {values}"
                )
        if self.seeds < 1:
            raise UserError(f"seeds must be at least 1, got {self.seeds}")

    def arms(self) -> Iterator[Arm]:
        """Yields every configuration. Raises UserError for a placement that is not registered."""
        axes = itertools.product(self.placements_and_warmups, self.peak_lrs, self.optimizers)
        for (placement, warmup_updates), peak_lr, optimizer in axes:
            yield Arm(registered_name(placement), warmup_updates, peak_lr, optimizer)

    def cells(self, base: RunConfig, folder: Path, *, elsewhere: bool = False) -> list[Cell]:
        """Returns all runs, those of the first seed first, so that a whole picture is there early.

        elsewhere: another machine trains them, to which what is `auto` is left. Raises UserError
        for values a configuration does not allow, and where a run folder holds something else.
        """
        cells = []
        for seed in range(base.seed, base.seed + self.seeds):
            for arm in self.arms():
                run = RunFolder(folder / "runs" / f"{arm.name}_seed-{seed}")
                config = replaced(
                    base,
                    seed=seed,
                    model__placement=arm.placement,
                    schedule__warmup_updates=arm.warmup_updates,
                    optimizer__peak_lr=arm.peak_lr,
                    optimizer__name=arm.optimizer,
                    train__threads=self.threads
                    if base.train.threads == "auto"
                    else base.train.threads,
                )
                config = for_another_machine(config, run) if elsewhere else resolve(config, run)
                refuse_other_configuration(run, config)
                cells.append(Cell(arm, seed, run, config))
        return cells


def grid_of(
    base: RunConfig,
    places: Mapping[str, str],
    *,
    placements: Sequence[str] | None = None,
    warmups_updates: Sequence[int] | None = None,
    arms: Sequence[tuple[str, int]] | None = None,
    peak_lrs: Sequence[float] | None = None,
    optimizers: Sequence[str] | None = None,
    seeds: int = 1,
    query_key_norms: Sequence[str] | None = None,
) -> tuple[Grid, list[str]]:
    """Returns the grid that options and configuration ask for together, and for each axis that
    neither gives its default.

    places: by dotted key, what sets it in the configuration; the keys that it lacks are defaults.
    placements: names, or `all` alone for those that are defined for the model. arms: pairs of a
    placement and a warm-up in updates, instead of every combination of the two. query_key_norms:
    of queries and keys, with which each placement is taken; without placements, that of the
    configuration is. Raises UserError where two places give an axis differently.
    """
    task = task_of(base)
    usual = task.compared if query_key_norms is None else (base.model.placement,)
    axes = Axes(base, places)
    named_ones: Sequence[str] | None = None
    if placements is not None:
        every_one = list(placements) == ["all"]
        named_ones = task.defined(base) if every_one else list(map(registered_name, placements))
    pairs = arm_placements = arm_warmups = None
    if arms is not None:
        pairs = [(registered_name(placement), updates) for placement, updates in arms]
        arm_placements = [placement for placement, _ in pairs]
        arm_warmups = [updates for _, updates in pairs]
    spelled_ones = optimizers and [spelled(name, OPTIMIZERS) for name in optimizers]
    every = axes.values(
        "placements", "model.placement", usual, arms=arm_placements, placements=named_ones
    )
    every = normed(every, query_key_norms, arms)
    warmups = axes.values(
        "warm-ups in updates",
        "schedule.warmup_updates",
        (0, 200),
        arms=arm_warmups,
        warmup_updates=warmups_updates,
    )
    rates = axes.values("peak learning rate", "optimizer.peak_lr", (3e-3,), peak_lr=peak_lrs)
    names = axes.values("optimiser", "optimizer.name", ("adam",), optimizers=spelled_ones)
    grid = Grid(
        placements_and_warmups=tuple(itertools.product(every, warmups) if pairs is None else pairs),
        peak_lrs=tuple(rates),
        optimizers=tuple(names),
        seeds=seeds,
        # One thread a run unless the configuration says otherwise: the grid fills the cores with
        # runs.
        threads=base.train.threads if "train.threads" in places else 1,
    )
    return grid, axes.defaults


_CONFIGURATIONS = SealedJson(
    format_name="normscope-configurations",
    version=1,
    keys=frozenset(),
    optional=None,
    again=(
        "remove it and run the same command again, which rewrites it; runs that have begun are "
        "found without it"
    ),
)


def configurations(folder: Path) -> dict[str, Any]:
    """Returns the TOML that `write_configs` has written into a folder, if any, by the name of its
    run. Raises UserError.
    """
    file = folder / "cells.json"
    found = _CONFIGURATIONS.read(file) if file.exists() else {}
    return {plain(name, file): text for name, text in found.items()}


_FOLDERS = ("runs", "logs", "cells")
"""The folders of a comparison that runs write into."""


def write_configs(cells: Iterable[Cell]) -> None:
    """Write into one file what every cell is to train, beside what stands there: on disk at once,
    however many.

    Raises UserError over a file of another's, where a link leads out of the folder, and for cells
    with different settings whose run folder is the same.
    """
    asked: dict[Path, dict[str, str]] = {}
    for cell in cells:
        texts, text = asked.setdefault(cell.above, {}), cell.configuration
        if texts.setdefault(cell.folder.path.name, text) != text:
            raise UserError(
                f"{cell.folder.path}: two runs that differ would be one; give each arm a folder of "
                "its own"
            )
        refuse_leading_out(cell.folder.path)
        refuse_unusual(cell.log_file)
    for folder, texts in asked.items():
        for name in _FOLDERS:
            refuse_leading_out(folder / name)
        make_folders(folder / "logs")
        former = configurations(folder)
        for name in texts.keys() - former.keys():
            if not (folder / "runs" / name).exists():
                refuse_other(folder / "logs" / f"{name}.txt", TEXT)  # which is added to
        if former | texts != former:
            write_over(
                folder / "cells.json",
                _CONFIGURATIONS.text(former | texts),
                _CONFIGURATIONS.kind,
            )


def registered_name(placement: str) -> str:
    """Returns the registered name of a placement, however it is written. Raises UserError."""
    with user_errors(ValueError):
        return named(placement).name


DEMO_TITLE = "Does it need warm-up? Post-LN and Pre-LN on the toy language"
DEMO_GRID = Grid(
    placements_and_warmups=(("post-ln", 0), ("post-ln", 200), ("pre-ln", 0), ("pre-ln", 200)),
    peak_lrs=(3e-3,),
    optimizers=("adam",),
    seeds=1,
)
"""The demo's grid: at a rate of 1e-3 the four would differ in speed only; at 3e-3 Post-LN without
warm-up does not learn.
"""


def demo_config() -> TranslationRunConfig:
    """6+6 blocks of width 64 for 250 updates: Post-LN without warm-up does no better than the
    unigram baseline, and the other three learn.

    No longer, and on no more sentences, than shows that: what a newcomer waits for is worth
    seconds. With 200 updates and a warm-up of 150 the same three learn, but Pre-LN without warm-up
    is then so far behind the best that the report says it differs from the paper; a warm-up of 100
    leaves Post-LN at 4.2 nats (seed 1).
    """
    return TranslationRunConfig(
        data=DataConfig(toy_pairs=10_000, max_tokens=768),
        model=ModelConfig(width=64, ffn_width=128, heads=4, dropout=0.0),
        train=TrainConfig(duration=250, validate_every=50, checkpoint_every=250),
    )
