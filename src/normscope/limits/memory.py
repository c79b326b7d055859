"""Memory that there is, compared with what would be built before any of it is taken; numbers that
no model has.

A configuration's own class makes lists of as many entries as it has blocks, experts and labels, and
a model's class as many modules, one after another: of 10**18 they would fill memory before anything
could be asked of the model. Some classes draw a vector as wide as the model themselves, whatever
device the model is built on.
"""

import math
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn.modules import module as registration

from ..errors import UserError
from .reading import shown

MOST_MODULES = 50_000
"""The largest number of modules of one model: a thousand blocks of thirty modules each, and room
above; that many are built in some seconds.
"""
MOST_SECONDS = 6.0
"""The largest processor time for a model without weights, in seconds: the largest that was
published and has fewer modules, a Switch Transformer of 256 experts (31,767 modules), takes 3.0,
and a thousand blocks of GPT-2, BERT or Llama 1.4 to 2.8.
"""
COPIES = 3
"""A weight, its gradient, and what an update makes of it."""


def available_bytes() -> int | None:
    """Memory that can be had without swapping; None where the system does not say."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    found = [int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")]
    return found[0] if found else None


@contextmanager
def bounded_building(
    what: str, advice: str, *, least_weights: int = 0, most_seconds: float = math.inf
) -> Iterator[None]:
    """Within it, models are built as long as they stay below `MOST_MODULES` and below the memory of
    this machine.

    Weights are counted when a module is given them, which is before they are drawn: of what is too
    large nothing more than addresses has been taken. Those on the meta device take no memory and
    are not counted.
    what: its name in the message; advice: how it becomes smaller; least_weights: so many it will
    have, at 4 bytes each;
    most_seconds: of the processor, for models whose weights are not drawn.
    Raises UserError.
    """
    if torch.get_default_device().type == "meta":
        least_weights = 0
    counted = _Counted(what, advice, available_bytes(), most_seconds)
    counted.refuse_beyond_memory(least_weights, 4 * least_weights)
    hooks = [
        registration.register_module_module_registration_hook(counted.module),
        registration.register_module_parameter_registration_hook(counted.parameter),
    ]
    try:
        yield
    except RuntimeError as error:
        # torch asks for a single tensor's memory before any module has it.
        if "allocate memory" in str(error) or "overflow" in str(error):
            raise UserError(
                f"{what} would have a tensor larger than memory ({error}); {advice}"
            ) from error
        raise
    finally:
        for hook in hooks:
            hook.remove()


class _Counted:
    """Modules and weights so far; their parent classes call `module` and `parameter` for each."""

    def __init__(self, what: str, advice: str, available: int | None, most_seconds: float) -> None:
        self.what = what
        self.advice = advice
        self.available = available
        self.most_seconds, self.began_seconds = most_seconds, time.thread_time()
        self.modules = self.weights = self.bytes = 0

    def module(self, parent: nn.Module, name: str, child: Any) -> None:
        self.modules += isinstance(child, nn.Module)
        if self.modules > MOST_MODULES:
            raise UserError(f"{self.what} has more than {MOST_MODULES:,} modules; {self.advice}")
        if time.thread_time() - self.began_seconds > self.most_seconds:
            raise UserError(
                f"{self.what} takes more than {self.most_seconds:g} s of the processor to build "
                f"even without weights, and had {self.modules:,} modules by then; {self.advice}"
            )

    def parameter(self, parent: nn.Module, name: str, weight: Any) -> None:
        if not isinstance(weight, torch.Tensor) or weight.is_meta:
            return
        self.weights += weight.numel()
        self.bytes += weight.numel() * weight.element_size()
        self.refuse_beyond_memory(self.weights, self.bytes)

    def refuse_beyond_memory(self, weights: int, weight_bytes: int) -> None:
        needed = COPIES * weight_bytes
        if self.available is not None and needed > self.available:
            raise UserError(
                f"{self.what} has {weights / 1e9:.3g} billion weights and more, and would need "
                f"over {needed / 1e9:.0f} GB, of which {self.available / 1e9:.0f} are free; "
                f"{self.advice}"
            )


MOST_COUNTED = 100_000
"""The largest count in a configuration: the one of transformers with the largest has 50,257 labels
(MGP-STR), then 16,384 experts.
"""
MOST_WIDE = 100_000_000
"""Likewise the largest size is 20,000,000 (of Qwen4's vocabulary of n-grams); so many numbers are
drawn in a second.
"""
_COUNTS = re.compile(r"num_\w+|(\w+_)?(n?layers?|n?blocks|depths?)", re.IGNORECASE)
_SIZES = re.compile(r"\w*(size|dim|channels|embeddings|positions|width)s?", re.IGNORECASE)
_BOUNDS = ((_COUNTS, MOST_COUNTED), (_SIZES, MOST_WIDE))


def refuse_endless(table: dict[str, Any], source: str) -> None:
    """Raise UserError for more than `MOST_COUNTED` of what is made one by one, or something wider
    than `MOST_WIDE`.
    """
    for key, number in _numbers(table):
        name = key.rpartition(".")[2]
        most = next((bound for names, bound in _BOUNDS if names.fullmatch(name)), number)
        if number > most:
            raise UserError(
                f"{source}: {key} is {shown(number)}, and {most:,} is the most that is built; give "
                "a smaller number"
            )


def largest(table: dict[str, Any], count: int = 3) -> str:
    """Returns the largest whole numbers with their dotted keys, as words: what makes a model too
    large is among them.
    """
    found = sorted(_numbers(table), key=lambda entry: -entry[1])[:count]
    return ", ".join(f"{key} = {shown(number)}" for key, number in found)


def _numbers(table: dict[str, Any], above: str = "") -> Iterator[tuple[str, int]]:
    """Yields every whole number, also those in lists and in configurations within, by dotted
    key.
    """
    for name, value in table.items():
        key = f"{above}{name}"
        if isinstance(value, dict):
            yield from _numbers(value, f"{key}.")
            continue
        for part in value if isinstance(value, list | tuple) else [value]:
            if isinstance(part, dict):
                yield from _numbers(part, f"{key}.")
            elif isinstance(part, int):
                yield key, part
