"""Curves of figures 2, 4 and 6 that nobody trained: what the claims say of them is known
beforehand.
"""

import random
from collections.abc import Mapping

from normscope_studies.translation.arms import TranslationArm
from normscope_studies.translation.runs import Trained, TranslationCurve

UNIGRAM = 6.0


def curve(
    arm: TranslationArm, last: float, *, epoch: int, first: float = 8.0, ended: str = "finished"
) -> TranslationCurve:
    """A straight line from `first` before the first update to `last` at the last epoch."""
    updates = list(range(epoch, arm.updates + 1, epoch))
    losses = [first + (last - first) * update / arm.updates for update in updates]
    return TranslationCurve(
        updates=updates,
        nll_nats=losses,
        loss_nats=losses,
        bleu=[max(0.0, UNIGRAM - loss) for loss in losses],
        summed_lr=[arm.peak_lr * update for update in updates],
        first_nats=first,
        ended=ended,
    )


def trained_of(
    lasts: Mapping[TranslationArm, float], *, epoch: int, seeds: int = 3, spread: float = 0.01
) -> Trained:
    """One curve a seed for every arm, which ends within `spread` of the arm's loss."""
    curves = {
        arm: [
            curve(
                arm,
                last + spread * random.Random(f"{arm.title} {arm.pair} {seed}").uniform(-1, 1),
                epoch=epoch,
            )
            for seed in range(seeds)
        ]
        for arm, last in lasts.items()
    }
    return Trained(
        curves=curves, unigram_nats={arm.pair: UNIGRAM for arm in lasts}, texts=[], trained_by={}
    )
