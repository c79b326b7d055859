"""Running text as token ids: the toy language's English, characters of a file, or pieces of its words."""

from collections import Counter
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import torch
from tokenizers import Tokenizer, models, pre_tokenizers, trainers
from torch import Tensor

from normscope.data.opening import toy_corpus
from normscope.data.sources.lines import read_lines

_MOST_CHARACTERS = 1_000_000
"""Of the file: more than any of these trainings can read."""
_CHARACTERS, _PIECES = 96, 400
_TOY_SENTENCES = 5_000
_HELD_OUT = 0.05


@dataclass(frozen=True, eq=False)
class RunningText:
    """One long sequence of ids to train on, and another that is held out."""

    train: Tensor
    valid: Tensor
    vocabulary: int
    """Ids below this are tokens of the text; the next one is free for a mask."""


@cache
def running_text(kind: str, file: str) -> RunningText:
    """kind: toy, characters or pieces. file: UTF-8 text, plain, .gz or .xz; not read for toy.

    Raises UserError where the file cannot be read.
    """
    if kind == "toy":
        return _toy()
    text = _text(file)
    ids = {"characters": _as_characters, "pieces": _as_pieces}[kind](text)
    held = max(1, int(len(ids) * _HELD_OUT))
    return RunningText(ids[:-held], ids[-held:], int(ids.max()) + 1)


def _toy() -> RunningText:
    corpus = toy_corpus(_TOY_SENTENCES)
    parts = [torch.from_numpy(corpus.splits[split].target.tokens.astype("int64")) for split in ("train", "valid")]
    return RunningText(parts[0], parts[1], len(corpus.target.vocabulary))


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
    common = {letter: number for number, (letter, _) in enumerate(Counter(text).most_common(_CHARACTERS - 1))}
    return torch.tensor([common.get(letter, _CHARACTERS - 1) for letter in text])


def _as_pieces(text: str) -> Tensor:
    """Byte-pair encoding learnt from the text itself."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=_PIECES, show_progress=False, initial_alphabet=pre_tokenizers.ByteLevel.alphabet()
    )
    tokenizer.train_from_iterator(text.splitlines(), trainer)
    return torch.tensor([piece for line in tokenizer.encode_batch(text.splitlines()) for piece in line.ids])
