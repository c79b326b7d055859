"""Each term of an observed formula knows the value that it stands for, and the gains that it takes
for a norm's own.
"""

import pytest
import torch
from torch import Tensor, nn

from doctor.test_observe import TOKENS, WIDTH, Written, post_scaled, pre
from normscope.doctor.find.segments import sum_of
from normscope.doctor.find.terms import Term
from normscope.doctor.identify.stacks import as_stacks, streams_in
from normscope.doctor.observe.examine import examined
from normscope.doctor.observe.streams import measured_stacks
from normscope.doctor.predict import _RecipeReading


class HandWrittenNorm(nn.Module):
    """x / RMS(x) · gain, each step an operation of its own; the gain's signs alternate, so that its
    mean is 0.
    """

    def __init__(self, size: float) -> None:
        super().__init__()
        signs = torch.tensor([1.0, -1.0]).repeat(WIDTH // 2)
        self.weight = nn.Parameter(size * signs)

    def forward(self, x: Tensor) -> Tensor:
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) * self.weight


def with_gains(size: float) -> Written:
    model = Written(pre)
    model.norms = nn.ModuleList(HandWrittenNorm(size) for _ in range(4)).double()
    return model


def tokens() -> Tensor:
    return torch.randn(
        3, TOKENS, WIDTH, generator=torch.Generator().manual_seed(1), dtype=torch.float64
    )


def outputs_of(model: Written, x: Tensor) -> dict[nn.Module, Tensor]:
    """What norms and branches give in a pass that nobody records."""
    found: dict[nn.Module, Tensor] = {}
    handles = [
        module.register_forward_hook(lambda module, _, output: found.update({module: output}))
        for module in (*model.norms, *model.branches)
    ]
    model(x)
    for handle in handles:
        handle.remove()
    return found


@pytest.mark.parametrize("join", [pre, post_scaled, None])
def test_norms_branches_and_sums_stand_for_what_the_model_computes(join):
    model = with_gains(1.5) if join is None else Written(join)
    x = tokens()
    expected = outputs_of(model, x)
    sums = [step[3] for step in model.steps]
    graph, streams = streams_in(model, x)
    (stack,) = measured_stacks(graph, streams, as_stacks(streams))

    def value(term: Term) -> Tensor:
        return graph.values[term.at].tensor.reshape(x.shape)

    assert len(stack.sublayers) == 4
    for n, sublayer in enumerate(stack.sublayers):
        formula = sublayer.formula
        norms = [term for term in formula.segment.terms if term.kind == "norm"]
        assert [value(norm).equal(expected[model.norms[n]]) for norm in norms] == [True]
        assert value(formula.branch).equal(expected[model.branches[n]])
        total = sum_of(formula.segment, formula.branch)
        assert total is not None
        assert value(total).equal(sums[n])
        assert sublayer.measured.place is not None
        assert sublayer.measured.place.sum == total.at


def test_a_gain_behind_a_norm_keeps_its_mean_and_its_root_mean_square():
    _, (stream,) = streams_in(with_gains(1.5), tokens())
    for branch in stream.branches:
        (gain,) = stream.term(branch.reads[0]).gains
        assert (gain.value, gain.size) == (0.0, pytest.approx(1.5, rel=1e-12))
    # One within the norm's own operation is the norm's.
    model = Written(pre)
    _, (stream,) = streams_in(model, tokens())
    for branch, norm in zip(stream.branches, model.norms, strict=True):
        read = stream.term(branch.reads[0])
        assert read.gains == ()
        assert read.norm is not None
        assert read.norm.gain == pytest.approx(norm.weight.square().mean().sqrt().item(), rel=1e-12)


def test_theory_reads_a_gain_by_its_root_mean_square():
    """Gains whose mean is 0 carry as much as LayerNorm's of one sign, whose centring leaves most of
    a random stream.
    """
    found = []
    for model in (with_gains(1.0), with_gains(3.0), Written(pre)):
        for norm in model.norms:
            if isinstance(norm, nn.LayerNorm):
                nn.init.constant_(norm.weight, 3.0)
        (stack,), _ = examined(model, tokens())
        assert stack.recipe is not None
        reading = _RecipeReading(stack.recipe, None)
        found.append(
            [
                reading.values[term].one - reading.values[stack.recipe.source].one
                for term in stack.recipe.streams
            ]
        )
    plain, large, by_torch = found
    assert large[-1] > 2 * plain[-1] > 0
    assert by_torch == pytest.approx(large, rel=0.2)
