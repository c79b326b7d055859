"""The study of conditioning: what is measured of a training, made-up courses judged, and the smallest scale."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from normscope.model import Layout
from normscope.tasks.language_model import LANGUAGE_MODEL
from normscope_studies.conditioning.courses import (
    SCALES,
    ConditioningConfig,
    Course,
    PlacementCourses,
    run_config,
    stated_spread,
)
from normscope_studies.conditioning.measure import block_spectra, build, followed, recorded_blocks
from normscope_studies.conditioning.study import STUDY, claims
from normscope_studies.engine.pieces import Pieces
from normscope_studies.engine.study import run_study

SMOKE: ConditioningConfig = SCALES["smoke"].config
CONFIG = ConditioningConfig(telling=("post-ln", "pre-ln", "rezero"), peak_lrs=(1e-3,), looks=(1, 100, 300))


def course(spread: list[float], final: float, *, isometry: float = 1.2, finite: bool = True) -> Course:
    looks = len(spread)
    return Course(
        gradient_spread=np.array(spread),
        update_spread=np.full(looks, 1.1),
        isometry=np.full((looks, 2), isometry),
        peak=np.full(looks, 2.0),
        final_nats=final,
        finite=finite,
    )


def placed(name: str, stated: float, courses: list[Course]) -> PlacementCourses:
    return PlacementCourses(placement=name, lr=1e-3, stated=stated, looks=CONFIG.looks, courses=courses)


def made_up() -> dict[str, list[PlacementCourses]]:
    noise = (0.98, 1.0, 1.02)
    return {
        "post-ln": [placed("post-ln", 1.2, [course([1.2, 40 * n, 3.0], 3.5 + n / 10, isometry=0.3) for n in noise])],
        "pre-ln": [placed("pre-ln", 1.5, [course([1.6, 2.0 * n, 1.4], 3.3 + n / 10) for n in noise])],
        "rezero": [placed("rezero", math.nan, [course([math.nan, 1.5 * n, 1.2], 3.9 + n / 10) for n in noise])],
    }


def test_verdicts_are_those_of_the_courses() -> None:
    telling = made_up()
    said = {claim.name: claim for claim in claims(CONFIG, telling, [one for (one,) in telling.values()])}
    assert said["the theory's spread at first"].verdict == "reproduced"
    assert "ReZero" not in said["the theory's spread at first"].found
    assert said["gradients stay as they are stated to start"].conditions == "Pre-LN and ReZero; not Post-LN"
    assert said["Pre-LN is better conditioned than Post-LN throughout"].verdict == "reproduced"
    assert said["Adam's updates are as large in every block"].verdict == "reproduced"
    assert said["blocks stay near an isometry"].conditions == "Pre-LN and ReZero; not Post-LN"
    assert said["the open question, at this size"].conditions == "Pre-LN; not ReZero"
    # Three placements say nothing of a rank correlation.
    assert said["who stays conditioned ends lower"].verdict == "undecided"


def test_where_a_placement_leaves_and_comes_back() -> None:
    one = placed("post-ln", 1.2, [course([1.2, 40.0, 2.0], 3.5)])
    assert (one.left(2.0), one.back(2.0)) == (100, 300)
    still = placed("pre-ln", 1.5, [course([1.6, 2.0, 1.4], 3.5)])
    assert (still.left(2.0), still.back(2.0)) == (None, None)
    assert placed("post-ln", 1.2, [course([1.2, 2.0, 40.0], 3.5)]).back(2.0) is None
    lost = placed("post-ln", 1.2, [course([1.2, 2.0, 2.0], 9.0, finite=False)])
    assert math.isinf(float(lost.worst_spread().mean))
    assert lost.left(2.0) is None


def test_norms_are_those_of_the_update_that_adam_takes() -> None:
    """The first update of Adam moves every entry by the rate, and the gradient is that of the first batch."""
    config = run_config(replace(SMOKE, warmup_updates=1), "pre-ln", 1e-3, 1)
    corpus = LANGUAGE_MODEL.open(config)
    found = followed(config, corpus, [1], products=1, sequences=1)
    model = build(config, corpus)
    batch = LANGUAGE_MODEL.batches(config, corpus)(0)
    batch.loss(batch.run(model)).backward()
    for block, norm, moved in zip(
        model.decoder.blocks, found["gradient_norms"][0], found["update_norms"][0], strict=True
    ):
        weights = [p for name, p in block.named_parameters() if p.ndim == 2]
        squares = sum(float(p.grad.double().square().sum()) for p in weights if p.grad is not None)
        assert norm == pytest.approx(squares**0.5, rel=1e-5)
        entries = sum(p.numel() for p in weights)
        assert moved == pytest.approx(1e-3 * entries**0.5, rel=2e-3)
    assert len(found["valid_nats"]) == SMOKE.updates // SMOKE.validate_every


@pytest.mark.parametrize("placement", ["pre-ln", "residual"])
def test_a_block_s_spectrum_is_that_of_its_whole_jacobian(placement: str) -> None:
    config = run_config(replace(SMOKE, width=8, heads=2, ffn_width=8), placement, 1e-3, 1)
    corpus = LANGUAGE_MODEL.open(config)
    model = build(config, corpus).double()
    tokens_N, layout = torch.tensor([5, 9, 13]), Layout(torch.tensor([3]))
    (first, _) = block_spectra(model, tokens_N, layout, products=64)
    with recorded_blocks(model.decoder) as calls, torch.no_grad():
        model(tokens_N, layout)
    block, state, context = calls[0]
    parts = state if isinstance(state, tuple) else (state,)

    def f(*values: torch.Tensor) -> Any:
        out = block(values if isinstance(state, tuple) else values[0], context)
        return torch.cat(out, -1) if isinstance(out, tuple) else out

    rows = torch.autograd.functional.jacobian(f, parts)
    whole = torch.cat([part.flatten(0, 1).flatten(1) for part in rows], 1)
    assert first is not None
    assert first.largest == pytest.approx(float(torch.linalg.matrix_norm(whole, 2)), rel=1e-6)


def test_a_state_that_grows_has_no_jacobian() -> None:
    config = run_config(SMOKE, "denseformer", 1e-3, 1)
    corpus = LANGUAGE_MODEL.open(config)
    spectra = block_spectra(build(config, corpus), torch.tensor([5, 9]), Layout(torch.tensor([2])), products=1)
    assert spectra == [None, None]


def test_what_the_theory_states_is_measured_before_the_first_update() -> None:
    """At a width of 64, four blocks and the study's text: Peri-LN's and LayerNorm scaling's spreads, well above 1."""
    config = ConditioningConfig(blocks=4, width=64, ffn_width=128, batch_sequences=32)
    for placement in ("peri-ln", "lns"):
        run = run_config(config, placement, 1e-3, 1)
        corpus = LANGUAGE_MODEL.open(run)
        model = build(run, corpus)
        batch = LANGUAGE_MODEL.batches(run, corpus)(0)
        batch.loss(batch.run(model)).backward()
        norms = [
            sum(float(p.grad.square().sum()) for p in block.parameters() if p.ndim == 2 and p.grad is not None) ** 0.5
            for block in model.decoder.blocks
        ]
        stated = stated_spread(config, placement, len(corpus.tokeniser))
        assert stated > 1.7
        assert 1 / 1.4 < max(norms) / min(norms) / stated < 1.4
    assert math.isnan(stated_spread(config, "rezero", 300))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"telling": ("pre-ln",)}, "telling must have post-ln among it"),
        ({"telling": ("post-ln", "t-fixup")}, "t-fixup is not defined for a decoder alone"),
        ({"peak_lrs": (1e-3, 1e-3)}, "peak_lrs: give one or more different values"),
        ({"looks": (2, 300)}, "looks must rise from 1"),
        ({"looks": (1, 400)}, "the last look must not lie behind"),
        ({"warmup_updates": 300}, "warmup_updates must lie between"),
        ({"blocks": 1}, "blocks must be at least 2"),
        ({"stated_factor": 1.0}, "must be above 1"),
    ],
)
def test_values_that_mean_nothing_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ConditioningConfig(**changes)


def test_the_smallest_scale_measures_everything_once(tmp_path: Path) -> None:
    config = replace(SMOKE, seeds=1, updates=2, warmup_updates=1, looks=(1, 2), validate_every=2)
    pieces = Pieces(tmp_path)
    findings, page = run_study(STUDY, config, pieces, command="normscope study conditioning", scale="smoke")
    assert len(pieces.made) == 3
    assert {row["placement"] for row in findings.data["registry"]} == {"post-ln", "pre-ln", "denseformer"}
    assert "well-conditioned throughout training" in page.read_text(encoding="utf-8")
    again = Pieces(tmp_path)
    run_study(STUDY, config, again, command="normscope study conditioning", scale="smoke")
    assert again.made == []
