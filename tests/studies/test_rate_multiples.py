"""Rates of a figure as multiples of the best of a ladder, and both directions from one corpus."""

from dataclasses import replace
from pathlib import Path

import pytest

import in_process
from normscope_studies.engine import trainings
from normscope_studies.engine.pieces import Pieces
from normscope_studies.figure_6 import SCALES as FIGURE_6, STUDY
from normscope_studies.translation.config import RunsConfig
from normscope_studies.translation.figure_2 import SCALES as FIGURE_2
from normscope_studies.translation.figure_4 import SCALES as FIGURE_4
from normscope_studies.translation.ladder import RateLadder, climbed, settled
from normscope_studies.translation.runs import cells_of

LADDER = RateLadder(optimizer="adam", finals_nats={1e-3: 3.0, 2e-3: 2.5, 4e-3: 2.5, 8e-3: 5.0})


def test_the_best_of_a_ladder_is_its_lowest_and_the_smaller_of_two_alike() -> None:
    assert LADDER.best_lr == 2e-3
    assert not LADDER.at_an_end
    assert replace(LADDER, finals_nats={1e-3: 2.0, 2e-3: 2.5}).at_an_end
    assert "best 0.002" in LADDER.words


@pytest.mark.parametrize(
    ("scales", "rates"),
    [
        (FIGURE_2, {"adam_lrs": (1e-3, 2e-3)}),
        (FIGURE_4, {"lrs": (1e-3, 2e-3), "curve_lrs": (4e-3,), "en_de_lrs": (1e-3, 2e-3)}),
        (FIGURE_6, {"peak_lr": 2e-3, "small_lr": 2e-4}),
    ],
)
def test_multiples_become_rates(scales: dict[str, RunsConfig], rates: dict[str, object]) -> None:
    config = settled(scales["multi30k"], [LADDER])
    assert {name: getattr(config, name) for name in rates} == rates
    assert "adam" not in config.ladders()
    assert {arm.peak_lr for arm in config.arms() if arm.optimizer == "adam"} >= {2e-3}


def test_each_optimiser_has_its_own_ladder() -> None:
    config = FIGURE_2["multi30k"]
    assert list(config.ladders()) == ["adam", "sgd"]
    of_sgd = RateLadder(optimizer="sgd", finals_nats={1.0: 4.0, 2.0: 5.0})
    both = settled(config, [LADDER, of_sgd])
    assert both.sgd_lrs == (0.2, 1.0)
    assert both.ladders() == {}
    assert settled(config, []) == config


def test_without_a_ladder_rates_are_rates_and_nothing_is_climbed(tmp_path: Path) -> None:
    config = FIGURE_2["cpu"]
    assert config.ladders() == {}
    assert climbed(config, Pieces(tmp_path)) == []
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("rates", [(1e-3,), (2e-3, 1e-3), (1e-3, 1e-3), (0.0, 1e-3)])
def test_a_ladder_that_cannot_be_climbed_is_refused(rates: tuple[float, ...]) -> None:
    with pytest.raises(ValueError, match="adam_ladder must be two or more positive rates"):
        replace(FIGURE_6["smoke"], adam_ladder=rates)


def test_the_ladder_is_climbed_by_a_seed_that_judges_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trainings, "run_cells", in_process.run_cells)
    config = replace(FIGURE_6["smoke"], adam_ladder=(1e-3, 1e-2), peak_lr=1.0, small_lr=0.5)
    found = STUDY.run(config, Pieces(tmp_path / "study"))
    (ladder,) = found.data["ladders"]
    runs = sorted((tmp_path / "translation-cells").glob("*/runs/*"))
    climbing = [run.name for run in runs if run.name.endswith("_seed-2")]
    assert len(climbing) == 2
    assert {float(name.split("lr-")[1].split("_")[0]) for name in climbing} == {1e-3, 1e-2}
    best = ladder["best_lr"]
    assert (
        best
        == min(
            zip(ladder["last_loss_nats"], ladder["peak_lrs"], strict=True), key=lambda pair: pair[0]
        )[1]
    )
    judging = {run.name.split("lr-")[1].split("_")[0] for run in runs if "seed-1" in run.name}
    assert {float(rate) for rate in judging} == {best, best / 2}
    assert "multiples of the best of a ladder" in found.conditions["rates"]


def test_both_directions_are_read_from_one_corpus(tmp_path: Path) -> None:
    config = replace(FIGURE_4["smoke"], en_de_corpus="")
    english = [arm for arm in config.arms() if arm.pair == "en-de"]
    german = [arm for arm in config.arms() if arm.pair == "de-en"]
    (to_german, *_), (to_english, *_) = (
        cells_of(config, arms[:1], tmp_path)[arms[0]] for arms in (english, german)
    )
    assert (to_german.config.data.corpus, to_german.config.data.reverse) == ("toy", True)
    assert (to_english.config.data.corpus, to_english.config.data.reverse) == ("toy", False)
    # A corpus of its own has another digest, even where it is of the same name.
    own = replace(config, en_de_corpus="toy")
    assert own.digest("en-de") != config.digest("en-de")
    assert own.digest("de-en") == config.digest("de-en")


def test_runs_of_before_keep_their_folders() -> None:
    """The digest of the settings that there were at first, worked out by hand in its own way."""
    import hashlib
    import json

    config = FIGURE_2["cpu"]
    names = (
        "toy_pairs width ffn_width heads blocks dropout attention_dropout label_smoothing "
        "max_tokens epoch_updates bleu_sentences bleu_beam corpus accumulation"
    )
    settings = {name: getattr(config, name) for name in names.split()}
    text = json.dumps(settings, sort_keys=True).encode()
    assert config.digest("de-en") == hashlib.sha256(text).hexdigest()[:8]
    assert replace(config, bleu_length_penalty=1.2).digest("de-en") != config.digest("de-en")
