"""One command a folder of runs at a time."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from ..errors import UserError, option
from ..files import disk_errors, make_folders
from ..processes.locks import Held, hold


@contextmanager
def alone(folder: Path, doing: str) -> Iterator[None]:
    """Hold a folder, which is made if need be, for this command. Raises UserError naming the process that has it.

    doing: what is done in it, such as "comparison".
    """
    with ExitStack() as held:
        try:
            with disk_errors(f"opening {folder}"):
                make_folders(folder)
                held.enter_context(hold(folder))
        except Held as error:
            raise UserError(
                f"another process{error.holder} is at work on the {doing} in {folder}; wait for it, stop it, or choose "
                f"another folder with {option('out')}"
            ) from error
        yield
