"""Cases: which reader, and the number that its change is drawn from, or a change that was kept."""

import random
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from fuzz.readers import READERS
from normscope.data import opening
from normscope.data.opening import toy_corpus, toy_documents
from normscope.limits import memory

KEPT = Path(__file__).parent / "corpus"
"""READER/NAME/FILE: changed files that were findings once, in the place of the seeds' own."""
_LARGEST_KEPT = 20_000


@dataclass(frozen=True, slots=True)
class Case:
    """A changed file of one reader's folder."""

    reader: str
    number: int = 0
    """What the change is drawn from."""
    kept: str = ""
    """Instead of a number: the name of a change in `KEPT`."""

    def __str__(self) -> str:
        return f"{self.reader} {self.kept or self.number}"


class Seeds:
    """Whole folders, made once, and what each of them means."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def make(self, names: Iterator[str] | list[str]) -> None:
        """Fill a folder for each reader that has none; what readers keep in memory is made here,
        before any fork.
        """
        toy_documents()
        # A machine of little memory: what fits there is built in a moment.
        memory.available_bytes = lambda: 3 * 10**8
        few = cache(toy_corpus)
        opening.toy_corpus = lambda pairs: few(min(pairs, 60))
        few(50)
        for name in names:
            if not (self.folder / name).is_dir():
                (self.folder / f".{name}").mkdir(parents=True)
                READERS[name].make(self.folder / f".{name}")
                (self.folder / f".{name}").rename(self.folder / name)

    def attempt(self, case: Case) -> tuple[str, str]:
        """("accepted" or "changed", what differs). Raises whatever the reader raises."""
        reader = READERS[case.reader]
        with tempfile.TemporaryDirectory(dir=self.folder) as name:
            folder = Path(name)
            changed = self.lay_out(case, folder)
            found = reader.read(folder, changed)
            if not reader.guarded:
                return "accepted", ""
            shutil.copytree(self.folder / case.reader, folder / "whole")
            whole = reader.read(folder / "whole", folder / "whole" / changed.relative_to(folder))
            return (
                ("accepted", "") if found == whole else ("changed", f"{changed.name} was accepted")
            )

    def lay_out(self, case: Case, folder: Path) -> Path:
        """Write the case into an empty folder; returns the changed file."""
        seeds = self.folder / case.reader
        if case.kept:
            overlay = KEPT / case.reader / case.kept
            names = sorted(
                file.relative_to(overlay) for file in overlay.rglob("*") if file.is_file()
            )
            contents = {name: (overlay / name).read_bytes() for name in names}
        else:
            contents = dict([self._drawn(case, seeds)])
        first = next(iter(contents))
        # Of several folders beside each other only the one concerned.
        part = (
            seeds / first.parts[0]
            if len(first.parts) > 1 and not READERS[case.reader].guarded
            else seeds
        )
        shutil.copytree(part, folder / part.relative_to(seeds), dirs_exist_ok=True)
        for name, content in contents.items():
            (folder / name).write_bytes(content)
        return folder / first

    def _drawn(self, case: Case, seeds: Path) -> tuple[Path, bytes]:
        draw = random.Random(f"{case.reader} {case.number}")
        changes = READERS[case.reader].changes
        pattern = draw.choice(list(changes))
        files = sorted(file for file in seeds.glob(pattern) if file.is_file())
        file = draw.choice(files)
        while (content := changes[pattern](file.read_bytes(), draw)) == file.read_bytes():
            pass
        return file.relative_to(seeds), content

    def keep(self, case: Case, name: str) -> str:
        """Put a finding among the kept; says where it lies, or why it does not."""
        relative, content = self._drawn(case, self.folder / case.reader)
        if len(content) > _LARGEST_KEPT:
            return f"not kept: {relative} has {len(content):,} bytes; the number gives it again"
        file = KEPT / case.reader / name / relative
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
        return f"kept as {file.relative_to(KEPT.parent)}"


def kept() -> list[Case]:
    """All changes that were findings once."""
    return [
        Case(folder.parent.name, kept=folder.name)
        for folder in sorted(KEPT.glob("*/*"))
        if folder.is_dir()
    ]


def drawn(names: list[str], first: int) -> Iterator[Case]:
    """Cases without end, each reader by its share, numbered from `first` on."""
    number = first
    while True:
        for name in names:
            for part in range(READERS[name].share):
                yield Case(name, number * READERS[name].share + part)
        number += 1


def described(case: Case, said: str) -> dict[str, Any]:
    """One line of the record."""
    return {"reader": case.reader, "number": case.number, "kept": case.kept, "said": said}
