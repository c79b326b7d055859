"""The study of a layer's Jacobian: autograd against the paper's own matrices, and verdicts that
turn.
"""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from normscope_studies.engine.pieces import Pieces
from normscope_studies.engine.study import run_study
from normscope_studies.layer_jacobian.measure import (
    SUBLAYERS,
    LayerJacobianConfig,
    sublayer_jacobians,
)
from normscope_studies.layer_jacobian.study import STUDY, claims
from normscope_studies.theory.corrected import residual_jacobian_norm
from normscope_studies.theory.simulation import drawn, square_encoder

SMALL = LayerJacobianConfig(blocks=(1, 3), width=12, tokens=3, seeds=2)
PAPERS, OURS = (
    "Appendix F, Pre-LN: the Jacobian of a layer",
    "Corrected, Pre-LN: the Jacobian of a layer",
)


def norm_jacobian(x_D: torch.Tensor) -> torch.Tensor:
    """Eq. (28), of column vectors, with the norm's ε."""
    width = len(x_D)
    y = x_D - x_D.mean()
    variance = y.square().mean() + 1e-5
    centre = torch.eye(width, dtype=x_D.dtype) - 1 / width
    return (centre - torch.outer(y, y) / (width * variance)) / variance.sqrt()


def test_jacobians_are_those_of_eq_63_and_64() -> None:
    """Block matrices of I, W_V / n, W₂ D W₁ and the norm's Jacobian, of the first block."""
    width, tokens = SMALL.width, SMALL.tokens
    stack = drawn("pre-ln", square_encoder(SMALL.blocks[-1], width), "theory", 4).double()
    x = torch.randn(tokens, width, dtype=torch.float64)
    attention, feed_forward = stack.blocks[0].sublayers()
    value = dict(attention.f.matrices())["value"].weight.detach()
    first, second = (dict(feed_forward.f.matrices())[name] for name in ("ffn_in", "ffn_out"))

    def normed(rows: torch.Tensor) -> torch.Tensor:
        y = rows - rows.mean(1, keepdim=True)
        return y / (y.square().mean(1, keepdim=True) + 1e-5).sqrt()

    identity = torch.eye(tokens * width, dtype=torch.float64)
    of_attention = identity.clone()
    for i in range(tokens):
        for j in range(tokens):
            part = value @ norm_jacobian(x[j]) / tokens
            of_attention[i * width : (i + 1) * width, j * width : (j + 1) * width] += part
    between = x + (normed(x) @ value.T).mean(0)
    of_feed_forward = identity.clone()
    for i in range(tokens):
        at = slice(i * width, (i + 1) * width)
        passed = (normed(between)[i] @ first.weight.T > 0).double().detach()
        inner = first.weight @ norm_jacobian(between[i])
        of_feed_forward[at, at] += (second.weight @ (passed[:, None] * inner)).detach()
    found = sublayer_jacobians(SMALL, 4)
    expected = {"attention": (x, of_attention), "feed_forward": (between, of_feed_forward)}
    for name, (read, matrix) in expected.items():
        assert found[name]["power"][0] == pytest.approx(float(read.square().mean()), rel=1e-9)
        norm = float(torch.linalg.matrix_norm(matrix, 2))
        assert found[name]["norm"][0] == pytest.approx(norm, rel=1e-6)
        gain = float(matrix.square().sum() / len(matrix)) ** 0.5
        assert found[name]["gain"][0] == pytest.approx(gain, rel=1e-6)
        assert len(found[name]["norm"]) == 2


def test_seeds_differ_and_a_seed_does_not() -> None:
    assert sublayer_jacobians(SMALL, 1) == sublayer_jacobians(SMALL, 1)
    assert sublayer_jacobians(SMALL, 1) != sublayer_jacobians(SMALL, 2)


def made_up(*, excess: float = 1.0, powers: tuple[float, ...] = (10.0, 50.0, 400.0)) -> dict:
    """By how many times what is predicted the norms exceed 1, at these powers."""
    noise = 1 + 1e-3 * np.random.default_rng(0).standard_normal((4, len(powers)))
    found = {}
    for name in SUBLAYERS:
        norms = np.array([residual_jacobian_norm(name, power=q) for q in powers])
        found[name] = {
            "power": np.array(powers) * np.ones_like(noise),
            "norm": 1 + excess * (norms - 1) * noise,
            "gain": np.ones_like(noise),
        }
    return found


@pytest.mark.parametrize(
    ("changes", "papers", "ours"),
    [
        ({}, "contradicted", "reproduced"),
        ({"powers": (300.0, 400.0, 500.0)}, "reproduced", "reproduced"),
        ({"excess": 0.1}, "reproduced", "contradicted"),
        ({"excess": 1.2}, "contradicted", "contradicted"),
    ],
)
def test_verdicts_turn_with_the_norms(changes: dict, papers: str, ours: str) -> None:
    found = {claim.name: claim for claim in claims((6, 48, 192), made_up(**changes))}
    assert {name: claim.verdict for name, claim in found.items()} == {PAPERS: papers, OURS: ours}
    if not changes:
        assert found[PAPERS].conditions.endswith(
            "but attention, block 192 and feed-forward, block 192"
        )
    assert "from q = 205 for attention and 177 for feed-forward" in found[OURS].found


def test_from_measurement_to_page(tmp_path) -> None:
    pieces = Pieces(tmp_path)
    found, page = run_study(STUDY, SMALL, pieces, command="normscope study layer-jacobian")
    assert pieces.made == ["seed-1", "seed-2"]
    data = json.loads((tmp_path / "results.json").read_text("utf-8"))
    assert data["blocks"] == [1, 3]
    norms = [sublayer_jacobians(SMALL, seed)["attention"]["norm"] for seed in (1, 2)]
    assert data["sublayers"]["attention"]["norm"]["mean"] == pytest.approx(
        np.mean(norms, axis=0), rel=1e-5
    )
    assert len(data["sublayers"]["feed_forward"]["predicted_norm"]) == 2
    assert [figure.name for figure in found.figures] == ["jacobians"]
    assert "The Jacobian of one layer" in page.read_text("utf-8")
    more = Pieces(tmp_path)
    run_study(STUDY, replace(SMALL, seeds=3), more, command="")
    assert more.made == ["seed-3"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"blocks": ()}, "blocks: give one or more"),
        ({"blocks": (3, 1)}, "blocks must be positive and rise"),
        ({"width": 3}, "width must be at least 4"),
        ({"tokens": 0}, "tokens must be at least 1"),
        ({"seeds": 1}, "seeds must be at least 2"),
    ],
)
def test_settings_that_it_cannot_take(change: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        replace(SMALL, **change)
