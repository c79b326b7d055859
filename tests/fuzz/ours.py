"""Folders and files that we write and read again, each guarded by hashes."""

import json
import random
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from fuzz.mutations import of_json
from normscope.compare.grid import Cell, Grid
from normscope.compare.manifest import (
    Manifest,
    _AboutCorpus,
    former_manifest,
    write_manifest as write_comparison,
)
from normscope.data import opening
from normscope.data.documents.corpus import DocumentCorpus
from normscope.data.folder import TokenWriter, write_manifest
from normscope.data.opening import toy_documents
from normscope.data.parallel import corpus as parallel
from normscope.data.parallel.codec import Codec
from normscope.errors import UserError
from normscope.history.explain import explain, page
from normscope.runs.config import load
from normscope.runs.run import train_run
from normscope.runs.trained import SCORES, load_run
from normscope.settings.tables import to_toml
from normscope.targets.logs import history_at
from normscope.train import RunFolder, metrics
from normscope_studies.engine.pieces import Pieces
from tiny import SETTINGS


def make_parallel(folder: Path) -> None:
    made = opening.toy_corpus(30)
    made.codec.save(folder)
    for name, split in made.splits.items():
        for side, sentences in (("source", split.source), ("target", split.target)):
            size = len(getattr(made, side).vocabulary)
            with TokenWriter(folder, f"{name}.{side}", size) as writer:
                for i in range(min(30, len(sentences))):
                    writer.append(
                        {"tokens": sentences[i], "lengths": np.array([len(sentences[i])])}
                    )
            if name != "train":
                text = getattr(split, f"{side}_text")[: min(30, len(sentences))]
                (folder / f"{name}.{side}.txt").write_text("".join(line + "\n" for line in text))
    preparation = {"vocabulary_size": 60, "lowercase": True, "report": {"pairs": {"train": 30}}}
    form = {"format_name": parallel.FORMAT, "version": parallel.VERSION}
    write_manifest(folder, **form, splits=list(made.splits), preparation=preparation)


def read_parallel(folder: Path, changed: Path) -> Any:
    made = parallel.Corpus.open(folder)
    tokens = {
        name: (s.source.tokens.tolist(), s.target.offsets.tolist())
        for name, s in made.splits.items()
    }
    return (
        made.fingerprint,
        made.preparation,
        made.codec.joint,
        made.codec.vocabulary_digests(),
        tokens,
    )


def make_documents(folder: Path) -> None:
    from normscope.data.documents import corpus as documents

    made = toy_documents()
    made.tokeniser.save(folder / documents.TOKENISER)
    words = {}
    for name, split in made.splits.items():
        few = documents.DocumentSplit.of(
            [[split.tokens[a:b] for a, b in pairwise(split.sentences[:21])] for _ in range(2)],
            words=80,
            vocabulary_size=len(made.tokeniser),
        )
        with documents.SplitWriter(folder, name, len(made.tokeniser)) as writer:
            numbers = np.repeat(np.arange(len(few)), np.diff(few.documents))
            writer.append(
                documents.encoded_sentences(few.tokens, np.diff(few.sentences), numbers, few.words)
            )
            writer.end()
        words[name] = few.words
    form = {"format_name": documents.FORMAT, "version": documents.VERSION}
    write_manifest(
        folder,
        **form,
        splits=list(made.splits),
        preparation={"report": {"words": words}, "kind": "toy"},
    )


def read_documents(folder: Path, changed: Path) -> Any:
    made = DocumentCorpus.open(folder)
    splits = {
        name: (s.tokens.tolist(), s.sentences.tolist(), s.words) for name, s in made.splits.items()
    }
    return made.fingerprint, made.preparation, splits


def make_run(folder: Path) -> None:
    train_run(
        load(
            None,
            [*SETTINGS, "train.duration=2", "train.validate_every=1", "train.checkpoint_every=1"],
        ),
        folder,
    )


def read_run(folder: Path, changed: Path) -> Any:
    run = load_run(folder, device="cpu")
    weights = {
        name: float(weight.double().sum()) for name, weight in run.model.state_dict().items()
    }
    return (
        to_toml(run.config),
        run.update,
        weights,
        run.codec.vocabulary_digests(),
        RunFolder(folder).events(),
        run.environment,
    )


def read_codec(folder: Path, changed: Path) -> Any:
    codec = Codec.load(folder)
    return codec.vocabulary_digests(), codec.source.form, codec.target.form, codec.joint


