"""One command at a time in the folder of what it trains, which stays at its place meanwhile."""

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from ..errors import UserError, option
from ..files import disk_errors, make_folders
from ..processes.surroundings import Held, hold


@contextmanager
def alone(folder: Path, work: str) -> Iterator[None]:
    """Holds a folder, which is made if need be, for this command.

    `work` is what a message calls that which stands in it, such as "comparison". Raises UserError
    naming the process that has it, and where it is gone when something fails.
    """
    with ExitStack() as held:
        try:
            with disk_errors(f"opening {folder}"):
                make_folders(folder)
                held.enter_context(hold(folder))
        except Held as error:
            raise UserError(
                f"another process{error.holder} is at work on the {work} in {folder}; wait for it, "
                f"stop it, or choose another folder with {option('out')}"
            ) from error
        begun = folder.stat()
        try:
            yield
        except (OSError, UserError):
            _refuse_moved(folder, begun)
            raise


def _refuse_moved(folder: Path, begun: os.stat_result) -> None:
    """Checks that the folder that a command began with is still at its place. Raises UserError
    where it is not.
    """
    with suppress(FileNotFoundError, NotADirectoryError):
        if os.path.samestat(begun, folder.stat()):
            return
    raise UserError(
        f"{folder} was renamed or removed while its runs were trained; put it back, and the same "
        "command goes on, or run the command again to start again"
    ) from None
