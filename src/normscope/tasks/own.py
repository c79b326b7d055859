"""Task `own`: a model of the user's, trained and compared as ours are, and under other placements
by transplanting.
"""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from ..errors import UserError
from ..model.linear import in_mode
from ..placement import AsBuilt, StackShape, named, registered
from ..settings.files import OwnFile, factory_in, with_factory
from ..train import Objective
from ..train.device import seed_weights
from .loss import LN2, unigram_entropy_nats
from .own_batches import IGNORED, OwnBatch, Source, digest, labels_in
from .own_functions import CONTRACT, ModelFile
from .protocol import Evaluation, LoadedRun, StartingWeights, Task, TrainingBatch
from .run_config import RunConfig
from .words import Words

_ABOUT = "data.json"
"""In a run's folder of vocabularies: what its report needs of the data, so that it need not run the
user's code.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class _OwnModelConfig:
    """A model of the user's."""

    factory: str
    """`my_model.py:build`: the file, and the function in it that returns the model."""
    placement: str = AsBuilt.name
    """own, as its code builds it, or the name of one that it is given by transplanting."""
    initialise: Literal["as-found", "draw", "keep"] = "as-found"
    """What another placement does with the weights: as-found draws those of a model that shows no
    sign of having been trained, and keeps others."""

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
    """What counts as an epoch where the batches have no end."""

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


@dataclass(frozen=True)
class _OwnData:
    """Batches of the training and of the validation."""

    file: ModelFile
    train: Source
    valid: Source
    held_out: bool
    """Whether the user gave batches for the validation; otherwise the first of the training stand
    in.
    """
    starts: dict[tuple[str, str], StartingWeights] = field(default_factory=dict)
    """By the placements that the model has been given so far, and what was asked of weights."""
    codec: None = None

    @property
    def splits(self) -> Mapping[str, Any]:
        return {"train": self.train, "valid": self.valid}

    @cached_property
    def validation(self) -> list[OwnBatch]:
        """All of them. Raises UserError for those that have no end, or that are none."""
        if self.valid.count is None:
            if self.valid.exact:
                raise self.file.wrong(
                    "validation() must have an end: return a list or a DataLoader, and no function "
                    "of a number"
                )
            items: Any = self.valid
            return [OwnBatch.of(value) for value in items.items]
        return [OwnBatch.of(self.valid.batch(number, 0)) for number in range(self.valid.count)]

    @cached_property
    def fingerprint(self) -> str:
        first = self.train.batch(0, 0) if self.train.exact else None
        return digest([self.train.words, first, *(batch.value for batch in self.validation)])

    @cached_property
    def label_entropy_nats(self) -> float | None:
        """Of the validation's labels where the loss is a cross-entropy over them."""
        labels = [
            labels for batch in self.validation if (labels := labels_in(batch.value)) is not None
        ]
        if not labels or self.file.has_loss or any(one.is_floating_point() for one in labels):
            return None
        counted = torch.cat([one.flatten() for one in labels])
        return unigram_entropy_nats(counted[counted != IGNORED].numpy())

    @cached_property
    def chance_nats(self) -> float:
        """Entropy of the labels where the loss is a cross-entropy over them; else the loss of the
        model as it is built.

        To four digits: threads and machines differ in the last ones.
        """
        if self.label_entropy_nats is not None:
            return self.label_entropy_nats
        seed_weights(0)
        model = self.file.build()
        found = _OwnObjective(self, epoch_batches=1, seed=0, device=torch.device("cpu")).validate(
            model
        )["nll_nats"]
        return float(f"{found:.4g}")

    @cached_property
    def placement_as_built(self) -> str:
        """The name that the doctor finds in the model as the file builds it; "" for none that is
        sure.
        """
        seed_weights(0)
        with torch.device("cpu"):
            model = self.file.build()
        batch = self.validation[0].value
        # By its name, as in `place`.
        placement_of = import_module("normscope.transplant.naming").placement_of
        return str(placement_of(model, lambda one: self.file.output(one, batch)))

    def place(self, model: nn.Module, placement: str, initialise: str) -> None:
        """Transplant the model, with weights as the placement draws them where they have not been
        trained. Raises UserError where that is refused.
        """
        batch = self.validation[0].value
        # By its name: what another task measures is made neither of the transplant nor of the
        # doctor that proves it, and an edited report would make all of it old.
        transplant = import_module("normscope.transplant.surgery").transplant
        try:
            done = transplant(
                model,
                named(placement),
                lambda one: self.file.output(one, batch),
                initialise=None if initialise == "as-found" else initialise,
                stack=None,
            )
        except UserError as error:
            raise self.file.wrong(
                f"its model cannot be given the placement {placement}: {error}"
            ) from error
        self.starts[placement, initialise] = StartingWeights(
            told="; ".join(done.weight_lines()), unlike_own=done.resized
        )

    @property
    def facts(self) -> list[tuple[str, str]]:
        """Rows of a table."""
        valid = f"{len(self.validation):,} batches"
        return [
            ("Model's file", f"{self.file.file.name}, {self.file.factory}()"),
            ("Fingerprint of the data", self.fingerprint),
            (
                "Batches",
                self.train.words
                + ("" if self.train.exact else "; runs of it do not resume exactly"),
            ),
            (
                "Validation",
                valid
                if self.held_out
                else f"the first {valid} of the training: nothing is held out",
            ),
        ]


