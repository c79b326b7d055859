"""The data of a model of the user's own: its batches, what is counted in them, the starts that its
weights have had, and what is minimised.
"""

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from importlib import import_module
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import UserError
from ..model.linear import in_mode
from ..placement import named
from ..train import Objective
from ..train.device import seed_weights
from ..train.record import METRIC
from .loss import LN2, unigram_entropy_nats
from .own_batches import IGNORED, OwnBatch, Source, digest, labels_in
from .own_functions import ModelFile
from .protocol import StartingWeights, TargetFacts


@dataclass(frozen=True)
class OwnData:
    """Batches of the training and of the validation."""

    file: ModelFile
    train: Source
    valid: Source
    held_out: bool
    """True where the user gave batches for the validation; otherwise the first of the training
    stand in.
    """
    starts: dict[tuple[str, str], StartingWeights] = field(default_factory=dict)
    """The starting weights by the placements that the model has been given so far, and by what was
    asked of weights.
    """
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
        """The entropy of the validation's labels where the loss is a cross-entropy over them."""
        labels = [
            labels for batch in self.validation if (labels := labels_in(batch.value)) is not None
        ]
        if not labels or self.file.has_loss or any(one.is_floating_point() for one in labels):
            return None
        counted = torch.cat([one.flatten() for one in labels])
        return unigram_entropy_nats(counted[counted != IGNORED].numpy())

    @cached_property
    def targets(self) -> TargetFacts:
        """What the loss is a mean over: examples where each has one whole number for a label."""
        if not all(_is_classified(batch.value) for batch in self.validation):
            guessed = self.label_entropy_nats is not None
            return TargetFacts(one="token" if guessed else "target", guessed=guessed)
        labels = [_labels(batch.value) for batch in self.validation]
        counts = Counter(label for some in labels for label in some.tolist() if label != IGNORED)
        return TargetFacts(
            one="example",
            guessed=self.label_entropy_nats is not None,
            classes=len(counts),
            commonest_share=max(counts.values()) / counts.total(),
        )

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
        found = OwnObjective(self, epoch_batches=1, seed=0, device=torch.device("cpu")).validate(
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
class RecordedData:
    """The facts on its data that a run's folder holds, with no code of the user's run."""

    fingerprint: str
    chance_nats: float
    facts: list[tuple[str, str]]
    targets: TargetFacts


def _labels(value: Any) -> Tensor:
    labels = labels_in(value)
    assert labels is not None
    return labels


def _is_classified(value: Any) -> bool:
    """Whether every row of a batch has one whole number for its label."""
    labels = labels_in(value)
    if labels is None or labels.ndim != 1 or labels.is_floating_point():
        return False
    # A row of tokens without a dimension for sequences has labels of its own shape.
    inputs = None if isinstance(value, Mapping) else value[0]
    is_packed = isinstance(inputs, Tensor) and inputs.shape == labels.shape
    return not is_packed and bool((labels != IGNORED).any())


class OwnObjective(Objective):
    """Batches of the user's, and their loss under the user's model."""

    def __init__(
        self, data: OwnData, *, epoch_batches: int, seed: int, device: torch.device
    ) -> None:
        self.data = data
        self.seed = seed
        self.device = device
        self.epoch_batches = data.train.count or epoch_batches

    @property
    def micro_batches_per_epoch(self) -> int:
        return self.epoch_batches

    def prepare(self, number: int) -> OwnBatch:
        return OwnBatch.of(self.data.train.batch(number, self.seed))

    def target_tokens(self, batch: OwnBatch) -> int:
        """Returns the number of targets in the batch's mean loss, as far as that is known."""
        return batch.targets

    def loss_sums(self, model: nn.Module, batch: OwnBatch) -> tuple[Tensor, Tensor]:
        """Returns the mean loss times the targets, twice: what is minimised is what is shown."""
        file = self.data.file
        loss = file.loss(file.output(model, batch.value), batch.value) * batch.targets
        return loss, loss.detach()

    @torch.no_grad()
    def validate(self, model: nn.Module) -> dict[str, float]:
        """Returns the mean loss over the targets of all batches, and the means of what the file's
        metrics() says, or else of right labels, by names behind `METRIC`.
        """
        batches = self.data.validation
        losses: list[float] = []
        told: dict[str, list[float]] = {}
        with in_mode(model, training=False):
            for batch in self.group.part_of(batches):
                loss, metrics = self._validated(model, batch.to(self.device))
                losses.append(loss)
                for name, value in metrics.items():
                    told.setdefault(name, []).append(value)
        (total,) = self.group.total([math.fsum(losses)])
        count = sum(batch.targets for batch in batches)
        nll = total / count
        every: dict[str, float] = {}
        for sums in self.group.gather({name: math.fsum(values) for name, values in told.items()}):
            for name, value in sums.items():
                every[name] = every.get(name, 0.0) + value
        means = {METRIC + name: value / count for name, value in every.items()}
        return {"loss_nats": nll, "nll_nats": nll, "nll_bits": nll / LN2, **means}

    def _validated(self, model: nn.Module, batch: OwnBatch) -> tuple[float, dict[str, float]]:
        """The mean loss of a batch and what else is told of it, each times the targets."""
        file = self.data.file
        output = file.output(model, batch.value)
        loss = file.loss(output, batch.value) * batch.targets
        told: dict[str, float] = {}
        if self.data.targets.one == "example":
            right = right_share(output, _labels(batch.value))
            if right is not None:
                told[ACCURACY] = right
        told |= file.metrics(model, batch.value)
        return float(loss), {name: value * batch.targets for name, value in told.items()}


ACCURACY = "accuracy"
"""The share of labels that a classification has right."""


def right_share(output: Any, labels: Tensor) -> float | None:
    """How many of the labels that count are those of the largest logits; None where the output
    shows no logits of theirs.
    """
    logits = output
    if isinstance(output, Mapping):
        logits = output.get("logits")
    elif not isinstance(output, Tensor):
        logits = getattr(output, "logits", None)
    if not isinstance(logits, Tensor) or logits.shape[:-1] != labels.shape:
        return None
    counted = labels != IGNORED
    right = (logits.argmax(-1) == labels) & counted
    return int(right.sum()) / max(1, int(counted.sum()))


@lru_cache(maxsize=2)
def data_of(file: ModelFile, sha256: str) -> OwnData:
    """Opened once a process: it may take long. sha256: of the file's content."""
    train, valid, held_out = file.sources()
    return OwnData(file, train, valid, held_out)
