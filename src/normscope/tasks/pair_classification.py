"""Fine-tuning of a pre-trained encoder on labelled sentence pairs (Devlin et al. 2018, section 4.1)."""

# N = packed tokens, B = sequences, D = width, C = classes

import dataclasses
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Literal, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from ..data.batches import EpochBatches
from ..data.documents.tokeniser import TextTokeniser
from ..data.labelled import LabelledBatch, LabelledCorpus, PairDataConfig, open_labelled
from ..data.lines import file_sha256
from ..errors import UserError
from ..model import EncoderConfig, Layout, MaskedEncoder, PairClassifier
from ..model.linear import in_mode
from ..train import ALONE, Objective, RunFolder, Share
from ..train.checkpoint import Checkpoint
from ..train.device import seed_weights
from .loss import LN2, at_least_float32
from .masked_lm import MASKED_LM, MaskedRunConfig
from .protocol import Assembly, Task
from .run_config import RunConfig, absolute, let_stand_in, refuse_too_long, refuse_unrun, with_absolute_paths


@dataclass(frozen=True, slots=True, kw_only=True)
class _ClassificationConfig:
    """Beside what the encoder has."""

    dropout: float = 0.1
    """On the pooled vector, as BERT's run_classifier.py."""

    def __post_init__(self) -> None:
        if not 0 <= self.dropout < 1:
            raise ValueError(f"dropout must lie in [0, 1), got {self.dropout}")


@dataclass(frozen=True, slots=True, kw_only=True)
class _StartConfig:
    """The pre-trained weights that a fine-tuning starts from."""

    run: str
    """Folder of a masked-lm run."""
    update: int
    """Its checkpoint."""
    weights_sha256: str = ""
    """Of that checkpoint's `model.safetensors`; empty for whatever is there. With it, a pre-training made anew in the
    same folder is not taken for this one."""

    def __post_init__(self) -> None:
        if self.update < 0:
            raise ValueError(f"update must be 0 or more, got {self.update}")


@dataclass(frozen=True, slots=True, kw_only=True)
class PairRunConfig(RunConfig):
    """Fine-tuning on labelled sentence pairs."""

    task: Literal["pair-classification"] = "pair-classification"
    data: PairDataConfig
    start: _StartConfig
    model: EncoderConfig = field(default_factory=EncoderConfig)
    """As the run it starts from has it, but for its dropout."""
    classification: _ClassificationConfig = field(default_factory=_ClassificationConfig)

    def __post_init__(self) -> None:
        # Slots make a new class, of which a bare `super()` does not know.
        RunConfig.__post_init__(self)
        refuse_too_long(self.data.sequence_length, self.model)


class _ClassificationObjective(Objective):
    """Batches of labelled pairs, and their loss under a `PairClassifier`."""

    def __init__(self, corpus: LabelledCorpus, *, batch_sequences: int, seed: int, device: torch.device) -> None:
        self.corpus, self.batch_sequences, self.device = corpus, batch_sequences, device
        self.epochs = EpochBatches(sequences=len(corpus.splits["train"]), batch_sequences=batch_sequences, seed=seed)

    @property
    def micro_batches_per_epoch(self) -> int:
        return len(self.epochs)

    def prepare(self, number: int) -> LabelledBatch:
        _, indices = self.epochs.micro_batch(number)
        return self.corpus.splits["train"].batch(indices.tolist())

    def target_tokens(self, batch: LabelledBatch) -> int:
        """The batch's pairs: each has one label to predict, and losses are means over pairs."""
        return len(batch.labels_B)

    def tokens_of(self, number: int) -> int:
        _, indices = self.epochs.micro_batch(number)
        return len(indices)

    def loss_sums(self, model: nn.Module, batch: LabelledBatch) -> tuple[Tensor, Tensor]:
        """Cross-entropy summed over the batch's pairs, in nats, twice: nothing is smoothed."""
        loss = functional.cross_entropy(self._logits(model, batch), batch.labels_B, reduction="sum")
        return loss, loss.detach()

    @torch.no_grad()
    def validate(self, model: nn.Module, share: Share = ALONE.share) -> dict[str, float]:
        """Means over the held-out pairs: loss in nats, accuracy, and F1 of the positive label where there are two."""
        split = self.corpus.splits["valid"]
        batches = EpochBatches(sequences=len(split), batch_sequences=self.batch_sequences, seed=0).in_order()

        def judged(indices: NDArray[np.int64]) -> tuple[float, list[int], list[int]]:
            batch = split.batch(indices.tolist()).to(self.device)
            logits_BC = self._logits(model, batch)
            loss = float(functional.cross_entropy(logits_BC.double(), batch.labels_B, reduction="sum"))
            return loss, logits_BC.argmax(-1).tolist(), batch.labels_B.tolist()

        loss_sum, predicted, labels = 0.0, list[int](), list[int]()
        with in_mode(model, training=False):
            for loss, of_batch, right in share(batches, judged):
                loss_sum += loss
                predicted += of_batch
                labels += right
        predicted_B, labels_B = torch.tensor(predicted), torch.tensor(labels)
        nll = loss_sum / len(split)
        numbers = {
            "loss_nats": nll,
            "nll_nats": nll,
            "nll_bits": nll / LN2,
            "accuracy": accuracy(predicted_B, labels_B),
        }
        if self.corpus.positive is not None:
            numbers["f1"] = f1(predicted_B, labels_B, self.corpus.positive)
        return numbers

    def _logits(self, model: nn.Module, batch: LabelledBatch) -> Tensor:
        """(B, C)."""
        layout = Layout(batch.lengths_B, self.device)
        hidden_ND = model(batch.tokens_N, batch.segments_N, layout)
        # A compiled model hands its attributes through; the cast is for the type checker only.
        return at_least_float32(cast(PairClassifier, model).logits(hidden_ND, layout))


