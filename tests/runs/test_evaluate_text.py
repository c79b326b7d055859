"""A language model scored on a file of text: against the same text as a corpus, and what is
refused.
"""

import gzip
from pathlib import Path

import pytest

from normscope.data.documents.corpus import DocumentCorpus
from normscope.data.toy import toy_pairs
from normscope.errors import UserError
from normscope.runs.config import load
from normscope.runs.run import train_run
from normscope.runs.trained import evaluate_run, evaluate_text, load_run
from normscope.tasks.language_model import LANGUAGE_MODEL
from tiny import tiny

SETTINGS = [
    'task="language-model"',
    *(
        "model.width=16",
        "model.ffn_width=16",
        "model.heads=2",
        "model.blocks=1",
        "model.positions=16",
    ),
    *("data.sequence_length=16", "data.batch_sequences=4", "train.duration=2", "train.threads=1"),
    'train.device="cpu"',
]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder: Path = tmp_path_factory.mktemp("text") / "run"
    train_run(load(None, SETTINGS), folder)
    return folder


def test_a_file_has_the_scores_of_the_same_text_as_a_corpus(run: Path, tmp_path: Path) -> None:
    sentences = [english.capitalize() + "." for _, english in toy_pairs(40, seed=3, split="valid")]
    documents = [sentences[i : i + 8] for i in range(0, 40, 8)]
    text = "\n\n".join("\n".join(document) for document in documents)
    (tmp_path / "text.txt").write_text(text, encoding="utf-8")
    (tmp_path / "text.txt.gz").write_bytes(gzip.compress(text.encode()))
    plain, packed = (evaluate_text(run, tmp_path / name) for name in ("text.txt", "text.txt.gz"))
    assert plain.scores == packed.scores
    loaded = load_run(run)
    corpus = DocumentCorpus.of_texts(loaded.codec, {"train": documents, "valid": documents})
    wanted = LANGUAGE_MODEL.evaluate(loaded, corpus, "valid", {}).scores
    assert plain.scores == pytest.approx(wanted, rel=1e-6)
    assert plain.settings["words"] == len(text.split())
    assert plain.scores["word_perplexity"] > plain.scores["perplexity"]
    assert evaluate_run(run, "valid").scores.keys() == plain.scores.keys()


def test_what_cannot_be_scored_is_told(run: Path, tmp_path: Path) -> None:
    empty = tmp_path / "empty.txt"
    empty.write_text("\n\n", encoding="utf-8")
    with pytest.raises(UserError, match=r"empty.txt: no text in it"):
        evaluate_text(run, empty)
    with pytest.raises(UserError, match=r"absent.txt"):
        evaluate_text(run, tmp_path / "absent.txt")
    with pytest.raises(UserError, match="layout must be one of paragraphs, wikitext, got 'pages'"):
        evaluate_text(run, empty, layout="pages")
    train_run(tiny("train.duration=1"), tmp_path / "translation")
    empty.write_text("a cat\n", encoding="utf-8")
    with pytest.raises(
        UserError, match="for runs of task language-model, and this is one of task translation"
    ):
        evaluate_text(tmp_path / "translation", empty)
