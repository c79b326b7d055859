"""Five architectures of transformers under nine placements: to 1e-12 what is written by hand from
the papers.

Attention and feed-forward are written out from their weights, and so is what stands between them:
neither a forward of transformers nor a formula of ours is run.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import normscope
from transplant.hand_written import perturb
from transplant.test_transformers import HEADS, IMAGES, SIZES, ids

transformers = pytest.importorskip(
    "transformers", reason="needs Hugging Face transformers (the `bench` extra)"
)

F = Callable[[Tensor], Tensor]
WIDTH, BLOCKS = 32, 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """A model taken apart: what enters the blocks, and in each block F and the model's norm of
    attention and of MLP.
    """

    x: Tensor
    blocks: list[nn.Module]
    sublayers: list[tuple[tuple[F, nn.Module], tuple[F, nn.Module]]]
    final: nn.Module


def normed(norm: nn.Module, x: Tensor) -> Tensor:
    """Layer norm, or RMS norm with the root in float32, where Llama's also multiplies and T5's does
    not.
    """
    own: Any = norm
    if isinstance(norm, nn.LayerNorm):
        centred = x - x.mean(-1, keepdim=True)
        return (
            own.weight * centred / (centred.square().mean(-1, keepdim=True) + own.eps).sqrt()
            + own.bias
        )
    single = x.float()
    root = torch.rsqrt(single.square().mean(-1, keepdim=True) + own.variance_epsilon)
    return own.weight * ((x if type(norm).__name__.startswith("T5") else single) * root).to(x)


def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    scale: float,
    bias: Tensor | float = 0.0,
    causal: bool = False,
) -> Tensor:
    """Of (batch, heads, length, features); heads are joined."""
    scores = q @ k.repeat_interleave(q.shape[1] // k.shape[1], 1).mT * scale + bias
    if causal:
        scores = scores.masked_fill(torch.ones_like(scores, dtype=torch.bool).triu(1), -math.inf)
    return (
        (scores.softmax(-1) @ v.repeat_interleave(q.shape[1] // v.shape[1], 1))
        .transpose(1, 2)
        .flatten(2)
    )


def heads(x: Tensor, width: int = 8) -> Tensor:
    return x.unflatten(-1, (-1, width)).transpose(1, 2)


def llama(model: Any, batch: dict[str, Tensor]) -> Parts:
    def turned(x: Tensor) -> Tensor:
        angles = torch.arange(x.shape[2])[:, None] * 10_000.0 ** (-torch.arange(0, 8, 2) / 8)
        cos, sin = angles.float().cos().double(), angles.float().sin().double()
        a, b = x.chunk(2, -1)
        return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)

    def attention(own: Any) -> F:
        def f(x: Tensor) -> Tensor:
            q, k, v = (heads(part(x)) for part in (own.q_proj, own.k_proj, own.v_proj))
            return own.o_proj(attend(turned(q), turned(k), v, scale=8**-0.5, causal=True))

        return f

    def mlp(own: Any) -> F:
        return lambda x: own.down_proj(functional.silu(own.gate_proj(x)) * own.up_proj(x))

    return Parts(
        x=model.embed_tokens.weight[batch["input_ids"]],
        blocks=list(model.layers),
        sublayers=[
            ((attention(b.self_attn), b.input_layernorm), (mlp(b.mlp), b.post_attention_layernorm))
            for b in model.layers
        ],
        final=model.norm,
    )


def gpt2(model: Any, batch: dict[str, Tensor]) -> Parts:
    def linear(own: Any, x: Tensor) -> Tensor:
        return x @ own.weight + own.bias

    def attention(own: Any) -> F:
        def f(x: Tensor) -> Tensor:
            q, k, v = (heads(part) for part in linear(own.c_attn, x).chunk(3, -1))
            return linear(own.c_proj, attend(q, k, v, scale=8**-0.5, causal=True))

        return f

    def mlp(own: Any) -> F:
        return lambda x: linear(
            own.c_proj, functional.gelu(linear(own.c_fc, x), approximate="tanh")
        )

    tokens = batch["input_ids"]
    return Parts(
        x=model.wte.weight[tokens] + model.wpe.weight[: tokens.shape[1]],
        blocks=list(model.h),
        sublayers=[((attention(b.attn), b.ln_1), (mlp(b.mlp), b.ln_2)) for b in model.h],
        final=model.ln_f,
    )


def plain(q: F, k: F, v: F, out: F, *, scale: float, bias: Tensor | float = 0.0) -> F:
    return lambda x: out(attend(heads(q(x)), heads(k(x)), heads(v(x)), scale=scale, bias=bias))


def vit(model: Any, batch: dict[str, Tensor]) -> Parts:
    patches = functional.unfold(batch["pixel_values"], 4, stride=4).mT
    embed = model.embeddings
    kernel = embed.patch_embeddings.projection
    embedded = patches @ kernel.weight.flatten(1).mT + kernel.bias

    def attention(own: Any) -> F:
        return plain(own.q_proj, own.k_proj, own.v_proj, own.o_proj, scale=8**-0.5)

    def mlp(own: Any) -> F:
        return lambda x: own.fc2(functional.gelu(own.fc1(x)))

    return Parts(
        x=torch.cat([embed.cls_token.expand(2, -1, -1), embedded], 1) + embed.position_embeddings,
        blocks=list(model.layers),
        sublayers=[
            ((attention(b.attention), b.layernorm_before), (mlp(b.mlp), b.layernorm_after))
            for b in model.layers
        ],
        final=model.layernorm,
    )


def t5(model: Any, batch: dict[str, Tensor]) -> Parts:
    blocks, length = model.encoder.block, batch["input_ids"].shape[1]
    table = blocks[0].layer[0].SelfAttention.relative_attention_bias.weight
    far = torch.arange(length) - torch.arange(length)[:, None]
    # Of 32 buckets those of either direction: up to 7 steps each has one of its own, and 8 steps
    # come before the ninth.
    bias = table[far.abs().clamp(max=8) + 16 * (far > 0)].permute(2, 0, 1)

    def attention(own: Any) -> F:
        return plain(own.q, own.k, own.v, own.o, scale=1.0, bias=bias)

    def mlp(own: Any) -> F:
        return lambda x: own.wo(own.wi(x).relu())

    return Parts(
        x=model.shared.weight[batch["input_ids"]],
        blocks=list(blocks),
        sublayers=[
            (
                (attention(b.layer[0].SelfAttention), b.layer[0].layer_norm),
                (mlp(b.layer[1].DenseReluDense), b.layer[1].layer_norm),
            )
            for b in blocks
        ],
        final=model.encoder.final_layer_norm,
    )


def whisper(model: Any, batch: dict[str, Tensor]) -> Parts:
    heard = functional.gelu(model.conv2(functional.gelu(model.conv1(batch["input_features"]))))

    def attention(own: Any) -> F:
        return plain(own.q_proj, own.k_proj, own.v_proj, own.out_proj, scale=8**-0.5)

    def mlp(own: Any) -> F:
        return lambda x: own.fc2(functional.gelu(own.fc1(x)))

    return Parts(
        x=heard.mT + model.embed_positions.weight,
        blocks=list(model.layers),
        sublayers=[
            ((attention(b.self_attn), b.self_attn_layer_norm), (mlp(b), b.final_layer_norm))
            for b in model.layers
        ],
        final=model.layer_norm,
    )


def each(parts: Parts) -> Iterator[tuple[int, F, nn.Module, Any]]:
    """Every sub-layer: its block's number, F, the model's norm, and what was added to it."""
    for number, (block, pair) in enumerate(zip(parts.blocks, parts.sublayers, strict=True), 1):
        for place, (f, norm) in zip(("attention", "feed_forward"), pair, strict=True):
            yield number, f, norm, getattr(block.placed, place, block.placed)


def post_ln(x: Tensor, parts: Parts) -> Tensor:
    for _, f, n, _ in each(parts):
        x = normed(n, x + f(x))
    return x


def pre_ln(x: Tensor, parts: Parts) -> Tensor:
    for _, f, n, _ in each(parts):
        x = x + f(normed(n, x))
    return normed(parts.final, x)


def sandwich(x: Tensor, parts: Parts) -> Tensor:
    for _, f, n, added in each(parts):
        x = x + normed(added.norms.after, f(normed(n, x)))
    return normed(parts.final, x)


def peri_ln(x: Tensor, parts: Parts) -> Tensor:
    return sandwich(normed(parts.blocks[0].placed.start.norms.main, x), parts)


def deepnorm(x: Tensor, parts: Parts) -> Tensor:
    for _, f, n, _ in each(parts):
        x = normed(n, (2 * BLOCKS) ** 0.25 * x + f(x))
    return x


def lns(x: Tensor, parts: Parts) -> Tensor:
    for number, f, n, _ in each(parts):
        x = x + f(normed(n, x) / math.sqrt(number))
    return normed(parts.final, x)


def rezero(x: Tensor, parts: Parts) -> Tensor:
    for number, f, _, _ in each(parts):
        x = x + parts.blocks[number - 1].placed.block.numbers.gate * f(x)
    return x


def attn_res(x: Tensor, parts: Parts) -> Tensor:
    def mean(values: list[Tensor], query: Tensor, key: nn.Module) -> Tensor:
        scores = torch.stack([(query * normed(key, value)).sum(-1) for value in values])
        return torch.einsum("vbt,vbtd->btd", scores.softmax(0), torch.stack(values))

    values = [x]
    for _, f, n, added in each(parts):
        values.append(f(normed(n, mean(values, added.numbers.query, added.norms.key))))
    end = parts.blocks[-1].placed.finish
    return normed(parts.final, mean(values, end.numbers.query, end.norms.key))


def mhc(x: Tensor, parts: Parts) -> Tensor:
    def logits(numbers: Any, name: str, read: Tensor) -> Tensor:
        return (
            numbers[f"{name}_scale"] * (read @ numbers[f"{name}_weight"].mT)
            + numbers[f"{name}_bias"]
        )

    def together(x: Tensor) -> Tensor:
        flat = x.flatten(-2)
        return flat / (flat.square().mean(-1, keepdim=True) + 1e-6).sqrt()

    x = x.unsqueeze(-2).repeat(1, 1, 4, 1)
    for _, f, n, added in each(parts):
        read = together(x)
        mixing = logits(added.numbers, "C", read).unflatten(-1, (4, 4)).softmax(-1)
        mixing = mixing / mixing.sum(-2, keepdim=True)
        for _ in range(19):
            mixing = mixing / mixing.sum(-1, keepdim=True)
            mixing = mixing / mixing.sum(-2, keepdim=True)
        branch = f(
            normed(
                n, torch.einsum("bts,btsd->btd", logits(added.numbers, "pre", read).sigmoid(), x)
            )
        )
        shares = 2 * logits(added.numbers, "post", read).sigmoid()
        x = torch.einsum("btij,btid->btjd", mixing, x) + shares.unsqueeze(-1) * branch.unsqueeze(-2)
    head = logits(parts.blocks[-1].placed.finish.numbers, "head", together(x)).sigmoid()
    return normed(parts.final, torch.einsum("bts,btsd->btd", head, x))


T5 = {"vocab_size": 96, "d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": BLOCKS, "num_heads": 4}
GPT2 = {
    "vocab_size": 96,
    "n_embd": 32,
    "n_layer": BLOCKS,
    "n_head": 4,
    "bos_token_id": 1,
    "eos_token_id": 1,
}
WHISPER = {
    "d_model": 32,
    "encoder_layers": BLOCKS,
    "encoder_attention_heads": 4,
    "encoder_ffn_dim": 64,
} | {**{"num_mel_bins": 8, "max_source_positions": 9}}
VIT = {name: size for name, size in SIZES.items() if name != "vocab_size"} | IMAGES


def made(name: str) -> tuple[nn.Module, dict[str, Tensor]]:
    """The model and a batch, in float64."""
    draw = torch.Generator().manual_seed(3)
    match name:
        case "llama":
            model = transformers.LlamaModel(transformers.LlamaConfig(**SIZES, **HEADS))
        case "gpt2":
            model = transformers.GPT2Model(transformers.GPT2Config(**GPT2))
        case "t5":
            model = transformers.T5EncoderModel(transformers.T5Config(**T5))
        case "vit":
            model = transformers.ViTModel(transformers.ViTConfig(**VIT), add_pooling_layer=False)
            return model.double().eval(), {
                "pixel_values": torch.randn(2, 3, 16, 16, generator=draw).double()
            }
        case _:
            whole = transformers.models.whisper.modeling_whisper
            model = whole.WhisperEncoder(transformers.WhisperConfig(**WHISPER))
            return model.double().eval(), {
                "input_features": torch.randn(2, 8, 18, generator=draw).double()
            }
    return model.double().eval(), {"input_ids": ids()}


ARCHITECTURES = {"llama": llama, "gpt2": gpt2, "vit": vit, "t5": t5, "whisper": whisper}
PLACEMENTS = {
    **{"post-ln": post_ln, "pre-ln": pre_ln, "peri-ln": peri_ln, "deepnorm": deepnorm, "lns": lns},
    **{"sandwich": sandwich, "rezero": rezero, "attn-res": attn_res, "mhc": mhc},
}


@pytest.mark.sampled(one_in=3)
@pytest.mark.parametrize(
    ("architecture", "placement"),
    # The doctor takes its time over four streams.
    [
        (one, other)
        for one in ARCHITECTURES
        for other in PLACEMENTS
        if other != "mhc" or one == "llama"
    ],
)
def test_it_is_what_the_papers_say(architecture: str, placement: str) -> None:
    torch.manual_seed(0)
    model, batch = made(architecture)
    perturb(normscope.transplant(model, placement, inputs=batch))
    parts = ARCHITECTURES[architecture](model, batch)
    ours, theirs = model(**batch).last_hidden_state, PLACEMENTS[placement](parts.x, parts)
    weights = {name: weight for name, weight in model.named_parameters() if weight.requires_grad}
    compared = {"outputs": (ours.detach(), theirs.detach())}
    for name, *pair in zip(
        weights, *(_gradients(one, weights) for one in (ours, theirs)), strict=True
    ):
        compared[name] = (pair[0], pair[1])
    apart = {name: float((one - other).abs().max()) for name, (one, other) in compared.items()}
    assert {
        name: error
        for name, error in apart.items()
        if error > 1e-12 * max(1.0, float(compared[name][1].max()))
    } == {}


def _gradients(outputs: Tensor, weights: dict[str, nn.Parameter]) -> tuple[Tensor, ...]:
    return torch.autograd.grad(outputs.square().mean(), [*weights.values()], materialize_grads=True)