def accuracy(predicted_B: Tensor, labels_B: Tensor) -> float:
    """Share of pairs whose label is predicted."""
    return float((predicted_B == labels_B).double().mean())


def f1(predicted_B: Tensor, labels_B: Tensor, positive: int) -> float:
    """2 TP / (2 TP + FP + FN) of the class `positive`; 0 where no pair has that class and none is predicted to."""
    predicted, true = predicted_B == positive, labels_B == positive
    both, either = int((predicted & true).sum()), int(predicted.sum()) + int(true.sum())
    return 2 * both / either if either else 0.0


_FREE = ("dropout", "attention_dropout", "activation_dropout", "activation_checkpointing")
"""What a fine-tuning may choose otherwise than the pre-training did: nothing that the weights were learned with."""


@dataclass(frozen=True, slots=True)
class Start:
    """A checkpoint of a masked-lm run, verified."""

    folder: RunFolder
    checkpoint: Checkpoint
    config: MaskedRunConfig
    tokeniser: TextTokeniser

    def section(self) -> _StartConfig:
        """What a fine-tuning writes down of it."""
        return _StartConfig(
            run=str(self.folder.path.resolve()),
            update=self.checkpoint.update,
            weights_sha256=file_sha256(self.checkpoint.folder / "model.safetensors"),
        )

    def encoder(self) -> MaskedEncoder:
        """The pre-trained model, on the CPU; takes from torch's generator. Raises UserError for a damaged file."""
        model = MaskedEncoder(self.config.model, len(self.tokeniser))
        self.checkpoint.load_model(model)
        return model


def open_start(run: Path, which: str) -> Start:
    """which: `best`, `last` or an update's number. Raises UserError for what is no masked-lm run, or damaged."""
    folder = RunFolder(run)
    found = folder.checkpoint(which)
    table, source = folder.config_table(), str(folder.config_file)
    task = table.get("task")
    if task != MASKED_LM.name:
        raise UserError(f"{run} is a run of task {task}; fine-tuning starts from one of task {MASKED_LM.name}")
    let_stand_in(table, source=source)
    config = MASKED_LM.config_of(table, source=source)
    refuse_unrun(config, source=str(run))
    folder.refuse_other_vocabularies()
    return Start(folder, found, config, MASKED_LM.load_codec(folder.vocabularies))


def start_of(config: PairRunConfig) -> Start:
    """What the configuration starts from. Raises UserError as `open_start`, and where it is not as it says."""
    start = open_start(Path(config.start.run), str(config.start.update))
    noted, found = config.start.weights_sha256, start.section().weights_sha256
    if noted and noted != found:
        raise UserError(
            f"{start.checkpoint.folder}: its weights are not those this fine-tuning began from (SHA-256 {noted} then, "
            f"{found} now); start in another folder"
        )
    _refuse_other_model(config.model, start)
    return start


def _refuse_other_model(model: EncoderConfig, start: Start) -> None:
    ours, theirs = asdict(model), asdict(start.config.model)
    for name, value in theirs.items():
        if name not in _FREE and ours[name] != value:
            raise UserError(
                f"model.{name} is {ours[name]!r}, and {value!r} in {start.folder.path}, whose weights this starts "
                "from; give the same [model] section as that run has, but for its dropout"
            )


class _PairClassification(Task[PairRunConfig]):
    """Classes of sentence pairs, by a pre-trained encoder and a classifier drawn anew."""

    name: str = "pair-classification"
    config = PairRunConfig

    def with_absolute_paths(self, config: PairRunConfig) -> PairRunConfig:
        valid = absolute(config.data.valid_file) if config.data.valid_file else ""
        data = dataclasses.replace(config.data, corpus=absolute(config.data.corpus), valid_file=valid)
        start = dataclasses.replace(config.start, run=absolute(config.start.run))
        return dataclasses.replace(with_absolute_paths(config), data=data, start=start)

    def assemble(self, config: PairRunConfig, device: torch.device) -> Assembly:
        start = start_of(config)
        pairs = open_labelled(config.data, start.tokeniser)
        return Assembly(
            corpus=pairs,
            objective=_ClassificationObjective(
                pairs, batch_sequences=config.data.batch_sequences, seed=config.seed, device=device
            ),
            build=lambda: classifier(config, start, len(pairs.labels)),
            drawn=False,
        )


def classifier(config: PairRunConfig, start: Start, classes: int) -> PairClassifier:
    """The model with the weights of `start` and a classifier drawn anew. Raises UserError for a damaged checkpoint."""
    seed_weights(config.seed)
    model = PairClassifier(config.model, len(start.tokeniser), classes, dropout=config.classification.dropout)
    model.start_from(start.encoder())
    return model


PAIR_CLASSIFICATION: _PairClassification = _PairClassification()
