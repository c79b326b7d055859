"""One of several processes that a launcher has started says what all of them meet."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

import typer

from ..errors import UserError
from ..processes.surroundings import launched_together, rank_of_environment
from ..signals import Interrupted, Stopped
from .console import say


@contextmanager
def spoken_once() -> Iterator[None]:
    """What all processes of a training meet, the first of them says; the others end with the same
    exit code. What one of them meets alone, such as a file that its machine lacks, it says itself.
    """
    rank = rank_of_environment()
    if launched_together() > 1:
        # Torch tells of a process that has gone in forty lines of its own code.
        os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    try:
        yield
    except (UserError, Interrupted, Stopped) as error:
        if rank == 0 or _is_own(error):
            raise
        raise typer.Exit(getattr(error, "exit_code", 2)) from None
    except Exception as error:
        from ..train import PeerLost

        if not isinstance(error, PeerLost):
            raise
        if error.tells:
            say(str(error))
        raise typer.Exit(1) from None


def _is_own(error: BaseException) -> bool:
    """Whether no other process of this machine has met it too."""
    if not isinstance(error, UserError):
        return False
    from ..train.together.group import OwnError, SharedError

    first_of_machine = os.environ.get("LOCAL_RANK") == "0"
    return isinstance(error, OwnError) or (first_of_machine and not isinstance(error, SharedError))
