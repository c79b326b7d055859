"""What advice says in words, for the terminal and for the page alike: what to do first, then how sure that is."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from ...report.words import counted, learning_rate, percentage, probability, significant
from ..result import Advice, RatePlace, RateRange, WarmupAdvice
from . import explanations


class _AdvicePart(StrEnum):
    """What a line of the advice is about; the class of each in the style sheet."""

    BEST = "best"
    GOOD = "good-rates"
    YOURS = "yours"
    WARMUP = "warmup"


_TERMS = {
    _AdvicePart.BEST: explanations.BEST,
    _AdvicePart.GOOD: explanations.GOOD,
    _AdvicePart.YOURS: explanations.YOURS,
    _AdvicePart.WARMUP: explanations.WARMUP,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class _AdviceRow:
    """One line of the advice, ready to be set."""

    part: _AdvicePart
    value: str
    meaning: str

    @property
    def term(self) -> explanations.ExplainedTerm:
        """What it is called, and what that means."""
        return _TERMS[self.part]


_PLACES: dict[RatePlace, str] = {
    "in range": "in the good range",
    "above": "above the good range",
    "below": "below the good range",
    "undecided": "undecided: it lies where the good range may end",
    "unknown": "unknown: there is no range to compare it with",
}
_LIKELY = 0.5
_PROBE_UPDATES = 200
"""What a first probe is recommended to spend."""
OUTCOMES = {"learns": "learns", "unsettled": "unsettled", "stuck": "stuck", "not finite": "not finite"}
"""What became of a short training."""


def rate_headline(advice: Advice) -> str:
    """What to know of the learning rate before anything else: of the wanted one where there is one, else the best."""
    if advice.wanted_rate is None or advice.wanted_place is None:
        return f"best learning rate {_best(advice)}"
    yours = f"your learning rate {learning_rate(advice.wanted_rate)}"
    match advice.wanted_place:
        case "undecided":
            said = f"whether {yours} is in the good range is undecided"
        case "unknown":
            said = f"whether {yours} is good is unknown"
        case place:
            said = f"{yours} is {_PLACES[place]}"
    chance = advice.stuck_chance
    own = counted(advice.wanted_warmup_updates or 0, "update")
    if advice.own_warmup == "carries":
        said += f" without warm-up, and trains with yours of {own}"
    elif advice.own_warmup == "untested" and _is_doubtful(advice):
        said += f" without warm-up; whether yours of {own} carries it was not tested"
    elif _rescued(advice):
        said += f", but trains with a warm-up of {counted(_named(advice), 'update')}"
    elif chance is not None and chance >= _LIKELY:
        said += f": {probability(chance)} chance of getting stuck"
    return said


def rate_step(advice: Advice, target: str = "TARGET") -> str:
    """What to do about the wanted rate, in the imperative; "" where nothing is to be done."""
    if advice.wanted_rate is None or advice.wanted_place is None or advice.own_warmup == "carries":
        return ""
    if _rescued(advice):
        return f"warm up over {counted(_named(advice), 'update')}"
    if speaks_against(advice):
        lower = "" if advice.best_rate is None else f" to {_best(advice)}"
        return f"lower the learning rate{lower}"
    if advice.source == "first update" and (_is_doubtful(advice) or advice.wanted_place in ("undecided", "unknown")):
        return f"try your learning rate: {_command(advice, target)}"
    return ""


def speaks_against(advice: Advice | None) -> bool:
    """Whether the wanted rate is one that nobody should start with as it is; one that is only slow is not."""
    return advice is not None and _is_doubtful(advice) and advice.own_warmup in ("none", "too short")


def _is_doubtful(advice: Advice) -> bool:
    """Whether the wanted rate is too high for a training without warm-up."""
    return advice.wanted_place == "above" or (advice.stuck_chance is not None and advice.stuck_chance >= _LIKELY)


def advice_rows(advice: Advice) -> list[_AdviceRow]:
    """The best rate with its interval, the good ones, the user's own and the warm-up that it needs."""
    rows = [_AdviceRow(part=_AdvicePart.BEST, value=_best(advice), meaning=_why_best(advice))]
    good = good_rates(advice)
    if good is not None:
        rows.append(
            _AdviceRow(
                part=_AdvicePart.GOOD,
                value=range_words(good),
                meaning=f"expected within {advice.regret_nats:g} nats per token of the best",
            )
        )
    if advice.wanted_rate is not None:
        value = learning_rate(advice.wanted_rate)
        rows.append(_AdviceRow(part=_AdvicePart.YOURS, value=value, meaning="; ".join(_judged(advice))))
    if advice.warmup is not None:
        rows.append(_warmup(advice.warmup))
    elif advice.source == "first update":
        found = "tests it" if advice.best_rate is not None else "tests it, and finds the best rate"
        rows.append(
            _AdviceRow(part=_AdvicePart.WARMUP, value="not tested", meaning=f"--probe {_PROBE_UPDATES} {found}")
        )
    return rows


