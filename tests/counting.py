"""How much work a call does, in steps and not in seconds: the lines of ours that run, and the
values that Python's own functions go through for them.
"""

import builtins
import sys
from collections.abc import Iterator, Sized
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any
from unittest.mock import patch

import normscope

_OURS = str(Path(normscope.__file__).parent)
_THAT_GO_THROUGH = ("max", "min", "sum", "sorted", "any", "all")


@dataclass
class Steps:
    """How many there were."""

    count: int = 0


@contextmanager
def counted() -> Iterator[Steps]:
    """Counts within the block. Neither numpy nor the methods of lists are counted."""
    steps = Steps()

    def line(frame: FrameType, event: str, value: Any) -> Any:
        if event == "line":
            steps.count += 1
        return line

    def call(frame: FrameType, event: str, value: Any) -> Any:
        return line if frame.f_code.co_filename.startswith(_OURS) else None

    def counting(function: Any) -> Any:
        def called(*args: Any, **options: Any) -> Any:
            if sys._getframe(1).f_code.co_filename.startswith(_OURS) and isinstance(args[0], Sized):
                steps.count += len(args[0])
            return function(*args, **options)

        return called

    changed = {name: counting(getattr(builtins, name)) for name in _THAT_GO_THROUGH}
    with patch.multiple(builtins, **changed):
        before = sys.gettrace()
        sys.settrace(call)
        try:
            yield steps
        finally:
            sys.settrace(before)
