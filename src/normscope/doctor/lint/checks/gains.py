"""The parameters that set the size of a stream beside matrices: gains of norms, and embeddings with
their scale.

Gains may start at another number than 1, or have been trained for a norm that adds 1 to them.
Embeddings are looked at beside what is added to their rows before the first block reads the sum.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence

from ...measured import NormGain, Table
from ...result import Severity
from ..likes import repeated
from ..losses import MUCH_LOWER, gained
from ..patient import Patient, initial_weights, is_librarys
from ..rule import Fault, rule

_OFF = 0.1
"""The distance from 1 at which a gain may start."""


@rule("gain-start")
def gain_start(patient: Patient) -> Iterator[Fault]:
    """Gains that every initialisation makes constant, at another constant than norms have."""
    if patient.trained:
        return
    # Smaller ones than a stream are of queries and keys, which may have a temperature of their own.
    widths = {stack.width for stack in patient.stacks}
    sizes = {name: parameter.numel() for name, parameter in patient.model.named_parameters()}
    gains = [gain for gain in patient.observed.norm_gains if sizes.get(gain.name) in widths]
    large = _most_or_a_row(patient, gains, lambda gain: gain.total > 1 + _OFF)
    if large:
        added = [gain for gain in large if gain.adds_one]
        yield Fault(
            where=large,
            message=f"gains of {len(large)} of {len(gains)} norms start at {_range(large)}, where "
            "norms start at 1"
            + (
                f": the parameters start at {_mean(added):.3g}, and the forward pass adds 1"
                if added
                else ""
            ),
            fix=(
                "start these parameters at 0, as the forward pass multiplies by 1 + w"
                if added
                else "start them at 1; a size that is meant belongs into the weights that read "
                "the norm"
            ),
        )
    shut = _most_or_a_row(patient, gains, lambda gain: gain.total == 0)
    shut = shut or [gain for gain in gains if gain.constant and gain.total == 0]
    shut = [] if _open_by_design(patient, shut) else shut
    if len(shut) == 1 and _shuts_most(patient, shut[0]):
        yield Fault(
            where=shut,
            message=f"the gain {shut[0].name} starts at 0, and those of {len(gains) - 1} other "
            "norms do not: the stream goes on through this norm alone, so that every logit starts "
            "at 0 and the first update moves nothing but this gain",
            fix="start it at 1, or let the forward pass multiply by 1 + w",
        )
    if len(shut) > 1:
        yield Fault(
            where=shut,
            message=(
                f"the gains of {len(shut)} of {len(gains)} norms start at 0, and the forward pass "
                "multiplies by them as they are: of what they norm nothing goes on"
            )
            + (", every branch and every logit starts at 0" if len(shut) == len(gains) else ""),
            fix="start them at 1, or multiply by 1 + w, as Gemma does with weights that start at 0",
        )
    small = _most_or_a_row(patient, gains, lambda gain: 0 < gain.total < 1 - _OFF)
    if small:
        yield Fault(
            severity=Severity.INFO,
            where=small,
            message=f"gains of {len(small)} of {len(gains)} norms start at {_range(small)}, where "
            "norms start at 1",
            fix="nothing, where branches are meant to start small",
        )


def _most_or_a_row(
    patient: Patient, gains: Sequence[NormGain], is_odd: Callable[[NormGain], bool]
) -> list[NormGain]:
    """Returns the gains that start oddly, where these are most of all, or all of a row of three or
    more at one place of blocks.

    One norm unlike the others is another rule's.
    """
    odd = [gain for gain in gains if gain.constant and is_odd(gain)]
    if 2 * len(odd) > len(gains):
        return odd
    weights, by_name = patient.weights, {gain.name: gain for gain in odd}
    rows = repeated({gain.name: weights[gain.name] for gain in gains if gain.name in weights})
    return [
        by_name[name]
        for row in rows
        if len(row) > 2 and by_name.keys() >= row.keys()
        for name in row
    ]


def _open_by_design(patient: Patient, shut: Sequence[NormGain]) -> bool:
    """Tells whether each of these norms ends a branch, which then starts at 0, as Fixup's and
    ReZero's do.
    """
    names = {gain.name for gain in shut}
    ends = {
        name
        for stack in patient.stacks
        for use in stack.norm_uses
        for name in use.parameters
        if any(
            term.at == use.at and term.kind == "norm" and term.arguments[0].kind == "branch"
            for sublayer in stack.sublayers
            for term in sublayer.formula.segment.terms
        )
    }
    return bool(names) and names <= ends


def _shuts_most(patient: Patient, gain: NormGain) -> bool:
    """Tells whether a gain gets a gradient while most other weights get none."""
    norms = patient.observed.gradient_norms
    others = [norm for name, norm in norms.items() if name != gain.name]
    return bool(norms.get(gain.name)) and 2 * others.count(0.0) > len(others)


_ALL_BUT = 0.9
"""Share of norms that must agree."""
_NEAR = 0.25
"""The distance from a convention's number: trained gains move from their start by about that."""
_SIGNS = 0.1
"""Share of gains below 0. Trained from 1, hardly any comes to be; about 0, half are."""
_FEWEST_GAINS = 3


