"""Prepared corpora of each kind, by their bytes."""

from collections.abc import Callable
from pathlib import Path

from . import texts
from .answers import Desk
from .recording import Items

_PAIRS: dict[str, tuple[object, ...]] = {
    "plain": (
        "--vocabulary-size",
        120,
        "--valid",
        "valid.de",
        "valid.en",
        "--test",
        "test.de",
        "test.en",
    ),
    "two-processes": (
        "--vocabulary-size",
        120,
        "--processes",
        2,
        "--valid",
        "valid.de",
        "valid.en",
    ),
    "separate": ("--vocabulary-size", 90, "--separate", "--lowercase", "--max-tokens", 12),
    "tokenised": ("--vocabulary-size", 120, "--tokenised", "--max-length-ratio", 1.2),
}
_DOCUMENTS: dict[str, tuple[object, ...]] = {
    "wordpiece": (
        "--vocabulary-size",
        420,
        "--lowercase",
        "--valid",
        "valid.txt",
        "--test",
        "test.txt",
    ),
    "bpe": ("--vocabulary-size", 420, "--tokeniser", "bpe"),
    "two-processes": ("--vocabulary-size", 420, "--tokeniser", "bpe", "--processes", 2),
}


def items(tree: Path) -> Items:
    """Parallel sentences and documents, in one process and in two."""
    return {
        **{f"pairs-{name}": _parallel(words) for name, words in _PAIRS.items()},
        **{f"documents-{name}": _documents(words) for name, words in _DOCUMENTS.items()},
    }


def _parallel(words: tuple[object, ...]) -> Callable[[Desk], None]:
    def item(desk: Desk) -> None:
        texts.parallel(Path(), train=600, valid=30, test=30)
        files = ("--train", "train.de", "train.en", "--languages", "de", "en")
        _prepared(desk, "prepare", *files, *words)

    return item


def _documents(words: tuple[object, ...]) -> Callable[[Desk], None]:
    def item(desk: Desk) -> None:
        texts.documents(Path(), train=400, valid=20, test=20)
        _prepared(desk, "documents", "--train", "train.txt", *words)

    return item


def _prepared(desk: Desk, verb: str, *words: object) -> None:
    desk.said("said", "data", verb, "corpus", *words)
    desk.bytes_of(
        "corpus", (path for path in Path("corpus").rglob("*") if path.is_file()), Path("corpus")
    )
