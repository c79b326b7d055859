"""The words of advice, for the terminal and for the page alike: what to do first, then how certain
that is.
"""

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from ...choosing.rates import batch_words, usual_warmup
from ...report.words import counted, learning_rate, rates_command, surer_rate
from ..result import Advice

_FILE = Path(__file__).with_name("terms.toml")
_TERMS: dict[str, dict[str, str]] = tomllib.loads(_FILE.read_text(encoding="utf-8"))


def _of_one_line(term: dict[str, str]) -> dict[str, str]:
    """Takes the line breaks of the file out of a term's words."""
    return {name: " ".join(words.split()) for name, words in term.items()}


TERMS = {key: _of_one_line(term) for key, term in _TERMS.items()}
"""Names that stand beside numbers, and what they mean."""
ADVICE_TERMS = tuple(TERMS[key] for key in ("usual", "recipes", "yours", "warmup", "loss"))


@dataclass(frozen=True, slots=True, kw_only=True)
class _AdviceRow:
    """One line of the advice, ready to be set."""

    part: Literal["usual", "recipes", "yours", "warmup"]
    """The subject of the row; the class of each in the style sheet."""
    value: str
    meaning: str

    @property
    def term(self) -> dict[str, str]:
        """The name of the row's subject, and its explanation."""
        return TERMS[self.part]


_PLACES: dict[str | None, str] = {
    "in range": "in the usual range",
    "above": "above the usual range",
    "below": "below the usual range",
    "unknown": "unknown: there is no range to compare it with",
    None: "not judged",
}


def source(advice: Advice) -> str:
    """Returns the source of the rate, as the end of a heading."""
    known = "published recipes and small runs of ours"
    return f"from {'a smaller version of this model' if advice.carried else known}"


def rate_headline(advice: Advice) -> str:
    """Returns the headline on the learning rate: on the wanted one where there is one, else on the
    usual.
    """
    if advice.wanted_rate is None or advice.wanted_place is None:
        return f"usual learning rate {_usual(advice)}"
    yours = f"your learning rate {learning_rate(advice.wanted_rate)}"
    if advice.wanted_place == "unknown":
        return f"whether {yours} is good is unknown"
    said = f"{yours} is {_PLACES[advice.wanted_place]}"
    if advice.is_too_high and advice.wanted_warmup_updates:
        own = counted(advice.wanted_warmup_updates, "update")
        said += f"; whether your warm-up of {own} carries it is not known"
    return said


def rate_step(advice: Advice, compared: str = "") -> str:
    """Returns what to do about the wanted rate, in the imperative; "" where nothing is to be done.

    compared: what `normscope compare` is given to train the same model; "" where that is not known.
    """
    if speaks_against(advice):
        return f"lower the learning rate to {_usual(advice)}"
    if advice.wanted_place not in ("above", "unknown"):
        return ""
    command = rates_command(_compared_rate(advice), compared=compared, optimizer=advice.optimizer)
    return f"compare learning rates first: {command}"


def surer(advice: Advice, compared: str = "") -> str:
    """Returns how to check a rate, in the imperative. compared: as in `rate_step`."""
    of = "your rate" if advice.best_rate is None else "the usual rate"
    return surer_rate(_compared_rate(advice), of=of, compared=compared, optimizer=advice.optimizer)


def _compared_rate(advice: Advice) -> float | None:
    return advice.wanted_rate if advice.best_rate is None else advice.best_rate


def warmup_step(advice: Advice) -> str:
    """Returns what to do about a wanted rate without a warm-up where every residual sum is normed;
    "" where one is known.
    """
    rate = advice.wanted_rate
    if rate is None or advice.wanted_warmup_updates or not advice.usual_warmup_shares:
        return ""
    share, whence = usual_warmup(advice.usual_warmup_shares)
    step = f"warm up to {learning_rate(rate)} over the first {share}, {whence}"
    # A rate below the usual ones needs no lowering.
    if advice.wanted_place == "below":
        return f"{step}; `--warmup-updates` of `normscope compare` tests it"
    return (
        f"{step}, or lower the rate; `--warmup-updates` and `--peak-lr` of `normscope compare` "
        "test both"
    )


def speaks_against(advice: Advice | None) -> bool:
    """Tells whether the wanted rate is one that nobody should start with as it is; a rate that is
    only slow is not.
    """
    return advice is not None and advice.is_too_high and not advice.wanted_warmup_updates


def advice_rows(advice: Advice) -> list[_AdviceRow]:
    """Returns the usual rate with its range, the user's own, and the warm-up."""
    rows = [_AdviceRow(part="usual", value=_usual(advice), meaning=_why_usual(advice))]
    if advice.recipe_rate is not None and not advice.carried:
        rows.append(
            _AdviceRow(
                part="recipes",
                value=learning_rate(advice.recipe_rate, 2),
                meaning="what people train such a model with: a habit",
            )
        )
    if advice.wanted_rate is not None:
        value = learning_rate(advice.wanted_rate)
        rows.append(_AdviceRow(part="yours", value=value, meaning=_PLACES[advice.wanted_place]))
    return [*rows, _warmup(advice)]


def _warmup(advice: Advice) -> _AdviceRow:
    """Returns the row on the warm-up in recipes; no evidence says how short a warm-up suffices for
    this model.
    """
    if not advice.usual_warmup_shares:
        return _AdviceRow(
            part="warmup",
            value="not known",
            meaning="no recipe that we read tells it for such a model",
        )
    middle, others = usual_warmup(advice.usual_warmup_shares)
    return _AdviceRow(
        part="warmup", value=middle, meaning=f"{others}; how short it may be is not known"
    )


def _usual(advice: Advice) -> str:
    """Returns the best rate; of three batches, where none is told, each its own."""
    if advice.best_rate is None:
        return "unknown"
    if not advice.rates_by_batch:
        return learning_rate(advice.best_rate, 2)
    low, high = advice.rates_by_batch[0].rate, advice.rates_by_batch[-1].rate
    return f"{learning_rate(low, 2)} to {learning_rate(high, 2)}"


def _why_usual(advice: Advice) -> str:
    """Returns the range and what stands behind it, the naive rate among it, or why there is
    none.
    """
    if (span := advice.best_interval) is None:
        return advice.unknown
    if advice.carried:
        return f"{learning_rate(span.low, 2)} to {learning_rate(span.high, 2)}, {advice.carried}"
    if advice.rates_by_batch:
        each = [
            f"{learning_rate(one.rate, 2)} with {batch_words(one.batch_tokens)}"
            for one in advice.rates_by_batch
        ]
        return f"{', '.join(each)} tokens a batch; name yours by --batch-tokens"
    spread = f"{learning_rate(span.low, 2)} to {learning_rate(span.high, 2)}"
    if advice.batch_tokens is None:
        return spread
    return f"{spread}, the best with {batch_words(advice.batch_tokens)} tokens a batch"
