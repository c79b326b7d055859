"""What a study says of itself before anything heavy is imported: `normscope study --help` reads it without torch."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """An option of a study's verb that stands for settings which are asked for often."""

    name: str
    kind: type
    help: str
    sets: Callable[[Any], Mapping[str, Any]]
    """From the value given to the settings it changes, as `--set` would name them. Raises ValueError."""


@dataclass(frozen=True, slots=True, kw_only=True)
class About:
    """Stands as ABOUT in the package of a study, which imports nothing but this file."""

    title: str
    question: str
    """One or two sentences."""
    help: str
    """One line for the list of studies."""
    options: Sequence[Option] = ()
    """Beside --scale and --set, which every study has."""
