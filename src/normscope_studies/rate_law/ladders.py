"""Ladders of learning rates that others have published: trainings that differ in the rate alone."""

import csv
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from normscope.choosing.law import KnownRate, RateFacts
from normscope.errors import UserError
from normscope.measure.vertex import lowest

SOURCE = "Li et al. 2025, arXiv:2503.04715, github.com/step-law/steplaw, data/dense_lr_bs_loss.csv"
SEQUENCE_TOKENS = 2048
_COLUMNS: Mapping[str, tuple[str, ...]] = {
    "width": ("h", "width"),
    "ffn_width": ("ffnh", "ffn_width"),
    "blocks": ("numl", "blocks"),
    "peak_lr": ("lr", "peak_lr"),
    "batch_sequences": ("bs", "batch_sequences"),
    "updates": ("ti", "updates"),
    "loss": ("loss",),
    "smooth_loss": ("smooth loss", "smooth_loss"),
    "parameters": ("N", "parameters_without_embedding"),
    "tokens": ("D", "tokens"),
}
"""The names of each column in the published file, and in plain words."""
_FEWEST_RUNGS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedSweep:
    """Trainings of one model that differ in the peak rate alone, rates rising."""

    width: int
    ffn_width: int
    blocks: int
    parameters: float
    """The number of parameters without those of the embedding."""
    batch_tokens: int
    updates: int
    tokens: float
    """The tokens of the whole training."""
    rates: Sequence[float]
    losses: Sequence[float]
    """Nats per token at the end."""

    @property
    def family(self) -> str:
        """Returns the shape of the model in words: ladders of one are left out together."""
        return f"step-law {self.blocks}x{self.width}, {self.ffn_width}"

    @property
    def facts(self) -> RateFacts:
        """Returns what the law asks of it."""
        return RateFacts(
            "adamw",
            self.width,
            2 * self.blocks,
            0.0,
            batch_tokens=self.batch_tokens,
            tokens=self.tokens,
        )

    @property
    def best_rate(self) -> float:
        """Returns the rate at the vertex of a parabola through the lowest loss and its neighbours
        over the rate's logarithm; the lowest rung itself at an end of the ladder.
        """
        octaves = [math.log2(rate) for rate in self.rates]
        return math.exp2(lowest(octaves, self.losses))

    @property
    def known(self) -> KnownRate:
        """Returns its best rate as the law is fitted to it."""
        return KnownRate(
            family=self.family, facts=self.facts, rate=self.best_rate, kind="published ladder"
        )

    def regret(self, rate: float) -> float:
        """Returns what a rate loses against the lowest rung, in nats: between rungs on a line over
        the rate's logarithm, beyond the ends as the last two rungs go on.
        """
        x, y = np.log2(self.rates), np.asarray(self.losses)
        at = int(np.clip(np.searchsorted(x, math.log2(rate)), 1, len(x) - 1))
        share = (math.log2(rate) - x[at - 1]) / (x[at] - x[at - 1])
        return float(y[at - 1] + share * (y[at] - y[at - 1]) - y.min())


def read_sweeps(file: Path) -> list[PublishedSweep]:
    """Returns every ladder of at least five rates of the published table, or of one with plain
    names of columns.

    Raises UserError where the file is not there or lacks a column, with the line of a value that is
    no number.
    """
    if not file.is_file():
        raise UserError(
            f"{file}: no such file; it is {SOURCE}: save it there, or name another place with "
            "--set ladders=FILE"
        )
    with file.open(encoding="utf-8", newline="") as lines:
        table = csv.DictReader(lines)
        names = _names(table.fieldnames or (), file)
        rungs: defaultdict[tuple[float, ...], dict[float, float]] = defaultdict(dict)
        for row in table:
            values = _numbers(row, names, f"{file}, line {table.line_num}")
            key = tuple(values[name] for name in _SHAPE)
            rungs[key][values["peak_lr"]] = values["loss"]
    return [
        _sweep(key, found) for key, found in sorted(rungs.items()) if len(found) >= _FEWEST_RUNGS
    ]


_SHAPE = ("width", "ffn_width", "blocks", "parameters", "batch_sequences", "updates", "tokens")


def _names(columns: Sequence[str], file: Path) -> dict[str, str]:
    """Returns what each of ours is called in that file."""
    found = {}
    for ours, theirs in _COLUMNS.items():
        there = [name for name in theirs if name in columns]
        if not there:
            raise UserError(f"{file}: no column {' or '.join(theirs)}; it has {', '.join(columns)}")
        found[ours] = there[0]
    return found


def _numbers(row: Mapping[str, str], names: Mapping[str, str], where: str) -> dict[str, float]:
    """Returns a line's values; the loss is the smoothed one where there is one."""
    values = {}
    for ours, theirs in names.items():
        if ours == "smooth_loss" and not row[theirs]:
            continue
        try:
            values[ours] = float(row[theirs])
        except (TypeError, ValueError) as error:
            raise UserError(
                f"{where}: {theirs} is {row[theirs]!r}, and must be a number"
            ) from error
    values["loss"] = values.get("smooth_loss", values["loss"])
    return values


def _sweep(key: tuple[float, ...], losses: Mapping[float, float]) -> PublishedSweep:
    shape = dict(zip(_SHAPE, key, strict=True))
    rates = sorted(losses)
    return PublishedSweep(
        width=int(shape["width"]),
        ffn_width=int(shape["ffn_width"]),
        blocks=int(shape["blocks"]),
        parameters=shape["parameters"],
        batch_tokens=int(shape["batch_sequences"]) * SEQUENCE_TOKENS,
        updates=int(shape["updates"]),
        tokens=shape["tokens"],
        rates=rates,
        losses=[losses[rate] for rate in rates],
    )
