"""One training step of NormScope and of torch.nn.Transformer, at the paper's size, on the same
batches.
"""

# B = sentences, S / T = longest source / target, N / M = packed source / target tokens, D = width,
# V = vocabulary
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from normscope.data.parallel.batches import make_batches
from normscope.model import EncoderDecoder, Layout, ModelConfig
from normscope.model.linear import fast_matmul
from normscope.tasks.loss import smoothed_cross_entropy
from normscope.train.device import Precision, autocast, keep_freed_memory

WIDTH, FFN_WIDTH, HEADS, BLOCKS, VOCABULARY, DROPOUT, SMOOTHING = 512, 1024, 4, 6, 10_000, 0.3, 0.1
PAD, MAX_TOKENS, LONGEST = 1, 4096, 128
PlacementName = Literal["post", "pre"]


@dataclass(frozen=True)
class Batch:
    """Padded ids, as both systems read them; the decoder's input stands in for its output too, as
    nothing is learnt.
    """

    source_BS: Tensor
    target_BT: Tensor
    source_lengths_B: Tensor
    target_lengths_B: Tensor

    @property
    def target_tokens(self) -> int:
        return int(self.target_lengths_B.sum())

    def flops(self) -> float:
        """Of forward and backward on real tokens: three times the products of forward, nothing for
        padding.
        """
        source, target = self.source_lengths_B.double(), self.target_lengths_B.double()
        n, m = float(source.sum()), float(target.sum())
        projection, ffn = 2.0 * WIDTH * WIDTH, 4.0 * WIDTH * FFN_WIDTH
        encoder = n * (4 * projection + ffn) + 4 * WIDTH * float((source**2).sum())
        decoder = m * (6 * projection + ffn) + n * 2 * projection
        # A causal query sees half of its sentence on average.
        pairs = float((target * (target + 1) / 2).sum() + (source * target).sum())
        return 3 * (BLOCKS * (encoder + decoder + 4 * WIDTH * pairs) + 2.0 * m * WIDTH * VOCABULARY)


def make_step_batches(count: int) -> list[Batch]:
    """`count` length-bucketed batches, evenly spaced from short to long, of sentences of 25 ± 15
    tokens.
    """
    generator = np.random.default_rng(0)
    source = np.clip(generator.normal(25, 15, 20_000).round(), 3, 100).astype(np.int64)
    target = np.clip(
        (source * np.exp(generator.normal(0, 0.15, len(source)))).round(), 3, LONGEST
    ).astype(np.int64)
    batches = make_batches(source, target, max_tokens=MAX_TOKENS, seed=0)
    chosen = [batches[(2 * i + 1) * len(batches) // (2 * count)] for i in range(count)]
    return [_batch(source[rows], target[rows], seed=i) for i, rows in enumerate(chosen)]


def _batch(
    source_lengths: "np.typing.NDArray[np.int64]",
    target_lengths: "np.typing.NDArray[np.int64]",
    seed: int,
) -> Batch:
    generator = torch.Generator().manual_seed(seed)
    source_lengths_B, target_lengths_B = (
        torch.from_numpy(source_lengths),
        torch.from_numpy(target_lengths),
    )

    def ids(lengths_B: Tensor) -> Tensor:
        longest = int(lengths_B.max())
        drawn = torch.randint(4, VOCABULARY, (len(lengths_B), longest), generator=generator)
        return drawn.masked_fill(torch.arange(longest) >= lengths_B[:, None], PAD)

    return Batch(ids(source_lengths_B), ids(target_lengths_B), source_lengths_B, target_lengths_B)


class TorchTransformer(nn.Module):
    """torch.nn.Transformer as its tutorials join it: scaled tied embeddings, sinusoids, padding and
    causal masks.
    """

    def __init__(self, placement: PlacementName) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH, padding_idx=PAD)
        nn.init.normal_(self.embedding.weight, std=WIDTH**-0.5)
        position = torch.arange(LONGEST)[:, None] * torch.exp(
            torch.arange(0, WIDTH, 2) * -(math.log(1e4) / WIDTH)
        )
        self.register_buffer("sinusoids", torch.cat([position.sin(), position.cos()], 1))
        self.dropout = nn.Dropout(DROPOUT)
        self.transformer = nn.Transformer(
            WIDTH,
            HEADS,
            BLOCKS,
            BLOCKS,
            FFN_WIDTH,
            DROPOUT,
            batch_first=True,
            norm_first=placement == "pre",
        )
        for layer in [*self.transformer.encoder.layers, *self.transformer.decoder.layers]:
            # Residual dropout alone, as in the paper's recipe: this module's one rate reaches two
            # more places.
            layer.dropout.p = 0.0
            layer.self_attn.dropout = 0.0
            if hasattr(layer, "multihead_attn"):
                layer.multihead_attn.dropout = 0.0

    def embed(self, ids_BT: Tensor) -> Tensor:
        x_BTD = self.embedding(ids_BT) * math.sqrt(WIDTH) + self.sinusoids[: ids_BT.shape[1]]
        return self.dropout(x_BTD)  # type: ignore[no-any-return]

    def forward(self, batch: Batch) -> Tensor:
        """Logits (B, T, V)."""
        source_pad, target_pad = batch.source_BS == PAD, batch.target_BT == PAD
        hidden_BTD = self.transformer(
            self.embed(batch.source_BS),
            self.embed(batch.target_BT),
            tgt_mask=torch.ones(
                batch.target_BT.shape[1], batch.target_BT.shape[1], dtype=torch.bool
            ).triu(1),
            src_key_padding_mask=source_pad,
            tgt_key_padding_mask=target_pad,
            memory_key_padding_mask=source_pad,
            tgt_is_causal=True,
        )
        return functional.linear(hidden_BTD, self.embedding.weight)

    sinusoids: Tensor


def torch_step(placement: PlacementName) -> Callable[[Batch], float]:
    model = TorchTransformer(placement).train()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)

    def step(batch: Batch) -> float:
        optimizer.zero_grad()
        loss = functional.cross_entropy(
            model(batch).flatten(0, 1),
            batch.target_BT.flatten(),
            ignore_index=PAD,
            label_smoothing=SMOOTHING,
            reduction="sum",
        )
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        return loss.item() / batch.target_tokens

    return step


def normscope_step(placement: PlacementName, precision: Precision) -> Callable[[Batch], float]:
    device = torch.device("cpu")
    keep_freed_memory()
    fast_matmul(device)
    config = ModelConfig(
        placement=f"{placement}-ln", width=WIDTH, ffn_width=FFN_WIDTH, heads=HEADS, dropout=DROPOUT
    )
    model = EncoderDecoder(config, VOCABULARY, VOCABULARY).train()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, fused=True)

    def step(batch: Batch) -> float:
        optimizer.zero_grad()
        source, target = Layout(batch.source_lengths_B), Layout(batch.target_lengths_B)
        target_M = target.pack(batch.target_BT)
        with autocast(device, precision):
            hidden_MD = model(source.pack(batch.source_BS), source, target_M, target)
            loss, _ = smoothed_cross_entropy(
                hidden_MD, model.target_embedding.weight, target_M, SMOOTHING
            )
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        return loss.item() / batch.target_tokens

    return step
