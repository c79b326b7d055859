"""One model type: built small, given random inputs, and looked at by the doctor in a process of its
own.

What hangs, or takes the process down, is one result and no end. `others.toml` lists models beside
transformers' own.
"""

import contextlib
import io
import math
import multiprocessing
import resource
import signal
import tomllib
import warnings
from collections import Counter
from collections.abc import Callable, Mapping
from functools import cache
from importlib import import_module
from importlib.resources import files
from multiprocessing.connection import Connection
from typing import Any

import torch
from torch import Generator, Tensor, nn
from torch.utils._pytree import tree_map

from normscope.adapters.hugging_face import wanted_placement
from normscope.adapters.hugging_face_inputs import sample
from normscope.doctor.diagnose import Diagnosis, diagnose
from normscope.errors import UserError, in_one_line

from .small import small_model

_CLOCK_TIMES = 10
"""The factor by which a child may take more of the clock than of its processor: it waits beside
others, or sleeps.
"""


def in_child(
    function: Callable[..., dict[str, Any]], limit_seconds: float, **options: Any
) -> dict[str, Any] | str:
    """Returns what the function returns, a dictionary of plain values; or in words why there is
    nothing.

    limit_seconds: of the processor, so that what a busy machine finds is what an idle one does.
    """
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe(duplex=False)
    child = context.Process(
        target=_send, args=(theirs, function, limit_seconds, options), daemon=True
    )
    with warnings.catch_warnings():
        # Since Python 3.12 a fork beside threads warns; the child runs torch on one thread of its
        # own.
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
    pipe: Connection,
    function: Callable[..., dict[str, Any]],
    limit_seconds: float,
    options: dict[str, Any],
) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    # A fork begins with none of its parent's time.
    whole = math.ceil(limit_seconds)
    resource.setrlimit(resource.RLIMIT_CPU, (whole, whole + 1))
    pipe.send(function(**options))


_MOST_LETTERS = 160


MODES = ("float32", "autocast", "bfloat16")
"""How a model is looked at: as it is built, under `torch.autocast` to bfloat16, or cast to
bfloat16."""


def measured(
    *,
    family: str,
    tokens: int,
    sequences: int,
    largest: int,
    limit_seconds: float,
    seed: int,
    mode: str = "float32",
) -> dict[str, Any]:
    """Says how far it came: not built, too large, without inputs, refused, traceback, too long,
    ended or diagnosed.
    """
    options = {
        "family": family,
        "tokens": tokens,
        "sequences": sequences,
        "largest": largest,
        "seed": seed,
        "mode": mode,
    }
    found = in_child(looked_at, limit_seconds, **options)
    return {"stage": found} if isinstance(found, str) else found


def looked_at(
    *,
    family: str,
    tokens: int,
    sequences: int,
    largest: int,
    seed: int,
    mode: str = "float32",
) -> dict[str, Any]:
    """The same in this process, without a limit of time."""
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    # Hundreds of authors' warnings and prints are no part of what is asked.
    quiet = io.StringIO()
    with (
        warnings.catch_warnings(),
        contextlib.redirect_stdout(quiet),
        contextlib.redirect_stderr(quiet),
    ):
        warnings.simplefilter("ignore")
        try:
            model = _other_model(family) if family in other_models() else small_model(family)
        except UserError as error:
            return {"stage": "not built", "why": _short(error)}
        parameters = sum(parameter.numel() for parameter in model.parameters())
        facts = {"model": type(model).__name__, "parameters": parameters}
        if parameters > largest:
            return {"stage": "too large", **facts}
        generator = torch.Generator().manual_seed(seed)
        try:
            inputs, loss = (
                (_other_inputs(family, tokens, sequences, generator), None)
                if family in other_models()
                else sample(model, tokens=tokens, sequences=sequences, generator=generator)
            )
        except UserError as error:
            return {"stage": "without inputs", "why": _short(error), **facts}
        config = getattr(model, "config", None)
        placement = None if config is None else wanted_placement(config)
        try:
            found = _diagnosed(model, inputs, mode, loss=loss, wanted_placement=placement)
        except ValueError as error:
            return {"stage": "refused", "why": _short(error), **facts}
        except Exception as error:
            return {
                "stage": "traceback",
                "why": f"{type(error).__name__}: {_short(error)}",
                **facts,
            }
    return {"stage": "diagnosed", **facts, **_told(found)}


