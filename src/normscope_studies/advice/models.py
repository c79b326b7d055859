"""The models of other makers that cases are of, small and without dropout, and ours beside them."""

import math
from collections.abc import Callable
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from normscope.errors import UserError, installation
from normscope.model import (
    DecoderConfig,
    EncoderConfig,
    EncoderDecoder,
    LanguageModel,
    MaskedEncoder,
    ModelConfig,
)
from normscope.optim.groups import roles

from .cases import HEAD_WIDTH, OURS, AdviceCase

_Kind = Literal["decoder", "encoder", "encoder-decoder", "classifier"]
_Make = Callable[[AdviceCase, int], nn.Module]

# B = sequences, T = tokens of each, V = vocabulary


def built(case: AdviceCase, vocabulary: int, seed: int) -> nn.Module:
    """Builds a model with initial weights; vocabulary: the number of ids, a mask's included.

    Raises UserError where a model's library is not installed.
    """
    torch.manual_seed(seed)
    if case.model in OURS:
        return _ours(case, vocabulary)
    try:
        model = FOREIGN[case.model][1](case, vocabulary)
    except ModuleNotFoundError:
        raise UserError(f"{case.model} is of transformers: {installation('huggingface')}") from None
    if case.initialisation == "zero-head":
        nn.init.zeros_(model.get_submodule("head").weight)  # type: ignore[arg-type]
    if case.narrower != 1 and case.model in _DRAWN_ALIKE_AT_ANY_WIDTH:
        shrink(model, 1 / math.sqrt(case.narrower))
    return model


@torch.no_grad()
def shrink(model: nn.Module, by: float) -> None:
    """Multiply the matrices and the head."""
    weights = dict(model.named_parameters())
    for name, role in roles(model).items():
        if role in ("matrix", "head"):
            weights[name].mul_(by)


def kind_of(case: AdviceCase) -> _Kind:
    """Returns what the case's model is trained to do."""
    return FOREIGN[case.model][0] if case.model in FOREIGN else case.model  # type: ignore[return-value]


def _ours(case: AdviceCase, vocabulary: int) -> nn.Module:
    sizes: dict[str, Any] = {
        "placement": case.placement,
        "width": case.width,
        "ffn_width": 2 * case.width,
        "heads": case.width // HEAD_WIDTH,
        "initialisation": case.initialisation,
        "dropout": 0.0,
    }
    if case.model == "encoder-decoder":
        config = ModelConfig(**sizes, encoder_blocks=case.blocks, decoder_blocks=case.blocks)
        return EncoderDecoder(config, vocabulary, vocabulary)
    sizes |= {"blocks": case.blocks, "positions": case.length, "attention_dropout": 0.0}
    if case.model == "encoder":
        return MaskedEncoder(EncoderConfig(**sizes), vocabulary)
    return LanguageModel(DecoderConfig(**sizes), vocabulary)


_DRAWN_ALIKE_AT_ANY_WIDTH = ("nanogpt", "gpt2", "llama", "olmo2")
"""N(0, 0.02²); torch's layers draw in proportion to the root of the width."""


def _heads(case: AdviceCase) -> int:
    return case.width // HEAD_WIDTH


class _NanoGpt(nn.Module):
    """A decoder as one writes it by hand: Pre-LN, GELU, learned positions, GPT-2's initial
    weights.
    """

    def __init__(self, case: AdviceCase, vocabulary: int) -> None:
        super().__init__()
        width = case.width
        self.tokens, self.positions = (
            nn.Embedding(vocabulary, width),
            nn.Embedding(case.length, width),
        )
        self.blocks = nn.ModuleList(_NanoBlock(width) for _ in range(case.blocks))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)
        for name, weight in self.named_parameters():
            if weight.dim() > 1:
                last = name.endswith(("out.weight", "down.weight"))
                nn.init.normal_(weight, std=0.02 / (math.sqrt(2 * case.blocks) if last else 1.0))

    def forward(self, tokens_BT: Tensor) -> Tensor:
        x_BTD = self.tokens(tokens_BT) + self.positions.weight[: tokens_BT.shape[1]]
        for block in self.blocks:
            x_BTD = block(x_BTD)
        logits: Tensor = self.head(self.norm(x_BTD))
        return logits


class _NanoBlock(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x_BTD: Tensor) -> Tensor:
        q, k, v = (
            self.qkv(self.first(x_BTD)).unflatten(-1, (3, -1, HEAD_WIDTH)).permute(2, 0, 3, 1, 4)
        )
        attended = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x_BTD = x_BTD + self.out(attended.transpose(1, 2).flatten(2))
        changed: Tensor = x_BTD + self.down(functional.gelu(self.up(self.second(x_BTD))))
        return changed


