"""What is measured of attention, and what rules say of its scale, its softmax and its masks."""

import math

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from doctor.attending import (
    HEAD,
    as_t5,
    drawn,
    earlier,
    hiding,
    model,
    normed_at,
    nothing,
    of,
    over,
    scaled,
    unchanged,
)
from doctor.wired import VOCABULARY, Block, F, Model, Stack, pre
from normscope.doctor.diagnose import Diagnosis, diagnose
from normscope.doctor.result import Severity
from normscope.doctor.trace.forward import padding_in

TOKENS = torch.randint(VOCABULARY, (2, 16), generator=torch.Generator().manual_seed(1))
RULES = ("attention-saturated", "attention-scale", "softmax-axis", "attention-mask")


def next_token(logits: Tensor) -> Tensor:
    return functional.cross_entropy(logits[:, :-1].flatten(0, 1), TOKENS[:, 1:].flatten())


def own_token(logits: Tensor) -> Tensor:
    return functional.cross_entropy(logits.flatten(0, 1), TOKENS.flatten())


def judged(built: nn.Module, loss=next_token, inputs=TOKENS) -> Diagnosis:
    return diagnose(built, inputs, loss=loss, advise=False)


def said(diagnosis: Diagnosis) -> list[tuple[str, str, str]]:
    return [
        (one.id, str(one.severity), one.message) for one in diagnosis.findings if one.id in RULES
    ]


@pytest.mark.parametrize("fused", [False, True])
def test_measures_are_those_of_the_formula(fused):
    built = model(drawn(0.5), fused=fused)
    (first, *_) = judged(built).stacks[0].sublayers
    seen, block = first.measured.attention, built.encoder.blocks[0]
    with torch.no_grad():
        x = block.norms[0](built.embedding(TOKENS))
        q, k = (
            linear(x).unflatten(-1, (2, HEAD)).transpose(1, 2)
            for linear in (block.f[0].query, block.f[0].key)
        )
        logits = q @ k.mT / HEAD**0.5
    rows = [logits[..., row, : row + 1] for row in range(7, 16)]
    deviation = torch.stack([row.var(-1, correction=0) for row in rows]).mean().sqrt()
    entropy = torch.stack(
        [-(w := row.softmax(-1)).mul(w.log()).sum(-1) / math.log(row.shape[-1]) for row in rows]
    )
    assert seen.keys == pytest.approx(12)
    assert seen.scale == pytest.approx(HEAD**-0.5)
    assert seen.deviation == pytest.approx(float(deviation), rel=1e-5)
    assert seen.entropy == pytest.approx(float(entropy.mean()), rel=1e-5)
    assert (seen.sees_later, seen.sees_earlier) == (0, 1)


@pytest.mark.sampled(one_in=3)
@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("change", [unchanged, as_t5, normed_at(HEAD**-0.5), drawn(0.25)])
def test_right_attention_is_silent(change, fused):
    assert said(judged(model(change, fused=fused))) == []


@pytest.mark.sampled(one_in=3)
@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize(
    ("change", "rule", "severity", "told"),
    [
        (
            scaled(1.0),
            "attention-scale",
            "warning",
            "in all 4 attentions q·k of heads of width 8 is multiplied by 1,",
        ),
        (scaled(8**0.5), "attention-scale", "warning", "multiplied by 2.828"),
        (scaled(1 / 8), "attention-scale", "info", "this is 1/d, as µP has it"),
        (scaled(2**-0.5), "attention-scale", "warning", "1/√H of the number of heads"),
        (scaled(1 / 4), "attention-scale", "warning", "1/√d of the stream, not of a head"),
        (
            of(2, scaled(1.0)),
            "attention-scale",
            "warning",
            "(block 3) q·k is multiplied by 1, in most others by 0.3536",
        ),
        (
            normed_at(2.0),
            "attention-saturated",
            "warning",
            "q·k is multiplied by 2, not by 1/√8 = 0.3536",
        ),
        (drawn(1.0), "attention-saturated", "warning", "for their matrices are drawn large"),
        (
            hiding(nothing),
            "attention-mask",
            "info",
            "cannot tell which one: nothing knows tokens' places",
        ),
        (
            of(1, hiding(nothing)),
            "attention-mask",
            "error",
            "in 1 of 4 attentions (block 2) 100% of the tokens",
        ),
        (
            hiding(earlier),
            "attention-mask",
            "error",
            "in all 4 attentions tokens look at later ones and at no earlier",
        ),
    ],
)
def test_what_is_wrong_is_named(change, rule, severity, told, fused):
    ((found, worst, message),) = said(judged(model(change, fused=fused)))
    assert (found, worst) == (rule, severity)
    assert told in message


