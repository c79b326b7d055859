"""A tiny pre-trained encoder, and sentence pairs that it can be fine-tuned on."""

from functools import cache
from pathlib import Path

import pytest

from normscope.data import opening
from normscope.data.documents.corpus import DocumentCorpus
from normscope.data.documents.tokeniser import TextTokeniser
from normscope.data.toy import toy_pairs
from normscope.finetune.finetune import PairTask, base_config
from normscope.runs.config import changed, load
from normscope.runs.run import train_run
from normscope.tasks.pair_classification import PairRunConfig, open_start

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


def pretrained(folder: Path, *settings: str) -> Path:
    """A masked-lm run on a few toy documents."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(opening, "open_documents", lambda config: _documents())
        train_run(load(None, [*PRETRAINING, *settings]), folder)
    return folder


@cache
def _documents() -> DocumentCorpus:
    """Two dozen documents: the two thousand of `data.corpus = "toy"` take seconds to make and to pack."""
    sentences = [english for _, english in toy_pairs(144, seed=1, split="train")]
    documents = [sentences[i : i + 6] for i in range(0, len(sentences), 6)]
    tokeniser = TextTokeniser.learn(sentences, 150, kind="wordpiece", lowercase=True)
    return DocumentCorpus.of_texts(tokeniser, {"train": documents[:20], "valid": documents[20:]})


def pairs_file(path: Path, count: int, *, seed: int = 7) -> Path:
    """Two thirds of the pairs are a sentence and itself, labelled same; the others are two sentences."""
    sentences = [english for _, english in toy_pairs(2 * count, seed=seed, split="train")]
    rows = ["label\tsentence1\tsentence2"]
    for i in range(count):
        first, second = sentences[2 * i : 2 * i + 2]
        rows.append(f"same\t{first}\t{first}" if i % 3 else f"other\t{first}\t{second}")
    path.write_text("\n".join(rows) + "\n", encoding="utf-8")
    return path


def tuning(run: Path, train: Path, *settings: str, which: str = "last") -> PairRunConfig:
    """Fine-tuning of `run` on `train`, 3 epochs of batches of 8, on one thread of the CPU."""
    base = base_config(open_start(run, which), PairTask(name="toy", train_file=train), settings=['train.device="cpu"'])
    ours = ("data.batch_sequences=8", 'train.duration="3 epochs"', "optimizer.peak_lr=1e-3", *settings)
    return changed(base, ours)