def _command(advice: Advice, target: str) -> str:
    rate = "" if advice.wanted_rate is None else f" --rate {learning_rate(advice.wanted_rate)}"
    return f"normscope doctor {target}{rate} --probe {_PROBE_UPDATES}"


def source_words(advice: Advice) -> str:
    """What the answer was read from."""
    if advice.source == "probe":
        return f"from short trainings of {counted(advice.updates_used, 'update')} in all"
    return "from the first update"


def advice_facts(advice: Advice) -> list[tuple[str, str]]:
    """What the rows stand on, as names with values."""
    facts = [
        ("Read", source_words(advice)),
        ("Training length", f"{counted(advice.horizon_updates, 'update')} at a constant rate, without warm-up"),
        ("A good rate ends", f"within {advice.regret_nats:g} nats per token of the best"),
        ("An interval holds the best rate", f"{percentage(advice.confidence, 0)} of the time"),
    ]
    if advice.stuck_rate is not None:
        facts.append(("Likelier stuck than not", f"from {learning_rate(advice.stuck_rate)} on"))
    if advice.loss_along_step:
        lowest = learning_rate(advice.lowest_loss_rate) if advice.lowest_loss_rate else "no rate: none lowers it"
        facts.append(("Lowest loss along the first update", f"at {lowest}"))
    if advice.distance is not None and advice.distance_limit is not None:
        far, limit = significant(advice.distance, 2), significant(advice.distance_limit, 2)
        facts.append(("Distance from the models that the rule was fitted to", f"{far}, where {limit} is the limit"))
    return facts


def good_rates(advice: Advice) -> RateRange | None:
    """The range of good rates below those that are likelier stuck than not; None where nothing is left."""
    good, stuck = advice.good_range, advice.stuck_rate
    if good is None or stuck is None or good.high <= stuck:
        return good
    return RateRange(low=good.low, high=stuck) if good.low < stuck else None


def range_words(of: RateRange) -> str:
    """A range of rates to two figures: "1.7e-4 to 9.8e-4"."""
    return f"{learning_rate(of.low, 2)} to {learning_rate(of.high, 2)}"


def _best(advice: Advice) -> str:
    return "unknown" if advice.best_rate is None else learning_rate(advice.best_rate, 2)


def _why_best(advice: Advice) -> str:
    """The interval and what it holds for, or why there is none."""
    if advice.best_rate is None:
        return " ".join(filter(None, [advice.unknown or "Nothing is known of it.", distance_words(advice)]))
    sure = f"{percentage(advice.confidence, 0)} range"
    interval = [] if advice.best_interval is None else [f"{sure} {range_words(advice.best_interval)}"]
    return "; ".join([*interval, f"for {counted(advice.horizon_updates, 'update')}, no warm-up"])


def distance_words(advice: Advice) -> str:
    """How far the model is from those that the rule was fitted to; "" where that was not asked."""
    if advice.distance is None or advice.distance_limit is None:
        return ""
    far, limit = significant(advice.distance, 2), significant(advice.distance_limit, 2)
    return f"Its distance from the models that the rule was fitted to is {far}; the rule answers up to {limit}."


def _judged(advice: Advice) -> Iterator[str]:
    yield "not judged" if advice.wanted_place is None else _PLACES[advice.wanted_place]
    if advice.stuck_chance is not None:
        looked = advice.wanted_training
        seen = "" if looked is None else f", by a short training of {counted(looked.updates, 'update')} at it"
        yield f"{probability(advice.stuck_chance)} chance of getting stuck{seen}"


def _warmup(warmup: WarmupAdvice) -> _AdviceRow:
    lengths = sorted({training.warmup_updates for training in warmup.tried})
    tried = f"of {', '.join(f'{length:,}' for length in lengths)} updates" if lengths else "of none"
    if warmup.shortest_updates is None or warmup.named_updates is None:
        value, meaning = "none suffices", f"not the longest {tried} carries your rate: take a lower one"
    else:
        value = counted(warmup.named_updates, "update")
        times = warmup.named_updates // warmup.shortest_updates
        meaning = f"{times} times the shortest {tried} that carried your rate in a short training"
    return _AdviceRow(part=_AdvicePart.WARMUP, value=value, meaning=meaning)


def _rescued(advice: Advice) -> bool:
    return advice.warmup is not None and advice.warmup.named_updates is not None


def _named(advice: Advice) -> int:
    return 0 if advice.warmup is None else advice.warmup.named_updates or 0