class _Torch(nn.Module):
    """torch's own layers between an embedding and a head."""

    def __init__(
        self, case: AdviceCase, vocabulary: int, *, norm_first: bool, causal: bool
    ) -> None:
        super().__init__()
        width, self.causal = case.width, causal
        self.tokens, self.positions = (
            nn.Embedding(vocabulary, width),
            nn.Embedding(case.length, width),
        )
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(
                width,
                width // HEAD_WIDTH,
                2 * width,
                dropout=0.0,
                batch_first=True,
                norm_first=norm_first,
            )
            for _ in range(case.blocks)
        )
        self.norm = nn.LayerNorm(width) if norm_first else nn.Identity()
        self.head = nn.Linear(width, vocabulary)

    def forward(self, tokens_BT: Tensor) -> Tensor:
        length = tokens_BT.shape[1]
        x_BTD = self.tokens(tokens_BT) + self.positions.weight[:length]
        mask = nn.Transformer.generate_square_subsequent_mask(length) if self.causal else None
        for layer in self.layers:
            x_BTD = layer(x_BTD, src_mask=mask, is_causal=self.causal)
        logits: Tensor = self.head(self.norm(x_BTD))
        return logits


def _of_transformers(name: str, settings: Callable[[AdviceCase, int], dict[str, Any]]) -> _Make:
    """name: "GPT2LMHeadModel"; settings: its configuration's, of the case and the vocabulary."""

    def make(case: AdviceCase, vocabulary: int) -> nn.Module:
        import transformers

        kind: Any = getattr(transformers, name)
        model: nn.Module = kind(kind.config_class(**settings(case, vocabulary)))
        return model

    return make


def _llama(case: AdviceCase, vocabulary: int) -> dict[str, Any]:
    no_tokens = dict.fromkeys(("pad_token_id", "bos_token_id", "eos_token_id"))
    sizes = {
        "hidden_size": case.width,
        "intermediate_size": 3 * case.width,
        "num_hidden_layers": case.blocks,
    }
    heads = {"num_attention_heads": _heads(case), "max_position_embeddings": case.length}
    return {"vocab_size": vocabulary, **sizes, **heads, **no_tokens}


def _bert(case: AdviceCase, vocabulary: int) -> dict[str, Any]:
    return _llama(case, vocabulary) | {
        "hidden_dropout_prob": 0.0,
        "attention_probs_dropout_prob": 0.0,
    }


def _vit(case: AdviceCase, vocabulary: int) -> dict[str, Any]:
    image = {"image_size": 8, "patch_size": 2, "num_channels": 1, "num_labels": vocabulary}
    kept = ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads")
    return image | {key: _llama(case, vocabulary)[key] for key in kept}


def _gpt2(case: AdviceCase, vocabulary: int) -> dict[str, Any]:
    sizes = {
        "n_positions": case.length,
        "n_embd": case.width,
        "n_layer": case.blocks,
        "n_head": _heads(case),
    }
    dropless = dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), 0.0)
    return {
        "vocab_size": vocabulary,
        **sizes,
        **dropless,
        "bos_token_id": None,
        "eos_token_id": None,
    }


def _t5(case: AdviceCase, vocabulary: int) -> dict[str, Any]:
    sizes = {
        "d_model": case.width,
        "d_ff": 3 * case.width,
        "d_kv": HEAD_WIDTH,
        "num_layers": case.blocks,
    }
    tokens = {"vocab_size": vocabulary, "pad_token_id": 0, "decoder_start_token_id": 0}
    return {**tokens, **sizes, "num_heads": _heads(case), "dropout_rate": 0.0}


FOREIGN: dict[str, tuple[_Kind, _Make]] = {
    "nanogpt": ("decoder", _NanoGpt),
    "torch-post": ("decoder", partial(_Torch, norm_first=False, causal=True)),
    "torch-pre": ("decoder", partial(_Torch, norm_first=True, causal=True)),
    "torch-encoder": ("encoder", partial(_Torch, norm_first=False, causal=False)),
    "gpt2": ("decoder", _of_transformers("GPT2LMHeadModel", _gpt2)),
    "llama": ("decoder", _of_transformers("LlamaForCausalLM", _llama)),
    "olmo2": ("decoder", _of_transformers("Olmo2ForCausalLM", _llama)),
    "bert": ("encoder", _of_transformers("BertForMaskedLM", _bert)),
    "t5": ("encoder-decoder", _of_transformers("T5ForConditionalGeneration", _t5)),
    "vit": ("classifier", _of_transformers("ViTForImageClassification", _vit)),
}
"""The foreign models by name: what each is trained to do, and how it is made of a case and a
vocabulary.
"""
