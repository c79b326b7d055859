"""Logs with something beside the loss that is not as it was meant, each with its healthy twin."""

import math
import random
from collections.abc import Callable
from dataclasses import replace

import pytest

from normscope.doctor.result import Severity
from normscope.history.episodes import Episode, EpisodeKind, episodes
from normscope.history.explain import explain
from normscope.history.joined import lasting
from normscope.history.names import history_of
from normscope.history.record import History, LoggedSeries, TrainingRecipe
from normscope.history.signs import OUTSIDE, signs

UPDATES = tuple(range(1, 401))
SGD, ADAM = (
    TrainingRecipe(clip_norm=1.0, divides=False),
    TrainingRecipe(clip_norm=1.0, divides=True),
)


def falling(update: int) -> float:
    return 1.5 + 3 * math.exp(-update / 60)


def still(update: int) -> float:
    return 4.5


def series(value: Callable[[int], float]) -> LoggedSeries:
    return LoggedSeries(UPDATES, tuple(value(update) for update in UPDATES))


def log(
    loss: Callable[[int], float] = falling, rate: Callable[[int], float] | None = None
) -> History:
    draw = random.Random(0)
    noisy = LoggedSeries(UPDATES, tuple(loss(u) * math.exp(draw.gauss(0, 0.01)) for u in UPDATES))
    return History(source="log", loss=noisy, rate=series(rate) if rate else LoggedSeries())


def harmless(one: Episode) -> bool:
    return one.kind is EpisodeKind.NOTE


def found(history: History) -> list[tuple[str, int, bool]]:
    return [(one.cause, one.onset, harmless(one)) for one in signs(history)]


def warm(update: int, over: int, restart: int = 10**9) -> float:
    return 1e-3 * min(1.0, (update - 1) % restart / over)


def test_a_warm_up_in_the_wrong_unit_never_ends() -> None:
    """4,000 batches where updates were meant: a tenth of the peak at the end."""
    assert found(log(falling, lambda u: warm(u, 4000))) == [("warmup-never-ends", 400, True)]
    history = log(still, lambda u: warm(u, 4000))
    assert found(history) == [("warmup-never-ends", 400, False)]
    explained = explain(history)
    assert explained.severity is Severity.WARNING
    assert lasting(explained) is None
    assert explain(log(falling, lambda u: warm(u, 4000))).severity is Severity.INFO


def test_a_warm_up_that_begins_in_each_epoch_is_dated() -> None:
    assert found(log(rate=lambda u: warm(u, 40, 100))) == [("warmup-restarts", 101, False)]
    assert (
        "rises again 3 times, about every 100 updates"
        in next(signs(log(rate=lambda u: warm(u, 40, 100)))).evidence[0]
    )


