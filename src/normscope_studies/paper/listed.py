"""The list of the paper's claims, `claims.toml`, as values."""

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

_FILE = Path(__file__).with_name("claims.toml")


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredBy:
    """A study's folder of results."""

    command: str
    """That makes them."""
    conditions: Sequence[str]
    """Which of the conditions that it states are told with a claim; all where it states none of these."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """A claim, where it is made, and where it is measured."""

    place: str
    statement: str
    published: str
    """The value or order that is claimed."""
    section: str
    """The heading under which the quotes stand, as far as it tells it from others."""
    quotes: Sequence[str]
    study: str
    """The folder of its results."""
    claim: str
    """The name that the claim has in these results; empty where no study states it yet."""
    text: str = "paper/xiong2020.md"
    """The text in which the quotes stand: the paper, or the notes on it."""
    note: str = ""
    """The number of the note on this claim, such as "2.5"."""
    command: str = ""
    """What measures it, where that is not the study's own command."""


@cache
def listed() -> tuple[Sequence[Listed], Mapping[str, MeasuredBy]]:
    """All claims in the paper's order, and by folder the results that they are looked up in."""
    table = tomllib.loads(_FILE.read_text(encoding="utf-8"))
    return [Listed(**one) for one in table["claims"]], {
        name: MeasuredBy(**one) for name, one in table["studies"].items()
    }
