"""A few updates of a copy: weights that never get a gradient, that an update leaves where they are,
and that move otherwise than their likes.
"""

import math
from collections.abc import Iterator, Mapping
from statistics import median

import torch

from ....report.words import learning_rate
from ...laws.movement import Moved, Movement
from ...result import Severity
from .. import likes
from ..patient import Patient, a_law, listed
from ..rule import Fault, rule
from .adapters import low_rank_pairs


def _movement(patient: Patient) -> Movement:
    seen = patient.tried.movement
    if seen is None:
        raise ValueError("the model was not updated")
    return seen


@rule("nonfinite-update", a_law("movement"))
def nonfinite_update(patient: Patient) -> Iterator[Fault]:
    """A loss that is finite at first and is not after some updates at the user's rate."""
    seen = _movement(patient)
    advice = patient.advice
    warmed = advice is not None and bool(advice.wanted_warmup_updates)
    # What comes before the peak rate is smaller, and the rate that nobody gave is no one's.
    if not seen.rate_is_users or warmed or all(map(math.isfinite, seen.losses)):
        return
    after = next(n for n, loss in enumerate(seen.losses) if not math.isfinite(loss))
    if after == 0:
        return
    rate = max(moved.rate or 0.0 for moved in seen.by_name.values())
    yield Fault(
        where="",
        message=(
            f"the loss of a copy is {seen.losses[0]:.3g} nats, and not finite after {after} "
            f"update{'s' if after > 1 else ''} at the rate {learning_rate(rate, 2)}"
        ),
        fix="take a rate ten times lower, or rise to it over a warm-up",
    )


@rule("stuck-weights", a_law("movement"))
def stuck_weights(patient: Patient) -> Iterator[Fault]:
    """Weights that the loss depends on, and whose gradient is exactly 0 in every update."""
    seen = _movement(patient)
    told = {
        name
        for one in patient.sublayers()
        if not one.measured.reaches_output or one.is_shut_by_gate
        for name in one.measured.parameters
    }
    many = f"of {len(seen.by_name)} trainable parameters got a gradient of exactly 0 in each of "
    many += f"{seen.updates} updates of a copy"
    locked = [name for name in seen.locked if name not in told]
    keys = [name for name in seen.keys if name not in told]
    if keys:
        yield Fault(
            where=keys,
            message=(
                f"{len(locked)} {many}, and get one as soon as {listed(keys)} are not 0: of two "
                "factors of one product that both are 0, each one's gradient is 0, and neither "
                "ever moves"
            ),
            fix="draw one of the two factors (LoRA's A; a gain starts at 1) and leave the other at "
            "0, if the branch is to start at 0",
        )
    stuck = [name for name in seen.stuck if name not in {*locked, *told}]
    stuck = [name for name in stuck if not _has_one_key(patient, name)]
    adapters = [name for pair in low_rank_pairs(patient.model) for name in pair]
    idle = [name for name in adapters if name in stuck]
    if stuck and len(stuck) == len(seen.by_name):
        yield Fault(
            where=stuck,
            message=f"{len(stuck)} {many}: nothing that is trained changes the loss",
            fix="look for a factor of 0 behind them, as an adapter's alpha, a gate or a mask",
        )
        return
    if idle:
        yield Fault(
            where=idle,
            message=f"{len(idle)} {many}, among them both factors of adapters: what they make is "
            "multiplied by 0",
            fix="look for the factor of 0 behind them, as an adapter's alpha or its scale",
        )
    rest = [name for name in stuck if name not in idle]
    if rest:
        yield Fault(
            severity=Severity.INFO,
            where=rest,
            message=f"{len(rest)} {many}: on this batch nothing that the loss reads is made by "
            "them",
            fix="nothing, where they wait for inputs of another kind; else look for a mask or a "
            "factor of 0 behind them",
        )


def _has_one_key(patient: Patient, name: str) -> bool:
    """Tells whether a weight is of attention with one key, where a softmax is always 1."""
    return any(
        name in one.measured.parameters and one.measured.attention.all_keys == 1
        for one in patient.sublayers()
        if one.measured.attention is not None
    )


