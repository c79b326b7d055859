"""Losses made by formula, with what was done to them known: found, dated, explained, and healthy
ones left alone.
"""

import math
import random
from collections.abc import Callable
from dataclasses import replace

import pytest

from normscope.history.episodes import UNKNOWN, EpisodeKind, episodes, levels, logarithms
from normscope.history.explain import (
    EVERYWHERE,
    FLAT_UNKNOWN,
    NOT_RECORDED,
    OUTPUT,
    WIDTH,
    episode_head,
    explain,
    page,
)
from normscope.history.patterns import FLAT
from normscope.history.record import History, LoggedSeries, TrainingRecipe
from normscope.history.section import section, thinned

UPDATES, AT = 240, 150
PLACES = [
    f"model.layers/block_{block:02}/{kind}"
    for block in (1, 2, 3)
    for kind in ("attention", "feed_forward")
]


def learning(update: int) -> float:
    return 1.5 + 3 * math.exp(-update / 40)


def log(loss: Callable[[int], float] = learning, noise: float = 0.03, seed: int = 0) -> History:
    draw = random.Random(seed)
    updates = tuple(range(1, UPDATES + 1))
    return History(
        source="log",
        loss=LoggedSeries(
            updates, tuple(loss(u) * math.exp(draw.gauss(0, noise)) for u in updates)
        ),
    )


def measured(value: Callable[[int], float]) -> LoggedSeries:
    updates = tuple(range(1, UPDATES + 1, 5))
    return LoggedSeries(updates, tuple(value(u) for u in updates))


def monitored(history: History, **sublayers: Callable[[str, int], float]) -> History:
    """With quantities of every sub-layer, as functions of its name and the update."""
    found = {
        place: {
            name: measured(lambda u, p=place, f=value: f(p, u)) for name, value in sublayers.items()
        }
        for place in PLACES
    }
    return replace(history, sublayers=found)


