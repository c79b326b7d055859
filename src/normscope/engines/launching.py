"""A job of several processes: `python -m normscope.engines.launching N COMMAND…` has torch's own
launcher start N processes of a command of ours, which train one run together.

It ends as they do: with the exit code of the first that failed, and with no word of its own, so
that the last line is one of theirs. Asked to end, it asks all of them to save.
"""

import logging
import os
import sys
import tempfile
import uuid
from collections.abc import Sequence
from pathlib import Path

from ..processes.surroundings import hold_lifeline, interpreter
from ..signals import ending_in_one_line

GIVEN = "/dev/stdin"
"""The word for the configuration that a job finds at its standard input."""
_SAVING, _SAVING_SECONDS = "TORCH_ELASTIC_SHUTDOWN_TIMEOUT", "600"
"""The variable and the seconds within which processes that were asked to end may save before torch
kills them. A torch that does not read it gives them 30 seconds.
"""
_FAILED = 1
_ASKED = 128
"""Added to the number of a signal that asked for an end."""


def together(words: Sequence[str], processes: int) -> list[str]:
    """Returns the words of a job in which so many processes do what `words` says: a command of
    ours, as words after the Python interpreter.

    >>> together(["-m", "normscope", "train", "my.toml"], 2)
    ['-m', 'normscope.engines.launching', '2', 'train', 'my.toml']
    """
    if processes == 1:
        return list(words)
    return ["-m", __name__, str(processes), *words[2:]]


def main() -> None:
    """Starts the processes and waits for them. Exit codes: theirs, and 1 where one was killed."""
    with ending_in_one_line():
        hold_lifeline()
        sys.exit(_launched(int(sys.argv[1]), sys.argv[2:]))


def _launched(processes: int, words: list[str]) -> int:
    with tempfile.TemporaryDirectory(prefix="normscope-") as folder:
        if GIVEN in words:
            # On some systems those who read one standard input share how far they have come.
            file = Path(folder) / "config.toml"
            file.write_text(sys.stdin.read(), encoding="utf-8")
            words[words.index(GIVEN)] = str(file)
        return _ended(processes, [*interpreter(), "-m", "normscope", *words])


def _ended(processes: int, command: Sequence[str]) -> int:
    """Runs a command in so many processes; returns the exit code."""
    from torch.distributed.elastic.multiprocessing import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    os.environ.setdefault(_SAVING, _SAVING_SECONDS)
    # What torch says of a process that has failed would stand behind what that one has said.
    logging.disable(logging.CRITICAL)
    config = LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=processes,
        run_id=uuid.uuid4().hex,
        rdzv_backend="c10d",
        rdzv_endpoint="localhost:0",
        local_addr="localhost",
        max_restarts=0,
    )
    try:
        elastic_launch(config, command[0])(*command[1:])
    except SignalException as asked:
        return _ASKED + int(asked.sigval)
    except ChildFailedError as failed:
        _, first = failed.get_first_failure()
        # Torch has a negative one for a process that a signal has killed.
        return first.exitcode if first.exitcode > 0 else _FAILED
    return 0


if __name__ == "__main__":
    main()
