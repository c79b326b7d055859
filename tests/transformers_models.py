"""Models of Hugging Face transformers as our stacks can be compared with them, and which weights of
theirs are which.

They are built from small configurations with random weights; nothing is fetched. Whatever is no
part of a placement is taken out: positions, gates of feed-forwards, and norms and attention that
the library computes in float32.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
import torch
from torch import Tensor, nn

from stacks import FFN_WIDTH, HEADS, SOURCE_LENGTHS, WIDTH, perturbed

transformers = pytest.importorskip(
    "transformers", reason="needs Hugging Face transformers (the `bench` extra)"
)

BLOCKS = 3
Names = dict[str, str]
"""Our module or number in a block -> theirs in a layer; `name#2` is the last third of a packed
matrix.
"""


def attention(at: str, output: str = "out_proj", kind: str = "attention") -> Names:
    names = {"query": "q_proj", "key": "k_proj", "value": "v_proj", "output": output}
    return {f"{kind}.f.{name}": at + path for name, path in names.items()}


def bert_attention() -> Names:
    names = {
        "query": "self.query",
        "key": "self.key",
        "value": "self.value",
        "output": "output.dense",
    }
    return {f"attention.f.{name}": f"attention.{path}" for name, path in names.items()}


def feed_forward(first: str, last: str) -> Names:
    return {"feed_forward.f.ffn_in": first, "feed_forward.f.ffn_out": last}


def norms(of_attention: str, of_feed_forward: str, name: str = "main") -> Names:
    return {f"attention.norm.{name}": of_attention, f"feed_forward.norm.{name}": of_feed_forward}


BART_LAYER = (
    attention("self_attn.")
    | feed_forward("fc1", "fc2")
    | norms("self_attn_layer_norm", "final_layer_norm")
)
BART_CROSS = attention("encoder_attn.", kind="cross_attention") | {
    "cross_attention.norm.main": "encoder_attn_layer_norm"
}


@dataclass(frozen=True, kw_only=True)
class Theirs:
    """One stack of a foreign model, and how to run it on (B, T, D) embeddings with a (B, T) mask of
    real tokens.
    """

    layers: nn.ModuleList
    run: Callable[..., Tensor]
    final: nn.Module | None = None
    extra: dict[str, Tensor] = field(default_factory=dict)
    """Numbers of the stack's ends under our names."""


@dataclass(frozen=True, kw_only=True)
class Family:
    """A public implementation and the placement that it is."""

    placement: str
    mistaken: str
    """A placement with the same norms, or some of them, that the comparison must tell from it."""
    build: Callable[[], Theirs]
    names: Names
    kind: str = "encoder"
    norm: str = "as-placement"
    lengths: list[int] = field(default_factory=lambda: SOURCE_LENGTHS)


def sizes(**changes: object) -> dict[str, object]:
    """Of a configuration in BERT's and most others' words."""
    return {
        "vocab_size": 20,
        "hidden_size": WIDTH,
        "num_hidden_layers": BLOCKS,
        "num_attention_heads": HEADS,
        "intermediate_size": FFN_WIDTH,
        "hidden_act": "relu",
        "layer_norm_eps": 1e-5,
        **changes,
    }


def ready(model: nn.Module, without: tuple[str, ...] = ()) -> nn.Module:
    """In float64 with every weight off its initial value; without: tables of positions, which
    become 0.
    """
    model = perturbed(model, 3).eval()
    with torch.no_grad():
        for name in without:
            path, _, leaf = name.rpartition(".")
            getattr(model.get_submodule(path), leaf).zero_()
    return model


def bert() -> Theirs:
    model = ready(transformers.BertModel(transformers.BertConfig(**sizes())))
    return Theirs(layers=model.encoder.layer, run=on_encoder(model.encoder))


def roberta_prelayernorm() -> Theirs:
    model = ready(
        transformers.RobertaPreLayerNormModel(transformers.RobertaPreLayerNormConfig(**sizes()))
    )
    run = on_encoder(model.encoder)
    return Theirs(
        layers=model.encoder.layer,
        run=lambda x, keep: model.LayerNorm(run(x, keep)),
        final=model.LayerNorm,
    )