@rule("gain-convention")
def gain_convention(patient: Patient) -> Iterator[Fault]:
    """Trained gains to which 1 was added, or from which 1 was taken, for a norm of another kind.

    By the losses with gains that are off by 1, else by where the gains lie: about 2, or about 0.
    """
    gains = patient.observed.norm_gains
    if not patient.trained or len(gains) < _FEWEST_GAINS:
        return
    told = _by_losses(patient)
    yield from _by_places(gains) if told is None else told


def _by_losses(patient: Patient) -> list[Fault] | None:
    """Returns the faults that the losses with all gains shifted by 1 show; None where they show
    nothing.
    """
    seen = patient.observed
    told = [
        (share, by)
        for by, nats in seen.shifted_loss_nats.items()
        if (share := gained(seen, nats)) is not None
    ]
    if not told:
        return None
    share, by = max(told)
    nats, rewired = seen.shifted_loss_nats[by], seen.rewired_loss_nats
    # Another placement may explain more.
    if share < 0 or (rewired is not None and rewired <= nats):
        return []
    gains = seen.norm_gains
    step = "1 added to" if by > 0 else "1 taken from"
    fault = Fault(
        severity=Severity.ERROR if share >= MUCH_LOWER else Severity.WARNING,
        where=gains,
        message=f"the gains of {len(gains)} norms are off by 1: they multiply by "
        f"{_total(gains):.3g} in the mean, and on this batch the loss is {seen.loss_nats:.2f} nats "
        f"a token, and {nats:.2f} with {step} each of them",
        fix=_convention(by, adds_one=all(gain.adds_one for gain in gains)),
    )
    return [fault]


def _by_places(gains: Sequence[NormGain]) -> Iterator[Fault]:
    doubled = [gain for gain in gains if abs(gain.total - 2) < _NEAR and _is_plain(gain)]
    if len(doubled) >= _ALL_BUT * len(gains):
        added = all(gain.adds_one for gain in doubled)
        yield Fault(
            where=doubled,
            message=f"{len(doubled)} of {len(gains)} norms have parameters about "
            f"{1 if added else 2} (mean {_mean(doubled):.3g})"
            + (", and the forward pass adds 1 to them" if added else "")
            + f": they multiply by {_total(doubled):.3g}, not by about 1",
            fix=_convention(-1, adds_one=added),
        )
    lost = [
        gain
        for gain in gains
        if abs(gain.total) < _NEAR and gain.total_size < 2 * _NEAR and _is_plain(gain)
    ]
    signs = [gain for gain in lost if gain.total_negative > _SIGNS or not gain.total_size]
    if len(signs) >= _ALL_BUT * len(gains):
        added = all(gain.adds_one for gain in lost)
        negative = sum(gain.total_negative for gain in lost) / len(lost)
        yield Fault(
            where=lost,
            message=f"{len(lost)} of {len(gains)} norms "
            + (
                f"have parameters about -1 (mean {_mean(lost):.3g}), and the forward pass adds 1 "
                f"to them: they multiply by numbers about 0, {negative:.0%} of them negative"
                if added
                else f"have parameters about 0 (mean {_mean(lost):.3g}, {negative:.0%} of them "
                "negative), and the forward pass multiplies by them as they are: they were trained "
                "for norms that multiply by 1 + w"
            ),
            fix=_convention(1, adds_one=added),
        )


def _is_plain(gain: NormGain) -> bool:
    """Tells whether a norm's output is multiplied with the parameter, or with 1 more, and with
    nothing else.
    """
    return gain.adds_one or abs(gain.total - gain.own) < 1e-3 * max(1.0, abs(gain.own))


def _convention(by: int, *, adds_one: bool) -> str:
    """Returns what to do about gains that lack 1, or have it twice."""
    if by > 0:
        norm = "" if adds_one else ", or multiply by 1 + w"
        return "add 1 to these weights when they are loaded" + norm
    norm = ", or multiply by w and not by 1 + w" if adds_one else ", or add it there once less"
    return "subtract 1 from these weights when they are loaded" + norm


def _total(gains: Sequence[NormGain]) -> float:
    return sum(gain.total for gain in gains) / len(gains)


def _mean(gains: Sequence[NormGain]) -> float:
    return sum(gain.own for gain in gains) / len(gains)


