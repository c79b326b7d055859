"""What a diagnosis says in words and numbers, for the terminal and for the page alike."""

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any

SEVERITIES = ("error", "warning", "info")
"""The worst first."""
_NOUNS = {"error": "error", "warning": "warning", "info": "note"}
_NORMS = {"layer-norm": "LayerNorm", "rms-norm": "RMSNorm", "scale-norm": "ScaleNorm", "sphere-norm": "SphereNorm"}
_PLAIN_FROM, _PLAIN_BELOW = 1e-3, 1e6
"""Sizes that are written without a power of ten."""


def figures(value: float | None, digits: int = 3) -> str:
    """Significant figures: "0.0123", "12.3", "1.2e-5"; "–" for what was not measured, "non-finite" for NaN and
    infinities. Counts are written in full, with commas."""
    if value is None:
        return "–"
    if isinstance(value, int):
        return f"{value:,}"
    if not math.isfinite(value):
        return "non-finite"
    if value == 0:
        return "0"
    if _PLAIN_FROM <= abs(value) < _PLAIN_BELOW:
        exponent = int(f"{value:.{digits - 1}e}".partition("e")[2])  # after rounding: 0.9996 is 1.00
        return f"{value:,.{max(0, digits - 1 - exponent)}f}"
    mantissa, _, power = f"{value:.{digits - 1}e}".partition("e")
    return f"{mantissa}e{int(power)}"


def rate(value: float | None, digits: int = 3) -> str:
    """A learning rate as it is typed: "1e-3", "4.2e-4", "0.05"; "–" for none."""
    if value is None:
        return "–"
    if value == 0 or not math.isfinite(value):
        return figures(value)
    if abs(value) >= 0.01:
        return f"{value:.{digits}g}"
    mantissa, _, exponent = f"{value:.{digits - 1}e}".partition("e")
    return f"{mantissa.rstrip('0').rstrip('.') if '.' in mantissa else mantissa}e{int(exponent)}"


def percent(chance: float) -> str:
    """A chance in whole per cent; never 0 or 100 of one that is neither."""
    if 0 < chance < 0.005:
        return "under 1 %"
    if 0.995 <= chance < 1:
        return "over 99 %"
    return f"{100 * chance:.0f} %"


def counted(count: int, noun: str) -> str:
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def verdict_words(diagnosis: Mapping[str, Any]) -> str:
    """The verdict with how much was found: "1 error, 2 warnings", "healthy", "healthy, 1 note"."""
    found = tally(diagnosis["findings"])
    return ", ".join(filter(None, ["healthy", found])) if diagnosis["verdict"] == "healthy" else found


def tally(findings: Sequence[Mapping[str, Any]]) -> str:
    """How many findings of which severity, the worst first."""
    severities = [finding["severity"] for finding in findings]
    return ", ".join(counted(severities.count(s), _NOUNS[s]) for s in SEVERITIES if s in severities)


def summary(diagnosis: Mapping[str, Any]) -> str:
    """All stacks in a line; those that differ in their blocks alone are told together."""
    stacks = diagnosis["stacks"]
    if not stacks:
        return "no stack found"
    told = [_what_it_is(stack) for stack in stacks]
    if len(set(told)) == 1:
        placement, rest = told[0]
        blocks = " + ".join(f"{stack['blocks']}" for stack in stacks)
        one = len(stacks) == 1 and stacks[0]["blocks"] == 1
        return ", ".join([placement, f"{blocks} block{'' if one else 's'}", *rest])
    return "; ".join(
        ", ".join([f"{stack_title(stack)}: {placement}", counted(stack["blocks"], "block"), *rest])
        for stack, (placement, rest) in zip(stacks, told, strict=True)
    )


def stack_title(stack: Mapping[str, Any]) -> str:
    """Its path, or what stands for the root."""
    return str(stack["name"]) or "whole model"


def stack_words(stack: Mapping[str, Any]) -> list[str]:
    """Everything that is true of a stack as a whole, in short phrases."""
    placement, rest = _what_it_is(stack)
    inside = [sublayer["parallel"] for sublayer in stack["sublayers"] if sublayer["block"] > 0]
    order = ["parallel"] if inside and all(inside) else ["partly parallel"] if any(inside) else []
    epsilon = stack["norm_epsilon"]
    if epsilon is not None:
        rest = (f"{rest[0]} ε {rate(epsilon)}", *rest[1:])
    embedding = ["normed embedding"] if stack["embedding_norm"] else []
    return [placement, counted(stack["blocks"], "block"), f"width {stack['width']:,}", *rest, *embedding, *order]