@pytest.mark.parametrize("noise", [0.001, 0.03, 0.3])
@pytest.mark.parametrize(
    "loss",
    [
        learning,
        lambda u: learning(u) - (0.4 if u > AT else 0),  # the rate drops
        lambda u: learning(u) * 0.93 ** (u // 60),  # epochs
        lambda u: 1e-3 + 4 * math.exp(-u / 30),  # learned by heart
        lambda u: 4 - 0.005 * u,  # slowly
    ],
)
def test_healthy_losses_give_no_alarm(loss: Callable[[int], float], noise: float) -> None:
    assert episodes(log(loss, noise)) == []


@pytest.mark.parametrize("noise", [0.001, 0.03, 0.1])
def test_rises_and_spikes_are_dated(noise: float) -> None:
    (spike,) = episodes(
        log(lambda u: learning(u) + 3 * math.exp(-max(0, u - AT) / 12) * (u >= AT), noise)
    )
    assert (spike.kind, spike.onset) == (EpisodeKind.SPIKE, AT)
    assert spike.end is not None
    (rise,) = episodes(log(lambda u: learning(u) + min(3, 0.3 * max(0, u - AT)), noise))
    assert rise.kind is EpisodeKind.RISE
    assert abs(rise.onset - AT) <= 5
    (broken,) = episodes(log(lambda u: learning(u) if u < AT else math.nan, noise))
    assert (broken.kind, broken.onset, broken.loss_worst) == (EpisodeKind.RISE, AT, math.inf)


def test_the_level_is_the_median_and_its_noise_that_of_neighbours() -> None:
    """A line that falls steeply has no noise, and one of alternate values has theirs."""
    falling = levels([-0.1 * at for at in range(60)])[-1]
    assert falling is not None
    assert falling.spread == pytest.approx(0, abs=1e-12)
    swinging = levels([0.1 * (-1) ** at for at in range(60)])[-1]
    assert swinging is not None
    assert swinging.spread == pytest.approx(1.4826 * 0.2 / math.sqrt(2))
    assert logarithms([0.0, 1.0, math.inf, 2.0])[:3] == [0.0, 0.0, math.inf]


def test_a_bad_batch_is_one_value_and_nothing_after_it() -> None:
    (found,) = explain(log(lambda u: learning(u) + 4 * (u == AT))).episodes
    assert (found.cause, found.onset, found.place, found.missing) == (
        "bad-batch",
        AT,
        NOT_RECORDED,
        (),
    )


def rising(u: int) -> float:
    return learning(u) + min(3, 0.5 * max(0, u - AT))


def test_a_rate_is_too_high_where_one_sub_layer_moves_too_far() -> None:
    history = monitored(
        log(rising), update_ratio=lambda p, u: 0.1 if p == PLACES[3] and u >= AT else 1e-3
    )
    (found,) = explain(history).episodes
    assert (found.cause, found.place) == ("rate-too-high", PLACES[3])
    # Without the ratios the rate itself, which has just come to its peak.
    warmed = replace(
        log(rising),
        rate=LoggedSeries(
            history.loss.updates, tuple(min(1.0, u / AT) for u in history.loss.updates)
        ),
    )
    (found,) = explain(warmed).episodes
    assert (found.cause, found.place) == ("rate-too-high", NOT_RECORDED)


def test_what_the_log_does_not_decide_is_unknown_and_says_what_to_record() -> None:
    (found,) = explain(log(rising)).episodes
    assert found.cause == UNKNOWN
    assert found.missing == (
        "the mean cosine similarity between tokens (Monitor)",
        "the logits' standard deviation (Monitor)",
        "the learning rate",
        "update-to-weight ratios of the sub-layers (Monitor.stepped)",
    )
    # A rate that has been constant for long explains nothing, and neither do updates that stay
    # small.
    steady = monitored(log(rising), update_ratio=lambda p, u: 1e-3)
    (found,) = explain(replace(steady, rate=LoggedSeries((1, 2, UPDATES), (1e-3,) * 3))).episodes
    assert (found.cause, found.place) == (UNKNOWN, EVERYWHERE)


def test_logits_that_grow_alone_are_the_output_layers() -> None:
    history = monitored(log(rising), update_ratio=lambda p, u: 1e-3)
    history = replace(history, logit_deviation=measured(lambda u: 1.0 if u < AT else 20.0))
    (found,) = explain(history).episodes
    assert (found.cause, found.place) == ("logits-growing", OUTPUT)


def test_tokens_that_become_alike_are_a_collapse() -> None:
    history = monitored(log(rising), update_ratio=lambda p, u: 1e-3 if u < AT else 0.1)
    alike = replace(
        history,
        stacks={"model.layers": {"end_correlation": measured(lambda u: 0.2 if u < AT else 0.99)}},
    )
    (found,) = explain(alike).episodes
    assert (found.cause, found.place) == ("post-ln-collapse", EVERYWHERE)
    apart = replace(history, stacks={"model.layers": {"end_correlation": measured(lambda u: 0.2)}})
    assert explain(apart).episodes[0].cause == "rate-too-high"


def stuck(u: int) -> float:
    return 4.0


def test_a_clip_hides_a_rate_from_sgd_and_not_from_adam() -> None:
    norms = LoggedSeries(tuple(range(1, UPDATES + 1)), (2.0,) * UPDATES)
    history = replace(log(stuck), gradient_norm=norms)
    sgd = replace(history, recipe=TrainingRecipe(clip_norm=1e-3, divides=False))
    assert [one.cause for one in explain(sgd).episodes] == ["clip-hides-rate"]
    # A loss that stands still may be that of a model that was trained before.
    adam = replace(history, recipe=TrainingRecipe(clip_norm=1e-3, divides=True, epsilon=1e-8))
    mild = replace(history, recipe=TrainingRecipe(clip_norm=0.1, divides=False))
    for unfelt in (adam, mild):
        (told,) = explain(unfelt).episodes
        assert (told.kind, told.cause) == ("note", FLAT_UNKNOWN)
    # Where it is that of frequencies nothing was learned.
    (found,) = explain(replace(mild, recipe=replace(mild.recipe, unigram_nats=4.0))).episodes
    assert (found.kind, found.cause) == ("plateau", FLAT)


@pytest.mark.parametrize(
    ("update_norm", "wanted"),
    [
        (1e-3 * 2.0 / 1.0, [("plateau", 1, "epsilon-swamps-gradients")]),
        (1e-5, [("note", 1, FLAT_UNKNOWN)]),
    ],
)
def test_epsilon_is_told_by_how_far_updates_go(
    update_norm: float, wanted: list[tuple[str, int, str]]
) -> None:
    """Rate 1e-3, a gradient of 2 and ε = 1: where ε alone divides, an update is 2e-3."""
    history = monitored(
        log(stuck), update_norm=lambda p, u: update_norm, gradient_norm=lambda p, u: 2.0
    )
    history = replace(
        history, rate=LoggedSeries((1,), (1e-3,)), recipe=TrainingRecipe(divides=True, epsilon=1.0)
    )
    assert [(one.kind, one.onset, one.cause) for one in explain(history).episodes] == wanted


def test_a_plateau_is_one_only_where_a_model_knows_frequencies_alone() -> None:
    history = log(lambda u: 2.0 + 2 * math.exp(-u / 20))
    assert episodes(history) == []
    assert episodes(replace(history, recipe=TrainingRecipe(unigram_nats=4.0))) == []
    (found,) = episodes(replace(history, recipe=TrainingRecipe(unigram_nats=2.0)))
    assert found.kind is EpisodeKind.PLATEAU
    # 2 (1 + exp(-u/20)) is within a few hundredths of its end from 80 on.
    assert 55 < found.onset < 100


def test_the_page_fits_a_screen_and_marks_the_onset() -> None:
    explanation = explain(log(lambda u: learning(u) + 4 * (u % 30 == 15)))
    lines = page(explanation)
    assert len(explanation.episodes) == 7
    assert len(lines) < 40
    assert max(map(len, lines)) <= WIDTH
    assert any(line.startswith("and 3 more events, from update") for line in lines)
    course, marks = lines[2], lines[3]
    assert marks.count("▲") == 7
    assert all(course[at] > "▁" for at, letter in enumerate(marks) if letter == "▲")
    assert page(explain(log()))[0].startswith(
        "no spike and no plateau — loss over 240 updates, log"
    )


def test_the_figure_has_a_line_at_every_onset_in_words_too() -> None:
    (loss,) = section(explain(log(lambda u: learning(u) + 4 * (u == AT)))).pictures
    assert "spike from update 150, bad-batch" in loss.svg


def test_the_section_of_a_page_names_the_sub_layer_that_left_first() -> None:
    history = monitored(
        log(rising), update_ratio=lambda p, u: 0.1 if p == PLACES[3] and u >= AT else 1e-3
    )
    shown = section(explain(history))
    (episode,) = shown.episodes
    assert ("cause", "rate-too-high — a rate too high for these weights") in episode.rows
    assert ("where", PLACES[3]) in episode.rows
    assert (episode.head, episode.tone) == (episode_head(explain(history).episodes[0]), "mixed")
    _, steps = shown.pictures
    assert "Norm of each update over that of the weights" in steps.caption
    assert f">{PLACES[3]}</text>" in steps.svg
    assert f">{PLACES[2]}</text>" not in steps.svg


def test_without_sub_layers_the_gradient_is_drawn_and_no_spike_is_thinned_away() -> None:
    values = tuple(1.0 + 6.0 * (u == 700) for u in range(1, 3001))
    history = replace(log(), gradient_norm=LoggedSeries(tuple(range(1, 3001)), values))
    _, norm = section(explain(history)).pictures
    assert "Norm of the whole gradient" in norm.caption
    kept = thinned(values)
    assert len(kept) <= 800
    assert 699 in kept
