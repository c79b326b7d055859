"""What advice says in words, for the terminal and for the page alike: what to do first, then how sure that is."""

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from ...choosing.rates import usual_warmup
from ...report.words import counted, joined, learning_rate, percentage
from ..result import Advice, RatePlace, RateRange, ShortTraining, WarmupAdvice

_FILE = Path(__file__).with_name("terms.toml")
_TERMS: dict[str, dict[str, str]] = tomllib.loads(_FILE.read_text(encoding="utf-8"))
TERMS = {key: {name: " ".join(words.split()) for name, words in term.items()} for key, term in _TERMS.items()}
"""Names that stand beside numbers, and what they mean."""
ADVICE_TERMS = tuple(TERMS[key] for key in ("usual", "best", "good-rates", "yours", "warmup", "loss"))


@dataclass(frozen=True, slots=True, kw_only=True)
class _AdviceRow:
    """One line of the advice, ready to be set."""

    part: Literal["best", "usual", "good-rates", "yours", "warmup"]
    """What it is about; the class of each in the style sheet."""
    value: str
    meaning: str

    @property
    def term(self) -> Mapping[str, str]:
        """What it is called, and what that means."""
        return TERMS[self.part]


_PLACES: dict[RatePlace, str] = {
    "in range": "in the {kind} range",
    "above": "above the {kind} range",
    "below": "below the {kind} range",
    "undecided": "undecided: it lies where the {kind} range may end",
    "unknown": "unknown: there is no range to compare it with",
}
_BEST_UPDATES, _PROBE_UPDATES = 60, 200
"""What a first probe is recommended to spend: as many as look for the best rate at most, and with warm-ups for a rate
of one's own."""
OUTCOMES = {"learns": "learns", "unsettled": "unsettled", "stuck": "stuck", "not finite": "not finite"}
"""What became of a short training."""


def _kind(advice: Advice) -> str:
    return "good" if advice.source == "probe" else "usual"


def rate_headline(advice: Advice) -> str:
    """What to know of the learning rate before anything else: of the wanted one where there is one, else the best."""
    if advice.wanted_rate is None or advice.wanted_place is None:
        return f"{'best' if advice.source == 'probe' else 'usual'} learning rate {_best(advice)}"
    yours = f"your learning rate {learning_rate(advice.wanted_rate)}"
    match advice.wanted_place:
        case "undecided":
            said = f"whether {yours} is in the good range is undecided"
        case "unknown":
            said = f"whether {yours} is good is unknown"
        case place:
            said = f"{yours} is {_PLACES[place].format(kind=_kind(advice))}"
    own = counted(advice.wanted_warmup_updates or 0, "update")
    if advice.own_warmup == "carries":
        said += f" without warm-up, and trains with yours of {own}"
    elif advice.own_warmup == "untested" and advice.is_too_high:
        said += f" without warm-up; whether yours of {own} carries it was not tested"
    elif _rescued(advice):
        said += f", but trains with a warm-up of {counted(_named(advice), 'update')}"
    elif advice.wanted_training is not None and advice.is_too_high:
        said += f": {_outcome(advice.wanted_training)}"
    return said


def rate_step(advice: Advice, target: str = "TARGET", needs: str = "") -> str:
    """What to do about the wanted rate, in the imperative; "" where nothing is to be done."""
    if advice.wanted_rate is None or advice.wanted_place is None or advice.own_warmup == "carries":
        return ""
    if _rescued(advice):
        return f"warm up over {counted(_named(advice), 'update')}"
    if speaks_against(advice):
        lower = "" if advice.best_rate is None else f" to {_best(advice)}"
        return f"lower the learning rate{lower}"
    if advice.source == "known rates" and (advice.is_too_high or advice.wanted_place in ("above", "unknown")):
        return f"try your learning rate: {_command(advice, target)}{needs}"
    return ""


def warmup_step(advice: Advice, target: str = "TARGET", needs: str = "") -> str:
    """What to do about a wanted rate without a warm-up where every residual sum is normed; "" where one is known."""
    rate = advice.wanted_rate
    if rate is None or advice.wanted_warmup_updates or advice.source != "known rates" or not advice.usual_warmup_shares:
        return ""
    share, _ = usual_warmup(advice.usual_warmup_shares)
    return (
        f"warm up to {learning_rate(rate)} over the first {share}, as models are trained whose sums are all normed, or "
        f"lower it; {_command(advice, target)}{needs} tests both"
    )


def speaks_against(advice: Advice | None) -> bool:
    """Whether the wanted rate is one that nobody should start with as it is; one that is only slow is not."""
    return advice is not None and advice.is_too_high and advice.own_warmup in ("none", "too short")


