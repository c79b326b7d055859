"""A Llama of the size of GPT-2's smallest (124 million parameters), and transformers' and
x-transformers'.
"""

# B = sequences, T = tokens of each, N = tokens of all, D = width
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from gpu.part import NotInstalled
from gpu.systems import Family, System
from normscope.data.documents.batches import StretchBatch
from normscope.model import DecoderConfig, LanguageModel, Layout
from normscope.runs.config import load
from normscope.tasks.loss import smoothed_cross_entropy


def family(*, quick: bool) -> Family:
    config, vocabulary = _config(quick), 50 if quick else 50_304
    return Family(
        make={
            "normscope": partial(_normscope, config, vocabulary),
            "transformers": partial(_transformers, config, vocabulary),
            "x-transformers": partial(_x_transformers, config, vocabulary),
        },
        batches=partial(_batches, config, vocabulary),
        tokens_of=lambda batch: len(batch.tokens_N),
        tokens=(128,) if quick else (16_384, 32_768),
        decay=True,
    )


def _config(quick: bool) -> DecoderConfig:
    sizes = (16, 32, 2, 1, 32) if quick else (768, 2048, 12, 12, 1024)
    names = ("width", "ffn_width", "heads", "blocks", "positions")
    settings = [f"model.{name}={size}" for name, size in zip(names, sizes, strict=True)]
    found = load(
        None, ['model.preset="llama"', *settings, f"data.sequence_length={sizes[-1]}"]
    ).model
    assert isinstance(found, DecoderConfig)
    return replace(found, output="tied")


def _batches(config: DecoderConfig, vocabulary: int, tokens: int) -> list[StretchBatch]:
    """Two batches of full sequences, as stretches of documents are."""
    generator = torch.Generator().manual_seed(0)
    sequences = tokens // config.positions
    drawn = [
        torch.randint(vocabulary, (sequences, config.positions + 1), generator=generator)
        for _ in range(2)
    ]
    return [
        StretchBatch(
            tokens_N=tokens_BT[:, :-1].flatten(),
            targets_N=tokens_BT[:, 1:].flatten(),
            lengths_B=torch.full((sequences,), config.positions),
        )
        for tokens_BT in drawn
    ]


def _normscope(config: DecoderConfig, vocabulary: int) -> System:
    def loss(model: Any, batch: StretchBatch) -> Tensor:
        hidden_ND = model(batch.tokens_N, Layout(batch.lengths_B, batch.tokens_N.device))
        total, _ = smoothed_cross_entropy(hidden_ND, model.output_rows(), batch.targets_N, 0.0)
        return total / len(batch.targets_N)

    return System(module=LanguageModel(config, vocabulary), loss=loss)


def _transformers(config: DecoderConfig, vocabulary: int) -> System:
    try:
        from transformers import LlamaConfig, LlamaForCausalLM
    except ModuleNotFoundError:
        raise NotInstalled("transformers is not installed") from None
    theirs = LlamaConfig(
        vocab_size=vocabulary,
        hidden_size=config.width,
        intermediate_size=config.ffn_width,
        num_hidden_layers=config.blocks,
        num_attention_heads=config.heads,
        max_position_embeddings=config.positions,
        tie_word_embeddings=True,
        use_cache=False,
    )

    def loss(model: nn.Module, batch: StretchBatch) -> Tensor:
        return _loss(model(input_ids=_grid(batch)).logits, batch)

    return System(module=LlamaForCausalLM(theirs), loss=loss)


def _x_transformers(config: DecoderConfig, vocabulary: int) -> System:
    """With the same parts: RMSNorm, rotary positions, SwiGLU, no biases, torch's fused
    attention.
    """
    try:
        from x_transformers import Decoder, TransformerWrapper
    except ModuleNotFoundError:
        raise NotInstalled("x-transformers is not installed") from None
    layers = Decoder(
        dim=config.width,
        depth=config.blocks,
        heads=config.heads,
        attn_dim_head=config.width // config.heads,
        attn_flash=True,
        rotary_pos_emb=True,
        use_rmsnorm=True,
        ff_mult=config.ffn_width / config.width,
        ff_glu=True,
        ff_swish=True,
        ff_no_bias=True,
    )
    model: nn.Module = TransformerWrapper(
        num_tokens=vocabulary,
        max_seq_len=config.positions,
        attn_layers=layers,
        use_abs_pos_emb=False,
        tie_embedding=True,
    )

    def loss(model: nn.Module, batch: StretchBatch) -> Tensor:
        return _loss(model(_grid(batch)), batch)

    return System(module=model, loss=loss)


def _grid(batch: StretchBatch) -> Tensor:
    return batch.tokens_N.view(len(batch.lengths_B), -1)


def _loss(logits_BTV: Tensor, batch: StretchBatch) -> Tensor:
    return functional.cross_entropy(logits_BTV.flatten(0, 1), batch.targets_N)