def norm_name(norm: str) -> str:
    """As papers write it."""
    return _NORMS.get(norm, norm) or "no norms"


def kind_name(kind: str) -> str:
    return kind.replace("cross_", "cross-").replace("feed_", "feed-").replace("_", " ")


def block_span(blocks: Iterable[int]) -> str:
    """Blocks in order, runs of them with a dash: "1–3, 5"; block 0 is what stands before the first."""
    several = sorted(set(blocks))
    parts = ["before 1"] if 0 in several else []
    runs = groupby(enumerate(block for block in several if block > 0), key=lambda pair: pair[1] - pair[0])
    for run in ([block for _, block in members] for _, members in runs):
        parts.append(f"{run[0]}–{run[-1]}" if len(run) > 1 else f"{run[0]}")
    return ", ".join(parts)


def same_sublayers(stack: Mapping[str, Any]) -> list[list[int]]:
    """Numbers of the sub-layers that were found to be the same thing in several blocks, in order of appearance."""
    groups: dict[tuple[Any, ...], list[int]] = {}
    for i, found in enumerate(stack["sublayers"]):
        key = (
            found["kind"],
            found["placement"],
            tuple(found["also"]),
            found["confidence"],
            found["parallel"],
            found["block"] == 0,
            found["measured"]["reaches_output"],
        )
        groups.setdefault(key, []).append(i)
    return list(groups.values())


def placement_words(found: Mapping[str, Any]) -> str:
    """The placement of a sub-layer, and whether something else may be meant."""
    if not found["placement"]:
        return "unknown"
    if found["confidence"] == "unsure":
        return " or ".join([found["placement"], *found["also"]]) + " (unsure)"
    return str(found["placement"])


def loss_words(measured: Mapping[str, Any]) -> str:
    """The loss that gradients were taken of, beside that of guessing."""
    if measured["loss_nats"] is None:
        return "no loss, so no gradients"
    guess = f", {figures(math.log(measured['classes']))} for uniform guesses" if measured["classes"] else ""
    which = "stand-in loss" if measured["loss_is_stand_in"] else "loss"
    return f"{which} {figures(measured['loss_nats'])} nats{guess}"


def advice_words(advice: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """(which rate, the rate, what it means): critical, safe and, where one was asked about, wanted."""
    critical, safe, factor = advice["critical_rate"], advice["safe_rate"], advice["factor"]
    meant = "the loss along the first update is lowest here"
    rows = [
        ("critical", rate(critical, 2), meant if critical is not None else "no rate lowers the loss at first"),
        (
            "safe",
            rate(safe, 2),
            f"trains without warm-up; right within a factor of {figures(factor, 2)} "
            f"({rate(safe / factor, 2)} to {rate(safe * factor, 2)})",
        ),
    ]
    if advice["wanted_rate"] is not None:
        rows.append(("wanted", rate(advice["wanted_rate"]), _wanted_words(advice)))
    return rows


def _wanted_words(advice: Mapping[str, Any]) -> str:
    chance, updates = advice["divergence_chance"], advice["warmup_updates"]
    parts = [] if chance is None else [f"chance to diverge without warm-up: {percent(chance)}"]
    if updates is not None:
        parts.append(f"warm up over at least {counted(updates, 'update')}" if updates else "needs no warm-up")
    return "; ".join(parts) or "not judged"


def _what_it_is(stack: Mapping[str, Any]) -> tuple[str, tuple[str, ...]]:
    final = ("final norm",) if stack["final_norm"] else ("no final norm",) if stack["norm"] else ()
    return stack["placement"] or "unknown placement", (norm_name(stack["norm"]), *final)


def span_of(values: Sequence[float | None]) -> str:
    """The range of what was measured: "0.12 to 0.31", one figure where all look the same, "–" for nothing."""
    known = [value for value in values if value is not None]
    if not known:
        return "–"
    if not all(map(math.isfinite, known)):
        return "non-finite"
    low, high = figures(min(known)), figures(max(known))
    return low if low == high else f"{low} to {high}"
