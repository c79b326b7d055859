"""The schedule that was meant: what the settings beside a log say of rate and warm-up."""

import math
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..limits.reading import read_text
from .names import plain
from .record import TrainingRecipe

_PEAK = ("peak_lr", "max_lr", "peak_learning_rate", "learning_rate", "lr")
_WARMUP = (
    "warmup_updates",
    "warmup_steps",
    "num_warmup_steps",
    "lr_scheduler_warmup_steps",
    "warmup_iters",
    "lr_warmup_iters",
    "lr_warmup_steps",
)
_SHARE = ("warmup_ratio", "lr_warmup_fraction")
_LENGTH = ("max_steps", "train_iters", "max_iters", "total_steps", "num_training_steps")
"""Names of settings by trainers in wide use, the first that there is."""
_SCALAR = re.compile(r"(?P<name>\w+):\s+(?P<value>\S+)\s*(?:#.*)?")
_MOST_BYTES = 2**18


def meant_by(settings: Mapping[str, Any], recipe: TrainingRecipe) -> TrainingRecipe:
    """Returns the recipe with the highest rate and the warm-up that settings name.

    settings: by name, numbers or texts of numbers; whatever else is among them is left alone. A
    share of the updates counts where their number is among the settings too.
    """
    known: dict[str, float] = {}
    for name, value in settings.items():
        number = _number(value)
        if number is not None:
            known.setdefault(plain(name.rpartition("/")[2]), number)
    peak = next((known[name] for name in _PEAK if known.get(name, 0.0) > 0), None)
    warmup = next((known[name] for name in _WARMUP if name in known), None)
    share = next((known[name] for name in _SHARE if 0 < known.get(name, 0.0) < 1), None)
    length = next((known[name] for name in _LENGTH if known.get(name, 0.0) > 0), None)
    if warmup is not None and 0 < warmup < 1:
        # The Trainer of transformers 5 takes a share under the name of the count.
        share, warmup = warmup, None
    if not warmup and share is not None:
        warmup = None if length is None else math.ceil(share * length)
    return replace(
        recipe,
        peak_rate=peak if recipe.peak_rate is None else recipe.peak_rate,
        warmup_updates=(
            int(warmup)
            if warmup is not None and recipe.warmup_updates is None
            else recipe.warmup_updates
        ),
    )


def _number(value: Any) -> float | None:
    """Returns a finite number; None for anything else, a truth value too."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) and number >= 0 else None


def settings_beside(log: Path) -> dict[str, str]:
    """Reads the settings in Lightning's `hparams.yaml` beside its table: names with a value on the
    same line.

    Lists, tables within tables and what is tagged for Python are left out: nothing is built.
    """
    try:
        text = read_text(log.parent / "hparams.yaml", most_bytes=_MOST_BYTES)
    except (OSError, ValueError):
        return {}
    found = (_SCALAR.fullmatch(line) for line in text.splitlines())
    return {one["name"]: one["value"] for one in found if one is not None}
