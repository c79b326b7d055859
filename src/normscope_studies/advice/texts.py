"""The texts that cases are trained on: running texts as one long sequence, texts made by a rule,
and images of digits.
"""

from collections import Counter
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from tokenizers import Tokenizer, models, pre_tokenizers, trainers
from torch import Tensor

from normscope.data.batches import raw_bits
from normscope.data.lines import read_lines
from normscope.data.opening import toy_corpus
from normscope.errors import UserError

_MOST_CHARACTERS = 3_000_000
"""The largest number of characters of the file."""
_CHARACTERS, _PIECES = 96, 400
_TOY_SENTENCES = 20_000
_HELD_OUT = 0.05
_MADE = 1_000_000
"""Tokens of a text that is made by a rule."""


@dataclass(frozen=True, eq=False)
class Running:
    """One long sequence of ids to train on, and another that is held out."""

    train: Tensor
    valid: Tensor
    vocabulary: int
    """Ids below this are tokens of the text."""


@cache
def running(kind: str, file: str) -> Running:
    """kind: toy, characters, pieces, arithmetic or markov. file: UTF-8 text, plain, .gz or .xz, for
    characters and pieces.

    Raises UserError where the file cannot be read.
    """
    if kind == "toy":
        corpus = toy_corpus(_TOY_SENTENCES)
        parts = [
            torch.from_numpy(corpus.splits[split].target.tokens.astype("int64"))
            for split in ("train", "valid")
        ]
        return Running(parts[0], parts[1], len(corpus.target.vocabulary))
    if kind in _RULES:
        ids = torch.from_numpy(_RULES[kind]())
    else:
        ids = {"characters": _as_characters, "pieces": _as_pieces}[kind](_text(file))
    held = max(1, int(len(ids) * _HELD_OUT))
    return Running(ids[:-held], ids[-held:], int(ids.max()) + 1)


@cache
def _text(file: str) -> str:
    kept: list[str] = []
    count = 0
    for _, line in read_lines(Path(file)):
        if line := line.strip():
            kept.append(line)
            count += len(line) + 1
        if count >= _MOST_CHARACTERS:
            break
    return "\n".join(kept)[:_MOST_CHARACTERS]


def _as_characters(text: str) -> Tensor:
    """The commonest characters, and one id for all others."""
    common = {
        letter: number
        for number, (letter, _) in enumerate(Counter(text).most_common(_CHARACTERS - 1))
    }
    return torch.tensor([common.get(letter, _CHARACTERS - 1) for letter in text])


def _as_pieces(text: str) -> Tensor:
    """Byte-pair encoding learnt from the text itself."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=_PIECES,
        show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )
    tokenizer.train_from_iterator(text.splitlines(), trainer)
    return torch.tensor(
        [piece for line in tokenizer.encode_batch(text.splitlines()) for piece in line.ids]
    )


_RUN = 40
_MODULUS = 64
_LARGEST_STEP = 8


def _arithmetic() -> NDArray[np.int64]:
    """Progressions of 40 numbers modulo 64, of steps from 1 to 8: the two numbers before tell the
    next.
    """
    bits = raw_bits(2 * (_MADE // _RUN), 1).reshape(2, -1, 1)
    starts, steps = bits[0] % np.uint64(_MODULUS), bits[1] % np.uint64(_LARGEST_STEP) + np.uint64(1)
    found = (starts + steps * np.arange(_RUN, dtype=np.uint64)) % np.uint64(_MODULUS)
    return np.array(found.ravel(), dtype=np.int64)


_SYMBOLS, _FIRST_SHARE = 24, 0.8


def _markov() -> NDArray[np.int64]:
    """Returns a chain of 24 symbols: the two before tell which of two comes next, one of them in
    four of five cases.
    """
    table = (
        (raw_bits(2 * _SYMBOLS**2, 2) % np.uint64(_SYMBOLS))
        .astype(np.int64)
        .reshape(_SYMBOLS, _SYMBOLS, 2)
    )
    choices = (raw_bits(_MADE, 3) / 2.0**64 >= _FIRST_SHARE).astype(np.int64).tolist()
    rows, found = table.tolist(), [0, 1]
    for choice in choices:
        found.append(rows[found[-2]][found[-1]][choice])
    return np.array(found[2:])


_RULES = {"arithmetic": _arithmetic, "markov": _markov}


@cache
def digits() -> tuple[Tensor, Tensor]:
    """Images (1797, 1, 8, 8) from 0 to 1 and their digits, in an order of their own. Raises
    UserError without scikit-learn."""
    try:
        from sklearn.datasets import load_digits
    except ModuleNotFoundError:
        raise UserError("digits are those of scikit-learn: pip install scikit-learn") from None
    found = load_digits()
    order = np.argsort(raw_bits(len(found.target), 4), kind="stable")
    images = torch.from_numpy(found.images[order]).float().unsqueeze(1) / 16
    return images, torch.from_numpy(found.target[order]).long()
