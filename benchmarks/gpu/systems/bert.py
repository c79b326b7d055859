"""BERT-base, pre-trained on masked tokens, and transformers' and torch's own."""

# B = sequences, T = tokens of each, N = tokens of all, M = masked tokens, D = width
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from gpu.part import NotInstalled
from gpu.systems import Family, System
from normscope.data.documents.batches import PairBatch
from normscope.model import EncoderConfig, Layout, MaskedEncoder
from normscope.tasks.loss import smoothed_cross_entropy

BASE = EncoderConfig(norm_epsilon=1e-12)
QUICK = replace(BASE, width=16, ffn_width=32, heads=2, blocks=1, positions=32)
MASKED_SHARE, IGNORED = 0.15, -100


def family(*, quick: bool) -> Family:
    config, vocabulary = (QUICK, 50) if quick else (BASE, 30_522)
    return Family(
        make={
            "normscope": partial(_normscope, config, vocabulary),
            "transformers": partial(_transformers, config, vocabulary),
            "torch": partial(_torch, config, vocabulary),
        },
        batches=partial(_batches, config, vocabulary),
        tokens_of=lambda batch: len(batch.tokens_N),
        tokens=(128,) if quick else (16_384, 32_768),
        decay=True,
    )


def _batches(config: EncoderConfig, vocabulary: int, tokens: int) -> list[PairBatch]:
    """Two batches of full sequences, as packed pairs of sentences are, with 15 % of the tokens to
    be told.
    """
    generator = torch.Generator().manual_seed(0)
    found = []
    for _ in range(2):
        sequences = tokens // config.positions
        tokens_N = torch.randint(
            1, vocabulary, (sequences * config.positions,), generator=generator
        )
        masked_M = (
            (torch.rand(len(tokens_N), generator=generator) < MASKED_SHARE).nonzero().squeeze(1)
        )
        found.append(
            PairBatch(
                tokens_N=tokens_N,
                segments_N=torch.zeros_like(tokens_N),
                lengths_B=torch.full((sequences,), config.positions),
                masked_M=masked_M,
                targets_M=tokens_N[masked_M],
                is_random_B=torch.zeros(sequences, dtype=torch.int64),
            )
        )
    return found


def _normscope(config: EncoderConfig, vocabulary: int) -> System:
    def loss(model: Any, batch: PairBatch) -> Tensor:
        hidden_ND = model(
            batch.tokens_N, batch.segments_N, Layout(batch.lengths_B, batch.tokens_N.device)
        )
        predicted_MD = model.predict(hidden_ND.index_select(0, batch.masked_M))
        total, _ = smoothed_cross_entropy(
            predicted_MD, model.output_rows(), batch.targets_M, 0.0, bias_V=model.output_bias
        )
        return total / len(batch.targets_M)

    return System(module=MaskedEncoder(config, vocabulary), loss=loss)


def _transformers(config: EncoderConfig, vocabulary: int) -> System:
    """As its users have it: logits of every token."""
    try:
        from transformers import BertConfig, BertForMaskedLM
    except ModuleNotFoundError:
        raise NotInstalled("transformers is not installed") from None
    model: nn.Module = BertForMaskedLM(
        BertConfig(
            vocab_size=vocabulary,
            hidden_size=config.width,
            intermediate_size=config.ffn_width,
            num_hidden_layers=config.blocks,
            num_attention_heads=config.heads,
            max_position_embeddings=config.positions,
        )
    )

    def loss(model: nn.Module, batch: PairBatch) -> Tensor:
        tokens_BT = _grid(batch.tokens_N, batch)
        logits_BTV = model(
            input_ids=tokens_BT, token_type_ids=_grid(batch.segments_N, batch)
        ).logits
        return functional.cross_entropy(
            logits_BTV.flatten(0, 1), _labels(batch), ignore_index=IGNORED
        )

    return System(module=model, loss=loss)


class _TorchEncoder(nn.Module):
    """torch.nn.TransformerEncoder with embeddings and a tied head."""

    def __init__(self, config: EncoderConfig, vocabulary: int) -> None:
        super().__init__()
        self.tokens, self.positions = (
            nn.Embedding(vocabulary, config.width),
            nn.Embedding(config.positions, config.width),
        )
        layer = nn.TransformerEncoderLayer(
            config.width,
            config.heads,
            config.ffn_width,
            config.dropout,
            "gelu",
            1e-12,
            batch_first=True,
        )
        self.encoder = nn.TransformerEncoder(layer, config.blocks, enable_nested_tensor=False)
        self.norm, self.dropout = nn.LayerNorm(config.width, 1e-12), nn.Dropout(config.dropout)
        self.transform, self.head_norm = (
            nn.Linear(config.width, config.width),
            nn.LayerNorm(config.width, 1e-12),
        )
        self.bias = nn.Parameter(torch.zeros(vocabulary))

    def forward(self, tokens_BT: Tensor) -> Tensor:
        """Logits (B, T, V)."""
        x_BTD = self.dropout(
            self.norm(self.tokens(tokens_BT) + self.positions.weight[: tokens_BT.shape[1]])
        )
        hidden_BTD = self.head_norm(functional.gelu(self.transform(self.encoder(x_BTD))))
        return functional.linear(hidden_BTD, self.tokens.weight, self.bias)


def _torch(config: EncoderConfig, vocabulary: int) -> System:
    def loss(model: nn.Module, batch: PairBatch) -> Tensor:
        logits_BTV = model(_grid(batch.tokens_N, batch))
        return functional.cross_entropy(
            logits_BTV.flatten(0, 1), _labels(batch), ignore_index=IGNORED
        )

    return System(module=_TorchEncoder(config, vocabulary), loss=loss)


def _grid(x_N: Tensor, batch: PairBatch) -> Tensor:
    """Of full sequences."""
    return x_N.view(len(batch.lengths_B), -1)


def _labels(batch: PairBatch) -> Tensor:
    return torch.full_like(batch.tokens_N, IGNORED).index_copy(0, batch.masked_M, batch.targets_M)
