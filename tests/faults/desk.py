"""Inputs of the works, each made when it is first asked for: text, a corpus to be replaced, tiny
runs.
"""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from normscope.cli.main import main
from normscope.data import opening
from normscope.data.documents.corpus import DocumentCorpus
from normscope.data.documents.tokeniser import TextTokeniser
from normscope.data.toy import toy_pairs
from normscope.runs.config import load
from normscope.runs.run import train_run
from tiny import tiny

PRETRAINING = (
    'task="masked-lm"',
    "data.sequence_length=32",
    "data.batch_sequences=8",
    "model.width=16",
    "model.ffn_width=16",
    "model.heads=2",
    "model.blocks=1",
    "model.positions=32",
    "masked_lm.valid_sequences=8",
    "train.duration=4",
    "train.validate_every=2",
    "train.checkpoint_every=2",
    "train.threads=1",
    'train.device="cpu"',
)
"""Four updates of one block of width 16, with checkpoints 2 and 4."""


def lay_out(desk: Path, name: str) -> None:
    """Make the file or folder `desk/name`, and what it is made of, unless it is there."""
    if (desk / name).exists():
        return
    desk.mkdir(exist_ok=True)
    _MADE_BY[name](desk)


def _texts(desk: Path) -> None:
    pairs = toy_pairs(240, seed=3, split="train")
    sentences = [pair[1] for pair in pairs]
    documents = ("\n".join(sentences[i : i + 8]) + "\n\n" for i in range(0, len(sentences), 8))
    (desk / "text.txt").write_text("".join(documents), encoding="utf-8")
    (desk / "few.txt").write_text("".join(pair[0] + "\n" for pair in pairs[:3]), encoding="utf-8")
    for side, language in enumerate(("de", "en")):
        (desk / f"train.{language}").write_text(
            "".join(pair[side] + "\n" for pair in pairs), encoding="utf-8"
        )


def _other_corpus(desk: Path) -> None:
    lay_out(desk, "train.en")
    files = ["--train", str(desk / "train.en"), str(desk / "train.de"), "--languages", "en", "de"]
    _normscope(
        "data", "prepare", str(desk / "other-corpus/corpus"), *files, "--vocabulary-size", "110"
    )


def _run(desk: Path) -> None:
    train_run(tiny("train.duration=2", "data.toy_pairs=200"), desk / "run")


def _pre(desk: Path) -> None:
    """A masked-lm run on a few toy documents."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(opening, "open_documents", lambda config: _documents())
        train_run(load(None, PRETRAINING), desk / "pre")


def _documents() -> DocumentCorpus:
    """Two dozen documents: the two thousand of `data.corpus = "toy"` take seconds to make and to
    pack.
    """
    sentences = [english for _, english in toy_pairs(144, seed=1, split="train")]
    documents = [sentences[i : i + 6] for i in range(0, len(sentences), 6)]
    tokeniser = TextTokeniser.learn(sentences, 150, kind="wordpiece", lowercase=True)
    return DocumentCorpus.of_texts(tokeniser, {"train": documents[:20], "valid": documents[20:]})


def _normscope(*words: str) -> None:
    """The command line in this process."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["normscope", *words])
        try:
            main()
        except SystemExit as end:
            if end.code:
                raise RuntimeError(f"{words}: exit code {end.code}") from end


_MADE_BY: dict[str, Callable[[Path], object]] = {
    **dict.fromkeys(("text.txt", "few.txt", "train.de", "train.en"), _texts),
    "other-corpus": _other_corpus,
    "run": _run,
    "pre": _pre,
}