def _range(gains: Sequence[NormGain]) -> str:
    low, high = min(gain.total for gain in gains), max(gain.total for gain in gains)
    return f"{low:.3g}" if high - low < 1e-6 else f"{low:.3g} to {high:.3g}"


_LEAST_WIDTH = 8
"""The least width: below it, the width is a number that a factor may be by chance."""


@rule("embedding-scaled-twice", initial_weights)
def embedding_scaled_twice(patient: Patient) -> Iterator[Fault]:
    """Rows that are multiplied by the width, where its root is usual, or that were drawn at 1 for
    that root.
    """
    for table in {
        table.name: table for table in patient.observed.tables if table.width >= _LEAST_WIDTH
    }.values():
        root = math.sqrt(table.width)
        twice = abs(table.factor / table.width - 1) < 0.02 and table.rows_size > 2
        if twice:
            yield Fault(
                where=table.name,
                message=f"rows of {table.name}, of deviation {table.size:.3g}, are multiplied by "
                f"{table.factor:.4g}, the width, and enter the stream at "
                f"{table.rows_size:.3g}; multiplied once by √{table.width} = {root:.3g} they "
                f"would have {table.size * root:.3g}",
                fix="leave one of the two factors √width out",
            )
        elif (
            abs(table.factor / root - 1) < 0.02
            and abs(table.size - 1) < 0.1
            and table.rows_size > 2
        ):
            yield Fault(
                severity=Severity.INFO,
                where=table.name,
                message=(
                    f"rows of {table.name} are drawn at deviation {table.size:.3g} and multiplied "
                    f"by √{table.width} = {root:.3g}: they enter the stream at "
                    f"{table.rows_size:.3g}, where the factor is meant for rows of 1/√{table.width}"
                ),
                fix="draw the table at 1/√width, or leave the factor out",
            )


_APART = 5.0
"""Factor between tables beyond which a sum shows one of them alone: the smaller is 4 % of its
square.
"""
_LOST = 20.0
"""The same of tokens over positions, which large tokens often are in models that learn positions in
time.
"""


@rule("unequal-tables", initial_weights)
def unequal_tables(patient: Patient) -> Iterator[Fault]:
    """Tokens drowned by what is added to their rows, or the other way round."""
    sums: defaultdict[int, dict[str, Table]] = defaultdict(dict)
    for table in patient.observed.tables:
        # What starts at 0 takes part as soon as it has moved.
        if table.joined_at >= 0 and table.rows_size > 0:
            sums[table.joined_at].setdefault(table.name, table)
    told: set[tuple[str, ...]] = set()
    for some in sums.values():
        if len(some) > 1 and tuple(some) not in told:
            told.add(tuple(some))
            yield from _compared(patient, list(some.values()))


def _compared(patient: Patient, tables: list[Table]) -> Iterator[Fault]:
    rows = {
        name: weights.shape[0] for name, weights in patient.model.named_parameters() if weights.ndim
    }
    looked_up = [table for table in tables if not table.by_place]
    if not looked_up:
        return
    tokens = max(looked_up, key=lambda table: rows.get(table.name, 0))
    for other in (table for table in tables if table is not tokens):
        ratio = other.rows_size / tokens.rows_size
        if 1 / _APART <= ratio <= _APART:
            continue
        drowned, over = (tokens, other) if ratio > 1 else (other, tokens)
        # Vaswani et al.'s factor makes tokens larger on purpose, at a real width as large as
        # sinusoids.
        sinusoid = math.isclose(other.rows_size, math.sqrt(0.5), rel_tol=1e-3)
        lost = (
            (ratio > 1 or ratio < 1 / _LOST) if tokens.factor == 1 else ratio > 1 and not sinusoid
        )
        # Marian's configuration leaves √d out of small rows, and its checkpoints' has it.
        lost = lost and (bool(other.name) or not is_librarys(patient.model, (tokens.name,)))
        yield Fault(
            severity=Severity.WARNING if lost else Severity.INFO,
            where=drowned.name or tokens.name,
            message=f"rows of {drowned.name or _COMPUTED} have deviation "
            f"{drowned.rows_size:.3g}{_times(drowned)}, and {max(ratio, 1 / ratio):.3g} times "
            f"larger ones of {over.name or _COMPUTED} are added to them, of "
            f"{over.rows_size:.3g}{_times(over)}: of the sum's square they make "
            f"{100 / (1 + max(ratio, 1 / ratio) ** 2):.2g} %",
            fix="draw both at one deviation, such as 0.02"
            if other.name
            else f"multiply the rows of tokens by √{other.width}, or draw them at 1",
        )


_COMPUTED = "positions that are computed"


def _times(table: Table) -> str:
    return "" if table.factor == 1 else f" with the factor {table.factor:.3g}"