@rule("cut-off-weights", a_law("movement"))
def cut_off_weights(patient: Patient) -> Iterator[Fault]:
    """Weights that change the output, and that no gradient of the loss reaches."""
    found = _movement(patient).cut_off
    if found:
        yield Fault(
            where=found,
            message=f"the output changes with {len(found)} trainable parameters that got no "
            "gradient in any update of a copy",
        )


_HARDLY = 0.01
"""Share of entries that moved."""


@rule("rounded-updates", a_law("movement"))
def rounded_updates(patient: Patient) -> Iterator[Fault]:
    """Weights that are held at a rate and get a gradient, and whose entries stay what they were."""
    seen = _movement(patient)
    if not seen.rate_is_users:
        return
    stayed = {
        name: moved
        for name, moved in seen.by_name.items()
        if moved.rate and moved.got_gradient and moved.share < _HARDLY * moved.asked
    }
    if not stayed:
        return
    weight = patient.weights[next(iter(stayed))].detach()
    size = float(weight.float().abs().median())
    dtype = str(weight.dtype).removeprefix("torch.")
    apart = size * torch.finfo(weight.dtype).eps / 2
    rate = max(moved.rate or 0.0 for moved in stayed.values())
    yield Fault(
        where=stayed,
        message=(
            f"{len(stayed)} of {len(seen.by_name)} trainable parameters stay exactly as they are "
            f"in {seen.updates} updates at the rate {learning_rate(rate, 2)}, though they get a "
            f"gradient: in {dtype} numbers just below {size:.2g} are {apart:.2g} apart, and "
            "what is less than half of that rounds to nothing"
        ),
    )


_APART = 30.0
"""Times by which a weight may move further, or less far, than its likes."""
_ROUNDED = 1e-4
"""The share of most gradients' size below which one is rounding; a router whose gradient cancels
has 1e-6.
"""


@rule("uneven-updates", a_law("movement"))
def uneven_updates(patient: Patient) -> Iterator[Fault]:
    """Weights of one block that the first update moves much further, or less, than those of
    others.
    """
    seen = _movement(patient).by_name
    if not any(moved.first_gradient > 0 for moved in seen.values()):
        return
    # A gradient that is rounding makes updates of any size.
    usual = median([moved.first_gradient for moved in seen.values() if moved.first_gradient > 0])
    moving = {
        name: patient.weights[name]
        for name, moved in seen.items()
        if moved.size > 0 and moved.first_gradient > _ROUNDED * usual
    }
    odd = []
    for group in likes.repeated(moving):
        names = [*group]
        odd += likes.odd_ones(names, [seen[name].size for name in names], apart=_APART)
    by_block: dict[int, list[likes.OddOne[float]]] = {}
    for one in odd:
        by_block.setdefault(one.block, []).append(one)
    for block, some in by_block.items():
        yield _uneven(seen, block, some)


def _uneven(seen: Mapping[str, Moved], block: int, some: list[likes.OddOne[float]]) -> Fault:
    one = some[0]
    further = one.value > one.usual
    times = one.value / one.usual if further else one.usual / one.value
    rates = [moved.rate for moved in seen.values() if moved.rate]
    own, usual = seen[one.name].rate, median(rates)
    message = (
        f"block {block} of {one.likes}: the first update moves {one.name} {times:.3g} times "
        f"{'further' if further else 'less far'} than the same weights of most other blocks "
        f"({one.value:.2g} beside {one.usual:.2g})"
    )
    if len(some) > 1:
        message += f"; so it does {len(some) - 1} more of this block"
    fix = "look in this block for a factor that the others do not have"
    if own and not math.isclose(own, usual, rel_tol=0.5):
        message += (
            f". Its parameter group has the rate {learning_rate(own, 2)}, where others have "
            f"{learning_rate(usual, 2)}"
        )
        fix = f"give its group the rate of the others, {learning_rate(usual, 2)}"
    return Fault(where=some, message=message, fix=fix)
