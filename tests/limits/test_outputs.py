"""Every option that writes, over files of the user's that speak of us, over files of ours and over
those that a folder of ours is made of.
"""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin

import pytest
import typer
from hypothesis import assume, given, strategies as st

from kinds import examples
from limits.commands import (
    EARLY,
    FOLDERS,
    LATE,
    NAMED,
    OPTIONS,
    called,
    parts,
    refused,
    within,
)
from normscope.cli.main import command_line
from normscope.limits.inset import CARD


def paths_of(verb: Callable[..., Any]) -> set[str]:
    """The parameters of a verb that are paths, or files under another type."""
    found = set()
    for name, hint in verb.__annotations__.items():
        kind, *notes = get_args(hint) if get_origin(hint) is Annotated else (hint,)
        if "Path" in str(kind) or any("FILE" in str(vars(note).get("metavar")) for note in notes):
            found.add(name)
    return found - {"imports"}


def verbs(app: typer.Typer, above: str = "") -> Iterator[tuple[str, set[str]]]:
    for one in app.registered_commands:
        assert one.callback is not None
        yield f"{above}{one.name or one.callback.__name__}", paths_of(one.callback)
    for group in app.registered_groups:
        assert group.typer_instance is not None
        yield from verbs(group.typer_instance, f"{group.name} ")


WRITTEN = {
    "doctor": {"html", "as_json", "card"},
    "predict": {"plot"},
    "placements show": {"svg"},
    "evaluate": {"save", "output"},
    "train": {"run"},
    "compare": {"out"},
    "demo": {"out"},
    "report": {"out"},
    "finetune": {"out"},
    "transplant": {"out"},
    "export": {"out"},
    "data prepare": {"out"},
    "data documents": {"out"},
}
READ = {
    "doctor": {"log", "baseline"},
    "evaluate": {"run", "text"},
    "report": {"folders"},
    "finetune": {"run", "train", "dev"},
    "train": {"config"},
    "compare": {"config"},
    "translate": {"run"},
    "generate": {"run"},
    "export": {"run"},
    "mcp": {"root"},
    "data prepare": {"train", "valid", "test"},
    "data documents": {"train", "valid", "test", "tokeniser"},
}


def test_every_option_that_writes_stands_here() -> None:
    for verb, paths in verbs(command_line()):
        written = {"out"} if verb.startswith("study ") else WRITTEN.get(verb, set())
        assert paths == written | READ.get(verb, set()), verb


SPEAKING = (
    b'{\n "name": "mine",\n "normscope": "1.0"\n}\n',
    b'{"normscope": "1.0", "schema": 2}',
    b'{\n "loss": 3.2,\n "sha256_of_this_file": "0"\n}\n',
    b'<html><head><meta name="generator" content="NormScope"></head></html>',
    b"mine = 1\n# SHA-256 of the lines above: 0\n",
    f"# Mine\n\n{CARD.first}\n| normalisation | |\n\n## Licence\n".encode(),
    b'{"pid": 1, "host": "mine"}\n',
    b"\0" * 99,
)
"""Files of others in which a mark of ours stands."""


def a_file_stays(name: str, data: st.DataObject, desk: Path, ours: dict[str, bytes]) -> None:
    words, file = OPTIONS[name]
    behind = st.tuples(st.binary(min_size=1), st.sampled_from([*ours.values()]), st.binary())
    others = [content for other, content in ours.items() if file[-5:] not in OPTIONS[other][1]]
    content = data.draw(
        st.one_of(
            st.binary(min_size=1),
            behind.map(b"".join),
            st.sampled_from(SPEAKING),
            st.sampled_from(others),
        )
    )
    # What Hypothesis draws may be a file of ours, as a card with a line in front is.
    assume(not content.startswith(ours[name][:9]) and not CARD.kind.bears(content))
    with within(desk) as place:
        (place / file).write_bytes(content)
        refused(words, desk, FILE=place / file, CARD=place / "card.md")
        assert (place / file).read_bytes() == content
        assert [one.name for one in place.iterdir()] == [file]


@pytest.mark.parametrize("name", EARLY)
@given(data=st.data())
@examples(40)
def test_a_file_of_the_users_stays_byte_for_byte(
    name: str, data: st.DataObject, desk: Path, ours: dict[str, bytes]
) -> None:
    a_file_stays(name, data, desk, ours)


