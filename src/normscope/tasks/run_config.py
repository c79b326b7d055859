"""The base of all tasks' configurations."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ..data.opening import TextDataConfig
from ..errors import UserError
from ..model import DecoderConfig, EncoderConfig
from ..optim import AdaptiveConfig, OptimizerConfig, ScheduleConfig
from ..placement import named, stand_in
from ..settings.files import OwnFile, is_said, named_files
from ..settings.tables import check_choices
from ..train import TrainConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class RunConfig:
    """The settings that a run depends on, beside the machine it runs on. Every task has a class of
    its own, with further sections.

    The classes of tasks give `task`, `data` and `model` a type and a default.
    """

    seed: int = 1
    """The seed of the initial weights, the order of the batches, the masks and the dropout."""
    imports: tuple[str, ...] = ()
    """Python files that register placements of your own; in a run with the `@sha256:` of what it
    began with.
    """
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    schedule: ScheduleConfig = field(default_factory=ScheduleConfig)
    adaptive: AdaptiveConfig = field(default_factory=AdaptiveConfig)
    train: TrainConfig = field(default_factory=TrainConfig)
    task: str
    data: Any
    """Each has a `corpus`: a folder, or a name of embedded data."""
    model: Any
    """Each has a `placement`."""

    def __post_init__(self) -> None:
        check_choices(self)
        if self.seed < 0:
            raise ValueError(f"seed must be 0 or more, got {self.seed}")


@dataclass(frozen=True, slots=True, kw_only=True)
class TextRunConfig(RunConfig):
    """The base of the configurations of tasks on a corpus of documents."""

    data: TextDataConfig
    model: EncoderConfig | DecoderConfig

    def __post_init__(self) -> None:
        # Slots make a new class, of which a bare `super()` does not know.
        RunConfig.__post_init__(self)
        length, model = self.data.sequence_length, self.model
        if model.position_encoding == "learned" and length > model.positions:
            raise ValueError(
                f"data.sequence_length={length} is above model.positions={model.positions}: the "
                "model has no embedding for later positions; make the sequences shorter or the "
                "positions more"
            )


_EARLIER = {"reduction": "ordered", "shard": False}
"""Settings of [train] that earlier versions wrote down, with what every run now does."""


def without_earlier(table: Mapping[str, Any], *, source: str) -> Mapping[str, Any]:
    """Returns the table of a configuration without what earlier versions said in it of several
    processes that train one run.

    Raises UserError where a run needs them.
    """
    train = table.get("train")
    if not isinstance(train, Mapping):
        return table
    for key, kept in _EARLIER.items():
        if train.get(key, kept) != kept:
            raise UserError(
                f"{source}: train.{key} = {train[key]!r} was for several processes that train one "
                "run, which NormScope does no more; leave the key out and begin in another folder. "
                "A run that was trained so is read by the version that trained it"
            )
    return {**table, "train": {key: value for key, value in train.items() if key not in _EARLIER}}


def let_stand_in(table: Mapping[str, Any], *, source: str) -> None:
    """Lets a configuration be read though its files were not run, which may register its placement.

    Raises UserError where it names none of them as it should.
    """
    model = table.get("model")
    unrun = [str(file.path) for file in named_files(table, source=source) if not file.has_run]
    if unrun and isinstance(model, Mapping) and isinstance(model.get("placement"), str):
        stand_in(model["placement"], " or ".join(unrun))


def refuse_unrun(config: RunConfig, *, source: str) -> None:
    """Raise UserError where a model is asked for and the Python that it takes was not run: the user
    has not said so.
    """
    unrun = [file for file in map(OwnFile.of, config.imports) if not file.has_run]
    module = named(config.model.placement).__module__
    if not unrun or (module.partition(".")[0] != "normscope" and is_said(module)):
        return
    file = unrun[0].path
    raise UserError(
        f"{source}: its model takes Python of {file}, which runs on your word alone: --trust "
        f"(trust=True in Python) runs it as it was when the run began, and --import {file} "
        "whatever it holds"
    )
