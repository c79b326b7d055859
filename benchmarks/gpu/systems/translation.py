"""The paper's model, an encoder-decoder of 6+6 blocks and width 512 under Post-LN, and its
peers'.
"""

# B = sentences, S / T = longest source / target, M = target tokens, D = width
import math
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from gpu.part import NotInstalled
from gpu.systems import Family, System
from normscope.data.parallel.batches import TranslationBatch, make_batches
from normscope.data.parallel.vocabulary import EOS, PAD
from normscope.model import EncoderDecoder, Layout, ModelConfig
from normscope.tasks.loss import smoothed_cross_entropy

SMOOTHING, LONGEST = 0.1, 128
PAPER = ModelConfig(placement="post-ln", dropout=0.3)
QUICK = ModelConfig(
    placement="post-ln",
    width=16,
    ffn_width=32,
    heads=2,
    encoder_blocks=1,
    decoder_blocks=1,
    dropout=0.3,
)


def family(*, quick: bool) -> Family:
    config, vocabulary = (QUICK, 50) if quick else (PAPER, 10_000)
    sizes = config, vocabulary
    return Family(
        make={
            "normscope": partial(_normscope, *sizes),
            "transformers": partial(_transformers, *sizes),
            "torch": partial(_torch, *sizes),
            "x-transformers": partial(_x_transformers, *sizes),
        },
        batches=partial(make_translation_batches, vocabulary),
        tokens_of=lambda batch: int(batch.target_tokens),
        # The paper's batch, and one that gives the device eight times the work.
        tokens=(128, 256) if quick else (4096, 32_768),
        decay=False,
    )


