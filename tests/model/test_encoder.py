"""BERT's encoder under every placement: sequences on their own, initial weights, gradients to every
weight.
"""

import math
import re

import pytest
import torch
from torch import Tensor

from normscope.model import EncoderConfig, Layout, MaskedEncoder
from normscope.placement import registered
from stacks import perturbed

VOCABULARY = 20
LENGTHS = [4, 7, 2]
GENERATOR = torch.Generator().manual_seed(1)
TOKENS = torch.randint(0, VOCABULARY, (sum(LENGTHS),), generator=GENERATOR)
SEGMENTS = torch.randint(0, 2, (sum(LENGTHS),), generator=GENERATOR)


def made(placement: str = "post-ln", **changes: object) -> MaskedEncoder:
    torch.manual_seed(0)
    sizes = {"width": 12, "ffn_width": 16, "heads": 3, "blocks": 2, "positions": 8}
    off = {"dropout": 0.0, "attention_dropout": 0.0}
    return MaskedEncoder(
        EncoderConfig(**{"placement": placement, **sizes, **off, **changes}), VOCABULARY
    )


def judged(
    model: MaskedEncoder, tokens: Tensor, segments: Tensor, lengths: list[int]
) -> tuple[Tensor, Tensor]:
    """Logits of every token, and of every pair."""
    layout = Layout(torch.tensor(lengths))
    hidden = model(tokens, segments, layout)
    return model.logits(hidden), model.next_sentence(model.pooled(hidden, layout))


PLACEMENTS = [
    name for name, placement in registered().items() if "encoder-only" in placement.models
]


def test_most_placements_have_an_encoder() -> None:
    assert len(PLACEMENTS) > 20
    assert {"post-ln", "pre-ln", "deepnorm", "residual"} <= set(PLACEMENTS)


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_sequences_of_a_batch_do_not_see_each_other_and_every_weight_learns(placement: str) -> None:
    model = perturbed(made(placement), 2)
    tokens, pairs = judged(model, TOKENS, SEGMENTS, LENGTHS)
    alone = [
        judged(model, t, s, [len(t)])
        for t, s in zip(TOKENS.split(LENGTHS), SEGMENTS.split(LENGTHS), strict=True)
    ]
    close = {"rtol": 1e-10, "atol": 1e-10}
    torch.testing.assert_close(tokens, torch.cat([one for one, _ in alone]), **close)
    torch.testing.assert_close(pairs, torch.cat([one for _, one in alone]), **close)
    (tokens.square().sum() + pairs.square().sum()).backward()
    still = [name for name, p in model.named_parameters() if p.grad is None or not p.grad.any()]
    # Attention over depth has one entry to choose from in the first sub-layer.
    assert [
        name for name in still if not re.search(r"\.blocks\.0\.attention\.(norm|placed)\.", name)
    ] == []


def test_every_token_sees_both_sides() -> None:
    model = perturbed(made(), 2)
    before, _ = judged(model, TOKENS, SEGMENTS, LENGTHS)
    changed = TOKENS.clone()
    changed[5] = (changed[5] + 1) % VOCABULARY  # in the second sequence, places 4 to 10
    after, _ = judged(model, changed, SEGMENTS, LENGTHS)
    assert ((before != after).any(-1)).tolist() == [False] * 4 + [True] * 7 + [False] * 2
    swapped, _ = judged(model, TOKENS, 1 - SEGMENTS, LENGTHS)
    assert (before != swapped).any(-1).all()


@pytest.mark.parametrize("placement", ["post-ln", "pre-ln"])
def test_initial_weights_are_bert_s(placement: str) -> None:
    model = made(placement, width=96, ffn_width=128, positions=64)
    drawn = 0
    for name, parameter in model.named_parameters():
        if name.endswith("bias"):
            assert not parameter.any(), name
        elif "norm" in name:
            assert bool((parameter == 1).all()), name
        else:
            drawn += 1
            values = parameter.detach()
            deviation = 0.02 * 5 / math.sqrt(2 * parameter.numel())
            assert abs(float(values.std()) - 0.02) < deviation, name
            assert abs(float(values.mean())) < 5 * 0.02 / math.sqrt(parameter.numel()), name
    assert drawn == 3 + 2 * 6 + 3  # tables, matrices of two blocks, heads


def test_computing_blocks_again_changes_no_gradient() -> None:
    gradients = []
    for again in (False, True):
        model = made(activation_checkpointing=again, dropout=0.3, attention_dropout=0.2).train()
        torch.manual_seed(5)
        tokens, pairs = judged(model, TOKENS, SEGMENTS, LENGTHS)
        (tokens.square().sum() + pairs.square().sum()).backward()
        gradients.append([parameter.grad for parameter in model.parameters()])
    torch.testing.assert_close(gradients[0], gradients[1])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"blocks": 0}, "blocks must be at least 1, got 0"),
        ({"positions": 0}, "positions must be at least 1"),
        ({"heads": 5}, "width=12 must be even and a multiple of heads=5"),
        (
            {"activation": "swish"},
            "activation must be one of relu, gelu, gelu-tanh, swiglu, geglu, geglu-tanh, got "
            "'swish'",
        ),
        ({"norm_epsilon": 0.0}, "norm_epsilon must be as-placement or lie between 0 and 1"),
        ({"dropout": 1.0}, r"dropout must lie in \[0, 1\)"),
        ({"placement": "sideways"}, "unknown placement 'sideways'"),
        ({"initialisation": "ones"}, "initialisation must be one of as-placement"),
    ],
)
def test_sizes_that_do_not_go_together_are_refused(
    changes: dict[str, object], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        made(**changes)
