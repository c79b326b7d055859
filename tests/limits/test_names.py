"""Names that a manifest lists, and folders that somebody made to have files removed or read that
lie elsewhere.

Whatever a name or a link leads to lies beside the folder in a test's own.
"""

import os
from collections.abc import Callable, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, strategies as st

from normscope.compare.compare import report
from normscope.compare.grid import Grid, write_configs
from normscope.compare.manifest import FILE, about, read_manifest, write_manifest
from normscope.data.documents.corpus import DocumentCorpus
from normscope.data.documents.prepare import DocumentsConfig, prepare_documents
from normscope.data.folder import file_sha256, fingerprint
from normscope.data.opening import toy_corpus
from normscope.data.parallel.corpus import Corpus
from normscope.data.parallel.prepare import PrepareConfig, prepare
from normscope.data.preparation import read_parts
from normscope.data.toy import toy_pairs
from normscope.data.work import note_parts
from normscope.errors import UserError
from normscope.files import UNFINISHED, clear_unfinished
from normscope.limits.names import inside, is_plain, refuse_leading_out
from normscope.runs.run import train_run
from normscope.train import checkpoint
from normscope_studies.engine.pieces import Pieces
from tiny import resealed, tiny

MINE = b"years of work\n"
LETTERS = st.text(alphabet="./\\\0 aé", max_size=6)
LEADING_OUT = ("../mine", "..", "./mine", "a/../../mine", "", ".", "mine\0", "..\\mine", "m" * 256)
"""Names that no manifest may list; an absolute one is made by each test, of its own folder."""
OneLine = Callable[[pytest.ExceptionInfo[UserError]], None]


@given(LETTERS)
@example("train.tokens")
@example("..tokens")
def test_a_plain_name_is_that_of_an_entry_of_the_folder_it_is_joined_to(name: str) -> None:
    joined = os.path.normpath(os.path.join("folder", name))  # noqa: PTH118
    is_entry = joined == f"folder/{name}" and PurePosixPath(name).parts == (name,)
    assert is_plain(name) == (is_entry and "\\" not in name and "\0" not in name)


@pytest.mark.parametrize("value", [None, 3, ["name"], b"name", True])
def test_what_is_no_text_is_no_name(value: object, tmp_path: Path) -> None:
    assert not is_plain(value)
    with pytest.raises(UserError, match="may list plain names of files in its own folder alone"):
        inside(tmp_path, value, tmp_path / "corpus.json")


def test_a_link_may_lead_to_a_place_inside_of_its_folder_alone(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "weights").write_bytes(b"weights")
    (tmp_path / "mine").write_bytes(MINE)
    for name, there in (
        ("same", "weights"),
        ("whole", folder / "weights"),
        ("out", "../mine"),
        ("absent", "../absent"),
        ("above", ".."),
    ):
        (folder / name).symlink_to(there)
    (folder / "chain").symlink_to("out")
    for name in ("weights", "nothing", "same", "whole"):
        assert inside(folder, name, folder / "manifest") == folder / name
    for name in ("out", "absent", "above", "chain"):
        with pytest.raises(UserError, match=rf"{name} is a link that leads out of its folder, to "):
            refuse_leading_out(folder / name)


def _documents(folder: Path, out: Path, **options: Any) -> Any:
    text = folder / "text.txt"
    if not text.exists():
        english = [pair[1] for pair in toy_pairs(96, seed=3, split="train")]
        paragraphs = ("\n".join(english[i : i + 6]) for i in range(0, len(english), 6))
        text.write_text("\n\n".join(paragraphs), encoding="utf-8")
    splits = {"train": (text,)}
    return prepare_documents(DocumentsConfig(out=out, splits=splits, vocabulary_size=90, **options))


