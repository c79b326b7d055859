"""Finished cells in a folder that fsspec reaches: whole there and back, or refused; and a job that
works on the disk of a machine which does not see its folder.
"""

import hashlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from engines.grids import bits, grid_cells
from normscope.compare.pool import job_of, train_command
from normscope.engines.away import run_away
from normscope.engines.seam import Job, process_of
from normscope.engines.storage import CellStorage, StoredCell, job_key, place_of
from normscope.errors import UserError

fsspec = pytest.importorskip("fsspec", reason="fsspec is not installed")


@pytest.fixture
def memory() -> Iterator[str]:
    """A storage of this process alone, without files."""
    system = fsspec.filesystem("memory")
    system.store.clear()
    yield "memory://grids"
    system.store.clear()


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return Job(
        name="one",
        words=["-c", "pass", "out/runs/one", "out/runs/one/scores.json"],
        configuration="",
        directory=tmp_path,
        folder=Path("out/runs/one"),
        log=tmp_path / "one.txt",
        threads=1,
    )


def a_cell(folder: Path, **files: str) -> Path:
    for name, text in files.items():
        file = folder / name.replace("__", "/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return folder


def contents(folder: Path) -> dict[str, str]:
    return {
        file.relative_to(folder).as_posix(): file.read_text()
        for file in folder.rglob("*")
        if file.is_file()
    }


def kept(storage: CellStorage, place: str) -> StoredCell:
    found = storage.stored(place)
    assert found is not None
    return found


@pytest.mark.parametrize("kind", ["memory", "file"])
def test_what_is_kept_comes_back_and_is_nothing_but_the_cell_s_own(
    kind: str, memory: str, tmp_path: Path
) -> None:
    url = memory if kind == "memory" else f"file://{tmp_path}/kept"
    storage = CellStorage(url)
    assert storage.places() == set()
    assert storage.stored("out/runs/one") is None
    cell = a_cell(tmp_path / "cell", metrics="m", checkpoints__step_1__model="w")
    (cell / ".lock").write_text("held")
    (cell / ".unfinished-step-2").mkdir()
    (cell / "link").symlink_to(tmp_path)
    storage.keep("out/runs/one", cell, "first", None)
    again = CellStorage(url)
    assert again.places() == {"out/runs/one"}
    found = kept(again, "out/runs/one")
    # By sha256sum's numbers, not by the code that wrote them.
    assert found.files["metrics"] == hashlib.sha256(b"m").hexdigest()
    assert found.done == ["first"]
    back = tmp_path / "back"
    back.mkdir()
    again.fetch(found, back)
    assert contents(back) == {"metrics": "m", "checkpoints/step_1/model": "w"}


def test_a_second_job_adds_to_a_cell_and_what_has_gone_goes_there_too(
    memory: str, tmp_path: Path
) -> None:
    storage, cell = CellStorage(memory), a_cell(tmp_path / "cell", metrics="m", old="o")
    storage.keep("one", cell, "training", None)
    (cell / "old").unlink()
    a_cell(cell, metrics="more", scores="s")
    storage.keep("one", cell, "evaluation", kept(storage, "one"))
    found = kept(storage, "one")
    assert found.done == ["training", "evaluation"]
    storage.fetch(found, tmp_path / "back")
    assert contents(tmp_path / "back") == {"metrics": "more", "scores": "s"}
    assert not fsspec.filesystem("memory").exists("/grids/cells/one/old")


def test_a_file_that_changes_leaves_no_seal_over_half_of_it(
    memory: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage, cell = CellStorage(memory), a_cell(tmp_path / "cell", a="1", b="2")
    storage.keep("one", cell, "first", None)
    a_cell(cell, a="3", b="4")
    sent = storage._put

    def fails(here: Path, there: str) -> None:
        if there.endswith("/b"):
            raise OSError("the line is dead")
        sent(here, there)

    monkeypatch.setattr(storage, "_put", fails)
    with pytest.raises(UserError, match="cannot be used: OSError: the line is dead"):
        storage.keep("one", cell, "second", kept(storage, "one"))
    assert storage.stored("one") is None


@pytest.mark.parametrize("harm", ["flipped", "cut", "missing"])
def test_a_file_that_is_damaged_there_is_named_and_takes_no_place_here(
    harm: str, tmp_path: Path
) -> None:
    storage = CellStorage(f"file://{tmp_path}/kept")
    storage.keep("one", a_cell(tmp_path / "cell", metrics="original"), "first", None)
    there = tmp_path / "kept" / "cells" / "one" / "metrics"
    if harm == "flipped":
        there.write_text("originaL")
    elif harm == "cut":
        there.write_text("")
    else:
        there.unlink()
    here = a_cell(tmp_path / "here", metrics="what was here")
    with pytest.raises(UserError, match=r"kept/cells/one/metrics is damaged or missing"):
        storage.fetch(kept(storage, "one"), here)
    assert contents(here) == {"metrics": "what was here"}


def test_a_seal_that_is_edited_or_leads_elsewhere_is_refused(tmp_path: Path) -> None:
    storage = CellStorage(f"file://{tmp_path}/kept")
    storage.keep("one", a_cell(tmp_path / "cell", metrics="m"), "first", None)
    seal = tmp_path / "kept" / "seals" / "one.json"
    seal.write_text(seal.read_text().replace("first", "other"))
    with pytest.raises(UserError, match=r"kept/seals/one.json is damaged"):
        storage.stored("one")
    table = {"files": {"../mine": "0" * 64}, "done": ["first"]}
    from normscope.engines.storage import _SEAL

    seal.write_text(_SEAL.text(table))
    with pytest.raises(UserError, match=r"lists '../mine', which is no file of a cell"):
        storage.stored("one")


def test_a_link_in_the_folder_here_is_not_written_through(tmp_path: Path) -> None:
    storage = CellStorage(f"file://{tmp_path}/kept")
    storage.keep("one", a_cell(tmp_path / "cell", checkpoints__model="w"), "first", None)
    mine, here = tmp_path / "mine", tmp_path / "here"
    mine.mkdir()
    here.mkdir()
    (here / "checkpoints").symlink_to(mine)
    with pytest.raises(UserError, match="is a link that leads out of its folder"):
        storage.fetch(kept(storage, "one"), here)
    assert list(mine.iterdir()) == []


def test_a_place_and_a_key_hang_on_the_command_and_not_on_where_the_folder_lies(job: Job) -> None:
    from dataclasses import replace

    there = replace(
        job,
        folder=Path("/else/one"),
        words=["-c", "pass", "/else/one", "/else/one/scores.json"],
    )
    assert job_key(there) == job_key(job)
    assert job_key(replace(job, configuration="other")) != job_key(job)
    assert job_key(replace(job, words=["-c", "pass"])) != job_key(job)
    assert (place_of(job), place_of(there)) == ("out/runs/one", "else/one")
    assert place_of(replace(job, folder=Path("../grid/one"))) == "grid/one"


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("nowhere://bucket", "Protocol not known: nowhere"),
        ("file:///dev/null/kept", "storage 'file:///dev/null/kept' cannot be used"),
    ],
)
def test_a_place_that_there_is_not_is_told_in_one_line(url: str, said: str) -> None:
    with pytest.raises(UserError, match=said) as refused:
        CellStorage(url).write_token("token")
    assert "\n" not in str(refused.value)


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Of a machine that works for others."""
    folder = tmp_path / "disk"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


def test_a_job_away_touches_no_folder_of_the_command_and_has_the_bits_of_one_here(
    disk: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"file://{tmp_path}/kept"
    (here, _), (there, _) = grid_cells(tmp_path / "here"), grid_cells(tmp_path / "there")
    assert process_of(job_of(here, train_command(here, None, "/dev/stdin")), {}).wait() == 0
    wanted = job_of(there, train_command(there, None, "/dev/stdin"))
    end = run_away(wanted, url)
    assert (end.code, "finished after 60 updates" in end.said) == (0, True)
    assert not there.folder.path.exists()
    assert not there.log_file.exists()
    assert [list(folder.iterdir()) for folder in disk.iterdir()] == [[]]
    storage = CellStorage(url)
    storage.fetch(kept(storage, place_of(wanted)), there.folder.path)
    assert list(bits([there]).values()) == list(bits([here]).values())
    # What is there is gone on with: nothing is trained again.
    assert "finished after 60" not in run_away(wanted, url).said


def test_a_job_away_goes_on_where_one_of_the_same_machine_was_killed(
    disk: Path, job: Job, tmp_path: Path
) -> None:
    from dataclasses import replace

    script = (
        "import pathlib, sys; runs = pathlib.Path(sys.argv[1]); runs.mkdir(exist_ok=True); "
        "there = (runs / 'begun').exists(); (runs / 'begun').touch(); sys.exit(not there)"
    )
    work = replace(job, words=["-c", script, str(job.folder)], directory=tmp_path / "none")
    url = f"file://{tmp_path}/kept"
    assert run_away(work, url).code == 1
    assert CellStorage(url).stored(place_of(work)) is None
    assert run_away(work, url).code == 0
    assert list(kept(CellStorage(url), place_of(work)).files) == ["begun"]


def test_a_folder_on_the_disk_that_somebody_else_may_write_into_is_refused(
    disk: Path, job: Job, tmp_path: Path
) -> None:
    above = disk / f"normscope-{os.getuid()}"
    above.mkdir()
    above.chmod(0o777)
    end = run_away(job, f"file://{tmp_path}/kept")
    assert end.code == 1
    assert end.said.startswith(f"error: {above} is no folder that this user alone can write into")
    assert list(above.iterdir()) == []