def _diagnosed(model: nn.Module, inputs: Any, mode: str, **given: Any) -> Diagnosis:
    """mode: of `MODES`."""
    if mode == "bfloat16":
        model = model.to(torch.bfloat16)
        inputs = tree_map(_in_half, inputs)
    with torch.autocast("cpu", torch.bfloat16, enabled=mode == "autocast"):
        return diagnose(model, inputs, advise=False, **given)


def _in_half(value: Any) -> Any:
    is_float = isinstance(value, Tensor) and value.is_floating_point()
    return value.to(torch.bfloat16) if is_float else value


@cache
def other_models() -> Mapping[str, Mapping[str, Any]]:
    """Reads what models beside those of transformers are made of, by the name of their source and
    their own.
    """
    sources = tomllib.loads((files(__package__) / "others.toml").read_text(encoding="utf-8"))
    found = {}
    for name, source in sources.items():
        shared = {key: value for key, value in source.items() if key != "models"}
        for model, own in source["models"].items():
            found[f"{name}: {model}"] = {**shared, "own": own}
    return found


def _other_model(family: str) -> nn.Module:
    """Builds a model of a family outside transformers. Raises UserError where it cannot be built,
    as where its package is not installed.
    """
    of = other_models()[family]
    given = {**of.get("each", {}), **of["own"]}
    given.pop("inputs", None)
    call = given.pop("call", None) or of["call"]
    try:
        if "inner" in of:
            ((place, inner),) = of["inner"].items()
            given = {**of.get("given", {}), place: _named(inner)(**given)}
        # TOML has no tuples, which some ask for.
        given = {
            key: tuple(value) if isinstance(value, list) else value for key, value in given.items()
        }
        made: nn.Module = _named(call)(**given)
    except Exception as error:
        raise UserError(in_one_line(error)) from error
    return made.eval()


def import_packages() -> None:
    """Imports the packages of other models, as far as they are installed, once for all children."""
    for of in other_models().values():
        with contextlib.suppress(Exception):
            _named(of["own"].get("call") or of["call"])


def _named(path: str) -> Any:
    module, _, name = path.partition(":")
    return getattr(import_module(module), name)


_WIDTH, _VOCABULARY = 32, 96
"""The width and the vocabulary of the models in `others.toml`."""


def _other_inputs(
    family: str, tokens: int, sequences: int, generator: Generator
) -> tuple[Tensor, ...]:
    of = other_models()[family]
    kind, *rest = str(of["own"].get("inputs", of["inputs"])).split()
    if kind == "image":
        return (torch.randn(sequences, 3, int(rest[0]), int(rest[0]), generator=generator),)
    if kind == "ids":
        return (torch.randint(_VOCABULARY, (sequences, tokens), generator=generator),)
    return tuple(torch.randn(sequences, tokens, _WIDTH, generator=generator) for _ in (kind, *rest))


def _told(found: Diagnosis) -> dict[str, Any]:
    sublayers = [one for stack in found.stacks for one in stack.sublayers if one.block > 0]
    alike = Counter(
        (one.kind, one.placement or one.scaled_placement, one.confidence, str(one.formula))
        for one in sublayers
    )
    return {
        "placements": [stack.placement or stack.scaled_placement for stack in found.stacks],
        "sublayers": [
            dict(zip(SUBLAYER, (*key, count), strict=True)) for key, count in alike.items()
        ],
        "errors": _findings(found, "error"),
        "warnings": _findings(found, "warning"),
    }


def _findings(found: Diagnosis, severity: str) -> list[list[str]]:
    """Returns the rule, the place and the message of every finding of that severity."""
    return [
        [one.id, one.where, _short(one.message)]
        for one in found.findings
        if one.severity == severity
    ]


SUBLAYER = ("kind", "placement", "confidence", "formula", "count")
"""The facts that are kept of sub-layers, those alike as one."""


def _short(error: object) -> str:
    words = in_one_line(error) if isinstance(error, Exception) else str(error)
    return words if len(words) <= _MOST_LETTERS else words[: _MOST_LETTERS - 1] + "…"
