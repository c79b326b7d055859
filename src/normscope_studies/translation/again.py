"""The runs of figures 2, 4 and 6 as a results.json holds them: every curve of every seed."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..engine.page import Claim
from ..engine.study import JudgedAgain
from .arms import TranslationArm
from .runs import Trained, TranslationCurve


def judged_again(
    config: Any,
    data: Mapping[str, Any],
    *,
    claims: Callable[[Any, Trained], Sequence[Claim]],
    derived: Callable[[Any, Trained], Mapping[str, Any]],
) -> JudgedAgain:
    """Judges again what one figure's claims say of the runs in its data; derived: its own numbers
    of them.

    Raises KeyError where the data lack a configuration that the figure has.
    """
    best_lrs = {one["optimizer"]: one["best_lr"] for one in data.get("ladders", ())}
    config = config.with_rates(best_lrs)
    found = trained_again(config.arms(), data)
    return JudgedAgain(claims=claims(config, found), data=derived(config, found))


def trained_again(arms: Sequence[TranslationArm], data: Mapping[str, Any]) -> Trained:
    """Returns the runs of these arms, with the six digits that their losses have in the data."""
    written = {(one["text"], one["title"]): one["seeds"] for one in data["configurations"]}
    curves = {}
    for arm in arms:
        curves[arm] = [TranslationCurve(**seed) for seed in written[arm.pair, arm.title]]
    return Trained(
        curves=curves,
        unigram_nats=data["unigram_nats"],
        texts=[data["conditions"]["text"]],
        trained_by=data["runs"],
    )