def advice_rows(advice: Advice) -> list[_AdviceRow]:
    """The best rate with its interval, the good ones of a probe, the user's own and the warm-up."""
    part: Literal["best", "usual"] = "best" if advice.source == "probe" else "usual"
    rows = [_AdviceRow(part=part, value=_best(advice), meaning=_why_best(advice))]
    if advice.good_range is not None and advice.regret_nats is not None:
        meaning = f"expected within {advice.regret_nats:g} of the best's loss"
        rows.append(_AdviceRow(part="good-rates", value=range_words(advice.good_range), meaning=meaning))
    if advice.wanted_rate is not None:
        value = learning_rate(advice.wanted_rate)
        rows.append(_AdviceRow(part="yours", value=value, meaning="; ".join(_judged(advice))))
    if advice.warmup is not None:
        rows.append(_warmup(advice.warmup))
    elif advice.source == "known rates":
        rows.append(_usual_warmup(advice))
    return rows


def _usual_warmup(advice: Advice) -> _AdviceRow:
    """What recipes have; no evidence says how short a warm-up suffices for this model."""
    shortest = "how short a one suffices is not known"
    if not advice.usual_warmup_shares:
        return _AdviceRow(part="warmup", value="not known", meaning=shortest)
    middle, others = usual_warmup(advice.usual_warmup_shares)
    return _AdviceRow(part="warmup", value=middle, meaning=f"{others}; {shortest}")


def _command(advice: Advice, target: str) -> str:
    rate = "" if advice.wanted_rate is None else f" --rate {learning_rate(advice.wanted_rate)}"
    return f"normscope doctor {target}{rate} --probe {_PROBE_UPDATES}"


def source_words(advice: Advice) -> str:
    """What the answer was read from."""
    if advice.source == "probe":
        return f"from short trainings of {counted(advice.updates_used, 'update')} in all"
    return "from what models like it are trained with"


def advice_facts(advice: Advice) -> list[tuple[str, str]]:
    """What the rows stand on, as names with values."""
    facts = [("Read", source_words(advice))]
    if advice.basis:
        facts.append(("Known rates", advice.basis))
    if advice.horizon_updates is not None:
        length = f"{counted(advice.horizon_updates, 'update')} at a constant rate, without warm-up"
        facts.append(("Training length", length))
    if advice.regret_nats is not None:
        facts.append(
            ("A good rate ends", f"within {advice.regret_nats:g} of the best's loss, which is meant for nats per token")
        )
        facts.append(("An interval holds the best rate", f"{percentage(advice.confidence, 0)} of the time"))
    return facts


def range_words(of: RateRange) -> str:
    """A range of rates to two figures: "1.7e-4 to 9.8e-4"."""
    return f"{learning_rate(of.low, 2)} to {learning_rate(of.high, 2)}"


def _best(advice: Advice) -> str:
    return "unknown" if advice.best_rate is None else learning_rate(advice.best_rate, 2)


def _why_best(advice: Advice) -> str:
    """The interval and what it holds for, or why there is none; and what reads a rate from the model itself."""
    if advice.best_rate is None:
        return (
            advice.unknown
            if advice.source == "probe"
            else f"{advice.unknown}: {_probe(advice)} reads one from your model"
        )
    span = "" if advice.best_interval is None else range_words(advice.best_interval)
    if advice.horizon_updates is None:
        return f"{span}, by {_behind(advice)}; {_probe(advice)} reads it from your model"
    sure = f"{percentage(advice.confidence, 0)} range"
    return f"{sure} {span}; for {counted(advice.horizon_updates, 'update')}, no warm-up"


def _probe(advice: Advice) -> str:
    return f"--probe {_BEST_UPDATES if advice.wanted_rate is None else _PROBE_UPDATES}"


def _behind(advice: Advice) -> str:
    told = [counted(advice.recipes, "recipe")] if advice.recipes else []
    return joined([*told, counted(advice.ladders, "ladder")] if advice.ladders else told)


def _judged(advice: Advice) -> Iterator[str]:
    yield "not judged" if advice.wanted_place is None else _PLACES[advice.wanted_place].format(kind=_kind(advice))
    if advice.wanted_training is not None:
        yield _outcome(advice.wanted_training)


def _outcome(trained: ShortTraining) -> str:
    return f"{OUTCOMES[trained.outcome]} in {counted(trained.updates, 'update')} at it"


def _warmup(warmup: WarmupAdvice) -> _AdviceRow:
    lengths = sorted({training.warmup_updates for training in warmup.tried})
    tried = f"of {', '.join(f'{length:,}' for length in lengths)} updates"
    if not lengths:
        value, meaning = "not tested", "--probe gave too few updates to try one: 50 are enough for the first"
    elif warmup.shortest_updates is None or warmup.named_updates is None:
        value, meaning = "none suffices", f"not the longest {tried} carries your rate: take a lower one"
    else:
        value = counted(warmup.named_updates, "update")
        times = warmup.named_updates // warmup.shortest_updates
        meaning = f"{times} times the shortest {tried} that carried your rate in a short training"
    return _AdviceRow(part="warmup", value=value, meaning=meaning)


def _rescued(advice: Advice) -> bool:
    return advice.warmup is not None and advice.warmup.named_updates is not None


def _named(advice: Advice) -> int:
    return 0 if advice.warmup is None else advice.warmup.named_updates or 0