@pytest.mark.parametrize(("tokens", "told"), [(12, 1), (13, 0)])
def test_a_scale_that_is_of_the_number_of_tokens(tokens, told):
    found = judged(
        model(scaled(12**-0.5)),
        inputs=TOKENS[:, :tokens],
        loss=lambda logits: logits.square().mean(),
    )
    assert sum("1/√T of the tokens" in one.message for one in found.findings) == told


@pytest.mark.parametrize(
    ("axis", "told"), [(-2, "2 (queries)"), (1, "1 (heads)"), (0, "0 (sequences)")]
)
def test_a_softmax_over_another_axis(axis, told):
    ((rule, severity, message),) = said(judged(model(over(axis))))
    assert (rule, severity) == ("softmax-axis", "error")
    assert f"dimension {told} of (2, 2, 16, 16), with keys in dimension 3" in message


def test_an_encoder_may_look_everywhere_where_no_loss_asks_for_the_next_token():
    assert said(judged(model(hiding(nothing)), own_token)) == []
    assert said(judged(model(hiding(nothing)), None)) == []
    assert judged(model()).measured.predicts_next
    assert not judged(model(), own_token).measured.predicts_next


def test_attention_that_is_told_to_look_everywhere_may_have_the_wrong_loss_at_most():
    built = model(hiding(nothing))
    for block in built.encoder.blocks:
        block.f[0].causal = False
    ((rule, severity, _),) = said(judged(built))
    assert (rule, severity) == ("attention-mask", "info")


def lost(x: Tensor, f: F, norm: F) -> Tensor:
    return f(norm(x))


@pytest.mark.sampled(one_in=5)
@pytest.mark.parametrize("length", [9, 16])
@pytest.mark.parametrize("places", [(), (1,), (0, 1, 2)])
def test_cross_attention_without_its_sum(places, length):
    """Where source and target are as long, the memory has the stream's shape, and is still no way
    around it.
    """
    blocks = [Block((pre, lost if place in places else pre, pre)) for place in range(3)]
    built = Model(lambda: Stack(pre, pre, final=1), lambda: Stack(blocks=blocks, final=1))
    everything = judged(built, None, (TOKENS, TOKENS.flip(1)[:, :length])).findings
    found = [one for one in everything if one.severity != Severity.INFO]
    assert [(one.id, str(one.severity)) for one in found] == [("lost-residual", "error")] * bool(
        places
    )
    assert all("cross-attention takes the place of the stream" in one.message for one in found)
    assert all(f": {len(places)} of the sums" in one.message for one in found)


class Padded(nn.Module):
    """A Pre-LN model that hands a mask on to its attention, or what it makes of it."""

    def __init__(self, read) -> None:
        super().__init__()
        self.inner, self.read = model(), read

    def forward(self, tokens: Tensor, attention_mask: Tensor) -> Tensor:
        for block in self.inner.encoder.blocks:
            block.f[0].hides = lambda query, key: self.read(attention_mask)[:, None, None].expand(
                -1, 1, len(key), -1
            )
        return self.inner(tokens)


@pytest.mark.parametrize(
    ("read", "told"),
    [
        (lambda mask: mask == 0, ""),
        (lambda mask: mask != mask, "tokens give up to 0.31 of their weight to padding"),
        (lambda mask: mask == 1, "the mask is inverted"),
    ],
)
def test_padding_is_hidden(read, told):
    mask = (torch.arange(16) < torch.tensor([[10], [12]])).long()
    found = said(judged(Padded(read), None, {"tokens": TOKENS, "attention_mask": mask}))
    assert [(rule, severity) for rule, severity, _ in found] == [
        ("attention-mask", "warning")
    ] * bool(told)
    assert all(told in message for *_, message in found)


def test_beside_a_mask_of_a_known_name_no_other_one_is_of_padding():
    """As Qwen2-VL is given one that tells images, all of one index, from text."""
    ids = torch.tensor([[5, 9, 9, 9, 6, 7]])
    kinds = (ids == 9).int()
    assert padding_in({"ids": ids, "kinds": kinds}, False).keys() == {"attention"}
    whole = torch.ones_like(ids)
    assert padding_in({"ids": ids, "kinds": kinds, "attention_mask": whole}, False) == {}
