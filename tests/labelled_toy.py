"""Labelled pairs of the toy language, and encoders of it small enough to be fine-tuned in a
second.
"""

import tempfile
from pathlib import Path
from typing import Any

import torch

from normscope.data.documents.tokeniser import TextTokeniser
from normscope.data.labelled import LabelledTable, read_labelled
from normscope.data.opening import toy_documents
from normscope.data.toy import toy_pairs
from normscope.model import EncoderConfig, MaskedEncoder

SIZES = {"width": 16, "ffn_width": 32, "heads": 2, "blocks": 2, "positions": 40}
WITHOUT_DROPOUT = {"dropout": 0.0, "attention_dropout": 0.0}


def lines(count: int, *, split: str, seed: int = 7) -> list[tuple[str, str, str]]:
    """Label and two sentences: two rows of three have the same sentence twice."""
    english = [target for _, target in toy_pairs(2 * count, seed=seed, split=split)]
    rows = []
    for row in range(count):
        first, other = english[2 * row : 2 * row + 2]
        same = row % 3 != 0
        rows.append(("same" if same else "other", first, first if same else other))
    return rows


def write(file: Path, rows: list[tuple[str, ...]], *names: str) -> Path:
    """A tab-separated file under a line of names."""
    text = "".join("\t".join(row) + "\n" for row in [names, *rows])
    file.write_text(text, encoding="utf-8")
    return file


def written(folder: Path, train: int = 24, dev: int = 12) -> tuple[Path, Path]:
    """Files of rows to train on and to judge, in RTE's columns."""
    names = ("label", "sentence1", "sentence2")
    return (
        write(folder / "train.tsv", lines(train, split="train"), *names),
        write(folder / "dev.tsv", lines(dev, split="valid"), *names),
    )


def tables(train: int, dev: int) -> tuple[LabelledTable, LabelledTable]:
    """The same, read."""
    with tempfile.TemporaryDirectory() as folder:
        files = written(Path(folder), train, dev)
        return read_labelled(files[0]), read_labelled(files[1])


def toy_encoder(placement: str, **changes: object) -> tuple[MaskedEncoder, TextTokeniser]:
    """An encoder with initial weights, the same ones every time, and its tokeniser.

    Drawn as the paper's: BERT's 0.02 leaves so narrow a first token nearly the same in every row.
    """
    tokeniser = toy_documents().tokeniser
    torch.manual_seed(5)
    settings: dict[str, Any] = {**SIZES, **WITHOUT_DROPOUT, "initialisation": "paper", **changes}
    config = EncoderConfig(placement=placement, **settings)
    return MaskedEncoder(config, len(tokeniser)), tokeniser
