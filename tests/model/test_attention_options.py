"""Positions, windows, caps, heads and norms of attention: against plain loops, other libraries,
decoding by steps.
"""

import dataclasses
from typing import Any

import pytest
import torch
from hypothesis import given, strategies as st
from torch import Tensor, nn

from kinds import examples
from normscope.model import (
    AttentionConfig,
    Cache,
    DecoderConfig,
    EncoderDecoder,
    LanguageModel,
    Layout,
    ModelConfig,
)
from normscope.model.context import Context
from normscope.model.layout import with_heads
from normscope.model.scores import Rotary, slopes
from normscope.model.sublayers import Attention
from normscope.placement import Site, StackShape
from stacks import perturbed

WIDTH, HEADS = 16, 4
LENGTHS = [7, 3, 5]


def attention(
    *, kind: str = "decoder", block: int = 1, positions: str = "none", **changes: Any
) -> Attention:
    config = AttentionConfig(**changes)
    shape = with_heads(
        StackShape(kind=kind, width=WIDTH, heads=HEADS, encoder_blocks=2, decoder_blocks=2), config
    )
    torch.manual_seed(3)
    made = Attention(
        Site(kind="attention", block=block, stack=shape),
        config,
        position_encoding=positions,
        make_norm=lambda width: nn.RMSNorm(width, eps=1e-6),
    ).double()
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.add_(0.3 * torch.randn(parameter.shape, dtype=torch.float64))
    return made.eval()


def x_ND(layout: Layout) -> Tensor:
    return torch.randn(
        layout.tokens, WIDTH, dtype=torch.float64, generator=torch.Generator().manual_seed(1)
    )


