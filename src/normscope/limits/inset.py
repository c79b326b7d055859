"""Text of ours inside a file of the user's: what stands between two lines is ours, and all else is
theirs, byte for byte.
"""

from dataclasses import dataclass
from pathlib import Path

from ..errors import UserError
from .kinds import FileKind
from .ours import content_of


@dataclass(frozen=True, slots=True)
class Inset:
    """A text between a first and a last line, which stand in the file once each."""

    words: str
    """The noun for the inset, as in "a card"."""
    first: str
    last: str

    @property
    def kind(self) -> FileKind:
        """Files that have one place for it."""
        return FileKind(self.words, lambda content: self._place(content) is not None)

    def whole(self, text: str) -> str:
        """Returns the text with both lines around it, as a file of its own."""
        return f"{self.first}\n{text}\n{self.last}\n"

    def set_into(self, file: Path, text: str) -> bytes:
        """Returns what a file holds when the text has taken the place of the one in it.

        That is the text alone where there is no file yet, or an empty one. Raises UserError where
        there is no one place for it, or no regular file.
        """
        there = content_of(file)
        made = self.whole(text).encode()
        if not there:
            return made
        place = self._place(there)
        if place is None:
            raise UserError(
                f"{file} has no place for {self.words}, and stays: put the line {self.first} and "
                f"below it the line {self.last} where {self.words} is to stand, each once, or name "
                "another file"
            )
        begin, end = place
        return there[:begin] + made.removesuffix(b"\n") + there[end:]

    def _place(self, content: bytes) -> tuple[int, int] | None:
        """Returns where the first line begins and the last one ends; None unless there is one of
        each, in this order.
        """
        begins = _lines_of(content, self.first.encode())
        ends = _lines_of(content, self.last.encode())
        if len(begins) != 1 or len(ends) != 1 or begins > ends:
            return None
        return begins[0], ends[0] + len(self.last.encode())


CARD = Inset(
    words="a card",
    first="<!-- Written by `normscope doctor --card`; the command writes it again. -->",
    last="<!-- Here ends what `normscope doctor --card` writes. -->",
)


def _lines_of(content: bytes, line: bytes) -> list[int]:
    """Returns where a line stands that holds these bytes and nothing else."""
    places, at = [], 0
    for one in content.splitlines(keepends=True):
        if one.rstrip(b"\r\n") == line:
            places.append(at)
        at += len(one)
    return places