def _parallel(folder: Path, out: Path, **options: Any) -> Any:
    files = tuple(folder / f"train.{language}" for language in ("de", "en"))
    if not files[0].exists():
        pairs = toy_pairs(120, seed=3, split="train")
        for side, file in enumerate(files):
            file.write_text("".join(f"{pair[side]}\n" for pair in pairs), encoding="utf-8")
    config = PrepareConfig(
        out=out,
        source_language="de",
        target_language="en",
        splits={"train": files},
        vocabulary_size=100,
        **options,
    )
    return prepare(config)


MADE = {"documents": (_documents, DocumentCorpus), "prepare": (_parallel, Corpus)}


def _listing(corpus: Path, names: Mapping[str, str]) -> None:
    """Has a corpus' manifest list these files too, and bear it out in every number."""
    before = resealed(corpus / "corpus.json")
    files = before["files"] | names
    resealed(corpus / "corpus.json", files=files, fingerprint=fingerprint(files))


@pytest.mark.parametrize("name", [*LEADING_OUT, "absolute"])
@pytest.mark.parametrize("kind", MADE)
def test_a_corpus_that_lists_files_elsewhere_is_neither_opened_nor_replaced(
    kind: str, name: str, tmp_path: Path
) -> None:
    make, corpus = MADE[kind]
    (tmp_path / "mine").write_bytes(MINE)
    out = tmp_path / "corpora"
    make(tmp_path, out)
    listed = str(tmp_path / "mine") if name == "absolute" else name
    _listing(out, {listed: file_sha256(tmp_path / "mine")})
    before = {path: path.read_bytes() for path in out.iterdir()}
    with pytest.raises(UserError, match="may list plain names of files in its own folder alone"):
        corpus.open(out)
    with pytest.raises(UserError, match="nothing was read or removed") as refused:
        make(tmp_path, out, lowercase=True)
    assert "\n" not in str(refused.value)
    assert (tmp_path / "mine").read_bytes() == MINE
    assert {path: path.read_bytes() for path in out.iterdir()} == before


@pytest.mark.parametrize("kind", MADE)
def test_a_corpus_whose_file_is_a_link_elsewhere_is_neither_opened_nor_replaced(
    kind: str, tmp_path: Path
) -> None:
    make, corpus = MADE[kind]
    out = tmp_path / "corpora"
    make(tmp_path, out)
    for file in sorted(path for path in out.iterdir() if path.suffix == ".tokens"):
        moved = tmp_path / file.name
        file.rename(moved)
        file.symlink_to(moved)
        with pytest.raises(UserError, match="is a link that leads out of its folder"):
            corpus.open(out)
        with pytest.raises(UserError, match="is neither followed nor replaced"):
            make(tmp_path, out, lowercase=True)
        assert moved.is_file()
        file.unlink()
        moved.rename(file)


@pytest.mark.parametrize("split", ["../other/train", "..", ""])
def test_a_split_is_no_path_to_another_corpus(split: str, tmp_path: Path) -> None:
    for name in ("mine", "other"):
        _parallel(tmp_path, tmp_path / name)
    before = resealed(tmp_path / "mine/corpus.json")
    resealed(tmp_path / "mine/corpus.json", splits=[*before["splits"], split])
    with pytest.raises(UserError, match=r"corpus\.json lists .* may list plain names"):
        Corpus.open(tmp_path / "mine")


@pytest.mark.parametrize("name", LEADING_OUT)
def test_the_parts_of_a_preparation_are_files_of_its_own(name: str, tmp_path: Path) -> None:
    """What they are encoded into is written beside them, and they are removed then."""
    parts = tmp_path / "parts"
    parts.mkdir()
    note_parts(parts, [[name, "train", {}]])
    with pytest.raises(UserError, match=r"read\.json lists .* may list plain names"):
        read_parts(
            parts,
            {},
            lambda split, items: ({}, []),
            characters=len,
            processes=1,
            progress=lambda known: None,
        )