def by_loops(
    module: Attention, x_ND: Tensor, *, causal: bool, config: AttentionConfig, positions: str
) -> Tensor:
    """One sentence, one query and one head at a time, from the papers."""
    length, width = len(x_ND), module.query.weight.shape[0] // module.heads
    each = module.heads // module.key_value_heads
    query, key, value = (
        p(x_ND).view(length, -1, width) for p in (module.query, module.key, module.value)
    )
    if config.query_key_norm != "none":
        norms = (module.query_norm, module.key_norm)
        sizes = (
            (query, key)
            if config.query_key_norm == "per-head"
            else (query.flatten(1), key.flatten(1))
        )
        query, key = (
            norm(size).view(length, -1, width) for norm, size in zip(norms, sizes, strict=True)
        )
    if positions == "rotary":
        query, key = turned(query, config), turned(key, config)
    falling = slopes(module.heads) if positions == "alibi" else torch.zeros(module.heads)
    rows = []
    for t in range(length):
        heads = []
        for head in range(module.heads):
            scores = []
            for s in range(length):
                score = query[t, head] @ key[s, head // each] / width**0.5
                if config.soft_cap != "none":
                    score = config.soft_cap * torch.tanh(score / config.soft_cap)
                hidden = causal and s > t
                hidden |= config.window_tokens != "none" and abs(t - s) >= config.window_tokens
                scores.append(
                    torch.full_like(score, -torch.inf)
                    if hidden
                    else score - falling[head] * abs(t - s)
                )
            weights = torch.stack(scores).softmax(0)
            heads.append(weights @ value[:, head // each])
        rows.append(torch.cat(heads))
    return module.output(torch.stack(rows))


def turned(x_THK: Tensor, config: AttentionConfig) -> Tensor:
    """Each pair of features as a complex number times e^(i angle)."""
    rotated = int(x_THK.shape[-1] * config.rotary_share)
    pairs = torch.complex(x_THK[..., : rotated // 2], x_THK[..., rotated // 2 : rotated])
    frequency = config.rotary_base ** (-torch.arange(0, rotated, 2, dtype=torch.float64) / rotated)
    angle = torch.arange(len(x_THK), dtype=torch.float64)[:, None, None] * frequency
    pairs = pairs * torch.polar(torch.ones_like(angle), angle)
    return torch.cat([pairs.real, pairs.imag, x_THK[..., rotated:]], -1)


OPTIONS: dict[str, tuple[str, dict[str, Any]]] = {
    "rotary": ("rotary", {"rotary_base": 50.0}),
    "rotary, half of a head": ("rotary", {"rotary_share": 0.5}),
    "alibi": ("alibi", {}),
    "window": ("none", {"window_tokens": 3}),
    "soft cap": ("none", {"soft_cap": 0.7}),
    "fewer heads of keys": ("none", {"key_value_heads": 2}),
    "one head of keys, wider heads": ("none", {"key_value_heads": 1, "head_width": 6}),
    "norms by head": ("none", {"query_key_norm": "per-head"}),
    "norms of all heads": ("none", {"query_key_norm": "whole", "key_value_heads": 2}),
    "all of them": (
        "rotary",
        {
            "key_value_heads": 2,
            "head_width": 6,
            "query_key_norm": "per-head",
            "soft_cap": 0.9,
            "window_tokens": 2,
        },
    ),
    "alibi with a window and a cap": ("alibi", {"window_tokens": 4, "soft_cap": 2.0}),
}


def test_padding_beyond_a_window_leaves_all_gradients_finite() -> None:
    """A place of padding that sees no token would have weights that are no numbers."""
    module, layout = attention(window_tokens=2), Layout(torch.tensor([9, 1]))
    x = x_ND(layout).requires_grad_()
    module(x, Context(layout=layout), {}).square().sum().backward()
    assert x.grad is not None
    assert x.grad.isfinite().all()
    assert all(parameter.grad.isfinite().all() for parameter in module.parameters())


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("option", OPTIONS)
def test_packed_sentences_are_attended_as_the_papers_write_it(option: str, causal: bool) -> None:
    positions, changes = OPTIONS[option]
    module, layout = attention(positions=positions, **changes), Layout(torch.tensor(LENGTHS))
    x = x_ND(layout)
    wanted = [
        by_loops(
            module, part, causal=causal, config=AttentionConfig(**changes), positions=positions
        )
        for part in x.split(LENGTHS)
    ]
    # Angles are float32, as other libraries have them.
    tolerance = 1e-6 if positions == "rotary" else 1e-12
    made = module(x, Context(layout=layout, causal=causal), {})
    torch.testing.assert_close(made, torch.cat(wanted), rtol=tolerance, atol=tolerance)


def test_the_window_is_of_the_first_block_and_not_of_the_second() -> None:
    config = AttentionConfig(window_tokens=3, windowed_blocks="odd")
    assert [config.window(block) for block in (1, 2, 3, 4)] == [3, None, 3, None]
    assert [AttentionConfig(window_tokens=3).window(block) for block in (1, 2)] == [3, 3]
    assert AttentionConfig().window(1) is None


def test_rotary_scores_depend_on_the_distance_alone() -> None:
    rotary = Rotary(8, 100.0, 1.0).double()
    query, key = torch.randn(
        2, 1, 1, 9, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(1)
    )
    early = rotary(query, 0, 9) @ rotary(key, 0, 9).transpose(-1, -2)
    late = rotary(query, 200, 9) @ rotary(key, 200, 9).transpose(-1, -2)
    torch.testing.assert_close(early, late, rtol=1e-5, atol=1e-5)


def test_part_of_a_head_is_turned_as_gpt_neox_turns_it() -> None:
    neox = pytest.importorskip(
        "transformers.models.gpt_neox.modeling_gpt_neox", reason="needs transformers"
    )
    rotary = Rotary(8, 10_000.0, 0.25)
    query, key = torch.randn(2, 1, 2, 6, 8, generator=torch.Generator().manual_seed(1))
    cosines, sines = rotary.cosines_PR[None, :6], rotary.sines_PR[None, :6]
    for ours, theirs in zip(
        (query, key), neox.apply_rotary_pos_emb(query, key, cosines, sines), strict=True
    ):
        torch.testing.assert_close(rotary(ours, 0, 6), theirs, rtol=0, atol=1e-7)


@pytest.mark.parametrize("heads", [1, 2, 3, 8, 12, 20])
def test_slopes_are_those_of_bloom(heads: int) -> None:
    bloom = pytest.importorskip(
        "transformers.models.bloom.modeling_bloom", reason="needs transformers"
    )
    theirs = bloom.build_alibi_tensor(torch.ones(1, 2), heads, torch.float32)
    torch.testing.assert_close(slopes(heads), theirs[:, 0, 1])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"key_value_heads": 3}, "heads=4 must be a multiple of attention.key_value_heads=3"),
        ({"key_value_heads": 0}, "attention.key_value_heads must be at least 1, got 0"),
        ({"window_tokens": 0}, "attention.window_tokens must be at least 1"),
        ({"soft_cap": 0.0}, "attention.soft_cap must be above 0"),
        ({"rotary_base": 1.0}, "attention.rotary_base must be above 1"),
        ({"rotary_share": 1.5}, "attention.rotary_share must lie above 0"),
        ({"rotary_share": 0.3}, "turn pairs of features, and 0.3 of a head's 4 are 1"),
        ({"query_key_norm": "by-head"}, "query_key_norm must be one of none, per-head, whole"),
    ],
)
def test_values_that_do_not_go_together_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        DecoderConfig(
            width=WIDTH,
            heads=HEADS,
            ffn_width=8,
            blocks=1,
            position_encoding="rotary",
            attention=AttentionConfig(**changes),
        )


MODELS = st.builds(
    dict,
    placement=st.sampled_from(
        ["pre-ln", "post-ln", "olmo-2", "hybrid-norm", "normformer", "mhc", "attn-res-block"]
    ),
    norm=st.sampled_from(["as-placement", "rms-norm"]),
    position_encoding=st.sampled_from(["sinusoidal", "rotary", "alibi", "none"]),
    activation=st.sampled_from(["relu", "gelu", "swiglu", "geglu-tanh"]),
    biases=st.sampled_from(["all", "query-key-value", "none"]),
    attention=st.builds(
        AttentionConfig,
        key_value_heads=st.sampled_from(["as-heads", 1, 2]),
        head_width=st.sampled_from(["as-width", 6]),
        query_key_norm=st.sampled_from(["none", "per-head", "whole"]),
        soft_cap=st.sampled_from(["none", 1.5]),
        window_tokens=st.sampled_from(["none", 2, 4]),
        windowed_blocks=st.sampled_from(["all", "odd"]),
        rotary_base=st.just(100.0),
    ),
)


@examples(40)
@given(
    common=MODELS,
    output=st.sampled_from(["tied", "untied"]),
    logit_soft_cap=st.sampled_from(["none", 3.0]),
    embedding_scale=st.sampled_from(["none", "root-width"]),
)
def test_a_language_model_decodes_by_steps_what_it_computes_at_once(
    common: dict[str, Any], output: str, logit_soft_cap: Any, embedding_scale: str
) -> None:
    config = DecoderConfig(
        width=WIDTH,
        heads=HEADS,
        ffn_width=12,
        blocks=2,
        positions=32,
        dropout=0.0,
        attention_dropout=0.0,
        output=output,
        logit_soft_cap=logit_soft_cap,
        embedding_scale=embedding_scale,
        **common,
    )
    model = perturbed(LanguageModel(config, 11), 1).double().eval()
    tokens_BT = torch.randint(11, (2, 9), generator=torch.Generator().manual_seed(5))
    with torch.no_grad():
        layout = Layout(torch.tensor([9, 9]))
        at_once = model.logits(model(tokens_BT.flatten(), layout)).view(2, 9, 11)
        cache, first = (
            Cache(None, Layout(torch.tensor([1, 1]))),
            torch.zeros(2, 1, dtype=torch.int64),
        )
        steps = [model.logits(model.step(tokens_BT[:, t : t + 1], first, cache)) for t in range(9)]
    torch.testing.assert_close(torch.stack(steps, 1), at_once, rtol=1e-9, atol=1e-9)


@examples(25)
@given(common=MODELS)
def test_beams_that_move_keep_their_positions(common: dict[str, Any]) -> None:
    """Rows change places between steps and the pool of keys is filled beyond its first size."""
    config = ModelConfig(
        width=WIDTH,
        heads=HEADS,
        ffn_width=12,
        encoder_blocks=1,
        decoder_blocks=2,
        dropout=0.0,
        **common,
    )
    model = perturbed(EncoderDecoder(config, 11, 11), 1).double().eval()
    generator = torch.Generator().manual_seed(7)
    source_layout = Layout(torch.tensor([4, 2]))
    source = torch.randint(2, 11, (source_layout.tokens,), generator=generator)
    rows, steps = 5, 16
    texts = torch.zeros(2, rows, 0, dtype=torch.int64)
    with torch.no_grad():
        memory = model.encode(source, source_layout)
        cache = Cache(memory, source_layout)
        for _ in range(steps):
            parent = torch.randint(rows, (2, rows), generator=generator)
            if not texts.shape[-1]:
                parent = torch.zeros_like(parent)
            token = torch.randint(2, 11, (2, rows), generator=generator)
            texts = (
                texts.gather(1, parent[:, :, None].expand(-1, -1, texts.shape[-1]))
                if texts.numel()
                else texts
            )
            texts = torch.cat([texts, token[:, :, None]], -1)
            hidden = model.step(token, parent, cache)
        for sentence, part in enumerate(memory.split(source_layout.lengths_B.tolist())):
            alone = Layout(source_layout.lengths_B[sentence : sentence + 1])
            for row in range(rows):
                wanted = model.decode(
                    texts[sentence, row], Layout(torch.tensor([steps])), part, alone
                )[-1]
                torch.testing.assert_close(
                    hidden[sentence * rows + row], wanted, rtol=1e-9, atol=1e-9
                )


def test_with_as_many_heads_of_keys_nothing_is_another_model() -> None:
    config = DecoderConfig(width=WIDTH, heads=HEADS, ffn_width=8, blocks=1)
    written_out = dataclasses.replace(
        config, attention=AttentionConfig(key_value_heads=HEADS, head_width=4)
    )
    assert config.shape() == written_out.shape()