@dataclass(frozen=True, slots=True)
class _RecordedData:
    """What a run's folder says of its data, with no code of the user's run."""

    fingerprint: str
    chance_nats: float
    facts: list[tuple[str, str]]


class _OwnObjective(Objective):
    """Batches of the user's, and their loss under the user's model."""

    def __init__(
        self, data: _OwnData, *, epoch_batches: int, seed: int, device: torch.device
    ) -> None:
        self.data, self.seed, self.device = data, seed, device
        self.epoch_batches = data.train.count or epoch_batches

    @property
    def micro_batches_per_epoch(self) -> int:
        return self.epoch_batches

    def prepare(self, number: int) -> OwnBatch:
        return OwnBatch.of(self.data.train.batch(number, self.seed))

    def target_tokens(self, batch: OwnBatch) -> int:
        """What the batch's mean loss is over, as far as that is known."""
        return batch.targets

    def loss_sums(self, model: nn.Module, batch: OwnBatch) -> tuple[Tensor, Tensor]:
        """The mean loss times the targets, twice: what is minimised is what is shown."""
        file = self.data.file
        loss = file.loss(file.output(model, batch.value), batch.value) * batch.targets
        return loss, loss.detach()

    @torch.no_grad()
    def validate(self, model: nn.Module) -> dict[str, float]:
        """The mean loss over the targets of all batches."""
        batches = self.data.validation
        with in_mode(model, training=False):
            total = math.fsum(
                float(self.loss_sums(model, batch.to(self.device))[1]) for batch in batches
            )
        nll = total / sum(batch.targets for batch in batches)
        return {"loss_nats": nll, "nll_nats": nll, "nll_bits": nll / LN2}


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

    def open(self, config: _OwnRunConfig) -> _OwnData:
        file = ModelFile.opened(config.model.factory, config.imports)
        return _data_of(file, OwnFile(file.file).pinned().sha256)

    def recorded(self, config: _OwnRunConfig, vocabularies: Path) -> _OwnData | _RecordedData:
        try:
            about = json.loads((vocabularies / _ABOUT).read_text(encoding="utf-8"))
            facts = [(str(name), str(value)) for name, value in about["facts"]]
            return _RecordedData(str(about["fingerprint"]), float(about["chance_nats"]), facts)
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise UserError(
                f"{vocabularies / _ABOUT} is missing or damaged; train the run again, which mends "
                "it"
            ) from error

    def load_codec(self, vocabularies: Path) -> None:
        return None

    def save_vocabularies(self, corpus: _OwnData, folder: Path) -> None:
        """Write what a report needs of the data."""
        about = {
            "fingerprint": corpus.fingerprint,
            "chance_nats": corpus.chance_nats,
            "facts": corpus.facts,
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
        self, config: _OwnRunConfig, corpus: _OwnData, device: torch.device
    ) -> _OwnObjective:
        return _OwnObjective(
            corpus, epoch_batches=config.data.epoch_batches, seed=config.seed, device=device
        )

    def notes(self, corpus: _OwnData) -> Sequence[str]:
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
        return found

    def evaluate(
        self, run: LoadedRun, corpus: _OwnData, split: str, search: Mapping[str, Any]
    ) -> Evaluation:
        objective = self.objective(run.config, corpus, next(run.model.parameters()).device)
        return Evaluation(settings={}, scores=objective.validate(run.model))

    def chance_nats(self, corpus: _OwnData | _RecordedData) -> float:
        return corpus.chance_nats

    def placement_as_built(self, corpus: _OwnData) -> str:
        return corpus.placement_as_built

    def target_entropy_nats(self, corpus: _OwnData) -> float | None:
        return corpus.label_entropy_nats

    def shapes(self, config: _OwnRunConfig) -> list[StackShape]:
        return []

    def defined(self, config: _OwnRunConfig) -> list[str]:
        """Those that the model can be given by transplanting, each of which is tried."""
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
        self, config: _OwnRunConfig, corpus: _OwnData | _RecordedData
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

    def batches(self, config: _OwnRunConfig, corpus: _OwnData) -> Callable[[int], TrainingBatch]:
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


@lru_cache(maxsize=2)
def _data_of(file: ModelFile, sha256: str) -> _OwnData:
    """Opened once a process: it may take long. sha256: of the file's content."""
    train, valid, held_out = file.sources()
    return _OwnData(file, train, valid, held_out)


OWN: _Own = _Own()
