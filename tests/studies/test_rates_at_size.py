"""The study of larger models: what is trained, what a rate between rungs loses, and what µP
changes.
"""

import math
from dataclasses import replace

import pytest
import torch

from normscope_studies.advice.cases import rate_of
from normscope_studies.engine.pieces import Pieces
from normscope_studies.rates_at_size import study, training
from normscope_studies.rates_at_size.study import _SizedConfig, _SizedLadder, named_rate

pytest.importorskip("transformers")
SMALL = study.SCALES["smoke"].models[0]


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    """A text in which each word tells the next."""
    folder = tmp_path_factory.mktemp("texts")
    words = [
        "the",
        "norm",
        "of",
        "each",
        "block",
        "comes",
        "before",
        "its",
        "branch",
        "and",
        "after",
        "that",
        "sum",
    ]
    for name, count in (("train", 600), ("valid", 200)):
        lines = (
            " ".join(words[(place + step) % len(words)] for step in range(30))
            for place in range(count)
        )
        (folder / f"{name}.txt").write_text("\n".join(lines), encoding="utf-8")
    return str(folder / "train.txt"), str(folder / "valid.txt")


def test_ids_are_kept_and_frequencies_are_those_of_the_text(texts, tmp_path):
    kept = tmp_path / "ids.bin"
    first = training.text_of(*texts, kept)
    training.text_of.cache_clear()
    again = training.text_of("gone", "gone", kept)
    assert torch.equal(first.train, again.train)
    assert torch.equal(first.valid, again.valid)
    assert first.unigram_nats == again.unigram_nats
    # Counted another way: every id's share, one added to each.
    counts = dict.fromkeys(range(training.PIECES), 1)
    for one in first.train.tolist():
        counts[one] += 1
    total = sum(counts.values())
    mean = sum(-math.log(counts[one] / total) for one in first.valid.tolist()) / len(first.valid)
    assert first.unigram_nats == pytest.approx(mean)
    assert training.pair_nats(first) < first.unigram_nats - 1


def test_a_model_by_the_rates_of_a_narrower_one_takes_smaller_steps():
    wide = replace(SMALL, narrower=4.0)
    model = training.built(wide, 1)
    groups = {
        group["role"]: group["lr_factor"]
        for group in training.optimizer_of(wide, model, 1e-3).param_groups
    }
    assert groups == {"embedding": 1.0, "matrix": 0.25, "norm": 1.0, "head": 0.25}
    widths = {
        name: float(weight.detach().std())
        for name, weight in model.named_parameters()
        if weight.dim() > 1
    }
    assert widths["model.embed_tokens.weight"] == pytest.approx(0.02, rel=0.02)
    assert widths["lm_head.weight"] == pytest.approx(0.01, rel=0.02)
    plain = training.optimizer_of(SMALL, training.built(SMALL, 1), 1e-3)
    assert {group["lr_factor"] for group in plain.param_groups} == {1.0}
    assert named_rate(
        replace(SMALL, sizes={**SMALL.sizes, "hidden_size": 128}, narrower=4.0)
    ) == named_rate(SMALL)


def test_between_rungs_a_rate_loses_what_a_straight_line_says():
    nats = {rate_of(step): loss for step, loss in ((-1, 3.4), (0, 3.0), (1, 3.2))}
    one = _SizedLadder(model=SMALL, nats=nats, parameters=1, unigram_nats=5.0)
    assert (one.best_rate, one.learned) == (0.001, True)
    assert one.lost(0.001 * math.sqrt(2)) == pytest.approx(0.1 / 2)
    assert one.lost(0.001) == 0
    assert one.lost(0.003) is None
    stuck = replace(one, unigram_nats=3.02)
    assert not stuck.learned
    assert stuck.lost(0.001) is None


def test_the_study_as_a_whole(texts, tmp_path):
    """Small, and everything is trained, once."""
    config = replace(study.SCALES["smoke"], text=texts[0], valid=texts[1], device="cpu")
    found = study.run(config, Pieces(tmp_path))
    (model,) = found.data["models"].values()
    assert set(model["nats"]) == {"0.001", "0.002"}
    assert all(nats < math.log(training.PIECES) for nats in model["nats"].values())
    assert model["nats"]["0.002"] < model["nats"]["0.001"]
    assert found.claims == []
    again = Pieces(tmp_path)
    assert study.run(config, again).data == found.data
    assert again.made == []


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"models": (SMALL, SMALL)}, "a name of its own"),
        ({"steps": (1, 1)}, "different"),
        ({"updates": 5}, "at least"),
    ],
)
def test_what_cannot_be_asked(changes, message):
    with pytest.raises(ValueError, match=message):
        _SizedConfig(**changes)