def test_work_that_a_link_leads_to_is_not_gone_on_with(tmp_path: Path) -> None:
    out, elsewhere = tmp_path / "corpora", tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "train-0000000.text").write_bytes(MINE)
    work = tmp_path / f"{UNFINISHED}corpora"
    work.mkdir()
    (work / ".made-by-normscope").touch()
    (work / "parts").symlink_to(elsewhere)
    with pytest.raises(UserError, match="parts is a link that leads out of its folder"):
        _documents(tmp_path, out)
    assert {file.name for file in elsewhere.iterdir()} == {"train-0000000.text"}
    assert (elsewhere / "train-0000000.text").read_bytes() == MINE


def _comparison(folder: Path, names: list[str]) -> None:
    grid = Grid(
        placements_and_warmups=(("pre-ln", 0),), peak_lrs=(0.1,), optimizers=("adam",), seeds=1
    )
    cells = grid.cells(tiny("train.duration=2"), folder)
    write_configs(cells)
    write_manifest(folder, about(cells[0].config, toy_corpus(5)))
    resealed(folder / FILE, cells=names)


@pytest.mark.parametrize("name", LEADING_OUT)
def test_a_comparison_reads_runs_of_its_own_folder_alone(name: str, tmp_path: Path) -> None:
    train_run(tiny("train.duration=1", "data.toy_pairs=60"), tmp_path / "mine")
    folder = tmp_path / "comparison"
    _comparison(folder, [name])
    with pytest.raises(UserError, match=r"comparison\.json lists .* may list plain names"):
        read_manifest(folder)
    with pytest.raises(UserError, match="nothing was read or removed"):
        report([folder], tmp_path / "page")
    (folder / FILE).unlink()
    text = (tmp_path / "mine/config.toml").read_text()
    resealed(folder / "cells.json", **{name: text})
    with pytest.raises(UserError, match=r"cells\.json lists .* may list plain names"):
        report([folder], tmp_path / "page")
    assert not (tmp_path / "page").exists()


def test_a_run_of_a_comparison_is_no_link_to_another_place(tmp_path: Path) -> None:
    train_run(tiny("train.duration=1", "data.toy_pairs=60"), tmp_path / "mine")
    folder = tmp_path / "comparison"
    _comparison(folder, ["mine"])
    (folder / "runs").mkdir()
    (folder / "runs/mine").symlink_to(tmp_path / "mine")
    with pytest.raises(UserError, match="runs/mine is a link that leads out of its folder"):
        report([folder], tmp_path / "page")


@pytest.mark.parametrize("inner", ["runs", "logs", "cells"])
def test_a_comparison_writes_into_no_folder_elsewhere(inner: str, tmp_path: Path) -> None:
    folder, elsewhere = tmp_path / "comparison", tmp_path / "elsewhere"
    folder.mkdir()
    elsewhere.mkdir()
    (folder / inner).symlink_to(elsewhere)
    with pytest.raises(UserError, match=f"{inner} is a link that leads out of its folder"):
        _comparison(folder, [])
    assert not list(elsewhere.iterdir())


def test_nothing_is_added_to_a_log_that_is_a_link(tmp_path: Path) -> None:
    folder = tmp_path / "comparison"
    _comparison(folder, [])
    (tmp_path / "mine").write_bytes(MINE)
    (folder / "logs/pre-ln_warmup-0_lr-0.1_adam_seed-1.txt").symlink_to(tmp_path / "mine")
    with pytest.raises(UserError, match=r"seed-1\.txt is a link, and stays"):
        _comparison(folder, [])


SHORT = ("train.duration=2", "train.checkpoint_every=1", "data.toy_pairs=60")
LONGER = ("train.duration=3", *SHORT[1:])


