"""Nothing of the user's is changed or removed: every command that writes, over folders that hold
what is not ours.

Each folder holds a foreign file, a folder, a link, a file under a name, drawn, that the command
writes itself, a folder half made, or the command's own result with something added to it or changed
in it. After the command, whatever was put there has the bytes that it had, and the command has
ended in 0 or in one line.
"""

import random
import shutil
import sys
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

import pytest

import in_process
from faults.desk import lay_out
from normscope.cli.main import main
from normscope.compare import pool
from normscope.errors import UserError
from normscope.files import UNFINISHED, remove_folder, write_over
from normscope.limits.kinds import PAGE
from normscope.limits.ours import MARK, refuse_inside
from tiny import options

FOREIGN = "years of work\n"
SPEAKING = (
    b'{"normscope": "mine",\n "normscope": "0.1", "sha256_of_this_file": "0"}\n'
    b'<meta name="generator" content="NormScope">\n<!-- Written by `normscope doctor --card` -->\n'
    b"# SHA-256 of the lines above: 0\n"
)
"""With every mark of ours, and none at the beginning."""
_SHORT = " ".join(options("train.duration=2", "train.validate_every=2", "data.toy_pairs=60"))
_SIZES = (
    "--set seeds=2 --set blocks=2 --set width=8 --set singular_width=4 --set tokens=4 --set "
    "vectors=5"
)
COMMANDS = {
    "prepare": (
        "data prepare OUT --train desk/train.de desk/train.en --languages de en --vocabulary-size "
        "120"
    ),
    "documents": "data documents OUT --train desk/text.txt --vocabulary-size 120",
    "train": f"train --run OUT {_SHORT}",
    "compare": f"compare --out OUT --arms post-ln:0 --peak-lr 3e-3 --processes 1 {_SHORT}",
    "study": f"study lemmas --scale smoke --out OUT {_SIZES}",
    "export": "export desk/pre OUT",
    "report": "report desk/run --out OUT",
    "doctor": "doctor desk/run --no-advice --html OUT/page.html --json OUT/page.json",
    "evaluate": "evaluate desk/run --save OUT/scores --output OUT/lines --device cpu --beam 1",
    "predict": "predict post-ln --blocks 2 --plot OUT/plot.svg",
}
INTO_A_FOLDER = ("doctor", "evaluate", "predict")
"""Their folder is to be there."""
_NEEDS = ("train.de", "text.txt", "pre", "run")
Snapshot = dict[Path, bytes | str | None]


def snapshot(paths: Sequence[Path]) -> Snapshot:
    """What lies at paths and below them: bytes of a file, where a link leads, None for a folder."""
    found: Snapshot = {}
    for top in paths:
        for path in (top, *(() if top.is_symlink() else sorted(top.rglob("*")))):
            found[path] = (
                str(path.readlink())
                if path.is_symlink()
                else None
                if path.is_dir()
                else path.read_bytes()
            )
    return found


def file(path: Path) -> list[Path]:
    """A file of the user's, in place of whatever is there."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(FOREIGN, encoding="utf-8")
    return [path]


def link(path: Path) -> list[Path]:
    """A link to a file of the user's elsewhere."""
    there = file(path.parents[2] / "elsewhere" / f"{path.name}.txt")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    path.symlink_to(there[0])
    return [path, *there]


class Drawn:
    """A place `OUT` as a command may find it; each method lays something there and gives the paths
    of the user's.
    """

    def __init__(self, draw: random.Random, place: Path, clean: Path) -> None:
        """clean: what the command makes where there is nothing."""
        self.out, self.clean = place / "OUT", clean
        self.written = draw.choice(
            [path.relative_to(clean) for path in sorted(clean.rglob("*")) if path.is_file()]
        )

    def a_thesis(self) -> list[Path]:
        return file(self.out / "thesis.tex")

    def a_folder(self) -> list[Path]:
        return file(self.out / "thesis" / "chapter.tex")

    def a_link(self) -> list[Path]:
        return link(self.out / "link.tex")

    def a_manifest_of_another(self) -> list[Path]:
        return [*file(self.out / "corpus.json"), *file(self.out / "thesis.tex")]

    def a_lock_of_another(self) -> list[Path]:
        return file(self.out / ".lock")

    def a_file_of_its_name(self) -> list[Path]:
        return file(self.out / self.written)

    def its_own_file_behind_a_line(self) -> list[Path]:
        paths = self.a_file_of_its_name()
        paths[0].write_bytes(FOREIGN.encode() + (self.clean / self.written).read_bytes())
        return paths

    def a_file_that_speaks_of_us(self) -> list[Path]:
        paths = self.a_file_of_its_name()
        paths[0].write_bytes(SPEAKING)
        return paths

    def a_link_of_its_name(self) -> list[Path]:
        return link(self.out / self.written)

    def a_link_in_its_place(self) -> list[Path]:
        there = file(self.out.parents[1] / "elsewhere" / "thesis.tex")
        self.out.parent.mkdir(parents=True, exist_ok=True)
        self.out.symlink_to(there[0].parent)
        return [self.out, *there]

    def half_made_by_another(self) -> list[Path]:
        return file(self.out.with_name(f"{UNFINISHED}OUT") / "notes")

    def replaced_by_another(self) -> list[Path]:
        return file(self.out.with_name(".replaced-OUT") / "notes")

    def half_made_by_us(self) -> list[Path]:
        work = self.out.with_name(f"{UNFINISHED}OUT")
        work.mkdir(parents=True)
        (work / MARK).touch()
        (work / "train.tokens").write_bytes(b"half")
        return file(self.out.with_name("thesis.tex"))

    def its_own_with_another(self) -> list[Path]:
        shutil.copytree(self.clean, self.out)
        return self.a_thesis()

    def its_own_with_one_changed(self) -> list[Path]:
        shutil.copytree(self.clean, self.out)
        return self.a_file_of_its_name()


