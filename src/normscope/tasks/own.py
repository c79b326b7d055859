"""Task `own`: a model of the user's, trained and compared as ours are, and under other placements
by transplanting.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import torch
from torch import nn

from ..errors import UserError
from ..placement import AsBuilt, StackShape, named, registered
from ..settings.files import OwnFile, factory_in, with_factory
from ..train.device import seed_weights
from ..train.record import METRIC
from .own_data import OwnData, OwnObjective, RecordedData, data_of
from .own_functions import CONTRACT, ModelFile
from .protocol import (
    Evaluation,
    LoadedRun,
    StartingWeights,
    TargetFacts,
    Task,
    TrainingBatch,
)
from .run_config import RunConfig
from .words import Words

_ABOUT = "data.json"
"""The file, in a run's folder of vocabularies, with what its report needs of the data, so that the
user's code need not run.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class _OwnModelConfig:
    """A model of the user's."""

    factory: str
    """`my_model.py:build`: the file, and the function in it that returns the model."""
    placement: str = AsBuilt.name
    """own, as its code builds it, or the name of one that it is given by transplanting."""
    initialise: Literal["as-found", "draw", "keep"] = "as-found"
    """The treatment of the weights under another placement: as-found draws those of a model that
    shows no sign of having been trained, and keeps others.
    """

    def __post_init__(self) -> None:
        if factory_in(self.factory) is None:
            raise ValueError(
                f"factory is written FILE.py:FUNCTION, got {self.factory!r}; {CONTRACT}"
            )
        object.__setattr__(self, "placement", named(self.placement).name)


@dataclass(frozen=True, slots=True, kw_only=True)
class _OwnDataConfig:
    """The batches, which the file of the model gives."""

    epoch_batches: int = 100
    """The number of batches that counts as an epoch where they have no end."""

    def __post_init__(self) -> None:
        if self.epoch_batches < 1:
            raise ValueError(f"epoch_batches must be at least 1, got {self.epoch_batches}")

    @property
    def corpus(self) -> str:
        return "of the model's file"


@dataclass(frozen=True, slots=True, kw_only=True)
class _OwnRunConfig(RunConfig):
    """A model of the user's own."""

    task: Literal["own"] = "own"
    data: _OwnDataConfig = field(default_factory=_OwnDataConfig)
    model: _OwnModelConfig

    def __post_init__(self) -> None:
        # Slots make a new class, of which a bare `super()` does not know.
        RunConfig.__post_init__(self)
        # A task without a model is asked for where defaults are looked up.
        factory = self.model.factory if isinstance(self.model, _OwnModelConfig) else ""
        files = with_factory(map(OwnFile.of, self.imports), factory)
        object.__setattr__(self, "imports", tuple(map(str, files)))


