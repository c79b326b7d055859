"""Parallel text with distinct lines, small enough to prepare in a moment."""

import gzip
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from normscope.data.parallel.prepare import PrepareConfig

# fmt: off
GERMAN = [

    "der",
    "die",
    "das",
    "Hund",
    "Katze",
    "läuft",
    "schläft",
    "nicht",
    "heute",
    "morgen",
    "über",
    "Straße",
    "Bäume",
    "Dr.",
    "z.B.",
    "schnell,",
    "langsam",
]
ENGLISH = [

    "the",
    "a",
    "dog",
    "cat",
    "runs",
    "sleeps",
    "isn't",
    "today",
    "tomorrow",
    "across",
    "street",
    "trees",
    "Dr.",
    "e.g.",
    "quickly,",
    "slowly",
]


def parallel_lines(pairs: int, seed: int) -> tuple[list[str], list[str]]:
    """Raw lines of like length on both sides, each with its number in it, so that no two are
    equal.
    """
    draw = random.Random(seed)
    source, target = [], []
    for number in range(pairs):
        words = draw.randint(3, 9)
        source.append(" ".join(draw.choices(GERMAN, k=words)) + f" {seed}{number}.")
        target.append(" ".join(draw.choices(ENGLISH, k=words)) + f" {seed}{number}!")
    return source, target


def write_lines(path: Path, lines: list[str]) -> Path:
    data = "".join(line + "\n" for line in lines).encode()
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


@pytest.fixture
def listing() -> Callable[[Path], list[str]]:
    """Names of all that lies in a folder, hidden ones too, in order."""
    return lambda folder: sorted(path.name for path in folder.iterdir())


@pytest.fixture
def text(tmp_path: Path) -> dict[str, tuple[Path, Path]]:
    """1,150 training pairs and 40 pairs each of valid and test, in a folder of their own."""
    folder = tmp_path / "text"
    folder.mkdir()
    splits = {}
    sizes = [("train", 1150, ".gz"), ("valid", 40, ""), ("test", 40, "")]
    for seed, (name, pairs, suffix) in enumerate(sizes, 1):
        source, target = parallel_lines(pairs, seed)
        splits[name] = (
            write_lines(folder / f"{name}.de{suffix}", source),
            write_lines(folder / f"{name}.en{suffix}", target),
        )
    return splits


@pytest.fixture
def config(text: dict[str, tuple[Path, Path]], tmp_path: Path) -> Callable[..., PrepareConfig]:
    """A preparation of `text` into `<tmp_path>/place/corpus`, with any field changed."""
    place = tmp_path / "place"
    place.mkdir()

    def make(**changes: object) -> PrepareConfig:
        fields = {
            "out": place / "corpus",
            "source_language": "de",
            "target_language": "en",
            "splits": text,
            "vocabulary_size": 200,
        }
        return PrepareConfig(**{**fields, **changes})

    return make
