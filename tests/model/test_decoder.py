"""GPT-2's decoder under every placement: no token sees a later one, and every weight learns."""

import re
from dataclasses import replace

import pytest
import torch

from normscope.model import DecoderConfig, LanguageModel, Layout
from normscope.placement import registered
from stacks import perturbed

VOCABULARY = 20
LENGTHS = [4, 7, 2]
TOKENS = torch.randint(0, VOCABULARY, (sum(LENGTHS),), generator=torch.Generator().manual_seed(1))


def made(placement: str = "pre-ln", **changes: object) -> LanguageModel:
    torch.manual_seed(0)
    sizes = {"width": 12, "ffn_width": 16, "heads": 3, "blocks": 2, "positions": 8}
    off = {"dropout": 0.0, "attention_dropout": 0.0}
    return LanguageModel(
        DecoderConfig(**{"placement": placement, **sizes, **off, **changes}), VOCABULARY
    )


def logits(model: LanguageModel, tokens: torch.Tensor, lengths: list[int]) -> torch.Tensor:
    return model.logits(model(tokens, Layout(torch.tensor(lengths))))


PLACEMENTS = [
    name for name, placement in registered().items() if "decoder-only" in placement.models
]


def test_most_placements_have_a_decoder() -> None:
    assert len(PLACEMENTS) > 20
    assert {"post-ln", "pre-ln", "gpt2", "ngpt"} <= set(PLACEMENTS)


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_no_token_sees_a_later_one_or_another_sequence_and_every_weight_learns(
    placement: str,
) -> None:
    model = perturbed(made(placement), 2)
    before = logits(model, TOKENS, LENGTHS)
    changed = TOKENS.clone()
    changed[6] = (changed[6] + 1) % VOCABULARY  # third of the second sequence, places 4 to 10
    after = logits(model, changed, LENGTHS)
    same = torch.isclose(before, after, rtol=1e-12, atol=1e-12).all(-1).tolist()
    assert same == [True] * 6 + [False] * 5 + [True] * 2
    before.square().sum().backward()
    still = [name for name, p in model.named_parameters() if p.grad is None or not p.grad.any()]
    # Attention over depth has one entry to choose from in the first sub-layer.
    assert [
        name for name in still if not re.search(r"\.blocks\.0\.attention\.(norm|placed)\.", name)
    ] == []


def test_the_head_is_the_embedding_and_has_no_bias() -> None:
    model = made()
    assert torch.equal(model.output_rows(), model.embedding.weight)
    hidden = torch.randn(3, 12)
    torch.testing.assert_close(model.logits(hidden), hidden @ model.embedding.weight.T)
    # Tokens and positions, 2 norms a block and one behind, 4 + 2 matrices a block.
    block = 4 * (12 * 12 + 12) + (12 * 16 + 16) + (16 * 12 + 12) + 2 * 2 * 12
    assert sum(p.numel() for p in model.parameters()) == 20 * 12 + 8 * 12 + 2 * block + 2 * 12


def test_computing_blocks_again_changes_no_gradient() -> None:
    gradients = []
    for again in (False, True):
        model = made(activation_checkpointing=again, dropout=0.3, attention_dropout=0.2).train()
        torch.manual_seed(5)
        logits(model, TOKENS, LENGTHS).square().sum().backward()
        gradients.append([parameter.grad for parameter in model.parameters()])
    torch.testing.assert_close(gradients[0], gradients[1])


@pytest.mark.parametrize("placement", ["looped", "post-ln", "residual", "hyper-connections"])
def test_looped_blocks_are_as_many_blocks_of_the_same_weights(placement: str) -> None:
    """Constants count blocks: under another placement than `looped` those of 2 blocks stand in the
    longer stack too.
    """
    looped = perturbed(made(placement, loops=3), 2)
    unrolled = made(placement, blocks=6)
    for block in range(6):
        unrolled.decoder.blocks[block] = looped.decoder.blocks[block % 2]
    for part in ("embedding", "head"):
        setattr(unrolled, part, getattr(looped, part))
    unrolled.decoder.placement, unrolled.decoder.start, unrolled.decoder.finish = (
        type(looped.decoder.placement)(replace(looped.decoder.placement.stack, loops=1)),
        looped.decoder.start,
        looped.decoder.finish,
    )
    one, other = (logits(model, TOKENS, LENGTHS) for model in (looped, unrolled))
    torch.testing.assert_close(one, other, rtol=0, atol=0)
    assert sum(p.numel() for p in looped.parameters()) == sum(
        p.numel() for p in made(placement).parameters()
    )


def test_the_branch_scale_of_looped_counts_loops_and_blocks() -> None:
    for blocks, loops in ((2, 1), (4, 3)):
        scale = made("looped", blocks=blocks, loops=loops).decoder.placement.branch_scale
        assert scale == pytest.approx(1 / (loops * blocks**0.5), rel=1e-15)


def test_formulas_that_one_pass_decides_are_not_looped() -> None:
    for placement, message in (("admin", "from one pass"), ("attn-res", "over the depth")):
        with pytest.raises(ValueError, match=message):
            made(placement, loops=2)


def test_sizes_that_do_not_go_together_are_refused() -> None:
    for changes, message in (
        ({"blocks": 0}, "blocks must be at least 1"),
        ({"activation": "swish"}, "got 'swish'"),
        ({"width": 10}, "multiple of heads=3"),
        ({"loops": 0}, "loops must be at least 1"),
        ({"loops": 4, "blocks": 251}, "blocks must be at most 250, got 251"),
    ):
        with pytest.raises(ValueError, match=message):
            made(**changes)
