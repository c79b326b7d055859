"""What docstrings name is there, and each begins with what it is about: a reader reads it once."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import anatomy
import packing

FOREIGN = {
    "pyi": "stubs of the package",
    "save_pretrained": "transformers",
    "create_pretraining_data": "BERT's code",
    "dupe_factor": "BERT's code",
    "datasets": "datasets",
    "SequenceGenerator": "fairseq",
    "transformer_iwslt_de_en": "fairseq",
    "inverse_sqrt": "fairseq",
    "average_checkpoints": "fairseq",
    "a_2": "The Annotated Transformer",
    "depth_scaled_residual_add": "the code of a placement",
    "MuseSparkResidualGate": "the code of a placement",
    "Qwen4ExpTextGatedResidual": "the code of a placement",
    "ZayaResidualScaling": "the code of a placement",
    "input_residual": "the code of a placement",
    "post_attention_residual": "the code of a placement",
    "GPASBlock": "the code of a placement",
    "preln": "a name that is not known",
    "nanmean": "numpy",
}
"""Names of others that docstrings cite, and whose they are."""
MOST_RELATIVE = 0.10
"""The largest share of a room's docstrings that may begin with a relative clause."""
MOST_RELATIVE_OF = {"normscope/theory": 0.18}
"""The rooms that still have a larger share; the list only ever gets shorter."""
NAME = re.compile(r"`([A-Za-z_][\w.]*)(?:\(\))?`")
WORD = re.compile(r"[A-Za-z_]\w*")


def names_in(tree: ast.Module) -> Iterator[str]:
    """Yields what a module names in code, and words of its texts that are no docstrings: keys,
    options and fields stand in those.
    """
    docstrings = {id(text) for text in anatomy.docstring_nodes(tree)}
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name) | ast.Attribute(attr=name) | ast.arg(arg=name):
                yield name
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                yield name
            case ast.keyword(arg=str(name)):
                yield name
            case ast.alias(name=name):
                yield from name.split(".")
            case ast.Constant(value=str(text)) if id(node) not in docstrings:
                yield from WORD.findall(text)


def named_by_docstrings(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """Yields every single name that a docstring gives in backticks, with its line."""
    for text in anatomy.docstring_nodes(tree):
        for name in NAME.findall(str(text.value)):
            yield name, text.lineno


def unknown(tree: ast.Module, known: set[str]) -> list[str]:
    """Returns the names in backticks of which a part is not known."""
    named = named_by_docstrings(tree)
    return [f"{line}: {name}" for name, line in named if set(WORD.findall(name)) - known]


def test_what_a_docstring_names_exists():
    known = set(FOREIGN)
    for file in anatomy.files():
        known.update(file.relative_to(anatomy.SOURCE).with_suffix("").parts)
        known.update(names_in(anatomy.parsed(file)))
    known.add("py")
    missing = {}
    for file in anatomy.files():
        found = unknown(anatomy.parsed(file), known)
        if found:
            missing[file.relative_to(anatomy.SOURCE).as_posix()] = found
    assert not missing, "mend these, or name whose they are in FOREIGN"


def test_foreign_names_are_not_ours_and_are_cited():
    ours = set()
    cited = set()
    for file in anatomy.files():
        tree = anatomy.parsed(file)
        ours.update(names_in(tree))
        for name, _ in named_by_docstrings(tree):
            cited.update(WORD.findall(name))
    assert not FOREIGN.keys() & ours
    assert cited >= FOREIGN.keys()


def test_a_name_that_is_gone_is_found():
    tree = ast.parse(
        '"""As `kept.first` and `_apart`; `x + 1` is no name."""\n'
        "first = 1\n"
        "def kept():\n"
        '    """As `first`, `kept()` and `loss_key`."""\n'
        '    return {"loss_key": 1}\n'
    )
    assert unknown(tree, set(names_in(tree))) == ["1: _apart"]


def room_of(file: Path) -> str:
    """Returns the package of a file with its room; the package alone for a file at its top."""
    parts = file.relative_to(anatomy.SOURCE).parts
    return "/".join(parts[:-1][:2])


def rooms() -> dict[str, list[Path]]:
    """Returns the files of every room."""
    found: dict[str, list[Path]] = {}
    for file in anatomy.files():
        found.setdefault(room_of(file), []).append(file)
    return found


def relative_share(files: list[Path]) -> float:
    """Returns the share of the files' docstrings that begin with a relative clause."""
    trees = [anatomy.parsed(file) for file in files]
    every = sum(len(list(packing.docstrings(tree))) for tree in trees)
    relative = sum(len(list(packing.relative_docstrings(tree))) for tree in trees)
    return relative / max(1, every)


@pytest.mark.parametrize("room", sorted(rooms()))
def test_a_docstring_begins_with_what_it_is_about(room):
    most = MOST_RELATIVE_OF.get(room, MOST_RELATIVE)
    share = relative_share(rooms()[room])
    assert share <= most, (
        f"{share:.0%} of the docstrings of {room} begin with a relative clause: begin with a verb "
        "(Returns the largest share ...), or with the noun that it is about (The largest share ...)"
    )


def test_rooms_with_a_larger_share_are_there():
    assert rooms().keys() >= MOST_RELATIVE_OF.keys()


def test_a_relative_docstring_is_counted_wherever_it_stands(tmp_path):
    file = tmp_path / "some.py"
    file.write_text(
        '"""What a module says."""\n'
        "first = 1\n"
        '"""Of a field."""\n'
        "second = 2\n"
        '"""Office hours of a field."""\n'
        "class Kept:\n"
        '    """The subject stands first."""\n'
        "    def kept(self):\n"
        '        """Whether it is kept."""\n'
    )
    assert relative_share([file]) == 3 / 5
