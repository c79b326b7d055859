"""The data of a model of the user's own: its batches, what is counted in them, the starts that its
weights have had, and what is minimised.
"""

import math
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
from .loss import LN2, unigram_entropy_nats
from .own_batches import IGNORED, OwnBatch, Source, digest, labels_in
from .own_functions import ModelFile
from .protocol import StartingWeights


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
        """The mean loss times the targets, twice: what is minimised is what is shown."""
        file = self.data.file
        loss = file.loss(file.output(model, batch.value), batch.value) * batch.targets
        return loss, loss.detach()

    @torch.no_grad()
    def validate(self, model: nn.Module) -> dict[str, float]:
        """The mean loss over the targets of all batches."""
        batches = self.data.validation
        with in_mode(model, training=False):
            own = math.fsum(
                float(self.loss_sums(model, batch.to(self.device))[1])
                for batch in self.group.part_of(batches)
            )
        (total,) = self.group.total([own])
        nll = total / sum(batch.targets for batch in batches)
        return {"loss_nats": nll, "nll_nats": nll, "nll_bits": nll / LN2}


@lru_cache(maxsize=2)
def data_of(file: ModelFile, sha256: str) -> OwnData:
    """Opened once a process: it may take long. sha256: of the file's content."""
    train, valid, held_out = file.sources()
    return OwnData(file, train, valid, held_out)
