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
from numpy.typing import NDArray
from torch import Tensor, nn

from ..errors import UserError, installation
from .hugging_face import from_folder, load_transformers

# AdamW's settings as BERT is fine-tuned (google-research/bert, optimization.py).
BETAS = (0.9, 0.999)
EPSILON = 1e-6
WEIGHT_DECAY = 0.01
"""Of matrices and embeddings: norms and biases do not decay, there and in Trainer."""
CLIP_NORM = 1.0
"""The largest norm of all gradients together."""
_LOGGED = 50
"""Means of the training loss that are kept of a run, at most about as many."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainerRecipe:
    """What a run of Trainer hangs on beside its model and its data."""

    batch_sequences: int
    peak_lr: float
    epochs: int
    warmup_share: float
    """Of the updates; the rate then falls in a straight line to 0."""
    seed: int
    """Of the order and the dropout."""
    device: str
    """cpu or cuda, whose first device is taken."""

    def updates(self, rows: int) -> int:
        """Of the whole run, over so many rows."""
        return math.ceil(rows / self.batch_sequences) * self.epochs


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainerOutcome:
    """What a run came to."""

    losses: Sequence[tuple[int, float]]
    """(update, mean training loss in nats over the updates since the one before)."""
    logits_PC: NDArray[np.float64]
    """Of the rows that are judged, after the last update."""


def fine_tuned(
    model: nn.Module,
    train: Any,
    dev: Any,
    batch: Callable[[Sequence[Any]], dict[str, Tensor]],
    recipe: TrainerRecipe,
    *,
    after_update: Callable[[], None] = lambda: None,
) -> TrainerOutcome:
    """Trains `model` in place by `transformers.Trainer`, and judges `dev` after the last update.

    model: takes what `batch` makes of rows as keywords, and returns a dictionary with "loss", the
    mean in nats, and "logits" (B, C). train, dev: rows by number, with a length. after_update:
    called after every update; what it raises ends the training. Raises UserError where
    transformers or accelerate is not installed.
    """
    transformers: Any = load_trainer()
    updates = recipe.updates(len(train))
    every = max(1, updates // _LOGGED)

    class Watch(transformers.TrainerCallback):  # type: ignore[misc]
        def on_step_end(self, *arguments: Any, **more: Any) -> None:
            after_update()

    with TemporaryDirectory() as folder:
        trainer = transformers.Trainer(
            model=model,
            args=_arguments(transformers, recipe, updates, every, folder),
            train_dataset=train,
            data_collator=batch,
            callbacks=[Watch()],
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
    """Versions of the libraries that train."""
    return {name: version(name) for name in ("transformers", "accelerate")}


@dataclass(frozen=True, slots=True, kw_only=True)
class FolderEncoder:
    """An encoder of transformers, out of a folder."""

    model: nn.Module
    """Gives hidden states (B, T, D) first."""
    pooler: nn.Linear | None
    """Of the first token, taken out of the model; None where it has none."""
    width: int
    positions: int
    """Of the longest sequence."""
    segments: int
    """How many kinds of segments it tells apart."""


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
