"""Hugging Face's Trainer around a classifier of sentences, and encoders out of folders of
transformers.
"""

# B = sequences of a batch, C = classes, P = rows of a split, D = width

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader

from ..errors import UserError, installation
from .hugging_face import from_folder, load_transformers

# AdamW's settings as BERT is fine-tuned (google-research/bert, optimization.py).
BETAS = (0.9, 0.999)
EPSILON = 1e-6
WEIGHT_DECAY = 0.01
"""The decay of matrices and embeddings: norms and biases do not decay, there and in Trainer."""
CLIP_NORM = 1.0
"""The largest norm of all gradients together."""
_LOGGED = 50
"""Means of the training loss that are kept of a run, at most about as many."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainerRecipe:
    """The settings that a run of Trainer depends on beside its model and its data."""

    batch_sequences: int
    peak_lr: float
    epochs: int
    warmup_share: float
    """The share of updates that is warm-up; the rate then falls in a straight line to 0."""
    seed: int
    """The seed of the order and the dropout."""
    device: str
    """cpu or cuda, whose first device is taken."""

    def updates(self, rows: int) -> int:
        """Returns the updates of the whole run, over so many rows."""
        return math.ceil(rows / self.batch_sequences) * self.epochs


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainerOutcome:
    """The outcome of a run."""

    losses: Sequence[tuple[int, float]]
    """(update, mean training loss in nats over the updates since the one before)."""
    logits_PC: NDArray[np.float64]
    """The logits of the rows that are judged, after the last update."""


def fine_tuned(
    model: nn.Module,
    train: Any,
    dev: Any,
    batch: Callable[[Sequence[Any]], dict[str, Tensor]],
    recipe: TrainerRecipe,
    *,
    rank: int = 0,
    processes: int = 1,
    after_update: Callable[[], None] = lambda: None,
) -> TrainerOutcome:
    """Trains `model` in place by `transformers.Trainer`, and judges `dev` after the last update.

    model: takes what `batch` makes of rows as keywords, and returns a dictionary with "loss", the
    mean in nats, and "logits" (B, C). train, dev: rows by number, with a length. after_update:
    called after every update; what it raises ends the training. rank, processes: of this process
    among those of torch's default group, which share out the rows of every batch. Raises UserError
    where transformers or accelerate is not installed.
    """
    transformers: Any = load_trainer()
    updates = recipe.updates(len(train))
    every = max(1, updates // _LOGGED)

    class Watch(transformers.TrainerCallback):  # type: ignore[misc]
        def on_step_end(self, *arguments: Any, **more: Any) -> None:
            after_update()

    shared = {} if processes == 1 else {"compute_loss_func": _mean_over_all}
    kind = transformers.Trainer if processes == 1 else _sharing(transformers, rank, processes)
    with TemporaryDirectory() as folder:
        trainer = kind(
            model=model,
            args=_arguments(transformers, recipe, updates, every, folder),
            train_dataset=train,
            data_collator=batch,
            callbacks=[Watch()],
            **shared,
        )
        trainer.remove_callback(transformers.PrinterCallback)
        trainer.train()
        logits_PC = trainer.predict(dev).predictions
    losses = [
        (int(line["step"]), float(line["loss"]))
        for line in trainer.state.log_history
        if "loss" in line
    ]
    return TrainerOutcome(losses=losses, logits_PC=np.asarray(logits_PC, dtype=np.float64))


_LEFT_OUT = -100
"""The label of a row that counts nothing: cross-entropy's own."""


def _mean_over_all(outputs: Any, labels_B: Tensor, num_items_in_batch: Any = None) -> Tensor:
    """Returns this process's part of the mean over all rows of a batch: Trainer multiplies it with
    the number of processes, whose mean DistributedDataParallel takes.

    num_items_in_batch: rows of all processes; None where a batch is judged alone.
    """
    rows = (labels_B != _LEFT_OUT).sum() if num_items_in_batch is None else num_items_in_batch
    losses = functional.cross_entropy(
        outputs["logits"], labels_B, ignore_index=_LEFT_OUT, reduction="sum"
    )
    return losses / rows