def on_encoder(encoder: nn.Module) -> Callable[..., Tensor]:
    """Past the embeddings, which add positions and have a norm of their own."""
    return lambda x, keep: (
        encoder(x, keep[:, None, None].expand(-1, 1, x.shape[1], -1)).last_hidden_state
    )


def vit() -> Theirs:
    config = transformers.ViTConfig(**sizes(image_size=4, patch_size=2))
    model = ready(transformers.ViTModel(config, add_pooling_layer=False))

    def run(x: Tensor, keep: Tensor) -> Tensor:
        for layer in layers(model):
            x = layer(x)
        return model.layernorm(x)

    return Theirs(layers=layers(model), run=run, final=model.layernorm)


def layers(model: nn.Module) -> nn.ModuleList:
    """The one list of `BLOCKS` layers in a model."""
    (found,) = (m for m in model.modules() if isinstance(m, nn.ModuleList) and len(m) == BLOCKS)
    return found


def swin_v2() -> Theirs:
    """Layers with one window over all 16 patches, their cosine attention replaced by a plain
    one.
    """
    from transformers.models.swinv2.modeling_swinv2 import Swinv2Layer

    config = transformers.Swinv2Config(
        hidden_act="relu", window_size=4, mlp_ratio=FFN_WIDTH / WIDTH
    )
    model = nn.Module()
    model.layers = nn.ModuleList(Swinv2Layer(config, WIDTH, (4, 4), HEADS) for _ in range(BLOCKS))
    for layer in model.layers:
        layer.attention = PlainAttention()
    model.layernorm = nn.LayerNorm(WIDTH)
    model = ready(model)

    def run(x: Tensor, keep: Tensor) -> Tensor:
        for layer in model.layers:
            (x,) = layer(x, (4, 4))
        return model.layernorm(x)

    return Theirs(layers=model.layers, run=run, final=model.layernorm)


