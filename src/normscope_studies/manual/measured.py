"""The findings of committed results on each placement: every `results.json` below a folder, read by
the kind of its tables.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from normscope.limits.reading import read_json
from normscope.placement import Placement
from normscope.report.words import counted, learning_rate, number, percentage, significant, span

_Result = Mapping[str, Any]
_NATS = "nats per token"
_Told = Iterator[tuple[str, str, str]]
"""A placement by name or title, what was measured, and what was found."""


@dataclass(slots=True, kw_only=True)
class PlacementResults:
    """The findings of results on one placement."""

    rows: dict[tuple[str, str], list[tuple[str, str]]] = field(default_factory=dict)
    """The measurements and the findings, by the title and folder of a result."""
    mentioned: list[tuple[str, str]] = field(default_factory=list)
    """The other results that have numbers of it."""


def measured(
    results: Path, placements: Mapping[str, type[Placement]]
) -> dict[str, PlacementResults]:
    """Returns the findings by placement. Raises as `read_json` does."""
    found = {name: PlacementResults() for name in placements}
    names = {placement.title: name for name, placement in placements.items()} | {
        name: name for name in placements
    }
    for file in sorted(results.glob("*/results.json")):
        data = read_json(file)
        result = (data["title"], file.parent.name)
        for key, reader in _READERS.items():
            for label, what, told in reader(data) if data.get(key) else ():
                if label in names:
                    found[names[label]].rows.setdefault(result, []).append((what, told))
        for name in sorted({names[text] for text in _texts(data) if text in names}):
            if result not in found[name].rows:
                found[name].mentioned.append(result)
    return found


def _arms(data: _Result) -> _Told:
    """Reads a comparison: the best rate of each placement, warm-up and optimiser."""
    groups: dict[tuple[str, int, str], list[_Result]] = {}
    for arm in data["arms"]:
        groups.setdefault((arm["placement"], arm["warmup_updates"], arm["optimizer"]), []).append(
            arm
        )
    for (placement, warmup, optimizer), arms in groups.items():
        best = min(arms, key=lambda arm: _order(_losses(arm)))
        updates = max(seed["updates"] for seed in best["seeds"])
        rates = _rate(best["peak_lr"], len(arms))
        alike = [arm for arm in arms if len(arm["seeds"]) == len(best["seeds"])]
        if len(alike) < len(arms):
            of = f"the best of {len(alike)}" if len(alike) > 1 else "the one"
            seeds = counted(len(best["seeds"]), "seed")
            rates = (
                f"{_rate(best['peak_lr'], 1)}, {of} with {seeds} among {counted(len(arms), 'rate')}"
            )
        what = (
            f"validation loss after {counted(updates, 'update')}, {_warmup(warmup)}, {optimizer}, "
            f"{rates}"
        )
        yield placement, what, _loss(_losses(best), len(best["seeds"]), data["chance_nll_nats"])


def _losses(arm: _Result) -> list[float]:
    return _finite(
        [seed["valid_loss_nats"] for seed in arm["seeds"] if seed["status"] == "finished"]
    )


def _configurations(data: _Result) -> _Told:
    """Reads a figure of the paper's: each schedule at its best rate."""
    groups: dict[tuple[str, ...], list[_Result]] = {}
    for one in data["configurations"]:
        groups.setdefault(
            (one["placement"], one["text"], one["optimizer"], one["schedule"]), []
        ).append(one)
    for (placement, text, optimizer, schedule), several in groups.items():
        best = min(several, key=lambda one: _order(_finite(one["last_loss_nats"])))
        rates = _rate(best["peak_lr"], len({one["peak_lr"] for one in several}))
        losses = _finite(best["last_loss_nats"])
        what = f"{text}, last validation loss, {schedule}, {optimizer}, {rates}"
        yield (
            placement,
            what,
            _loss(losses, len(best["last_loss_nats"]), data["unigram_nats"].get(text)),
        )


