"""Six healthy models whose blocks can be wired anew: what mutants are made of.

Each of them is seen as blocks of an attention, a feed-forward and two norms, whatever its own
classes call them. In those of an encoder and a decoder it is the decoder's cross-attention, behind
a self-attention that stays as it is.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

WIDTH, HEADS, BLOCKS, VOCABULARY, TOKENS = 32, 4, 5, 48, 12
ALPHA, BETA = (2 * BLOCKS) ** 0.25, (8 * BLOCKS) ** -0.25
"""DeepNorm's, of a single stack (Wang et al. 2022, figure 2)."""
Map = Callable[[Tensor], Tensor]


@dataclass(kw_only=True)
class Parts:
    """What a block computes with, in one call."""

    attention: Map
    feed_forward: Map
    norms: tuple[nn.Module, nn.Module]


Wiring = Callable[[Tensor, Parts], Tensor]
"""The stream before a block -> the stream after it."""


def pre(x: Tensor, of: Parts) -> Tensor:
    x = x + of.attention(of.norms[0](x))
    return x + of.feed_forward(of.norms[1](x))


def post(x: Tensor, of: Parts) -> Tensor:
    x = of.norms[0](x + of.attention(x))
    return of.norms[1](x + of.feed_forward(x))


def deepnorm(x: Tensor, of: Parts) -> Tensor:
    x = of.norms[0](ALPHA * x + of.attention(x))
    return of.norms[1](ALPHA * x + of.feed_forward(x))


@dataclass(kw_only=True)
class Base:
    """A model and its parts by block."""

    model: nn.Module
    inputs: Mapping[str, Any]
    blocks: nn.ModuleList
    wiring: Wiring
    rewire: Callable[[nn.Module, Wiring], None]
    """Give a block another forward pass."""
    attention: Callable[[nn.Module], dict[str, nn.Linear]]
    """query, key, value and output of a block."""
    feed_forward: Callable[[nn.Module], tuple[nn.Linear, nn.Linear]]
    """The first and the last matrix of a block's feed-forward."""
    norms: Callable[[nn.Module], list[str]]
    """Names of a block's norms within it."""
    embedding: nn.Embedding
    head: nn.Linear
    final: tuple[nn.Module, str]
    """Where the norm behind the blocks stands, or may stand: a module, and the name in it."""
    positions: nn.Embedding | None = None
    loss: Callable[[Any], Tensor] | None = None
    optimizer: torch.optim.Optimizer | None = field(default=None)
    clip_norm: float | None = None

    @property
    def is_pre(self) -> bool:
        return self.wiring is pre

    def norm(self, block: int, place: int) -> nn.Module:
        return self.blocks[block].get_submodule(self.norms(self.blocks[block])[place])


class OwnAttention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.value, self.output = (nn.Linear(WIDTH, WIDTH) for _ in range(4))
        self.scaling, self.axis, self.masks = (WIDTH // HEADS) ** -0.5, -1, "later"
        self.of_queries: nn.Module = nn.Identity()

    def forward(self, x: Tensor, memory: Tensor | None = None) -> Tensor:
        reads = zip(
            (self.query, self.key, self.value),
            (x, x, x) if memory is None else (x, memory, memory),
            strict=True,
        )
        q, k, v = (f(one).unflatten(-1, (HEADS, -1)).transpose(1, 2) for f, one in reads)
        scores = self.of_queries(q) @ k.mT * self.scaling
        later = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
        hidden = {"later": later, "earlier": later.mT, "nothing": torch.zeros_like(later)}[
            self.masks
        ]
        weights = scores.masked_fill(hidden, torch.finfo(scores.dtype).min).softmax(self.axis)
        return self.output((weights @ v).transpose(1, 2).flatten(2))


class OwnBlock(nn.Module):
    def __init__(self, wiring: Wiring) -> None:
        super().__init__()
        self.wiring, self.attention = wiring, OwnAttention()
        self.first_norm, self.second_norm = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def feed_forward(self, x: Tensor) -> Tensor:
        return self.down(functional.gelu(self.up(x)))

    def forward(self, x: Tensor) -> Tensor:
        norms = (self.first_norm, self.second_norm)
        return self.wiring(
            x, Parts(attention=self.attention, feed_forward=self.feed_forward, norms=norms)
        )


def drawn_as_gpt2(blocks: nn.ModuleList, wiring: Wiring) -> None:
    """Or, for DeepNorm, as that has it."""
    for block in blocks:
        for name, linear in block.named_modules():
            if isinstance(linear, nn.Linear):
                last = name in ("attention.output", "cross.output", "down")
                nn.init.normal_(linear.weight, std=0.02 / math.sqrt(2 * BLOCKS) if last else 0.02)
                nn.init.zeros_(linear.bias)
                if wiring is deepnorm:
                    shrinks = name not in ("attention.query", "attention.key")
                    nn.init.xavier_normal_(linear.weight, gain=BETA if shrinks else 1.0)


class OwnGPT(nn.Module):
    def __init__(self, wiring: Wiring) -> None:
        super().__init__()
        self.config = SimpleNamespace(n_layer=BLOCKS)
        self.tokens, self.positions = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(TOKENS, WIDTH)
        self.blocks = nn.ModuleList(OwnBlock(wiring) for _ in range(BLOCKS))
        self.final_norm: nn.Module = nn.LayerNorm(WIDTH) if wiring is pre else nn.Identity()
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)
        for table in (self.tokens, self.positions, self.head):
            nn.init.normal_(table.weight, std=0.02)
        drawn_as_gpt2(self.blocks, wiring)

    def forward(self, input_ids: Tensor) -> Tensor:
        x = self.tokens(input_ids) + self.positions(torch.arange(input_ids.shape[1]))
        for block in self.blocks:
            x = block(x)
        return self.head(self.final_norm(x))