class _Own(Task):
    """Whatever the user's file says."""

    name: str = "own"
    config = _OwnRunConfig
    model = nn.Module
    model_words = "a model of your own"
    compared = (AsBuilt.name, "pre-ln", "peri-ln")
    weighs_placements = True

    def with_absolute_paths(self, config: _OwnRunConfig) -> _OwnRunConfig:
        imports = tuple(str(OwnFile.of(file).pinned()) for file in config.imports)
        found = factory_in(config.model.factory)
        assert found is not None
        factory = f"{found[0].resolve()}:{found[1]}"
        return replace(config, imports=imports, model=replace(config.model, factory=factory))

    def open(self, config: _OwnRunConfig) -> OwnData:
        file = ModelFile.opened(config.model.factory, config.imports)
        return data_of(file, OwnFile(file.file).pinned().sha256)

    def recorded(self, config: _OwnRunConfig, vocabularies: Path) -> OwnData | RecordedData:
        try:
            about = json.loads((vocabularies / _ABOUT).read_text(encoding="utf-8"))
            facts = [(str(name), str(value)) for name, value in about["facts"]]
            targets = TargetFacts(**about.get("targets", {}))  # earlier versions have none
            fingerprint, chance = str(about["fingerprint"]), float(about["chance_nats"])
            return RecordedData(fingerprint, chance, facts, targets)
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise UserError(
                f"{vocabularies / _ABOUT} is missing or damaged; train the run again, which fixes "
                "it"
            ) from error

    def load_codec(self, vocabularies: Path) -> None:
        return None

    def save_vocabularies(self, corpus: OwnData, folder: Path) -> None:
        """Write what a report needs of the data."""
        about = {
            "fingerprint": corpus.fingerprint,
            "chance_nats": corpus.chance_nats,
            "facts": corpus.facts,
            "targets": asdict(corpus.targets),
        }
        (folder / _ABOUT).write_text(json.dumps(about, indent=1) + "\n", encoding="utf-8")

    def build(self, config: _OwnRunConfig, codec: None) -> nn.Module:
        data = self.open(config)
        seed_weights(config.seed)
        # A model of a stranger's is built with its weights even where a plan wants none.
        with torch.device("cpu"):
            model = data.file.build()
            if config.model.placement != AsBuilt.name:
                data.place(model, config.model.placement, config.model.initialise)
        return model

    def groups(self, config: _OwnRunConfig) -> Callable[[nn.Module], list[dict[str, Any]]] | None:
        return ModelFile.opened(config.model.factory, config.imports).groups()

    def objective(
        self, config: _OwnRunConfig, corpus: OwnData, device: torch.device
    ) -> OwnObjective:
        return OwnObjective(
            corpus, epoch_batches=config.data.epoch_batches, seed=config.seed, device=device
        )

    def notes(self, corpus: OwnData) -> Sequence[str]:
        found = []
        if not corpus.train.exact:
            found.append(
                f"the batches of {corpus.file.file} have no order that is known: a run that is "
                "stopped goes through them again up to where it was, and is the same only if they "
                "come the same way"
            )
        if not corpus.held_out:
            found.append(
                f"{corpus.file.file} has no validation(): what is validated on are the first "
                f"{len(corpus.validation)} batches of the training, and nothing is held out"
            )
        if corpus.file.has_other_metrics:
            found.append(
                f"{corpus.file.file} has a metrics() that is not called: one that takes (model, "
                "batch) and returns numbers by their names, such as {'accuracy': 0.9}, is asked in "
                "every validation"
            )
        return found

    def evaluate(
        self, run: LoadedRun, corpus: OwnData, split: str, search: Mapping[str, Any]
    ) -> Evaluation:
        objective = self.objective(run.config, corpus, next(run.model.parameters()).device)
        scores = objective.validate(run.model)
        named = {name.removeprefix(METRIC): value for name, value in scores.items()}
        return Evaluation(settings={}, scores=named)

    def chance_nats(self, corpus: OwnData | RecordedData) -> float:
        return corpus.chance_nats

    def targets(self, corpus: OwnData | RecordedData) -> TargetFacts:
        return corpus.targets

    def placement_as_built(self, corpus: OwnData) -> str:
        return corpus.placement_as_built

    def target_entropy_nats(self, corpus: OwnData) -> float | None:
        return corpus.label_entropy_nats

    def shapes(self, config: _OwnRunConfig) -> list[StackShape]:
        return []

    def defined(self, config: _OwnRunConfig) -> list[str]:
        """Returns the placements that the model can be given by transplanting, each of which is
        tried.
        """
        found = [AsBuilt.name]
        for name in registered():
            with suppress(UserError):
                self.build(replace(config, model=replace(config.model, placement=name)), None)
                found.append(name)
        return found

    def described(self, config: _OwnRunConfig) -> str:
        # Where it lies on this machine is nothing for a report that others read.
        return f"that of {Path(config.model.factory).name}"

    def corpus_facts(
        self, config: _OwnRunConfig, corpus: OwnData | RecordedData
    ) -> list[tuple[str, str]]:
        return corpus.facts

    def batch_words(self, config: _OwnRunConfig) -> str:
        return "one batch of the model's file"

    def starting_weights(self, config: _OwnRunConfig) -> StartingWeights:
        placement = config.model.placement
        if placement == AsBuilt.name:
            return StartingWeights(told="as its code builds them")
        data, asked = self.open(config), (placement, config.model.initialise)
        if asked not in data.starts:
            self.build(config, None)
        return data.starts[asked]

    def in_smaller_batches(self, config: _OwnRunConfig, tokens: int) -> _OwnRunConfig:
        return config

    def loss_words(self, config: _OwnRunConfig) -> str:
        return "as the model's file has it, a mean over targets"

    def batches(self, config: _OwnRunConfig, corpus: OwnData) -> Callable[[int], TrainingBatch]:
        objective = self.objective(config, corpus, torch.device("cpu"))

        def of(number: int) -> TrainingBatch:
            value = objective.prepare(number).value
            return TrainingBatch(
                run=lambda model: corpus.file.output(model, value),
                loss=lambda output: corpus.file.loss(output, value),
            )

        return of

    def words(self, codec: None) -> Words:
        raise UserError(
            "a run of task own has no tokens of ours to export: its checkpoints hold "
            "model.safetensors, which your own code loads"
        )


OWN: _Own = _Own()