@given(data=st.data())
@examples(12)
def test_text_of_the_users_stays_byte_for_byte(
    data: st.DataObject, desk: Path, ours: dict[str, bytes]
) -> None:
    a_file_stays(LATE, data, desk, ours)


@pytest.mark.parametrize("name", EARLY)
def test_a_file_of_ours_is_written_anew(name: str, desk: Path, ours: dict[str, bytes]) -> None:
    words, file = OPTIONS[name]
    with within(desk) as place:
        older = ours[name].replace(CARD.last.encode(), b"older\n" + CARD.last.encode())
        older += b"older\n" if older == ours[name] else b""
        for there in (older, b"", ours[name]):
            (place / file).write_bytes(there)
            code, told = called(words, desk, FILE=place / file, CARD=place / "card.md")
            assert code == 0, told
            assert (place / file).read_bytes() == ours[name]


def test_lines_are_written_over_the_same_lines_alone(desk: Path, ours: dict[str, bytes]) -> None:
    words, file = OPTIONS[LATE]
    with within(desk) as place:
        (place / file).write_bytes(ours[LATE])
        assert called(words, desk, FILE=place / file)[0] == 0
        assert (place / file).read_bytes() == ours[LATE]


SHOWN = (".html", ".svg", "results.json", ".txt")
"""How the names of files end that a folder of ours shows, and is not made of."""
MADE_OF = {"config.toml", "corpus.json", "comparison.json"}
"""What says what a folder is."""


@pytest.mark.parametrize("name", NAMED)
@pytest.mark.parametrize("emptied", [False, True])
def test_no_file_of_a_folder_of_ours_is_written_over(
    name: str, emptied: bool, desk: Path, folders: dict[str, Path]
) -> None:
    """A run's configuration, a corpus' tokens, a checkpoint's weights, and whatever else."""
    known = ["data documents", "data prepare", "train --run", "compare --out"]
    if not emptied:
        known.append("transplant --out")
    for kind in known:
        with within(desk) as place:
            shutil.copytree(folders[kind], place / "folder")
            made_of = [one for one in parts(place / "folder") if not one.name.endswith(SHOWN)]
            for file in made_of[::3]:
                if emptied and file.name not in MADE_OF:
                    file.write_bytes(b"")
                before = file.read_bytes()
                refused(OPTIONS[name][0], desk, FILE=file)
                assert file.read_bytes() == before, file


def test_scores_of_a_run_are_written_anew_beside_it(desk: Path) -> None:
    with within(desk) as place:
        run = place / "run"
        shutil.copytree(desk / "run", run)
        words = f"evaluate {run} --device cpu --beam 1 --save FILE"
        for _ in range(2):
            assert called(words, desk, FILE=run / "evaluation-valid.json")[0] == 0
        before = (run / "config.toml").read_bytes()
        refused(words, desk, FILE=run / "config.toml")
        assert (run / "config.toml").read_bytes() == before


QUICK = ("data documents", "data prepare", "report --out", "transplant --out", "train --run")
"""Of the others, `test_ours.py` takes every name."""


@pytest.mark.parametrize("name", QUICK)
@given(data=st.data())
@examples(12)
def test_a_file_of_the_users_in_a_folder_stays_byte_for_byte(
    name: str, data: st.DataObject, desk: Path, folders: dict[str, Path], ours: dict[str, bytes]
) -> None:
    clean = folders[name]
    names = [
        file.relative_to(clean)
        for file in parts(clean)
        if "tensorboard" not in file.parts and file.name != ".made-by-normscope"
    ]
    written = data.draw(st.sampled_from(names))
    front = data.draw(st.binary(min_size=1, max_size=9))
    genuine = (clean / written).read_bytes()
    content = data.draw(
        st.sampled_from([front + genuine, *SPEAKING[:6], ours["doctor --card"], front])
    )
    assume(not content.startswith(genuine[:9]))
    with within(desk) as place:
        file = place / "FOLDER" / written
        file.parent.mkdir(parents=True)
        file.write_bytes(content)
        refused(FOLDERS[name], desk, FOLDER=place / "FOLDER")
        assert file.read_bytes() == content