class PlainAttention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.q_proj, self.k_proj, self.v_proj, self.out_proj = (
            nn.Linear(WIDTH, WIDTH) for _ in range(4)
        )

    def forward(self, x: Tensor, mask: None, output_attentions: bool) -> tuple[Tensor]:
        query, key, value = (
            f(x).unflatten(-1, (HEADS, -1)).transpose(1, 2) for f in list(self.children())[:3]
        )
        mixed = (query @ key.mT / (WIDTH // HEADS) ** 0.5).softmax(-1) @ value
        return (self.out_proj(mixed.transpose(1, 2).flatten(2)),)


def decoder_only(model: nn.Module, inside: nn.Module, final: nn.Module | None) -> Theirs:
    def run(x: Tensor, keep: Tensor) -> Tensor:
        return model(inputs_embeds=x, attention_mask=keep.long(), use_cache=False).last_hidden_state

    return Theirs(layers=layers(inside), run=run, final=final)


def gpt2() -> Theirs:
    config = transformers.GPT2Config(
        vocab_size=20,
        n_embd=WIDTH,
        n_layer=BLOCKS,
        n_head=HEADS,
        n_inner=FFN_WIDTH,
        activation_function="relu",
    )
    model = ready(transformers.GPT2Model(config), without=("wpe.weight",))
    return decoder_only(model, model, model.ln_f)


def opt(*, before: bool) -> Theirs:
    config = transformers.OPTConfig(
        vocab_size=20,
        hidden_size=WIDTH,
        num_hidden_layers=BLOCKS,
        num_attention_heads=HEADS,
        ffn_dim=FFN_WIDTH,
        word_embed_proj_dim=WIDTH,
        do_layer_norm_before=before,
    )
    model = ready(transformers.OPTModel(config), without=("decoder.embed_positions.weight",))
    return decoder_only(model, model, model.decoder.final_layer_norm)


def kosmos_2(**changes: object) -> Theirs:
    """The text model's layers; the model around them makes masks that float64 overflows."""
    from transformers.models.kosmos2 import configuration_kosmos2, modeling_kosmos2

    config = configuration_kosmos2.Kosmos2TextConfig(
        vocab_size=20,
        embed_dim=WIDTH,
        layers=BLOCKS,
        attention_heads=HEADS,
        ffn_dim=FFN_WIDTH,
        activation_function="relu",
        attn_implementation="sdpa",
        **changes,
    )
    model = ready(modeling_kosmos2.Kosmos2TextModel(config)).model

    def run(x: Tensor, keep: Tensor, **cross: Tensor) -> Tensor:
        causal = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).tril()
        for layer in model.layers:
            x = layer(x, causal & keep[:, None, None], **cross)
        return model.layer_norm(x)

    return Theirs(layers=model.layers, run=run, final=model.layer_norm)


def olmo_2() -> Theirs:
    config = transformers.Olmo2Config(
        **sizes(num_key_value_heads=HEADS, rms_norm_eps=1e-5, pad_token_id=1, attention_bias=True)
    )
    model = in_float64(
        ready(plain(transformers.Olmo2Model(config)), without=("rotary_emb.inv_freq",)), offset=0.0
    )
    return decoder_only(model, model, model.norm)


def gemma_2() -> Theirs:
    config = transformers.Gemma2Config(
        **sizes(num_key_value_heads=HEADS, rms_norm_eps=1e-5, pad_token_id=1, attention_bias=True),
        head_dim=WIDTH // HEADS,
        query_pre_attn_scalar=WIDTH // HEADS,
        attn_logit_softcapping=None,
        attn_implementation="eager",
    )
    # Without soft-capping, sdpa computes what the eager code does, but for its softmax in float32.
    model = plain(transformers.Gemma2Model(config))
    config._attn_implementation = "sdpa"
    model = in_float64(ready(model, without=("rotary_emb.inv_freq",)), offset=1.0)
    return decoder_only(model, model, model.norm)


def plain(model: nn.Module) -> nn.Module:
    """With two matrices and a ReLU for the gated feed-forward of every layer."""
    for layer in model.layers:
        layer.mlp = nn.Sequential(
            nn.Linear(WIDTH, FFN_WIDTH), nn.ReLU(), nn.Linear(FFN_WIDTH, WIDTH)
        )
    return model


def in_float64(model: nn.Module, *, offset: float) -> nn.Module:
    """With torch's RMSNorm for the library's, which computes in float32. offset: what that adds to
    its weights.
    """
    for name, norm in list(model.named_modules()):
        if type(norm).__name__.endswith("RMSNorm"):
            ours = nn.RMSNorm(norm.weight.shape[0], eps=1e-5, dtype=torch.float64)
            ours.weight.data.copy_(norm.weight.data + offset)
            x = torch.randn(4, norm.weight.shape[0], dtype=torch.float64)
            torch.testing.assert_close(ours(x), norm(x).double(), rtol=1e-5, atol=1e-5)
            model.set_submodule(name, ours)
    return model


POST = {"placement": "post-ln", "mistaken": "pre-ln"}
PRE = {"placement": "pre-ln", "mistaken": "post-ln"}
OLMO_NORMS = norms("post_attention_layernorm", "post_feedforward_layernorm")
LLAMA_LAYER = attention("self_attn.", output="o_proj") | feed_forward("mlp.0", "mlp.2")
OPT = {"names": BART_LAYER, "kind": "decoder"}

FAMILIES = {
    "bert": Family(
        **POST,
        build=bert,
        names=bert_attention()
        | feed_forward("intermediate.dense", "output.dense")
        | norms("attention.output.LayerNorm", "output.LayerNorm"),
    ),
    "roberta-prelayernorm": Family(
        **PRE,
        build=roberta_prelayernorm,
        names=bert_attention()
        | feed_forward("intermediate.dense", "output.dense")
        | norms("attention.LayerNorm", "intermediate.LayerNorm"),
    ),
    "vit": Family(
        **PRE,
        build=vit,
        names=attention("attention.", output="o_proj")
        | feed_forward("mlp.fc1", "mlp.fc2")
        | norms("layernorm_before", "layernorm_after"),
        lengths=[5, 5],
    ),
    "swin-v2": Family(
        placement="reordered",
        mistaken="pre-ln",
        build=swin_v2,
        names=attention("attention.")
        | feed_forward("intermediate.dense", "output.dense")
        | norms("layernorm_before", "layernorm_after"),
        lengths=[16, 16],
    ),
    "gpt2": Family(
        **PRE,
        build=gpt2,
        kind="decoder",
        names={
            f"attention.f.{name}": f"attn.c_attn#{third}"
            for third, name in enumerate(("query", "key", "value"))
        }
        | {"attention.f.output": "attn.c_proj"}
        | feed_forward("mlp.c_fc", "mlp.c_proj")
        | norms("ln_1", "ln_2"),
    ),
    "opt, as the 350m model": Family(**POST, build=lambda: opt(before=False), **OPT),
    "opt": Family(**PRE, build=lambda: opt(before=True), **OPT),
    "kosmos-2": Family(
        placement="sub-ln",
        mistaken="pre-ln",
        build=kosmos_2,
        kind="decoder",
        names=attention("self_attn.")
        | feed_forward("ffn.fc1", "ffn.fc2")
        | norms("self_attn_layer_norm", "final_layer_norm")
        | norms("self_attn.inner_attn_ln", "ffn.ffn_layernorm", name="inner"),
    ),
    "olmo-2": Family(
        placement="olmo-2",
        mistaken="reordered",
        build=olmo_2,
        kind="decoder",
        norm="rms-norm",
        names=LLAMA_LAYER
        | OLMO_NORMS
        | {f"attention.norm.{name}": f"self_attn.{name[0]}_norm" for name in ("query", "key")},
    ),
    "gemma-2": Family(
        placement="sandwich",
        mistaken="peri-ln",
        build=gemma_2,
        kind="decoder",
        norm="rms-norm",
        names=LLAMA_LAYER
        | norms("input_layernorm", "pre_feedforward_layernorm", name="before")
        | norms("post_attention_layernorm", "post_feedforward_layernorm", name="after"),
    ),
}


def translation(name: str, **changes: object) -> nn.Module:
    """An encoder-decoder in BART's words, without positions and without norms over the
    embeddings.
    """
    model = getattr(transformers, f"{name}Model")(
        getattr(transformers, f"{name}Config")(
            vocab_size=20,
            d_model=WIDTH,
            encoder_layers=BLOCKS,
            decoder_layers=BLOCKS,
            encoder_attention_heads=HEADS,
            decoder_attention_heads=HEADS,
            encoder_ffn_dim=FFN_WIDTH,
            decoder_ffn_dim=FFN_WIDTH,
            activation_function="relu",
            max_position_embeddings=16,
            **changes,
        )
    )
    for side in (model.encoder, model.decoder):
        if hasattr(side, "layernorm_embedding"):
            side.layernorm_embedding = nn.Identity()
    leaf = "weights" if hasattr(model.encoder.embed_positions, "weights") else "weight"
    return ready(
        model, without=tuple(f"{side}.embed_positions.{leaf}" for side in ("encoder", "decoder"))
    )


TRANSLATION: dict[str, tuple[str, str, Callable[[], nn.Module]]] = {
    "bart": ("post-ln", "pre-ln", lambda: translation("Bart")),
    "marian": (
        "post-ln",
        "pre-ln",
        lambda: translation("Marian", pad_token_id=1, decoder_start_token_id=1),
    ),
    "mbart": ("pre-ln", "post-ln", lambda: translation("MBart")),
    "m2m-100": ("pre-ln", "post-ln", lambda: translation("M2M100")),
}
"""Placement, one that it must be told from, and what builds the model."""
