"""A schedule that was meant and was not trained is told, and one that was trained is not."""

import pytest

from normscope.history.explain import explain
from normscope.history.record import History, LoggedSeries, TrainingRecipe
from normscope.history.schedule import CAUSE


def told(
    rate: dict[int, float], *, warmup: int | None = None, peak: float | None = None
) -> tuple[str, ...]:
    updates = tuple(range(1, max(rate) + 1))
    history = History(
        source="log",
        loss=LoggedSeries(updates, tuple(3 + 2 / update for update in updates)),
        rate=LoggedSeries.of(rate),
        recipe=TrainingRecipe(warmup_updates=warmup, peak_rate=peak),
    )
    found = [one for one in explain(history).episodes if one.cause == CAUSE]
    return found[0].evidence if found else ()


def rising(over: int, *, to: int, every: int = 1, peak: float = 1e-3) -> dict[int, float]:
    return {at: peak * min(1.0, at / max(1, over)) for at in range(every, to + 1, every)}


def test_a_warm_up_that_was_not_trained_is_told() -> None:
    (words,) = told(rising(0, to=300), warmup=100)
    assert words == (
        "a warm-up over 100 updates was meant, and the rate is at its highest, 1e-3, in the first "
        "update that is logged, 1"
    )


@pytest.mark.parametrize("over", [10, 25, 200])
def test_a_warm_up_of_another_length_is_told(over: int) -> None:
    (words,) = told(rising(over, to=300), warmup=100)
    assert words.startswith("a warm-up over 100 updates was meant")
    assert f"at update {over:,}" in words


def test_a_warm_up_that_was_not_meant_is_told() -> None:
    assert told(rising(100, to=300), warmup=0)


def test_another_peak_is_told() -> None:
    (words,) = told(rising(10, to=300, peak=1e-3), warmup=10, peak=3e-4)
    assert words == "a peak of 3e-4 was meant, and the highest rate is 1e-3, 3.3 times that"


@pytest.mark.parametrize(
    ("rate", "warmup", "peak"),
    [
        (rising(100, to=300), 100, 1e-3),
        (rising(100, to=300, every=10), 105, 1e-3),  # as exactly as the log is spaced
        (rising(3, to=300, every=10), 3, 1e-3),
        (rising(0, to=300), 0, 1e-3),
        (rising(0, to=300), 1, 1e-3),
        (rising(1000, to=300), 1000, 1e-3),  # the log ends within the warm-up
        (rising(100, to=300), None, None),
        ({1: 0.0, 2: 0.0, 3: 0.0}, 100, 1e-3),
    ],
)
def test_what_was_meant_and_trained_is_not_told(
    rate: dict[int, float], warmup: int | None, peak: float | None
) -> None:
    assert told(rate, warmup=warmup, peak=peak) == ()