def _sharing(transformers: Any, rank: int, processes: int) -> Any:
    """Returns a Trainer that trains on every so many-th row of each batch of one process.

    Trainer's own would fill the last batch of an epoch up with rows of the first.
    """
    from accelerate.data_loader import prepare_data_loader

    class SharingTrainer(transformers.Trainer):  # type: ignore[misc]
        def get_train_dataloader(self) -> Any:
            whole = DataLoader(
                self.train_dataset,
                batch_size=self.args.per_device_train_batch_size,
                sampler=self._get_train_sampler(),
                collate_fn=self._own_rows,
                pin_memory=self.args.dataloader_pin_memory,
            )
            return prepare_data_loader(
                whole,
                device=self.args.device,
                num_processes=1,
                process_index=0,
                put_on_device=True,
                use_seedable_sampler=True,
                data_seed=self.args.data_seed,
            )

        def _own_rows(self, rows: Sequence[Any]) -> dict[str, Tensor]:
            own = rows[rank::processes]
            found: dict[str, Tensor] = self.data_collator(own or rows[:1])
            if not own:
                found["labels"] = torch.full_like(found["labels"], _LEFT_OUT)
            return found

        def training_step(self, *arguments: Any, **more: Any) -> Any:
            if self.state.global_step == 0:
                # Trainer gives all processes one seed, by which they would drop the same units.
                torch.manual_seed(self.args.seed + rank * _SEEDS_APART)
            return super().training_step(*arguments, **more)

    return SharingTrainer


_SEEDS_APART = 1_000_003


def _arguments(
    transformers: Any, recipe: TrainerRecipe, updates: int, every: int, folder: str
) -> Any:
    class OneDevice(transformers.TrainingArguments):  # type: ignore[misc]
        @property
        def n_gpu(self) -> int:
            # On several devices Trainer would split each batch, which a search does not need.
            return min(1, int(super().n_gpu))

    cuda = recipe.device != "cpu"
    return OneDevice(
        output_dir=folder,
        num_train_epochs=recipe.epochs,
        per_device_train_batch_size=recipe.batch_sequences,
        per_device_eval_batch_size=max(64, recipe.batch_sequences),
        learning_rate=recipe.peak_lr,
        warmup_steps=int(updates * recipe.warmup_share),
        lr_scheduler_type="linear",
        optim="adamw_torch",
        adam_beta1=BETAS[0],
        adam_beta2=BETAS[1],
        adam_epsilon=EPSILON,
        weight_decay=WEIGHT_DECAY,
        max_grad_norm=CLIP_NORM,
        seed=recipe.seed,
        data_seed=recipe.seed,
        use_cpu=not cuda,
        bf16=cuda,
        dataloader_pin_memory=cuda,
        logging_steps=every,
        logging_nan_inf_filter=False,
        save_strategy="no",
        eval_strategy="no",
        report_to="none",
        disable_tqdm=True,
        remove_unused_columns=False,
    )


def load_trainer() -> Any:
    """transformers with all that its Trainer takes. Raises UserError naming what is missing."""
    transformers = load_transformers()
    if not transformers.utils.is_accelerate_available():
        raise UserError(f"transformers' Trainer needs accelerate: {installation('huggingface')}")
    return transformers


def trained_with() -> dict[str, str]:
    """Returns the versions of the libraries that train."""
    return {name: version(name) for name in ("transformers", "accelerate")}


@dataclass(frozen=True, slots=True, kw_only=True)
class FolderEncoder:
    """An encoder of transformers, out of a folder."""

    model: nn.Module
    """Gives hidden states (B, T, D) first."""
    pooler: nn.Linear | None
    """The pooler of the first token, taken out of the model; None where it has none."""
    width: int
    positions: int
    """The length of the longest sequence."""
    segments: int
    """The number of kinds of segments that it distinguishes."""


def encoder_in(folder: Path, *, dropout: float) -> FolderEncoder:
    """Opens the encoder in a folder of transformers, such as `normscope export` writes.

    dropout: the share that every dropout layer drops. Raises UserError for a folder that holds no
    encoder, and as `from_folder`.
    """
    load_trainer()
    model: Any = from_folder(folder, {}, bare=True).model
    config = model.config
    if not _is_encoder(config):
        raise UserError(
            f"{folder} holds a {config.model_type}, and fine-tuning takes an encoder that was "
            "trained on masked tokens, such as a bert or a roberta"
        )
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = dropout
    # RoBERTa and its relatives count positions from the padding id + 1.
    first = getattr(getattr(model, "embeddings", None), "padding_idx", None)
    return FolderEncoder(
        model=model,
        pooler=_pooler_out_of(model),
        width=int(config.hidden_size),
        positions=int(config.max_position_embeddings) - (0 if first is None else first + 1),
        segments=int(getattr(config, "type_vocab_size", 0)),
    )


def _is_encoder(config: Any) -> bool:
    from transformers.models.auto import modeling_auto

    known = modeling_auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES
    decodes = config.is_encoder_decoder or getattr(config, "is_decoder", False)
    return config.model_type in known and not decodes


def _pooler_out_of(model: Any) -> nn.Linear | None:
    there = getattr(getattr(model, "pooler", None), "dense", None)
    if not isinstance(there, nn.Linear):
        return None
    model.pooler = None  # computed by the head alone
    return there