def _pairings(data: _Result) -> _Told:
    """A placement's runs without warm-up stand beside those with each, and are one row."""
    yield from dict.fromkeys(
        (pairing["placement"], *_best(pairing[key], pairing["optimizer"], data["unigram_nats"]))
        for pairing in data["pairings"]
        for key in ("without_warmup", "with_warmup")
        if pairing.get(key)
    )


def _endings(data: _Result) -> _Told:
    """Each at its best warm-up and rate."""
    for one in data["endings"]:
        yield one["placement"], *_best(one, one["optimizer"], data["unigram_nats"])


def _best(ladder: _Result, optimizer: str, unigram_nats: float) -> tuple[str, str]:
    losses, warmup = ladder["last_loss_nats"], _warmup(ladder["warmup_updates"])
    rate = _rate(ladder["best_lr"], len(ladder["ladder_nats"][0]))
    end = ", an end of the range" if ladder["best_at_an_end"] else ""
    what = f"{optimizer}, last validation loss, {warmup}, {rate}{end}"
    return what, _loss(_finite(losses), len(losses), unigram_nats)


def _depths(data: _Result) -> _Told:
    """Reads measurements of encoders before any update; trainings at several depths have none."""
    deepest = data["depths"][-1]
    for one in data.get("placements", ()):
        rms = one["mean_rms"][-1]
        found = f"{significant(rms)}; {one['behaviour']}" if rms is not None else one["behaviour"]
        yield one["name"], f"RMS of the hidden state after {counted(deepest, 'block')}", found


def _deviations(data: _Result) -> _Told:
    """Reads deviations of predictions, by the models that they were compared in."""
    for where, placements in data["off_percent"].items():
        for name, stacks in placements.items():
            for stack, curves in stacks.items():
                parts = {"hidden state": curves.get("q"), "gradient of W2": curves.get("ffn_out")}
                found = ", ".join(
                    f"{what} {percentage(off[0] / 100, 2)}" for what, off in parts.items() if off
                )
                models = {
                    "deep": "deep encoder",
                    "pair": "encoder-decoder",
                    "decoder": "decoder",
                }.get(where)
                of = models or f"encoder, {where}'s setting"
                of += f", {stack}" if len(stacks) > 1 else ""
                yield name, f"largest deviation of the prediction, {of}", found


_READERS: Mapping[str, Callable[[_Result], _Told]] = {
    "arms": _arms,
    "configurations": _configurations,
    "pairings": _pairings,
    "endings": _endings,
    "depths": _depths,
    "off_percent": _deviations,
}
"""The readers by the key of a result's data: pairs of a placement, by name or title, and a row."""


def _warmup(updates: int) -> str:
    return f"warm-up {updates:,}" if updates else "no warm-up"


def _rate(rate: float, of: int) -> str:
    return f"rate {learning_rate(rate)}" + (f", the best of {of}" if of > 1 else "")


def _loss(losses: Sequence[float], seeds: int, unigram_nats: float | None) -> str:
    """Returns a mean with its range, beside that of a model that ignores its input."""
    if not losses:
        return f"non-finite in {counted(seeds, 'seed')}"
    several = f" ({span(losses)})" if len(losses) > 1 else ""
    lost = f", non-finite in {seeds - len(losses)} of {seeds} seeds" if len(losses) < seeds else ""
    beside = f"; unigram baseline {number(unigram_nats)}" if unigram_nats is not None else ""
    return f"{number(_mean(losses))}{several} {_NATS}, {counted(seeds, 'seed')}{lost}{beside}"


def _finite(values: Sequence[float | None]) -> list[float]:
    return [value for value in values if value is not None]


def _order(losses: Sequence[float]) -> tuple[int, float]:
    """The best has the most seeds that ended with a loss, and of those the lowest mean."""
    return -len(losses), _mean(losses) if losses else 0.0


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _texts(value: Any) -> Iterator[str]:
    """Yields every text and every key of plain values, formulas and settings apart."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield key
            yield from _texts(item) if key not in ("settings", "formulas", "commands") else ()
    elif isinstance(value, list):
        for item in value:
            yield from _texts(item)
