"""One model type: built small, given random inputs, and looked at by the doctor in a process of its own.

What hangs, or takes the process down, is one result and no end.
"""

import contextlib
import io
import math
import multiprocessing
import resource
import signal
import warnings
from collections import Counter
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

import torch

from normscope.adapters.hugging_face import wanted_placement
from normscope.adapters.hugging_face_inputs import sample
from normscope.adapters.hugging_face_small import small_model
from normscope.doctor.diagnose import Diagnosis, diagnose
from normscope.errors import UserError, in_one_line

_CLOCK_TIMES = 10
"""How many times its processor's time a child may take of the clock: it waits beside others, or sleeps."""


def in_child(function: Callable[..., dict[str, Any]], limit_seconds: float, **options: Any) -> dict[str, Any] | str:
    """What the function returns, a dictionary of plain values; or in words why there is nothing.

    limit_seconds: of the processor, so that what a busy machine finds is what an idle one does.
    """
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe(duplex=False)
    child = context.Process(target=_send, args=(theirs, function, limit_seconds, options), daemon=True)
    with warnings.catch_warnings():
        # Since Python 3.12 a fork beside threads warns; the child runs torch on one thread of its own.
        warnings.simplefilter("ignore", DeprecationWarning)
        child.start()
    theirs.close()
    try:
        if not ours.poll(_CLOCK_TIMES * limit_seconds):
            return "too long"
        found: dict[str, Any] = ours.recv()
        return found
    except EOFError:
        child.join()
        return "too long" if child.exitcode == -signal.SIGXCPU else "the process ended"
    finally:
        # A signal may be ignored by what the model runs.
        child.kill()
        child.join()
        ours.close()


def _send(
    pipe: Connection, function: Callable[..., dict[str, Any]], limit_seconds: float, options: dict[str, Any]
) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    # A fork begins with none of its parent's time.
    whole = math.ceil(limit_seconds)
    resource.setrlimit(resource.RLIMIT_CPU, (whole, whole + 1))
    pipe.send(function(**options))


_MOST_LETTERS = 160


def measured(
    *, family: str, tokens: int, sequences: int, largest: int, limit_seconds: float, seed: int
) -> dict[str, Any]:
    """How far it came: not built, too large, without inputs, refused, traceback, too long, ended or diagnosed."""
    options = {"family": family, "tokens": tokens, "sequences": sequences, "largest": largest, "seed": seed}
    found = in_child(looked_at, limit_seconds, **options)
    return {"stage": found} if isinstance(found, str) else found


def looked_at(*, family: str, tokens: int, sequences: int, largest: int, seed: int) -> dict[str, Any]:
    """The same in this process, without a limit of time."""
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    # Hundreds of authors' warnings and prints are no part of what is asked.
    quiet = io.StringIO()
    with warnings.catch_warnings(), contextlib.redirect_stdout(quiet), contextlib.redirect_stderr(quiet):
        warnings.simplefilter("ignore")
        try:
            model = small_model(family)
        except UserError as error:
            return {"stage": "not built", "why": _short(error)}
        parameters = sum(parameter.numel() for parameter in model.parameters())
        facts = {"model": type(model).__name__, "parameters": parameters}
        if parameters > largest:
            return {"stage": "too large", **facts}
        try:
            drawn = sample(model, tokens=tokens, sequences=sequences, generator=torch.Generator().manual_seed(seed))
        except UserError as error:
            return {"stage": "without inputs", "why": _short(error), **facts}
        config = getattr(model, "config", None)
        placement = None if config is None else wanted_placement(config)
        try:
            found = diagnose(model, drawn.inputs, loss=drawn.loss, advise=False, wanted_placement=placement)
        except ValueError as error:
            return {"stage": "refused", "why": _short(error), **facts}
        except Exception as error:
            return {"stage": "traceback", "why": f"{type(error).__name__}: {_short(error)}", **facts}
    return {"stage": "diagnosed", **facts, **_told(found)}


def _told(found: Diagnosis) -> dict[str, Any]:
    sublayers = [one for stack in found.stacks for one in stack.sublayers if one.block > 0]
    alike = Counter(
        (one.kind, one.placement or one.scaled_placement, one.confidence, str(one.formula)) for one in sublayers
    )
    return {
        "placements": [stack.placement or stack.scaled_placement for stack in found.stacks],
        "sublayers": [dict(zip(SUBLAYER, (*key, count), strict=True)) for key, count in alike.items()],
        **{
            f"{severity}s": [
                [one.id, one.where, _short(one.message)] for one in found.findings if one.severity == severity
            ]
            for severity in ("error", "warning")
        },
    }


SUBLAYER = ("kind", "placement", "confidence", "formula", "count")
"""What is kept of sub-layers, those alike as one."""


def _short(error: object) -> str:
    words = in_one_line(error) if isinstance(error, Exception) else str(error)
    return words if len(words) <= _MOST_LETTERS else words[: _MOST_LETTERS - 1] + "…"