def make_translation_batches(vocabulary: int, max_tokens: int) -> list[TranslationBatch]:
    """Two batches of sentences of 25 ± 15 tokens, those of a batch of like lengths as in
    training.
    """
    generator = np.random.default_rng(0)
    source = np.clip(generator.normal(25, 15, 20_000).round(), 3, 100).astype(np.int64)
    target = np.clip(
        (source * np.exp(generator.normal(0, 0.15, len(source)))).round(), 3, LONGEST
    ).astype(np.int64)
    batches = make_batches(source, target, max_tokens=max_tokens, seed=0)
    chosen = [batches[len(batches) * quarter // 4] for quarter in (1, 3)]
    draws = torch.Generator().manual_seed(0)

    def ids(lengths: Any) -> tuple[Tensor, Tensor]:
        lengths_B = torch.from_numpy(lengths)
        drawn = torch.randint(4, vocabulary, (len(lengths), int(lengths.max())), generator=draws)
        drawn[torch.arange(len(lengths)), lengths_B - 1] = EOS
        return drawn.masked_fill(torch.arange(drawn.shape[1]) >= lengths_B[:, None], PAD), lengths_B

    found = []
    for rows in chosen:
        (source_BS, source_lengths_B), (target_BT, target_lengths_B) = (
            ids(source[rows]),
            ids(target[rows]),
        )
        found.append(
            TranslationBatch(
                source_BS=source_BS,
                # Nothing is learnt from random sentences, so what is read may be what is to be
                # said.
                target_in_BT=target_BT,
                target_out_BT=target_BT,
                source_lengths_B=source_lengths_B,
                target_lengths_B=target_lengths_B,
                target_tokens=int(target_lengths_B.sum()),
            )
        )
    return found


def _normscope(config: ModelConfig, vocabulary: int) -> System:
    def loss(model: Any, batch: TranslationBatch) -> Tensor:
        source = Layout(batch.source_lengths_B, batch.source_BS.device)
        target = Layout(batch.target_lengths_B, batch.source_BS.device)
        hidden_MD = model(
            source.pack(batch.source_BS), source, target.pack(batch.target_in_BT), target
        )
        target_M = target.pack(batch.target_out_BT)
        total, _ = smoothed_cross_entropy(hidden_MD, model.output_rows(), target_M, SMOOTHING)
        return total / batch.target_tokens

    return System(module=EncoderDecoder(config, vocabulary, vocabulary), loss=loss)


def _transformers(config: ModelConfig, vocabulary: int) -> System:
    """MarianMT, a Post-LN encoder-decoder of the same sizes."""
    model = marian(config, vocabulary)

    def loss(model: nn.Module, batch: TranslationBatch) -> Tensor:
        logits_BTV = model(
            input_ids=batch.source_BS,
            attention_mask=(batch.source_BS != PAD).long(),
            decoder_input_ids=batch.target_in_BT,
            decoder_attention_mask=(batch.target_in_BT != PAD).long(),
        ).logits
        return _loss(logits_BTV, batch)

    return System(module=model, loss=loss)


def marian(config: ModelConfig, vocabulary: int) -> nn.Module:
    """transformers' model of these sizes, with random weights. Raises NotInstalled."""
    try:
        from transformers import MarianConfig, MarianMTModel
    except ModuleNotFoundError:
        raise NotInstalled("transformers is not installed") from None
    sizes: dict[str, Any] = {
        f"{side}_{name}": value
        for side, blocks in (("encoder", config.encoder_blocks), ("decoder", config.decoder_blocks))
        for name, value in (
            ("layers", blocks),
            ("ffn_dim", config.ffn_width),
            ("attention_heads", config.heads),
        )
    }
    found: nn.Module = MarianMTModel(
        MarianConfig(
            vocab_size=vocabulary,
            d_model=config.width,
            max_position_embeddings=LONGEST,
            activation_function="relu",
            dropout=config.dropout,
            scale_embedding=True,
            pad_token_id=PAD,
            eos_token_id=EOS,
            decoder_start_token_id=EOS,
            forced_eos_token_id=EOS,
            **sizes,
        )
    )
    return found


class _TorchTransformer(nn.Module):
    """torch.nn.Transformer as its tutorials join it: scaled tied embeddings, sinusoids, padding and
    causal masks.
    """

    def __init__(self, config: ModelConfig, vocabulary: int) -> None:
        super().__init__()
        width, blocks = config.width, (config.encoder_blocks, config.decoder_blocks)
        self.width = width
        self.embedding = nn.Embedding(vocabulary, width, padding_idx=PAD)
        nn.init.normal_(self.embedding.weight, std=width**-0.5)
        angle = torch.arange(LONGEST)[:, None] * torch.exp(
            torch.arange(0, width, 2) * -(math.log(1e4) / width)
        )
        self.register_buffer("sinusoids", torch.cat([angle.sin(), angle.cos()], 1))
        self.dropout = nn.Dropout(config.dropout)
        self.transformer = nn.Transformer(
            width, config.heads, *blocks, config.ffn_width, config.dropout, batch_first=True
        )
        for module in self.transformer.modules():
            # Dropout of sub-layers alone, as in the paper's recipe: this module's one rate reaches
            # two more places.
            if isinstance(module, nn.MultiheadAttention):
                module.dropout = 0.0
            if isinstance(module, nn.TransformerEncoderLayer | nn.TransformerDecoderLayer):
                module.dropout.p = 0.0

    def embed(self, ids_BT: Tensor) -> Tensor:
        x_BTD = self.embedding(ids_BT) * math.sqrt(self.width) + self.sinusoids[: ids_BT.shape[1]]
        return self.dropout(x_BTD)  # type: ignore[no-any-return]

    def forward(self, source_BS: Tensor, target_BT: Tensor) -> Tensor:
        """Logits (B, T, V)."""
        source_pad, target_pad, longest = source_BS == PAD, target_BT == PAD, target_BT.shape[1]
        hidden_BTD = self.transformer(
            self.embed(source_BS),
            self.embed(target_BT),
            tgt_mask=torch.ones(longest, longest, dtype=torch.bool, device=target_BT.device).triu(
                1
            ),
            src_key_padding_mask=source_pad,
            tgt_key_padding_mask=target_pad,
            memory_key_padding_mask=source_pad,
            tgt_is_causal=True,
        )
        return functional.linear(hidden_BTD, self.embedding.weight)

    sinusoids: Tensor


def _torch(config: ModelConfig, vocabulary: int) -> System:
    def loss(model: nn.Module, batch: TranslationBatch) -> Tensor:
        return _loss(model(batch.source_BS, batch.target_in_BT), batch)

    return System(module=_TorchTransformer(config, vocabulary), loss=loss)


def _x_transformers(config: ModelConfig, vocabulary: int) -> System:
    """Its encoder and decoder with the same sizes, Post-LN and torch's fused attention."""
    try:
        from x_transformers import Decoder, Encoder, TransformerWrapper
    except ModuleNotFoundError:
        raise NotInstalled("x-transformers is not installed") from None

    def stack(kind: Any, blocks: int, **more: Any) -> Any:
        layers = kind(
            dim=config.width,
            depth=blocks,
            heads=config.heads,
            attn_dim_head=config.width // config.heads,
            attn_flash=True,
            pre_norm=False,
            ff_mult=config.ffn_width / config.width,
            layer_dropout=0.0,
            **more,
        )
        return TransformerWrapper(
            num_tokens=vocabulary, max_seq_len=LONGEST, attn_layers=layers, tie_embedding=True
        )

    model = nn.ModuleDict(
        {
            "encoder": stack(Encoder, config.encoder_blocks),
            "decoder": stack(Decoder, config.decoder_blocks, cross_attend=True),
        }
    )

    class Both(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.parts = model

        def forward(self, source_BS: Tensor, target_BT: Tensor) -> Tensor:
            mask_BS = source_BS != PAD
            memory = self.parts["encoder"](source_BS, mask=mask_BS, return_embeddings=True)
            logits: Tensor = self.parts["decoder"](
                target_BT, mask=target_BT != PAD, context=memory, context_mask=mask_BS
            )
            return logits

    def loss(model: nn.Module, batch: TranslationBatch) -> Tensor:
        return _loss(model(batch.source_BS, batch.target_in_BT), batch)

    return System(module=Both(), loss=loss)


def _loss(logits_BTV: Tensor, batch: TranslationBatch) -> Tensor:
    total: Tensor = functional.cross_entropy(
        logits_BTV.flatten(0, 1),
        batch.target_out_BT.flatten(),
        ignore_index=PAD,
        label_smoothing=SMOOTHING,
        reduction="sum",
    )
    return total / batch.target_tokens
