"""Figure 2: what made-up curves are judged to say of warm-up and of summed rate, and a run of the
smallest scale.
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import in_process
from made_curves import UNIGRAM, trained_of
from normscope.report.chart import Panel
from normscope.report.svg import HUES
from normscope_studies.engine import page as contents, trainings
from normscope_studies.engine.judging import between
from normscope_studies.engine.pieces import Pieces
from normscope_studies.engine.study import run_study
from normscope_studies.figure_2 import STUDY, claims, figures, shares_of
from normscope_studies.translation.arms import TranslationArm
from normscope_studies.translation.figure_2 import SCALES, Figure2Config, RateGroup
from normscope_studies.translation.runs import Trained, trained

CONFIG = Figure2Config(adam_lrs=(1e-3, 2e-3), sgd_lrs=(0.2, 1.0))
EPOCH = CONFIG.epoch_updates


def losses(
    group: RateGroup, warmup: float, summed: float, short: float = 0.0
) -> dict[TranslationArm, float]:
    """The long warm-up ends at 3.0; none costs `warmup` nats, little summed rate `summed`, a short
    one `short`.
    """
    found = {
        group.without: 3.0 + warmup + summed,
        group.long: 3.0,
        group.without_equal_sum: 3.0 + warmup,
        group.long_equal_sum: 3.0 + summed,
    }
    others = {
        group.short: 3.0 + short,
        group.controlled_without: 3.0 + warmup,
        group.controlled_short: 3.0 + short,
    }
    return found | {arm: loss for arm, loss in others.items() if arm is not None}


def made(*costs: tuple[float, ...], config: Figure2Config = CONFIG, **given: Any) -> Trained:
    """Costs of each group, in the order of the configuration."""
    of = config.every_group()
    lasts: dict[TranslationArm, float] = {}
    for group, cost in zip(of, costs, strict=True):
        lasts |= losses(group, *cost)
    return trained_of(lasts, epoch=EPOCH, **given)


def verdicts(found: Trained, config: Figure2Config = CONFIG) -> dict[str, tuple[str, str]]:
    return {claim.name: (claim.verdict, claim.conditions) for claim in claims(config, found)}


PICTURE = ((2.0, 0.5, 0.2), (2.5, 0.5, 1.0), (2.0, 0.5), (2.0, 0.5))
"""As the paper has it, and warm-up is most of it."""


def test_the_paper_s_picture_is_reproduced_where_it_is_seen() -> None:
    found = verdicts(made(*PICTURE))
    # With warm-up all of these end at 3.0, whatever the optimiser and the rate.
    alike = [
        found.pop(name)[0]
        for name in ("SGD ends worse than Adam", "after the warm-up large rates train")
    ]
    assert alike == ["undecided", "undecided"]
    assert {verdict for verdict, _ in found.values()} == {"reproduced"}
    assert list(found) == [
        "warm-up is essential under Adam",
        "warm-up is essential under Adam, as much cumulative learning rate",
        "warm-up is essential under SGD",
        "warm-up is essential under SGD, as much cumulative learning rate",
        "the length of warm-up matters",
        "the larger rate wants the longer warm-up",
        "most of the gap is the warm-up, under Adam",
        "most of the gap is the warm-up, under SGD",
    ]


def test_the_shares_of_a_gap_are_those_it_was_made_of() -> None:
    """Costs that add up: both ways give the summed rate's cost as a part of the whole, whatever the
    order.
    """
    found = made(*PICTURE, spread=0.0)
    for group, (warmup, summed, *_) in zip(
        [*CONFIG.groups("adam"), *CONFIG.groups("sgd")], PICTURE, strict=True
    ):
        share = shares_of(group, found)
        assert float(share["gap"].mean) == pytest.approx(warmup + summed)
        for way in (share["given back"], share["taken away"], share["summed rate"]):
            assert float(way.mean) == pytest.approx(summed / (warmup + summed))
            assert float(way.half_width) == pytest.approx(0.0, abs=1e-12)


def test_costs_that_do_not_add_up_give_two_shares_and_their_mean() -> None:
    group = CONFIG.groups("adam")[0]
    lasts = losses(group, 2.0, 0.0)
    # Little learning rate costs a model with warm-up 1.6 of the 2.0 nats, and one without nothing
    # at all.
    found = trained_of(lasts | {group.long_equal_sum: 4.6}, epoch=EPOCH, spread=0.0)
    share = shares_of(group, found)
    assert [
        float(way.mean) for way in (share["given back"], share["taken away"], share["summed rate"])
    ] == pytest.approx([0.0, 0.8, 0.4])
    assert [between(share[way], greatest=0.5) for way in ("given back", "taken away")] == [
        True,
        False,
    ]


def test_a_gap_that_is_mostly_summed_rate_is_not_the_warm_up_s() -> None:
    found = verdicts(made((0.3, 2.2, 0.1), (0.3, 2.2, 0.3), *PICTURE[2:]))
    assert found["most of the gap is the warm-up, under Adam"][0] == "contradicted"
    assert found["warm-up is essential under Adam"] == ("reproduced", "")
    assert (
        found["warm-up is essential under Adam, as much cumulative learning rate"][0]
        == "contradicted"
    )


def test_where_nothing_is_learned_with_warm_up_nothing_is_decided() -> None:
    """A run with warm-up that does no better than the baseline shows nothing of what is lost
    without it.
    """
    lasts: dict[TranslationArm, float] = {}
    for name in CONFIG.optimizers:
        for group in CONFIG.groups(name):
            lasts |= dict.fromkeys(group.arms(), UNIGRAM)
    found = verdicts(trained_of(lasts, epoch=EPOCH))
    assert found["warm-up is essential under SGD"] == ("undecided", "")
    assert found["most of the gap is the warm-up, under SGD"] == ("undecided", "")


def test_seeds_that_differ_decide_nothing() -> None:
    found = verdicts(made(*((0.1, 0.05, 0.1),) * 4, spread=2.0))
    # A gain of hardly anything is not surely kept, nor surely lost.
    assert {verdict for verdict, _ in found.values()} == {"undecided"}


def test_one_seed_decides_nothing() -> None:
    found = made(*PICTURE, seeds=1)
    assert {verdict for verdict, _ in verdicts(found).values()} == {"undecided"}
    assert all("One seed has no interval" in claim.found for claim in claims(CONFIG, found))


def test_one_optimiser_is_judged_alone(drawn: list[list[Panel]]) -> None:
    adam = replace(CONFIG, optimizers=("adam",), adam_lrs=(1e-3,))
    found = made(PICTURE[0], config=adam)
    assert list(verdicts(found, adam)) == [
        "warm-up is essential under Adam",
        "warm-up is essential under Adam, as much cumulative learning rate",
        "the length of warm-up matters",
        "most of the gap is the warm-up, under Adam",
    ]
    sgd = replace(CONFIG, optimizers=("sgd",))
    figures(sgd, made(*PICTURE[2:], config=sgd))
    assert len(drawn) == 3


def test_sgd_and_large_rates_are_judged_by_where_they_end() -> None:
    lasts: dict[TranslationArm, float] = {}
    for name, nats in (("adam", (3.0, 2.5)), ("sgd", (4.0, 4.5))):
        for group, last in zip(CONFIG.groups(name), nats, strict=True):
            lasts |= {arm: loss + last for arm, loss in losses(group, 1.0, 0.5).items()}
    found = verdicts(trained_of(lasts, epoch=EPOCH))
    assert found["SGD ends worse than Adam"] == ("reproduced", "")
    adam, sgd = CONFIG.adam_lrs, CONFIG.sgd_lrs
    assert found["after the warm-up large rates train"] == (
        "undecided",
        f"Adam, {adam[1]:g} beside {adam[0]:g}; not SGD, {sgd[1]:g} beside {sgd[0]:g}",
    )


def test_a_warm_up_length_that_changes_nothing_does_not_matter() -> None:
    found = verdicts(made((2.0, 0.5, -0.2), (2.0, 0.5, -0.2), *PICTURE[2:]))
    assert found["the length of warm-up matters"][0] == "contradicted"
    assert found["the larger rate wants the longer warm-up"][0] == "undecided"


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[list[Panel]]:
    """Panels in place of pictures, whose drawing takes seconds."""
    noted: list[list[Panel]] = []

    def note(panels: list[Panel], *, title: str) -> str:
        noted.append(panels)
        return title

    monkeypatch.setattr(contents, "panels_svg", note)
    return noted


def test_the_pictures_have_every_family_and_rate(drawn: list[list[Panel]]) -> None:
    names = [one.name for one in figures(CONFIG, made(*PICTURE))]
    assert names == ["adam_paper", "adam_controlled", "sgd_paper", "sgd_controlled", "over_rates"]
    paper, controlled, *_, over_rates = drawn
    assert [panel.title for panel in paper] == ["Adam, rate 0.001", "Adam, rate 0.001"] + [
        "Adam, rate 0.002"
    ] * 2
    assert [one.label for one in paper[0].series] == [
        "unigram baseline",
        "no warm-up",
        "warm-up 255",
        "warm-up 32",
    ]
    assert "no warm-up, cumulative learning rate of warm-up 255" in [
        one.label for one in controlled[0].series
    ]
    assert [one.x for one in over_rates[0].series] == [[1e-3, 2e-3]] * 3
    assert [list(one.x) for one in over_rates[3].series] == [[0.2, 1.0]] * 2
    # As many colours as there are, and each of one thing.
    for panels in (over_rates[:2], over_rates[2:]):
        hues = {one.label: one.hue % len(HUES) for panel in panels for one in panel.series}
        assert len(set(hues.values())) == len(hues)


def test_a_run_that_broke_off_at_once_is_drawn_and_judged(drawn: list[list[Panel]]) -> None:
    found = made(*PICTURE)
    arm = CONFIG.groups("sgd")[1].without
    runs = found.curves[arm]
    found.curves[arm] = [
        replace(
            run, updates=[], nll_nats=[], loss_nats=[], bleu=[], summed_lr=[], ended="non-finite"
        )
        for run in runs
    ]
    assert verdicts(found)["warm-up is essential under SGD"][0] == "reproduced"
    figures(CONFIG, found)
    assert [one.label for one in drawn[2][2].series] == ["unigram baseline", "warm-up 255"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"optimizers": ("lion",)}, "adam, sgd or both"),
        ({"optimizers": ()}, "adam, sgd or both"),
        ({"adam_lrs": (2e-3, 1e-3)}, "adam_lrs must be positive and rise"),
        ({"sgd_lrs": ()}, "sgd_lrs: give one or more"),
    ],
)
def test_a_configuration_that_cannot_be_meant_is_refused(
    changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        replace(CONFIG, **changes)


def test_the_smallest_scale_runs_and_goes_on_without_training_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, drawn: list[list[Panel]]
) -> None:
    monkeypatch.setattr(trainings, "run_cells", in_process.run_cells)
    config: Figure2Config = SCALES["smoke"]
    folder = tmp_path / "figure-2"
    sgd = replace(config, optimizers=("sgd",))
    trained(sgd, sgd.arms(), Pieces(folder))
    looked = times(tmp_path)
    found, page = run_study(STUDY, config, Pieces(folder), command="test", scale="smoke")
    assert page.is_file()
    assert len(found.data["configurations"]) == 11
    assert "verdicts mean nothing" in page.read_text(encoding="utf-8")
    # What SGD's command trained is not trained again for both.
    assert (len(looked), len(drawn)) == (4, 5)
    assert looked.items() <= times(tmp_path).items()


def times(folder: Path) -> dict[Path, int]:
    look: Callable[[Path], int] = lambda file: file.stat().st_mtime_ns  # noqa: E731
    return {file: look(file) for file in folder.rglob("metrics.jsonl")}