KINDS = [kind for kind in vars(Drawn) if not kind.startswith("__")]


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("place")
    for name in _NEEDS:
        lay_out(place / "desk", name)
    return place


def called(name: str, desk: Path, out: Path, **replaced: Path) -> int:
    """The exit code of a command in this process. replaced: other words for those that begin so."""
    words = [word.replace("OUT", str(out)) for word in COMMANDS[name].split(" ")]
    words = [str(replaced.get(word.split("/")[-1].replace(".", "_"), word)) for word in words]
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(desk)
        patch.setattr(sys, "argv", ["normscope", *words])
        patch.setattr(pool, "run_cells", in_process.run_cells)
        with pytest.raises(SystemExit) as end:
            main()
    return int(end.value.code or 0)


@pytest.fixture(scope="module")
def clean(desk: Path) -> Callable[[str], Path]:
    """What a command makes where there is nothing."""

    @cache
    def made(name: str) -> Path:
        out = desk / "clean" / name
        if name == "export":
            pytest.importorskip("transformers", reason="transformers is not installed")
        if name in INTO_A_FOLDER:
            out.mkdir(parents=True)
        assert called(name, desk, out) == 0
        return out

    return made


@pytest.mark.sampled(one_in=31)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", COMMANDS)
def test_no_byte_of_the_users_changes(
    name: str,
    kind: str,
    desk: Path,
    clean: Callable[[str], Path],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    drawn = Drawn(random.Random(f"{name} {kind}"), tmp_path / "place", clean(name))
    foreign = getattr(drawn, kind)()
    if name in INTO_A_FOLDER and not drawn.out.exists():
        drawn.out.mkdir(parents=True)
    before = snapshot(foreign)
    capsys.readouterr()
    code = called(name, desk, drawn.out)
    said = capsys.readouterr().err
    assert snapshot(foreign) == before, (drawn.written, said)
    assert code in (0, 2), (drawn.written, said)
    assert (
        code == 0 or len([line for line in said.splitlines() if line.startswith("error: ")]) == 1
    ), said


@pytest.mark.parametrize("name", ["prepare", "documents"])
def test_what_is_read_is_not_written_over(
    name: str, desk: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "OUT"
    assert called(name, desk, out) == 0
    before = snapshot([out])
    assert (
        called(name, desk, out, train_de=out / "valid.source.txt", text_txt=out / "tokenizer.json")
        == 2
    )
    assert (
        "which is written again; choose a folder for the result without it"
        in capsys.readouterr().err
    )
    assert snapshot([out]) == before
    with pytest.raises(UserError, match="which is written again"):
        refuse_inside(out, [out])


BEGINNING = (
    '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
    '<meta name="generator" content="NormScope">\n'
)
"""Of a page of ours."""


@pytest.mark.parametrize("before", ["", BEGINNING, f"{BEGINNING}<body>", "new"])
def test_a_page_is_written_over_where_it_is_ours_or_empty_or_equal(
    before: str, tmp_path: Path
) -> None:
    page = tmp_path / "page.html"
    page.write_text(before)
    write_over(page, "new", PAGE)
    assert page.read_text() == "new"


@pytest.mark.parametrize("before", ["my page", f"\n{BEGINNING}", f"<!-- mine -->{BEGINNING}"])
def test_a_page_of_the_users_stays(before: str, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    page.write_text(before)
    with pytest.raises(
        UserError, match=r"page\.html was not written by NormScope as a page, and stays"
    ):
        write_over(page, "new", PAGE)
    assert page.read_text() == before


def test_a_folder_is_removed_entry_by_entry(tmp_path: Path) -> None:
    folder = tmp_path / "step-1"
    folder.mkdir()
    (folder / "weights").touch()
    (folder / "thesis").touch()
    with pytest.raises(UserError, match="thesis was not written by NormScope"):
        remove_folder(folder, lambda _: {"weights": ""})
    assert {path.name for path in folder.iterdir()} == {"weights", "thesis"}
    (folder / "thesis").unlink()
    remove_folder(folder, lambda _: {"weights": ""})
    assert not list(tmp_path.iterdir())