@pytest.mark.parametrize("name", ["checkpoints", "vocabularies", "metrics.jsonl", "tensorboard"])
def test_a_run_is_trained_in_its_own_folder_alone(name: str, tmp_path: Path) -> None:
    run, elsewhere = tmp_path / "run", tmp_path / "elsewhere"
    train_run(tiny(*SHORT), run)
    if (run / name).exists():
        (run / name).rename(elsewhere)
    else:
        elsewhere.mkdir()
    (run / name).symlink_to(elsewhere)
    before = sorted(elsewhere.rglob("*")), elsewhere.is_file() and elsewhere.read_bytes()
    with pytest.raises(UserError, match=rf"{name} is a link that leads out of its folder"):
        train_run(tiny(*LONGER), run)
    assert (sorted(elsewhere.rglob("*")), elsewhere.is_file() and elsewhere.read_bytes()) == before


def test_a_log_that_a_checkpoint_counts_nothing_of_is_not_cut_short_through_a_link(
    tmp_path: Path,
) -> None:
    run = tmp_path / "run"
    train_run(tiny(*SHORT), run)
    (tmp_path / "mine").write_bytes(MINE)
    (run / "metrics.jsonl").unlink()
    (run / "metrics.jsonl").symlink_to(tmp_path / "mine")
    for step in (run / "checkpoints").iterdir():
        state = step / "state.json"
        text = state.read_text()
        counted = checkpoint.Checkpoint(step).state()
        text = text.replace(f'"metrics_bytes": {counted["metrics_bytes"]}', '"metrics_bytes": 0')
        state.write_text(text.replace(counted["metrics_guard"], ""))
        lines = [f"{file_sha256(step / name)}  {name}\n" for name in checkpoint._FILES]
        (step / "MANIFEST.sha256").write_text("".join(lines))
    with pytest.raises(UserError, match=r"metrics\.jsonl is a link that leads out of its folder"):
        train_run(tiny(*SHORT), run)
    assert (tmp_path / "mine").read_bytes() == MINE


@pytest.mark.parametrize("name", ["", "MANIFEST.sha256", "model.safetensors", "state.json"])
def test_a_checkpoint_is_no_link_to_another_place(name: str, tmp_path: Path) -> None:
    run = tmp_path / "run"
    train_run(tiny(*SHORT), run)
    path = run / "checkpoints/step-2" / name
    path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UserError, match="is a link that leads out of its folder"):
        checkpoint.Checkpoint(run / "checkpoints/step-2").verify()


def test_what_a_link_leads_to_is_not_cleared_away_as_unfinished_work(tmp_path: Path) -> None:
    """As a received run may have it, whose checkpoints are cleared when it is trained on."""
    mine, received = tmp_path / "mine/step-2", tmp_path / "received"
    mine.mkdir(parents=True)
    received.mkdir()
    for name in (*checkpoint._FILES, "MANIFEST.sha256", ".made-by-normscope"):
        (mine / name).write_bytes(MINE)
    (received / f"{UNFINISHED}step-2-removed").symlink_to(mine)
    clear_unfinished(received, checkpoint.listed_files)
    assert len(list(mine.iterdir())) == 5


def test_a_folder_is_emptied_of_its_own_entries_whatever_is_listed(tmp_path: Path) -> None:
    """Should a list of ours ever hold a path."""
    (tmp_path / "mine").write_bytes(MINE)
    left = tmp_path / "run" / f"{UNFINISHED}step-2-removed"
    left.mkdir(parents=True)
    (left / "old").touch()
    names = {"../../mine": "", str(tmp_path / "mine"): "", "old": "", "last": ""}
    clear_unfinished(left.parent, lambda folder: names)
    assert (tmp_path / "mine").read_bytes() == MINE
    assert not (left / "old").exists()


def test_a_piece_of_a_study_is_kept_in_its_own_folder_alone(tmp_path: Path) -> None:
    study, elsewhere = tmp_path / "study", tmp_path / "elsewhere"
    study.mkdir()
    elsewhere.mkdir()
    (study / "pieces").symlink_to(elsewhere)
    with pytest.raises(UserError, match="pieces is a link that leads out of its folder"):
        Pieces(study).get("deep/one", {}, np.linalg.norm, [3.0, 4.0])
    assert not list(elsewhere.iterdir())