@pytest.mark.parametrize(
    "rate",
    [
        lambda u: warm(u, 40),
        lambda u: 1e-3,
        lambda u: min(warm(u, 40), 1e-3 * (400 - u) / 360 + 1e-5),
        lambda u: (
            1e-3 * (1 + math.cos(math.pi * ((u - 1) % 100) / 100)) / 2
        ),  # warm restarts (SGDR)
        lambda u: 1e-3 * (1 - abs((u % 100) / 50 - 1)),  # cyclical
        lambda u: 1e-7 * 1.02**u,  # a range test
        lambda u: 1e-3 * 0.1 ** (u // 100),  # steps
    ],
)
def test_schedules_that_are_meant_are_left_alone(rate: Callable[[int], float]) -> None:
    assert found(log(rate=rate)) == []


def norms(of: Callable[[int, float], float], seed: int = 1) -> LoggedSeries:
    draw = random.Random(seed)
    return LoggedSeries(UPDATES, tuple(of(u, 2 * math.exp(draw.gauss(0, 0.3))) for u in UPDATES))


def test_a_clip_that_went_away_with_the_optimiser_is_dated() -> None:
    swapped = replace(log(), gradient_norm=norms(lambda u, g: min(g, 0.5) if u <= 200 else g))
    ((name, onset, harmless),) = found(swapped)
    assert (name, harmless) == ("clip-went-away", False)
    assert onset == 201
    for healthy in (
        norms(lambda u, g: min(g, 0.5)),  # clipped all along
        norms(lambda u, g: g),  # never
        norms(lambda u, g: min(g, 0.5) if u <= 200 else g / 20),  # gradients have become small
    ):
        assert found(replace(log(), gradient_norm=healthy)) == []


def parts(head: Callable[[int], float], recipe: TrainingRecipe) -> History:
    inner = {
        f"layers/block_0{block}/attention": {"gradient_norm": series(lambda u: 1.0)}
        for block in (1, 2)
    }
    whole = series(lambda u: math.sqrt(2 + head(u) ** 2))
    return replace(log(), sublayers=inner, gradient_norm=whole, recipe=recipe)


def test_a_gradient_that_is_all_the_heads_is_dated_and_judged() -> None:
    """The head's share of the squared norm is h² / (2 + h²): 0.95 from h² = 38 on, which u² / 4000
    passes at 158.
    """
    grows = parts(lambda u: u**2 / 4000, SGD)
    (sign,) = signs(grows)
    assert (sign.cause, sign.onset, sign.place, harmless(sign)) == (
        "one-place-takes-gradient",
        158,
        OUTSIDE,
        False,
    )
    assert [harmless(one) for one in signs(replace(grows, recipe=ADAM))] == [True]
    assert [
        harmless(one) for one in signs(replace(grows, recipe=replace(SGD, clip_norm=math.inf)))
    ] == [True]
    assert found(parts(lambda u: 1.0, SGD)) == found(parts(lambda u: 20.0, SGD)) == []


def test_a_few_values_that_come_halfway_back_are_a_rise() -> None:
    """10 to 3 and back to 7.5: a log of every 500 updates of a training that diverged to where it
    began.
    """
    updates = tuple(range(500, 4500, 500))
    diverged = LoggedSeries(updates, (10.0, 6.0, 4.0, 3.0, 3.1, 7.5, 7.6, 7.5))
    (rise,) = episodes(replace(log(), loss=diverged))
    assert (rise.kind, rise.onset) == ("rise", 3000)
    for calm in (
        (10.0, 6.0, 4.0, 3.0, 3.1, 3.6, 3.3, 3.4),
        (10.0, 6.0, 4.0, 3.0, 7.5, 3.1, 3.0, 2.9),
    ):
        assert episodes(replace(log(), loss=LoggedSeries(updates, calm))) == []


def test_a_loss_that_was_never_a_number_is_a_rise_from_its_first_update() -> None:
    (one,) = explain(History(source="log", loss=series(lambda u: math.nan))).to_json()["episodes"]
    assert [one[name] for name in ("kind", "onset", "loss_before", "loss_worst")] == [
        "rise",
        1,
        None,
        None,
    ]


def test_a_sign_is_told_below_the_loss() -> None:
    explained = explain(log(still, lambda u: warm(u, 4000)))
    assert [one.kind for one in explained.episodes][-1] == "sign"
    assert next(signs(explained.history)).kind is EpisodeKind.SIGN


HEAD = "param_norm/model.layers.{}.self_attn.{}_proj.weight"


def heads(query: Callable[[int], float], value: Callable[[int], float] = lambda u: 4.0) -> History:
    """A log of two attentions, of which the second one's queries and keys are of the size given."""
    sizes = {(0, "q"): 4.0, (0, "k"): 4.0, (0, "v"): 4.0}
    of_second = {"q": query, "k": query, "v": value}
    rows = [
        (
            u,
            {"loss": falling(u)}
            | {HEAD.format(*where): size for where, size in sizes.items()}
            | {HEAD.format(1, part): size(u) for part, size in of_second.items()}
            | {"grad_norm/model.layers.1.self_attn.q_proj.weight": float(u)},
        )
        for u in UPDATES
    ]
    return history_of("log", rows)


def test_queries_and_keys_that_outgrow_values_are_dated() -> None:
    """4 to 12 from update 200 on: their product doubles at 4·√2, where (u - 200)/200 is (√2 - 1)/2,
    at update 242.
    """
    (sign,) = signs(heads(lambda u: 4.0 + 8.0 * max(0, u - 200) / 200))
    assert (sign.cause, sign.place, harmless(sign)) == (
        "attention-logits-grow",
        "param_norm/model.layers.1.self_attn",
        False,
    )
    assert sign.onset == 242
    assert "1 of 2 attentions" in sign.evidence[1]
    assert explain(heads(lambda u: 4.0 + 8.0 * max(0, u - 200) / 200)).severity is Severity.WARNING


@pytest.mark.parametrize(
    ("query", "value"),
    [
        (lambda u: 4.0 + u / 50, lambda u: 4.0 + u / 50),
        (lambda u: 4.0 + u / 400, lambda u: 4.0),
    ],
)
def test_what_grows_with_its_values_or_little_is_no_sign(query, value) -> None:
    assert list(signs(heads(query, value))) == []


def test_growth_that_has_come_to_a_level_is_a_note() -> None:
    (sign,) = signs(heads(lambda u: min(12.0, 4.0 + u / 20)))
    assert harmless(sign)


@pytest.mark.parametrize(("largest", "seen"), [(200.0, 1), (12.0, 0)])
def test_logits_are_a_sign_where_they_have_become_large(largest: float, seen: int) -> None:
    rows = [
        (u, {"loss": falling(u), "max_attn_logits/layer_3": 2 + (largest - 2) * u / 400})
        for u in UPDATES
    ]
    history = history_of("log", rows)
    assert list(history.attentions) == ["layer_3"]
    assert len(list(signs(history))) == seen


MEASURED = tuple(range(5, 401, 5))


def measured(step_at: int, times: float, loss_left_at: int = 10**9) -> History:
    """Three sub-layers; from an update on the step of the second is so many times what it was."""

    def level(update: int) -> float:
        return falling(update) * (4.0 if update >= loss_left_at else 1.0)

    draw = random.Random(1)
    steps = [
        [
            1e-3 * math.exp(draw.gauss(0, 0.1)) * (times if place == 1 and u >= step_at else 1.0)
            for u in MEASURED
        ]
        for place in range(3)
    ]
    places = {f"blocks/block_{place + 1:02}/attention": steps[place] for place in range(3)}
    sublayers = {
        name: {"update_ratio": LoggedSeries(MEASURED, tuple(of))} for name, of in places.items()
    }
    return replace(log(level), sublayers=sublayers)


def test_a_step_that_jumps_warns_before_the_loss_does() -> None:
    history = measured(200, 8.0, loss_left_at=260)
    (early,) = signs(history.until(230))
    assert (early.cause, early.onset, early.place, harmless(early)) == (
        "left-course-before-loss",
        200,
        "blocks/block_02/attention",
        False,
    )
    assert "the loss has kept its course for 30 updates since" in early.evidence
    assert explain(history.until(230)).severity is Severity.WARNING
    (late,) = signs(history)
    assert (
        late.onset,
        harmless(late),
        "the loss left its course 60 updates later" in late.evidence,
    ) == (
        200,
        True,
        True,
    )


@pytest.mark.parametrize(
    ("history", "seen"),
    [
        (measured(200, 2.0), []),
        (measured(200, 8.0), [True]),
        (measured(200, 8.0, loss_left_at=195), []),
    ],
    ids=["as noise", "nothing came of it", "the loss said so before"],
)
def test_what_the_loss_does_not_follow_is_no_warning(history: History, seen: list[bool]) -> None:
    assert [harmless(one) for one in signs(history)] == seen


def test_a_history_until_an_update_holds_nothing_later() -> None:
    early = measured(200, 8.0).until(100)
    assert (early.last_update, early.loss.updates) == (100, UPDATES[:100])
    assert {one["update_ratio"].updates for one in early.sublayers.values()} == {MEASURED[:20]}


def resumed(update: int, *, at: int, counted: int, total: int = 400, warmup: int = 40) -> float:
    """A warm-up and a line to 0; from a resume on the schedule counts on from another number."""
    done = update if update < at else update - at + counted
    return 1e-3 * min(done / warmup, (total - done) / (total - warmup))


def test_one_resume_that_goes_back_into_the_warm_up_is_a_schedule_that_begins_anew():
    anew = log(rate=lambda update: resumed(update, at=200, counted=3))
    assert [sign for sign in found(anew) if sign[0] == "warmup-restarts"] == [
        ("warmup-restarts", 200, False)
    ]
    right = log(rate=lambda update: resumed(update, at=200, counted=200))
    assert "warmup-restarts" not in [name for name, *_ in found(right)]


def test_a_second_stage_with_a_warm_up_of_its_own_is_no_resume():
    def staged(update: int) -> float:
        if update < 200:
            return resumed(update, at=1000, counted=0)
        return 4e-4 * min((update - 195) / 100, 1.0)

    assert "warmup-restarts" not in [name for name, *_ in found(log(rate=staged))]
