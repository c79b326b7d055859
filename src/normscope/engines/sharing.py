"""The check that every machine of a cluster sees what the driver sees: a task on each writes a
token, and the driver looks for it.
"""

import os
import socket
import uuid
from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path

from .. import __version__
from ..errors import UserError
from ..files import disk_errors, make_folders

TOKEN = ".written-by-a-task-"


class SharedPlace(ABC):
    """A place where tasks write, and the driver reads."""

    @property
    @abstractmethod
    def words(self) -> str:
        """The description of the place, for a message."""

    @property
    @abstractmethod
    def advice(self) -> str:
        """The advice where it is not shared."""

    @abstractmethod
    def prepare(self) -> None:
        """Makes it ready, by the driver."""

    @abstractmethod
    def write(self, token: str) -> None:
        """Writes an empty file of that name, on any machine. Raises UserError."""

    @abstractmethod
    def take(self, token: str) -> bool:
        """Tells whether that file is there, and removes it."""


@dataclass(frozen=True, slots=True)
class SharedFolder(SharedPlace):
    """A folder that all machines have under one path."""

    folder: Path

    @property
    def words(self) -> str:
        """The description of the place, for a message."""
        return f"{self.folder} is not the same folder on"

    @property
    def advice(self) -> str:
        """The advice where it is not shared."""
        return (
            "give --out a folder that every machine of the cluster has under the same path, or "
            "--engine-set storage=URL"
        )

    def prepare(self) -> None:
        """Makes the folder."""
        with disk_errors(f"writing into {self.folder}"):
            make_folders(self.folder)

    def write(self, token: str) -> None:
        """Writes the token; does nothing where there is no such folder."""
        if self.folder.is_dir():
            (self.folder / token).touch()

    def take(self, token: str) -> bool:
        """Tells whether the token is there, and removes it."""
        there = (self.folder / token).exists()
        (self.folder / token).unlink(missing_ok=True)
        return there


@dataclass(frozen=True, slots=True)
class SharedStorage(SharedPlace):
    """A folder that fsspec reaches from all machines."""

    url: str

    @property
    def words(self) -> str:
        """The description of the place, for a message."""
        return f"storage {self.url} is not the same place on"

    @property
    def advice(self) -> str:
        """The advice where it is not shared."""
        return "give --engine-set storage=URL of one that every machine of the cluster reaches"

    def prepare(self) -> None:
        """Does nothing: the storage needs no preparation."""

    def write(self, token: str) -> None:
        """Writes the token."""
        from .storage import CellStorage

        CellStorage(self.url).write_token(token)

    def take(self, token: str) -> bool:
        """Tells whether the token is there, and removes it."""
        from .storage import CellStorage

        return CellStorage(self.url).take_token(token)


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineAnswer:
    """The answer of a machine about itself."""

    host: str
    normscope: str
    """The version of NormScope."""
    token: str
    """The token that it has written, or tried to."""
    refused: str = ""
    """The reason why it could not; empty where it could."""


def answered(place: SharedPlace) -> MachineAnswer:
    """Writes a token on this machine, and says what there is to say of it."""
    token, refused = f"{TOKEN}{uuid.uuid4().hex}", ""
    try:
        place.write(token)
    except UserError as error:
        refused = str(error)
    return MachineAnswer(
        host=socket.gethostname(), normscope=__version__, token=token, refused=refused
    )


def refuse_unshared(place: SharedPlace, answers: list[MachineAnswer]) -> None:
    """Checks that every machine's token has arrived, and that all have the same NormScope. Raises
    UserError otherwise.
    """
    blind = sorted({one.host for one in answers if not place.take(one.token)})
    for one in answers:
        if one.refused:
            raise UserError(f"{one.host}: {one.refused}")
    if blind:
        raise UserError(f"{place.words} {', '.join(blind)}: {place.advice}")
    others = {f"{one.host} {one.normscope}" for one in answers if one.normscope != __version__}
    if others:
        raise UserError(
            f"machines of the cluster have another NormScope than {__version__} here: "
            f"{', '.join(sorted(others))}; install the same everywhere"
        )


def memory_here() -> int:
    """Returns the bytes of this machine's memory."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
