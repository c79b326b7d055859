"""Layers of Hugging Face transformers whose residual sum is scaled, dense or parallel, with plain
attention inside.

Each is the library's own layer class, built from a small configuration, with its own norms and
numbers. Its attention and its feed-forward, which no placement speaks of, are replaced by plain
ones.
"""

from collections.abc import Callable
from importlib import import_module

import torch
from torch import Tensor, nn

from stacks import FFN_WIDTH, HEADS, WIDTH
from transformers_models import (
    BLOCKS,
    Family,
    Names,
    Theirs,
    attention,
    feed_forward,
    in_float64,
    norms,
    ready,
    sizes,
)

LENGTHS = [5, 5]
"""Nothing is padded, so that no mask is needed."""


class Attention(nn.Module):
    def __init__(self, causal: bool) -> None:
        super().__init__()
        self.causal = causal
        self.q_proj, self.k_proj, self.v_proj, self.o_proj = (
            nn.Linear(WIDTH, WIDTH) for _ in range(4)
        )

    def forward(self, hidden_states: Tensor, *_: object, **__: object) -> tuple[Tensor, None]:
        query, key, value = (
            f(hidden_states).unflatten(-1, (HEADS, -1)).transpose(1, 2)
            for f in (self.q_proj, self.k_proj, self.v_proj)
        )
        mixed = nn.functional.scaled_dot_product_attention(query, key, value, is_causal=self.causal)
        return self.o_proj(mixed.transpose(1, 2).flatten(2)), None


class WithRouter(nn.Module):
    """Zaya's feed-forward hands on what its router saw."""

    def __init__(self, inside: nn.Module) -> None:
        super().__init__()
        self.inside = inside

    def forward(self, x: Tensor, router: None) -> tuple[Tensor, None]:
        return self.inside(x), None


def feed_forward_of_two() -> nn.Module:
    return nn.Sequential(nn.Linear(WIDTH, FFN_WIDTH), nn.ReLU(), nn.Linear(FFN_WIDTH, WIDTH))


def wired(
    family: str,
    prefix: str,
    *,
    layer: str = "DecoderLayer",
    at: str = "self_attn",
    mlp: Callable[[], nn.Module] = feed_forward_of_two,
    causal: bool = True,
    numbered: bool = True,
    start: tuple[str, ...] = (),
    **config: object,
) -> Theirs:
    """`BLOCKS` layers of a family and a final norm. at: its attention; start: vectors before the
    first layer.
    """
    code = import_module(f"transformers.models.{family}.modeling_{family}")
    configuration = getattr(code, f"{prefix}Config")(**sizes(**config))
    layer_class = getattr(code, prefix + layer)
    model = nn.Module()
    model.layers = nn.ModuleList(layer_class(configuration, *[i] * numbered) for i in range(BLOCKS))
    for each in model.layers:
        setattr(each, at, Attention(causal))
        each.mlp = mlp()
    rms = any(type(m).__name__.endswith("RMSNorm") for m in model.modules())
    model.norm = nn.RMSNorm(WIDTH, eps=1e-5) if rms else nn.LayerNorm(WIDTH)
    for name in start:
        model.register_parameter(name, nn.Parameter(torch.ones(WIDTH)))
    model = ready(model)
    if rms:
        model = in_float64(model, offset=0.0)

    def run(x: Tensor, keep: Tensor) -> Tensor:
        if start:
            x = (x + model.bias) * model.scale
        for each in model.layers:
            x = each(x, position_embeddings=None)
            x = x[0] if isinstance(x, tuple) else x
        return model.norm(x)

    extra = {f"start.placed.{name}": getattr(model, name) for name in start}
    return Theirs(layers=model.layers, run=run, final=model.norm, extra=extra)


MLP = feed_forward("mlp.0", "mlp.2")
LAYER = attention("self_attn.", output="o_proj") | MLP
VISION_LAYER = attention("attention.", output="o_proj") | MLP
LLAMA_NORMS = norms("input_layernorm", "post_attention_layernorm")
DECODER = {"kind": "decoder", "lengths": LENGTHS}
RMS = {"norm": "rms-norm", **DECODER}


