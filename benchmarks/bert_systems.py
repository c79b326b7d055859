"""One pre-training step of NormScope's BERT and of transformers.BertForMaskedLM, at base size, on
the same batches.
"""

# B = sequences, T = longest, N = packed tokens, M = masked tokens
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from normscope.model import EncoderConfig, Layout, MaskedEncoder
from normscope.model.linear import fast_matmul
from normscope.tasks.loss import smoothed_cross_entropy
from normscope.train.device import Precision, autocast, keep_freed_memory

CONFIG = EncoderConfig(norm_epsilon=1e-12)
VOCABULARY, SEQUENCES, LONGEST, SHORT_SHARE, MASKED_SHARE = 30_522, 8, 128, 0.1, 0.15
PAD, IGNORED = 0, -100


@dataclass(frozen=True)
class Batch:
    """Right-padded sequences as BERT packs them: a tenth is shorter, 15 % of the tokens are to be
    told.
    """

    tokens_BT: Tensor
    labels_BT: Tensor
    """IGNORED where nothing is asked."""
    lengths_B: Tensor

    @property
    def tokens(self) -> int:
        return int(self.lengths_B.sum())

    def flops(self) -> float:
        """Of forward and backward, three times the products of forward: real tokens, and masked
        ones in the head.
        """
        width, ffn_width, lengths = CONFIG.width, CONFIG.ffn_width, self.lengths_B.double()
        block = self.tokens * (8.0 * width**2 + 4.0 * width * ffn_width) + 4.0 * width * float(
            (lengths**2).sum()
        )
        head = int((self.labels_BT != IGNORED).sum()) * 2.0 * (width**2 + width * VOCABULARY)
        return 3 * (CONFIG.blocks * block + head)


def make_bert_batches(count: int) -> list[Batch]:
    generator = torch.Generator().manual_seed(0)
    return [_batch(generator) for _ in range(count)]


def _batch(generator: torch.Generator) -> Batch:
    short_B = torch.rand(SEQUENCES, generator=generator) < SHORT_SHARE
    lengths_B = torch.where(
        short_B, torch.randint(8, LONGEST, (SEQUENCES,), generator=generator), LONGEST
    )
    real_BT = torch.arange(int(lengths_B.max())) < lengths_B[:, None]
    tokens_BT = torch.randint(1, VOCABULARY, real_BT.shape, generator=generator).masked_fill(
        ~real_BT, PAD
    )
    asked_BT = (torch.rand(real_BT.shape, generator=generator) < MASKED_SHARE) & real_BT
    return Batch(tokens_BT, tokens_BT.masked_fill(~asked_BT, IGNORED), lengths_B)


def transformers_step() -> Callable[[Batch], float]:
    """As its users write it: fp32, attention and products as the libraries choose them."""
    import transformers

    model = transformers.BertForMaskedLM(transformers.BertConfig()).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)

    def step(batch: Batch) -> float:
        optimizer.zero_grad()
        mask_BT = (torch.arange(batch.tokens_BT.shape[1]) < batch.lengths_B[:, None]).long()
        loss = model(input_ids=batch.tokens_BT, attention_mask=mask_BT, labels=batch.labels_BT).loss
        loss.backward()
        optimizer.step()
        return float(loss.item())

    return step


def normscope_step(precision: Precision) -> Callable[[Batch], float]:
    device = torch.device("cpu")
    keep_freed_memory()
    fast_matmul(device)
    model = MaskedEncoder(CONFIG, VOCABULARY).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)

    def step(batch: Batch) -> float:
        optimizer.zero_grad()
        layout = Layout(batch.lengths_B)
        labels_N = layout.pack(batch.labels_BT)
        masked_M = (labels_N != IGNORED).nonzero().squeeze(1)
        with autocast(device, precision):
            hidden_ND = model(layout.pack(batch.tokens_BT), None, layout)
            loss, _ = smoothed_cross_entropy(
                model.predict(hidden_ND.index_select(0, masked_M)),
                model.output_rows(),
                labels_N.index_select(0, masked_M),
                0.0,
                bias_V=model.output_bias,
            )
        (loss / len(masked_M)).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        return loss.item() / len(masked_M)

    return step
