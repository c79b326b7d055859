"""Attention residuals at work: what each branch is of the first mean that it goes into."""

import pytest
import torch
from torch import Tensor, nn

from doctor.corpus_x_transformers import X_TRANSFORMERS
from normscope.doctor.diagnose import diagnose
from normscope.doctor.observe.examine import examined

WIDTH, TOKENS = 12, 5


class Mixed(nn.Module):
    """Feed-forwards over h = Σ softmax(query · LN(v)) v, written as Kimi team 2026, eq. 2 to 4, has
    it.
    """

    def __init__(self, sublayers: int) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.f = nn.ModuleList(
            nn.Sequential(
                nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 20), nn.GELU(), nn.Linear(20, WIDTH)
            )
            for _ in range(sublayers)
        )
        self.keys = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in range(sublayers + 1))
        self.queries = nn.ParameterList(torch.randn(WIDTH) / 2 for _ in range(sublayers + 1))

    def mean(self, number: int, values: list[Tensor]) -> tuple[Tensor, Tensor]:
        stacked = torch.stack(values)
        weights = (self.keys[number](stacked) @ self.queries[number]).softmax(0)
        return (weights.unsqueeze(-1) * stacked).sum(0), weights

    def forward(self, x: Tensor) -> Tensor:
        values = [x]
        for number, f in enumerate(self.f):
            h, _ = self.mean(number, values)
            values.append(f(h))
        return self.mean(len(self.f), values)[0]


def test_shares_are_taken_with_the_weights_of_the_mean():
    model, x = Mixed(3).double(), torch.randn(2, TOKENS, WIDTH, dtype=torch.float64)
    (stack,), _ = examined(model, x, None)
    assert [str(s.formula) for s in stack.sublayers] == [
        "v1 = feed_forward(norm(mix(x)))",
        "v2 = feed_forward(norm(mix(x, v1)))",
        "v3 = feed_forward(norm(mix(x, v1, v2)))",
    ]
    values = [x]
    with torch.no_grad():
        for number, seen in enumerate(sublayer.measured for sublayer in stack.sublayers):
            h, _ = model.mean(number, values)
            values.append(model.f[number](h))
            after, weights = model.mean(number + 1, values)
            own = weights[-1].unsqueeze(-1) * values[-1]
            squares = own.square().mean(), (after - own).square().mean()
            assert seen.stream_square == pytest.approx(float(h.square().mean()))
            assert seen.branch_square == pytest.approx(float(squares[0]))
            assert seen.sum_square == pytest.approx(float(after.square().mean()))
            assert seen.share == pytest.approx(float(squares[0] / sum(squares)))


class MixedNorms(Mixed):
    """The same over v / RMS(v), for keys and values, as one operation or written out (Inkling 2 of
    transformers).
    """

    def __init__(self, sublayers: int, *, fused: bool) -> None:
        super().__init__(sublayers)
        self.fused = fused

    def mean(self, number: int, values: list[Tensor]) -> tuple[Tensor, Tensor]:
        # Two values of three are one stack inside the other, as where blocks are gathered.
        gathered = (
            torch.cat([torch.stack(values[:-1], 2), values[-1].unsqueeze(2)], 2)
            if values[1:]
            else values[0]
        )
        stacked = gathered if values[1:] else torch.stack(values, 2)
        unit = stacked * (stacked.square().mean(-1, keepdim=True) + 1e-12).rsqrt()
        query = self.queries[number]
        weights = (unit @ query * WIDTH**-0.5).softmax(-1)
        if not self.fused:
            return (weights.unsqueeze(-1) * unit).sum(2), weights.movedim(-1, 0)
        given = query.expand(*unit.shape[:2], 1, WIDTH)
        attended = nn.functional.scaled_dot_product_attention(given, unit, unit, scale=WIDTH**-0.5)
        return attended.unbind(-2)[0], weights.movedim(-1, 0)


@pytest.mark.parametrize("fused", [False, True])
def test_shares_in_a_mean_of_normed_values(fused):
    model, x = (
        MixedNorms(3, fused=fused).double(),
        torch.randn(2, TOKENS, WIDTH, dtype=torch.float64),
    )
    (stack,), _ = examined(model, x, None)
    assert [str(s.formula) for s in stack.sublayers][1:] == [
        "v2 = feed_forward(norm(mix(norm(x), norm(v1))))",
        "v3 = feed_forward(norm(mix(norm(x), norm(v1), norm(v2))))",
    ]
    values = [x]
    with torch.no_grad():
        for number, seen in enumerate(sublayer.measured for sublayer in stack.sublayers):
            values.append(model.f[number](model.mean(number, values)[0]))
            after, weights = model.mean(number + 1, values)
            own = (
                weights[-1].unsqueeze(-1)
                * values[-1]
                / values[-1].square().mean(-1, keepdim=True).sqrt()
            )
            squares = own.square().mean(), (after - own).square().mean()
            assert seen.branch_square == pytest.approx(float(squares[0]))
            assert seen.sum_square == pytest.approx(float(after.square().mean()))
            assert seen.share == pytest.approx(float(squares[0] / sum(squares)))


def test_a_mean_that_depends_on_what_is_mixed_is_no_registered_placement_and_no_mistake():
    case = X_TRANSFORMERS["attn_aggregated_residuals"]
    found = diagnose(case.build(), case.inputs())
    assert {s.placement for s in found.stacks[0].sublayers} == {""}
    assert "mixed-placements" not in [finding.id for finding in found.findings]
