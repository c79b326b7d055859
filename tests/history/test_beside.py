"""A training beside a good one: what differs first, from which update on, and nothing of what is
noise.
"""

import math
import random

import pytest

from normscope.history.beside import beside, beside_words
from normscope.history.explain import FLAT_ABOVE, FLAT_UNKNOWN, beside_good, explain
from normscope.history.record import History, LoggedSeries


def training(
    seed: int, *, spoiled_from: int = 999, rate_from: int = 999, every: int = 1
) -> History:
    """A loss that falls with noise; from an update on it stays, and the rate is three times
    that.
    """
    draw = random.Random(seed)
    loss: dict[int, float] = {}
    rate: dict[int, float] = {}
    for at in range(every, 301, every):
        level = 2 + 3 * math.exp(-min(at, spoiled_from) / 100)
        loss[at] = level * math.exp(draw.gauss(0, 0.02))
        rate[at] = 1e-3 * (3 if at >= rate_from else 1)
    return History(source=f"log {seed}", loss=LoggedSeries.of(loss), rate=LoggedSeries.of(rate))


@pytest.mark.parametrize("seed", range(1, 9))
def test_two_seeds_of_one_training_do_not_part(seed: int) -> None:
    assert beside(training(seed), training(0)).partings == ()


@pytest.mark.parametrize("seed", range(1, 5))
def test_what_parts_first_stands_first(seed: int) -> None:
    found = beside(training(seed, spoiled_from=60, rate_from=50), training(0))
    first, second = found.partings
    assert (first.quantity, first.update) == ("learning rate", 50)
    assert second.quantity == "loss"
    assert 60 < second.update < 120
    assert found.loss > 1.3 * found.good_loss
    words = beside_words(found)
    assert words[1] == "the learning rate differs first, from update 50 on: 3e-3 against 1e-3"


def test_logs_of_other_spacings_are_held_against_each_other_where_both_have_a_value() -> None:
    found = beside(training(1, spoiled_from=60), training(0, every=10))
    assert found.common_updates == 30
    (parting,) = found.partings
    assert parting.update % 10 == 0


def test_a_loss_that_is_no_number_parts() -> None:
    bad = training(1)
    values = (*bad.loss.values[:200], *[math.nan] * 100)
    spoiled = History(source="bad", loss=LoggedSeries(bad.loss.updates, values))
    (parting,) = beside(spoiled, training(0)).partings
    assert parting.update == 201
    assert beside(spoiled, training(0)).to_json()["partings"][0]["value"] is None


def test_logs_without_a_common_update_are_refused() -> None:
    late = History(source="late", loss=LoggedSeries((400, 401), (2.0, 2.0)))
    with pytest.raises(ValueError, match="late has no update in common with log 1: updates 400 to"):
        beside(training(1), late)


@pytest.mark.parametrize(
    ("reached", "cause"), [(2.0, FLAT_ABOVE), (2.6, FLAT_ABOVE), (2.9, FLAT_UNKNOWN)]
)
def test_a_good_training_tells_what_a_flat_one_could_have_learned(
    reached: float, cause: str
) -> None:
    draw = random.Random(0)
    flat: dict[int, float] = {}
    good: dict[int, float] = {}
    for at in range(1, 301):
        flat[at] = (3.0 + 2 * math.exp(-at / 4)) * math.exp(draw.gauss(0, 0.01))
        good[at] = reached + (5 - reached) * math.exp(-at / 40)
    history = History(source="flat", loss=LoggedSeries.of(flat))
    alone = explain(history)
    assert [one.cause for one in alone.episodes] == [FLAT_UNKNOWN]
    found = beside_good(alone, beside(history, History(source="good", loss=LoggedSeries.of(good))))
    (episode,) = found.episodes
    assert episode.cause == cause
    assert found.good is not None
    if cause == FLAT_ABOVE:
        assert (str(found.severity), episode.kind) == ("warning", "plateau")
        assert f"stands at {reached:.2f} at update 300" in " ".join(episode.evidence)