class OwnDecoderBlock(OwnBlock):
    def __init__(self, wiring: Wiring) -> None:
        super().__init__(wiring)
        self.self_norm, self.cross = nn.LayerNorm(WIDTH), OwnAttention()
        self.cross.masks = "nothing"

    def forward(self, x: Tensor, memory: Tensor) -> Tensor:
        x = x + self.attention(self.self_norm(x))
        norms = (self.first_norm, self.second_norm)
        parts = Parts(
            attention=lambda y: self.cross(y, memory), feed_forward=self.feed_forward, norms=norms
        )
        return self.wiring(x, parts)


class OwnEncoderDecoder(nn.Module):
    """Pre-LN."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder, self.decoder = OwnGPT(pre), OwnGPT(pre)
        self.encoder.head = nn.Identity()
        for block in self.encoder.blocks:
            block.attention.masks = "nothing"
        self.decoder.blocks = nn.ModuleList(OwnDecoderBlock(pre) for _ in range(BLOCKS))
        drawn_as_gpt2(self.decoder.blocks, pre)

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        memory = self.encoder(source)
        x = self.decoder.tokens(target) + self.decoder.positions(torch.arange(target.shape[1]))
        for block in self.decoder.blocks:
            x = block(x, memory)
        return self.decoder.head(self.decoder.final_norm(x))


def batch() -> dict[str, Tensor]:
    return {
        "input_ids": torch.randint(
            4, VOCABULARY, (2, TOKENS), generator=torch.Generator().manual_seed(1)
        )
    }


def next_token_loss(output: Any) -> Tensor:
    logits = output if isinstance(output, Tensor) else output.logits
    targets = batch()["input_ids"][:, 1:]
    return functional.cross_entropy(logits[:, :-1].float().flatten(0, 1), targets.flatten())


def set_wiring(block: nn.Module, other: Wiring) -> None:
    block.wiring = other


def matrices_of(attention: nn.Module) -> dict[str, nn.Linear]:
    return {name: getattr(attention, name) for name in ("query", "key", "value", "output")}


def own_encoder_decoder() -> Base:
    model = OwnEncoderDecoder()
    decoder = model.decoder
    return Base(
        model=model,
        inputs={"source": batch()["input_ids"].flip(0), "target": batch()["input_ids"]},
        blocks=decoder.blocks,
        wiring=pre,
        rewire=set_wiring,
        attention=lambda block: matrices_of(block.cross),
        feed_forward=lambda block: (block.up, block.down),
        norms=lambda block: ["first_norm", "second_norm"],
        embedding=decoder.tokens,
        head=decoder.head,
        final=(decoder, "final_norm"),
        positions=decoder.positions,
        loss=next_token_loss,
    )


def own(wiring: Wiring) -> Base:
    model = OwnGPT(wiring)
    return Base(
        model=model,
        inputs=batch(),
        blocks=model.blocks,
        wiring=wiring,
        rewire=set_wiring,
        attention=lambda block: matrices_of(block.attention),
        feed_forward=lambda block: (block.up, block.down),
        norms=lambda block: ["first_norm", "second_norm"],
        embedding=model.tokens,
        head=model.head,
        final=(model, "final_norm"),
        positions=model.positions,
        loss=next_token_loss,
    )


def sizes(**more: Any) -> dict[str, Any]:
    return {
        "vocab_size": VOCABULARY,
        "hidden_size": WIDTH,
        "num_hidden_layers": BLOCKS,
        "num_attention_heads": HEADS,
        "intermediate_size": 4 * WIDTH,
        "attn_implementation": "eager",
        **more,
    }


def llama() -> Base:
    from transformers import LlamaConfig, LlamaForCausalLM

    model = LlamaForCausalLM(LlamaConfig(num_key_value_heads=HEADS, use_cache=False, **sizes()))

    def rewire(block: nn.Module, other: Wiring) -> None:
        def forward(hidden_states: Tensor, **given: Any) -> Tensor:
            def attention(x: Tensor) -> Tensor:
                return block.self_attn(hidden_states=x, **given)[0]

            norms = (block.input_layernorm, block.post_attention_layernorm)
            return other(
                hidden_states, Parts(attention=attention, feed_forward=block.mlp, norms=norms)
            )

        block.forward = forward

    def attention(block: nn.Module) -> dict[str, nn.Linear]:
        of = block.self_attn
        return {"query": of.q_proj, "key": of.k_proj, "value": of.v_proj, "output": of.o_proj}

    return Base(
        model=model,
        inputs={**batch(), "use_cache": False},
        blocks=model.model.layers,
        wiring=pre,
        rewire=rewire,
        attention=attention,
        feed_forward=lambda block: (block.mlp.up_proj, block.mlp.down_proj),
        norms=lambda block: ["input_layernorm", "post_attention_layernorm"],
        embedding=model.model.embed_tokens,
        head=model.lm_head,
        final=(model.model, "norm"),
        loss=next_token_loss,
    )


def bert() -> Base:
    from transformers import BertConfig, BertForMaskedLM

    model = BertForMaskedLM(BertConfig(max_position_embeddings=TOKENS, **sizes()))

    def rewire(block: nn.Module, other: Wiring) -> None:
        def forward(
            hidden_states: Tensor, attention_mask: Tensor | None = None, *_: Any, **given: Any
        ) -> Tensor:
            def attention(x: Tensor) -> Tensor:
                return block.attention.output.dense(block.attention.self(x, attention_mask)[0])

            def feed_forward(x: Tensor) -> Tensor:
                return block.output.dense(block.intermediate(x))

            norms = (block.attention.output.LayerNorm, block.output.LayerNorm)
            return other(
                hidden_states, Parts(attention=attention, feed_forward=feed_forward, norms=norms)
            )

        block.forward = forward

    def attention(block: nn.Module) -> dict[str, nn.Linear]:
        of = block.attention.self
        return {
            "query": of.query,
            "key": of.key,
            "value": of.value,
            "output": block.attention.output.dense,
        }

    return Base(
        model=model,
        inputs=batch(),
        blocks=model.bert.encoder.layer,
        wiring=post,
        rewire=rewire,
        attention=attention,
        feed_forward=lambda block: (block.intermediate.dense, block.output.dense),
        norms=lambda block: ["attention.output.LayerNorm", "output.LayerNorm"],
        embedding=model.bert.embeddings.word_embeddings,
        head=model.cls.predictions.decoder,
        final=(model.bert.encoder, "final_norm"),
        positions=model.bert.embeddings.position_embeddings,
    )


def bart() -> Base:
    from transformers import BartConfig, BartForConditionalGeneration

    parts = ("encoder", "decoder")
    shape = {f"{part}_layers": BLOCKS for part in parts} | {
        f"{part}_attention_heads": HEADS for part in parts
    }
    shape |= {f"{part}_ffn_dim": 4 * WIDTH for part in parts}
    config = BartConfig(
        vocab_size=VOCABULARY,
        d_model=WIDTH,
        max_position_embeddings=TOKENS,
        attn_implementation="eager",
        **shape,
    )
    model = BartForConditionalGeneration(config)
    decoder = model.model.decoder

    def rewire(block: nn.Module, other: Wiring) -> None:
        def forward(
            x: Tensor, mask: Tensor | None = None, memory: Tensor | None = None, **given: Any
        ) -> Tensor:
            x = block.self_attn_layer_norm(x + block.self_attn(x, attention_mask=mask)[0])

            def attention(y: Tensor) -> Tensor:
                return block.encoder_attn(y, key_value_states=memory)[0]

            def feed_forward(y: Tensor) -> Tensor:
                return block.fc2(functional.gelu(block.fc1(y)))

            norms = (block.encoder_attn_layer_norm, block.final_layer_norm)
            return other(x, Parts(attention=attention, feed_forward=feed_forward, norms=norms))

        block.forward = forward

    def attention(block: nn.Module) -> dict[str, nn.Linear]:
        of = block.encoder_attn
        return {"query": of.q_proj, "key": of.k_proj, "value": of.v_proj, "output": of.out_proj}

    return Base(
        model=model,
        inputs={
            "input_ids": batch()["input_ids"].flip(0),
            "decoder_input_ids": batch()["input_ids"],
            "use_cache": False,
        },
        blocks=decoder.layers,
        wiring=post,
        rewire=rewire,
        attention=attention,
        feed_forward=lambda block: (block.fc1, block.fc2),
        norms=lambda block: ["encoder_attn_layer_norm", "final_layer_norm"],
        embedding=model.model.shared,
        head=model.lm_head,
        final=(decoder, "final_norm"),
        loss=next_token_loss,
    )


BASES: dict[str, Callable[[], Base]] = {
    "Pre-LN GPT": lambda: own(pre),
    "DeepNorm GPT": lambda: own(deepnorm),
    "Llama": llama,
    "BERT": bert,
    "encoder-decoder": own_encoder_decoder,
    "BART": bart,
}