def make_histories(folder: Path) -> None:
    """A log of every kind, in folders of their own; the run's lines have right guards whatever they
    hold.
    """
    rows = [
        {"step": at, "loss": 4.0 / at, "learning_rate": 1e-3, "grad_norm": 1.5}
        for at in range(1, 31)
    ]
    rows += [
        {"step": 30, "eval_loss": 3.0},
        {"step": 30, "normscope/recipe/classes": 50, "normscope/a/end": 0.5},
    ]
    for name in ("trainer", "wandb", "run"):
        (folder / name).mkdir()
    (folder / "trainer" / "trainer_state.json").write_text(json.dumps({"log_history": rows}))
    lines = "".join(json.dumps({"_step": row.pop("step"), **row}) + "\n" for row in rows)
    (folder / "wandb" / "wandb-history.jsonl").write_text(lines)
    events = [
        {"event": "update", "update": at, "loss_nats": 4.0 / at, "lr": 1e-3} for at in range(1, 31)
    ]
    events.append({"event": "validation", "update": 30, "nll_nats": 3.5})
    (folder / "run" / "metrics.jsonl").write_text(sealed(json.dumps(event) for event in events))


def sealed(lines: Iterable[str]) -> str:
    """Lines with the guards that a run would have given them."""
    written, guard = b"", ""
    for line in lines:
        body = line[:-1].encode()
        guard = metrics._guard(guard, body)
        written += body + metrics._seal(guard) + b"\n"
    return written.decode()


def change_sealed(data: bytes, draw: random.Random) -> bytes:
    """An event changed by somebody who seals what he wrote."""
    lines = [line[: -metrics._SEAL_LENGTH] + b"}" for line in data.splitlines()]
    at = draw.randrange(len(lines))
    lines[at] = of_json(lines[at], draw).replace(b"\n", b" ")
    return sealed(line.decode("utf-8", "replace") for line in lines).encode()


def read_histories(folder: Path, changed: Path) -> Any:
    return page(explain(history_at(changed)))


def make_codec(folder: Path) -> None:
    opening.toy_corpus(10).codec.save(folder)


def measured(offset: float) -> dict[str, Any]:
    """What a study might keep."""
    return {
        "mean": [1 / 3 + offset, 2.5e-7],
        "half_width": [0.25, None],
        "placements": {"post-ln": 1, "pre-ln": 2},
    }


def make_pieces(folder: Path) -> None:
    pieces = Pieces(folder)
    pieces.get("alone", {"seeds": 3, "rate": 0.001}, measured, 0.5)
    pieces.get("post-ln/seed-1", {"seeds": 1, "depths": [2, 4]}, measured, 1.0)


def read_pieces(folder: Path, changed: Path) -> Any:
    pieces = Pieces(folder)
    kept = (
        pieces.get("alone", {"seeds": 3, "rate": 0.001}, measured, 0.5),
        pieces.get("post-ln/seed-1", {"seeds": 1, "depths": [2, 4]}, measured, 1.0),
    )
    # The values would be the same: that it was measured anew is what must not happen without a
    # word.
    return kept, pieces.made


def make_scores(folder: Path) -> None:
    cell = _cell(folder)
    cell.folder.path.mkdir(parents=True)
    for split in ("valid", "test"):
        scores = {
            "run": "runs/a",
            "update": 7,
            "split": split,
            "beam": 5,
            "bleu": 31.25,
            "bleu_tokenised": 30.5,
        }
        cell.evaluation_file(split).write_text(SCORES.text(scores))


def _cell(folder: Path) -> Cell:
    grid = Grid(
        placements_and_warmups=(("pre-ln", 0),), peak_lrs=(1e-3,), optimizers=("adam",), seeds=1
    )
    return next(iter(grid.cells(load(None, SETTINGS), folder)))


def read_scores(folder: Path, changed: Path) -> Any:
    found = _cell(folder).evaluations()
    if len(found) < 2:
        raise UserError("scores that are damaged are none")
    return found


def make_comparison(folder: Path) -> None:
    corpus = _AboutCorpus("0123abcd", 4.25, [("sentence pairs", "30"), ("words", "210")])
    manifest = Manifest(
        title="One", corpus=corpus, commands=("normscope compare",), failed={"b": "no room"}
    )
    write_comparison(folder, manifest)


def read_comparison(folder: Path, changed: Path) -> Any:
    return former_manifest(folder, lambda config: load(None, []))
