"""What the paper says of figure 5, and what the curves say."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from normscope.evidence.estimates import estimate, with_interval
from normscope.evidence.judging import Answer, between
from normscope.measure import Estimate
from normscope.report.words import number, span

from ..engine.claims import judged
from ..engine.page import Claim
from .config import PLACEMENTS, POST, PRE, Figure5Config
from .curves import Arm, Curve, Curves
from .tuning import Point, Tuned

PUBLISHED_SHARE = 500 / 700
"""Updates of Pre-LN over those of Post-LN at the same loss; the paper's sentence has the two the wrong way round."""
_SOURCE = "Xiong et al. 2020, section 4.2 and figure 5"
_PANELS = {"mrpc": "b", "rte": "c"}


@dataclass(frozen=True, slots=True)
class Pairing:
    """Two arms that are compared, and under what."""

    name: str
    post: Arm
    pre: Arm


def pairings(config: Figure5Config) -> list[Pairing]:
    """As the paper compares them, and at the same rates, as it does not."""
    own_post, own_pre, post, pre = (Arm(*arm) for arm in config.arms)
    return [
        Pairing(f"each at its own rate ({own_post.peak_lr:g} and {own_pre.peak_lr:g})", own_post, own_pre),
        Pairing(f"both at {pre.peak_lr:g}", own_post, pre),
        Pairing(f"both at {post.peak_lr:g}", post, own_pre),
    ]


def claims(config: Figure5Config, curves: Curves, unigram: float, tuned: Mapping[str, Tuned]) -> list[Claim]:
    """(a) in three parts, then (b) and (c) where these tasks were fine-tuned."""
    found = [_needs_no_warmup(config, curves), _faster(config, curves), _diverges(config, curves, unigram)]
    return found + [_better(config, task, one) for task, one in tuned.items()]


def shares(pairing: Pairing, curves: Curves) -> list[float | None]:
    """For each seed: updates after which Pre-LN is where Post-LN ends, as a part of all; None where it never is."""
    found: list[float | None] = []
    for post, pre in zip(curves[pairing.post], curves[pairing.pre], strict=True):
        reached = pre.updates_to(post.loss_nats[-1])
        found.append(None if reached is None else reached / post.updates[-1])
    return found


def advantage(post: Point, pre: Point) -> Estimate:
    """Accuracy of Pre-LN less that of Post-LN at one checkpoint, over the seeds of fine-tuning, taken in pairs."""
    # A fine-tuning that did not stay finite is left out, and makes one list shorter.
    return estimate([b - a for a, b in zip(post.accuracies, pre.accuracies, strict=False)])


def _last(curves: Curves, arm: Arm) -> list[float]:
    return [curve.loss_nats[-1] for curve in curves[arm]]


def _needs_no_warmup(config: Figure5Config, curves: Curves) -> Claim:
    own = pairings(config)[0]
    post, pre = _last(curves, own.post), _last(curves, own.pre)
    difference = estimate([b - a for a, b in zip(post, pre, strict=True)])
    return judged(
        name="(a) Pre-LN does without warm-up",
        statement="Without warm-up, Pre-LN ends at a validation loss no higher than Post-LN's with warm-up.",
        source=_SOURCE,
        found=f"last losses, in nats: Post-LN {_several(post)}, Pre-LN {_several(pre)}.{_single(post)}",
        holds={"each at its own rate": between(difference, greatest=0.0)},
    )


def _faster(config: Figure5Config, curves: Curves) -> Claim:
    parts, holds = [], {}
    for pairing in pairings(config):
        found = shares(pairing, curves)
        reached = [share for share in found if share is not None]
        never = f"never in {len(found) - len(reached)} of {len(found)} seeds" if len(found) > 1 else "never"
        text = _several(reached) if len(reached) == len(found) else never
        parts.append(f"{pairing.name}: {text}")
        holds[pairing.name] = _sooner(found)
    return judged(
        name="(a) Pre-LN is faster",
        statement="Pre-LN reaches the loss that Post-LN ends at in fewer updates: 500,000 instead of 700,000, "
        f"{number(PUBLISHED_SHARE)} of them.",
        source=_SOURCE,
        found="share of the updates after which Pre-LN reaches the loss that Post-LN ends at: "
        f"{'; '.join(parts)}.{_single(curves[pairings(config)[0].post])}",
        holds=holds,
    )


def _sooner(found: Sequence[float | None]) -> Answer:
    """Whether Pre-LN is there before all updates are over; one seed does not decide it, nor do seeds that differ."""
    reached = [share for share in found if share is not None]
    if len(reached) == len(found):
        return between(estimate(reached), greatest=1.0)
    return False if not reached and len(found) > 1 else None


def _diverges(config: Figure5Config, curves: Curves, unigram: float) -> Claim:
    arm = pairings(config)[2].post
    last = [curve.nll_nats[-1] for curve in curves[arm]]
    return judged(
        name="(a) Post-LN diverges at the larger rate",
        statement="At the rate at which Pre-LN is trained, Post-LN diverges in spite of its warm-up.",
        source=_SOURCE,
        found=f"last masked-token losses at rate {arm.peak_lr:g}, in nats: {_several(last)}; the unigram "
        f"baseline is {number(unigram)}.{_single(last)}",
        holds={"at this depth and rate": _diverged(curves[arm], unigram)},
    )


def _diverged(runs: Sequence[Curve], unigram: float) -> Answer:
    """Whether the runs end no better than the unigram baseline; one that stopped at a non-finite value did."""
    finite = [run.nll_nats[-1] for run in runs if run.ended != "non-finite"]
    if len(finite) == len(runs):
        return between(estimate(finite), least=unigram)
    return True if len(runs) > 1 and all(nll >= unigram for nll in finite) else None


def _better(config: Figure5Config, task: str, tuned: Tuned) -> Claim:
    own = pairings(config)[0]
    holds: dict[str, Answer] = {}
    parts = []
    for update in config.tuned_updates:
        difference = advantage(tuned.points[own.post, update], tuned.points[own.pre, update])
        holds[f"after {update:,} updates"] = between(difference, least=0.0)
        parts.append(f"{update:,} updates: {with_interval(difference)}")
    panel = _PANELS.get(task, "b")
    return judged(
        name=f"({panel}) Pre-LN is ahead on {task.upper()}",
        statement=f"Checkpoints of Pre-LN, fine-tuned on {task.upper()}, are more accurate than those of Post-LN after "
        "as many updates.",
        source=_SOURCE,
        found=f"accuracy of {PLACEMENTS[PRE]} less that of {PLACEMENTS[POST]}: {'; '.join(parts)}; always the more "
        f"frequent label: {number(tuned.majority)}.",
        holds=holds,
    )


def _several(values: Sequence[float]) -> str:
    return number(values[0]) if len(values) == 1 else span(values)


def _single(seeds: Sequence[object]) -> str:
    return " One seed has no interval, and decides nothing." if len(seeds) == 1 else ""
