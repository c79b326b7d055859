"""A training that went wrong, joined with its model: what is to be done stands first, and follows
from both.
"""

import math
from dataclasses import replace

import pytest

from normscope.doctor.result import Finding, Record, Severity
from normscope.history.explain import Explanation, explain
from normscope.history.joined import lasting, peak_of, verdict_lines, verdict_rows
from normscope.history.record import History, LoggedSeries, TrainingRecipe
from report.diagnoses import advice, healthy

PEAK, RISEN, BROKEN, UPDATES = 1e-2, 50, 60, 300


def diverged(peak: float | None = PEAK, risen: int = RISEN) -> Explanation:
    updates = tuple(range(1, UPDATES + 1))
    rates = () if peak is None else tuple(peak * min(1, at / risen) for at in updates)
    losses = tuple(2 + 0.01 * (-1) ** at if at < BROKEN else math.nan for at in updates)
    rate = LoggedSeries(updates if rates else (), rates)
    return explain(History(source="log", loss=LoggedSeries(updates, losses), rate=rate))


def asked(**changes: object) -> Record:
    return replace(
        healthy(), stacks=(), compared="my_model.py:build", advice=replace(advice(), **changes)
    )  # type: ignore[arg-type]


def test_a_rate_above_the_best_is_lowered_to_it() -> None:
    rows = dict(verdict_rows(diverged(), asked(best_rate=5e-4)))
    assert next(iter(rows)) == "do"
    assert rows["do"] == (
        "go back to before update 60 and take a peak rate of 5e-4 instead of 0.01, with a warm-up "
        "of 50 updates"
    )
    assert "rise from update 60" in rows["what"]
    assert "0.01 is 20 times 5e-4, the usual rate of such a model" in rows["why"]
    command = (
        "normscope compare my_model.py:build --placements own --optimizers adamw --peak-lr "
        "around:5e-4"
    )
    assert rows["rate"].endswith(f"and choose after 70 % of the updates: `{command}`")


@pytest.mark.parametrize(
    ("best", "peak", "said"),
    [
        (None, 1e-2, "1e-3 instead of 0.01"),
        (0.1, 3e-3, "1e-3 instead of 3e-3"),
        (2e-4, None, "2e-4, with"),
    ],
)
def test_without_a_lower_best_rate_yours_is_divided(
    best: float | None, peak: float | None, said: str
) -> None:
    assert (
        f"a peak rate of {said}" in dict(verdict_rows(diverged(peak), asked(best_rate=best)))["do"]
    )


def test_a_warm_up_is_a_tenth_of_the_training_at_least() -> None:
    assert (
        "a warm-up of 30 updates"
        in dict(verdict_rows(diverged(risen=1), asked(best_rate=5e-4)))["do"]
    )


def test_an_error_of_the_model_comes_before_its_rate() -> None:
    wrong = Finding(
        id="bad-sum", severity=Severity.ERROR, where="a", message="It is.", fix="add x once"
    )
    rows = dict(verdict_rows(diverged(), replace(asked(), findings=(wrong,))))
    assert rows["do"] == "fix the model first (bad-sum): add x once"
    assert "the model has bad-sum" in rows["why"]


def test_a_cause_with_a_remedy_of_its_own_names_that() -> None:
    updates = tuple(range(1, 101))
    loss = LoggedSeries(updates, tuple(4.6 + 0.001 * (-1) ** at for at in updates))
    norm = LoggedSeries(updates, (1.0,) * 100)
    recipe = TrainingRecipe(clip_norm=1e-5, divides=False, classes=100)
    found = explain(History(source="log", loss=loss, gradient_norm=norm, recipe=recipe))
    assert dict(verdict_rows(found, asked()))["do"].startswith(
        "clip to about the gradient's usual norm"
    )


def test_a_training_without_a_lasting_episode_has_no_verdict() -> None:
    calm = explain(History(source="log", loss=LoggedSeries((1, 2, 3), (3.0, 2.0, 1.0))))
    assert lasting(calm) is None
    assert verdict_rows(calm, asked()) == verdict_lines([], 80) == []


def test_the_peak_and_the_updates_up_to_it() -> None:
    assert peak_of(diverged().history) == (PEAK, RISEN)
    assert peak_of(diverged(risen=1).history) == (PEAK, 0)
    assert peak_of(diverged(None).history) == (None, None)


@pytest.mark.parametrize("width", [40, 80, 120])
def test_lines_keep_to_the_width(width: int) -> None:
    lines = verdict_lines(verdict_rows(diverged(), asked(best_rate=5e-4)), width)
    assert max(map(len, lines)) <= width
    assert lines[0].startswith("go back to before update 60")


def rising_for_ever() -> Explanation:
    """A loss that falls little, and a warm-up that never ends."""
    updates = tuple(range(1, UPDATES + 1))
    losses = tuple(4.5 - 1e-4 * at + 0.01 * (-1) ** at for at in updates)
    rate = LoggedSeries(updates, tuple(1e-7 * at for at in updates))
    return explain(History(source="log", loss=LoggedSeries(updates, losses), rate=rate))


def test_a_sign_is_what_is_to_be_done_where_nothing_of_the_loss_lasts() -> None:
    rows = dict(verdict_rows(rising_for_ever(), asked()))
    assert rows["do"].startswith("where the training was to end here, count the warm-up")
    assert rows["what"].startswith("sign at update 300")
    wrong = Finding(
        id="bad-sum", severity=Severity.ERROR, where="a", message="It is.", fix="add x once"
    )
    rows = dict(verdict_rows(rising_for_ever(), replace(asked(), findings=(wrong,))))
    assert rows["do"] == "fix the model first (bad-sum): add x once"


def test_a_sign_stands_beside_what_lasts() -> None:
    found = diverged(risen=UPDATES)
    assert "also" in dict(verdict_rows(found, asked(best_rate=5e-4)))


def test_a_loss_that_was_never_a_number_has_a_verdict() -> None:
    updates = tuple(range(1, UPDATES + 1))
    found = explain(History(source="log", loss=LoggedSeries(updates, (math.nan,) * UPDATES)))
    rows = dict(verdict_rows(found, asked(best_rate=5e-4)))
    assert rows["what"].startswith("rise from update 1")
    assert rows["do"].startswith("train again")
