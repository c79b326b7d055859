"""The start of a fine-tuning: a checkpoint of a masked-language-model run, or a folder of
transformers such as `normscope export` writes.
"""

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

from ..adapters.fine_tuning import encoder_in, load_trainer
from ..data.documents.tokeniser import TextTokeniser
from ..data.lines import file_sha256
from ..errors import UserError
from ..model import MaskedEncoder
from ..runs.trained import load_run
from ..settings.files import is_run
from ..tasks.masked_lm import MASKED_LM
from .classifier import GivenEncoder, OwnEncoder, SentenceClassifier

_WEIGHTS = ("model.safetensors", "model.safetensors.index.json", "pytorch_model.bin")


@dataclass(frozen=True, slots=True, kw_only=True)
class StartEncoder:
    """A pre-trained encoder, on the CPU, with what is needed to read sentences with it."""

    folder: Path
    update: int | None
    """The last update of its pre-training; None where the folder does not say."""
    words: str
    """The description of the encoder, such as "placement pre-ln, update 3000"."""
    weights_sha256: str
    tokeniser: TextTokeniser
    positions: int
    """Tokens of the longest sequence that it can read."""
    width: int
    encoder: nn.Module
    """The module, with the interface of `OwnEncoder`."""
    pooler: nn.Module | None

    def classifier(self, classes: int, *, dropout: float, seed: int) -> SentenceClassifier:
        """Returns a model of its own, with the encoder's weights and a head drawn by the seed."""
        return SentenceClassifier(
            deepcopy(self.encoder),
            self.pooler,
            width=self.width,
            classes=classes,
            dropout=dropout,
            seed=seed,
        )


def open_start(folder: Path, *, which: str = "best", dropout: float) -> StartEncoder:
    """Opens the checkpoint `which` of a run, or a folder of transformers.

    which: best, last or the number of an update; a folder of transformers has one alone. dropout:
    the share that the encoder drops while it is fine-tuned. Raises UserError for a run that is no
    encoder, a folder that is neither, and where transformers or accelerate is not installed.
    """
    load_trainer()  # what is missing is said before a large checkpoint is read
    if is_run(folder):
        return _of_run(folder, which, dropout)
    if (folder / "config.json").is_file():
        return _of_folder(folder, which, dropout)
    raise UserError(
        f"{folder} is neither a run folder (it has no config.toml) nor a folder that "
        "`normscope export` writes (it has no config.json); give one of these"
    )


def _of_run(folder: Path, which: str, dropout: float) -> StartEncoder:
    with _drawing_nothing():
        loaded = load_run(folder, which=which, device="cpu", of_task=MASKED_LM)
        config = dataclasses.replace(
            loaded.model.config, dropout=dropout, attention_dropout=dropout, activation_dropout=0.0
        )
        model = MaskedEncoder(config, len(loaded.codec))
    model.load_state_dict(loaded.model.state_dict())
    return StartEncoder(
        folder=folder,
        update=loaded.update,
        words=f"placement {config.placement}, update {loaded.update:,}",
        weights_sha256=file_sha256(
            folder / "checkpoints" / f"step-{loaded.update}" / "model.safetensors"
        ),
        tokeniser=loaded.codec,
        positions=config.positions,
        width=config.width,
        encoder=OwnEncoder(model),
        pooler=model.pooler,
    )


def _of_folder(folder: Path, which: str, dropout: float) -> StartEncoder:
    if which != "best":
        raise UserError(
            f"{folder} is a folder of transformers, which has one checkpoint alone; leave "
            f"--checkpoint {which} out"
        )
    found = encoder_in(folder, dropout=dropout)
    weights = [folder / name for name in _WEIGHTS if (folder / name).is_file()]
    if not weights:
        raise UserError(f"{folder} holds no weights; give a folder with {_WEIGHTS[0]}")
    return StartEncoder(
        folder=folder,
        update=None,
        words=f"{type(found.model).__name__} of transformers",
        weights_sha256=file_sha256(weights[0]),
        tokeniser=TextTokeniser.load(folder / "tokenizer.json"),
        positions=found.positions,
        width=found.width,
        encoder=GivenEncoder(found.model, segments=found.segments),
        pooler=found.pooler,
    )


@contextmanager
def _drawing_nothing() -> Iterator[None]:
    """A context that leaves torch's generator as it was: weights that are read are drawn first."""
    before = torch.random.get_rng_state()
    try:
        yield
    finally:
        torch.random.set_rng_state(before)
