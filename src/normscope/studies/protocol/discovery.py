"""Studies are found, not listed: every folder of this room whose package holds ABOUT is one."""

import importlib
import pkgutil
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from .about import About

if TYPE_CHECKING:
    from .study import Study

_ROOM = __name__.rpartition(".protocol.")[0]


@cache
def studies() -> dict[str, About]:
    """Every study by the name one types, in alphabetical order; imports nothing that measures."""
    folders = sorted(module.name for module in pkgutil.iter_modules([str(Path(__file__).parents[1])]) if module.ispkg)
    found = {folder: getattr(importlib.import_module(f"{_ROOM}.{folder}"), "ABOUT", None) for folder in folders}
    return {folder.replace("_", "-"): about for folder, about in found.items() if isinstance(about, About)}


def study(name: str) -> "Study":
    """What answers the question of one of `studies()`. Raises KeyError for another name."""
    about = studies()[name]
    found: Study = importlib.import_module(f"{_ROOM}.{name.replace('-', '_')}.study").STUDY
    assert found.about is about
    return found
