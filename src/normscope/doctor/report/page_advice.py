"""What the page shows of the advice: its rows, its pictures with captions, and what they stand on."""

from typing import Any

from ...report.svg import Picture, inlined
from ...report.words import learning_rate, percentage
from ..result import Advice, Record, ShortTraining
from .advice_words import advice_facts, advice_rows, source_words
from .change_svg import change_picture
from .explanations import ADVICE_TERMS
from .rates_svg import loss_picture, rates_picture
from .words import figures


def advised(diagnosis: Record) -> dict[str, Any]:
    """By name in the template; nothing without advice."""
    advice = diagnosis.advice
    if advice is None:
        return {}
    return {
        "advised": advice_rows(advice),
        "advice_source": source_words(advice),
        "advice_facts": advice_facts(advice),
        "advice_terms": ADVICE_TERMS,
        "trainings": _trainings(advice),
        "rates_picture": _rates_picture(advice),
        "loss_picture": _loss_picture(advice, diagnosis.measured.loss_nats),
        "change_picture": _change_picture(advice, diagnosis),
    }


def _rates_picture(advice: Advice) -> Picture | None:
    """None where no rate is named."""
    if advice.best_rate is None:
        return None
    dots = " Marks are short trainings of this model, at the last loss of each." if advice.probed else ""
    yours = "" if advice.wanted_rate is None else " The dotted line is your learning rate."
    caption = (
        f"The band holds the good rates, and the bar the best one with its {percentage(advice.confidence, 0)} range."
    )
    return Picture(svg=inlined(rates_picture(advice), "advice-rates"), caption=caption + dots + yours)


def _loss_picture(advice: Advice, loss_nats: float | None) -> Picture | None:
    """None where the first update was not looked along."""
    if len(advice.rates) < 2 or all(loss is None for loss in advice.loss_along_step):
        return None
    caption = (
        f"Loss after one update of {advice.optimizer}, which says little about the updates after it. Losses far above "
        "the first are cut off."
    )
    return Picture(svg=inlined(loss_picture(advice, loss_nats), "advice-loss"), caption=caption)


def _change_picture(advice: Advice, diagnosis: Record) -> Picture | None:
    """None where it was not measured, or nothing changes."""
    svg = None if advice.change is None else change_picture(advice.change, diagnosis.stacks)
    if advice.change is None or svg is None:
        return None
    caption = (
        f"Mean squared change by one update of {advice.optimizer} at {learning_rate(advice.change.rate)}: of the "
        "stream that each sub-layer is added to, and of F(x), where its own weights change (own) or its "
        "input (amplified)."
    )
    output = advice.change.output
    whole = "" if output is None else f" That of the model's output is {figures(output)} of its mean square."
    return Picture(svg=inlined(svg, "advice-change"), caption=caption + whole)


def _trainings(advice: Advice) -> tuple[ShortTraining, ...]:
    """Those without warm-up by rising rate, then those with one."""
    warmed = () if advice.warmup is None else advice.warmup.tried
    wanted = () if advice.wanted_training is None else (advice.wanted_training,)
    return (*sorted((*advice.probed, *wanted), key=lambda one: one.rate), *warmed)
