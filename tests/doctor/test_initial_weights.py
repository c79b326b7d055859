"""Initial weights beside the placement's, and what copies of one block do to a stream."""

from collections.abc import Callable
from statistics import fmean

import pytest
import torch
from torch import nn

from doctor.bugs_values import ALPHA, BETA, RIGHT_DEEPNORM, PackedModel, drawn, glorot
from doctor.scrambled import scrambled
from doctor.test_lint_values import RULES, above_info, patient
from doctor.wired import Model, Stack, post
from normscope.doctor.lint.patient import Patient
from normscope.doctor.observe.examine import examined
from normscope.doctor.result import Finding
from normscope.model import EncoderDecoder, Layout, ModelConfig

RULE = "initialisation-unlike-placement"


def check(of: Patient) -> list[Finding]:
    return list(RULES[RULE].check(of))


def own(
    placement: str,
    initialisation: str = "as-placement",
    change: Callable[[nn.Module], None] | None = None,
) -> Patient:
    torch.manual_seed(0)
    config = ModelConfig(
        placement=placement,
        initialisation=initialisation,
        width=16,
        ffn_width=24,
        heads=2,
        encoder_blocks=4,
        decoder_blocks=4,
    )
    model = EncoderDecoder(config, 20, 20)
    if change is not None:
        change(model)
    scrambled(model)
    layouts = [Layout(torch.tensor(lengths)) for lengths in ([4, 7, 2], [5, 3, 6])]
    source, target = [torch.randint(4, 20, (layout.tokens,)) for layout in layouts]
    stacks, observed = examined(model, (source, layouts[0], target, layouts[1]))
    return Patient(model=model, stacks=stacks, observed=observed, dtype=torch.float32)


@pytest.mark.sampled(one_in=3)
@pytest.mark.parametrize(
    ("placement", "severities"),
    [("deepnorm", ["warning"] * 2), ("t-fixup", ["warning"] * 2), ("post-ln", [])],
)
def test_small_normal_weights(placement, severities):
    """N(0, 0.02²) at width 16 is 0.08 times Glorot's; what needs no particular weights is left
    alone.
    """
    assert [f.severity for f in check(own(placement, "normal-0.02"))] == severities


@pytest.mark.thorough
def test_t_fixup_without_its_scale_and_both_stacks_constants():
    def plain(model: nn.Module) -> None:
        for stack in (model.encoder, model.decoder):
            for linear in (module for module in stack.modules() if isinstance(module, nn.Linear)):
                nn.init.xavier_uniform_(linear.weight)

    assert check(own("t-fixup")) == []
    encoder, decoder = check(own("t-fixup", change=plain))
    assert f"in place of {0.67 * 4**-0.25:.2f}" in encoder.message
    assert f"in place of {36**-0.25:.2f}" in decoder.message


@pytest.mark.parametrize(("factor", "found"), [(1.3, 0), (1 / 1.3, 0), (1.7, 1), (1 / 1.7, 1)])
def test_the_tolerance_is_half_as_much_again(factor, found):
    """A matrix of 16 × 16 strays from the deviation it is drawn at by 4 %, its standard error."""
    gains = glorot(value=factor * BETA, output=BETA, feed_forward=BETA)
    assert len(check(patient(drawn(lambda x, f, norm: norm(ALPHA * x + f(x)), gains)()))) == found


def test_which_projection_is_the_value_is_not_told_by_its_place():
    """Where the values come first, their scale shows which they are."""
    model = RIGHT_DEEPNORM()
    for attention, _ in (block.f for block in model.encoder.blocks):
        attention.query, attention.value = attention.value, attention.query
    # The one that is used as query now has the values' weights: only the place where each is used
    # has changed.
    assert check(patient(model)) == []


def test_trained_weights_are_not_judged():
    model = drawn(
        lambda x, f, norm: norm(ALPHA * x + f(x)), glorot(value=1, output=1, feed_forward=1)
    )()
    assert not patient(model).trained
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    model(torch.tensor([[1, 2, 3]])).logsumexp(-1).mean().backward()
    optimizer.step()
    assert patient(model).trained
    assert check(patient(model)) == []


def test_packed_values_head_by_head_are_found_at_any_width():
    for width in (32, 64):
        assert above_info(check(patient(PackedModel(BETA, by_head=True, width=width)))) == []
        assert len(check(patient(PackedModel(1.0, by_head=True, width=width)))) == 1


class Torchs(nn.Module):
    def __init__(self, *, drawn_anew: bool) -> None:
        super().__init__()
        torch.manual_seed(0)
        layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True, norm_first=True)
        self.embedding = nn.Embedding(24, 16)
        self.inner = nn.TransformerEncoder(
            layer, 3, norm=nn.LayerNorm(16), enable_nested_tensor=False
        )
        for weight in self.inner.parameters() if drawn_anew else ():
            if weight.dim() > 1:
                nn.init.xavier_uniform_(weight)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.inner(self.embedding(tokens))


@pytest.mark.parametrize(("drawn_anew", "severities"), [(False, ["warning"]), (True, [])])
def test_torchs_own_stack_of_copies(drawn_anew, severities):
    found = list(RULES["identical-blocks"].check(patient(scrambled(Torchs(drawn_anew=drawn_anew)))))
    assert [f.severity for f in found] == severities
    assert all("as torch.nn.TransformerEncoder" in f.message for f in found)


def test_one_layer_used_again_is_no_copy():
    shared = Model(lambda: Stack(post, post, blocks=1))
    shared.encoder.blocks = nn.ModuleList(list(shared.encoder.blocks) * 3)
    found = patient(shared)
    assert found.stacks[0].blocks == 3
    assert list(RULES["identical-blocks"].check(found)) == []


@torch.no_grad()
def test_copied_blocks_make_a_stream_grow_faster():
    def growth(copied: bool, seed: int) -> float:
        torch.manual_seed(seed)
        layers = [
            nn.TransformerEncoderLayer(32, 2, 64, dropout=0, norm_first=True) for _ in range(12)
        ]
        # Pre-LN's output is the stream itself.
        return float(
            nn.Sequential(*([layers[0]] * 12 if copied else layers))(torch.randn(8, 2, 32))
            .square()
            .mean()
        )

    copied, distinct = (
        fmean(growth(copied, seed) for seed in range(3)) for copied in (True, False)
    )
    assert copied > 3 * distinct