def numbers(of_attention: str, of_feed_forward: str, name: str) -> Names:
    return {
        f"attention.placed.{name}": of_attention,
        f"feed_forward.placed.{name}": of_feed_forward,
    }


def zaya_numbers() -> Names:
    found: Names = {}
    for ours, theirs in (("skip", "residual"), ("branch", "hidden_states")):
        for kind in ("scale", "bias"):
            at = (f"post_{part}_residual_scale.{theirs}_{kind}" for part in ("attention", "mlp"))
            found |= numbers(*at, name=f"{ours}_{kind}")
    return found


NEWER = {
    "beam": Family(
        placement="depth-scaled",
        # Not Sandwich-LN, whose output is the same.
        mistaken="pre-ln",
        build=lambda: wired("beam", "Beam", rms_norm_eps=1e-5, num_key_value_heads=HEADS),
        names=LAYER
        | norms("input_layernorm", "pre_feedforward_layernorm", name="before")
        | norms("post_attention_layernorm", "post_feedforward_layernorm", name="after"),
        **RMS,
    ),
    "granite": Family(
        placement="granite",
        mistaken="pre-ln",
        build=lambda: wired("granite", "Granite", rms_norm_eps=1e-5, residual_multiplier=0.22),
        names=LAYER | LLAMA_NORMS,
        **RMS,
    ),
    "minicpm-3": Family(
        placement="minicpm",
        mistaken="depth-mup",
        build=lambda: wired("minicpm3", "MiniCPM3", rms_norm_eps=1e-5),
        names=LAYER | LLAMA_NORMS,
        **RMS,
    ),
    "dinov2": Family(
        placement="layer-scale",
        mistaken="pre-ln",
        build=lambda: wired(
            "dinov2", "Dinov2", layer="Layer", at="attention", causal=False, numbered=False
        ),
        names=VISION_LAYER
        | norms("norm1", "norm2")
        | numbers("layer_scale1.lambda1", "layer_scale2.lambda1", "layer_scale"),
        lengths=LENGTHS,
    ),
    "beit": Family(
        placement="layer-scale",
        mistaken="pre-ln",
        build=lambda: wired(
            "beit", "Beit", layer="Layer", at="attention", causal=False, numbered=False
        ),
        names=VISION_LAYER
        | norms("layernorm_before", "layernorm_after")
        | numbers("lambda_1", "lambda_2", "layer_scale"),
        lengths=LENGTHS,
    ),
    "phi": Family(
        placement="parallel",
        mistaken="pre-ln",
        build=lambda: wired("phi", "Phi"),
        names=LAYER | {"attention.norm.main": "input_layernorm"},
        **DECODER,
    ),
    "gpt-j": Family(
        placement="parallel",
        mistaken="pre-ln",
        build=lambda: wired(
            "gptj", "GPTJ", layer="Block", at="attn", rotary_dim=2, attn_implementation="eager"
        ),
        names=attention("attn.", output="o_proj") | MLP | {"attention.norm.main": "ln_1"},
        **DECODER,
    ),
    "gpt-neox": Family(
        placement="parallel-two-norms",
        mistaken="pre-ln",
        build=lambda: wired("gpt_neox", "GPTNeoX", layer="Layer", at="attention"),
        names=VISION_LAYER | LLAMA_NORMS,
        **DECODER,
    ),
    "zaya": Family(
        placement="zaya",
        mistaken="pre-ln",
        build=lambda: wired(
            "zaya",
            "Zaya",
            mlp=lambda: WithRouter(feed_forward_of_two()),
            start=("scale", "bias"),
            rms_norm_eps=1e-5,
            num_key_value_heads=1,
            head_dim=WIDTH // HEADS,
            moe_intermediate_size=4,
        ),
        names=attention("self_attn.", output="o_proj")
        | feed_forward("mlp.inside.0", "mlp.inside.2")
        | LLAMA_NORMS
        | zaya_numbers(),
        **RMS,
    ),
    "doge": Family(
        placement="doge",
        mistaken="pre-ln",
        build=lambda: wired("doge", "Doge", rms_norm_eps=1e-5),
        names=LAYER
        | LLAMA_NORMS
        | numbers("input_residual", "post_attention_residual", "skip_scale"),
        **RMS,
    ),
}
"""Families with a placement of their own since 2021."""
