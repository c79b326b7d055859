"""One training step of NormScope's Llama preset and of transformers.LlamaForCausalLM on the same
batches.
"""

# B = sequences, T = longest, N = packed tokens
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn import functional

from normscope.model import DecoderConfig, LanguageModel, Layout
from normscope.model.linear import fast_matmul
from normscope.runs.config import load
from normscope.tasks.loss import smoothed_cross_entropy
from normscope.train.device import Precision, autocast, keep_freed_memory

VOCABULARY, SEQUENCES, LENGTH = 32_000, 4, 256
HEADS, KEY_VALUE_HEADS = 12, 4


def config() -> DecoderConfig:
    """Of about 130 million parameters: GPT-2's smallest width and depth with Llama's parts."""
    sizes = {
        "width": 768,
        "ffn_width": 2048,
        "heads": HEADS,
        "blocks": 12,
        "attention.key_value_heads": KEY_VALUE_HEADS,
    }
    found = load(
        None, ['model.preset="llama"', *(f"model.{name}={value}" for name, value in sizes.items())]
    ).model
    assert isinstance(found, DecoderConfig)
    return replace(found, output="tied")


CONFIG = config()


@dataclass(frozen=True)
class Batch:
    """Full sequences, as a stretch of documents gives them, and the tokens that follow."""

    tokens_BT: Tensor
    targets_BT: Tensor

    @property
    def tokens(self) -> int:
        return self.tokens_BT.numel()

    def flops(self) -> float:
        """Of forward and backward, three times the products of forward."""
        shape = CONFIG.shape()
        attention = 4.0 * shape.width * (shape.query_width + shape.key_value_width)
        block = self.tokens * (attention + 6.0 * CONFIG.width * CONFIG.ffn_width)
        scores = 4.0 * shape.query_width * SEQUENCES * LENGTH**2
        return 3 * (
            CONFIG.blocks * (block + scores) + self.tokens * 2.0 * CONFIG.width * VOCABULARY
        )


def make_llama_batches(count: int) -> list[Batch]:
    generator = torch.Generator().manual_seed(0)
    drawn = [
        torch.randint(VOCABULARY, (SEQUENCES, LENGTH + 1), generator=generator)
        for _ in range(count)
    ]
    return [Batch(tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()) for tokens in drawn]


def transformers_step() -> Callable[[Batch], float]:
    """As its users write it: fp32, attention and products as the libraries choose them."""
    import transformers

    theirs = transformers.LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=CONFIG.width,
        intermediate_size=CONFIG.ffn_width,
        num_hidden_layers=CONFIG.blocks,
        num_attention_heads=HEADS,
        num_key_value_heads=KEY_VALUE_HEADS,
        max_position_embeddings=LENGTH,
        tie_word_embeddings=True,
        use_cache=False,
    )
    model = transformers.LlamaForCausalLM(theirs).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)

    def step(batch: Batch) -> float:
        optimizer.zero_grad()
        logits = model(input_ids=batch.tokens_BT).logits
        loss = functional.cross_entropy(logits.flatten(0, 1), batch.targets_BT.flatten())
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        return float(loss.item())

    return step


def normscope_step(precision: Precision) -> Callable[[Batch], float]:
    device = torch.device("cpu")
    keep_freed_memory()
    fast_matmul(device)
    model = LanguageModel(CONFIG, VOCABULARY).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)

    def step(batch: Batch) -> float:
        optimizer.zero_grad()
        layout = Layout(torch.full((SEQUENCES,), LENGTH))
        with autocast(device, precision):
            hidden_ND = model(batch.tokens_BT.flatten(), layout)
            loss, _ = smoothed_cross_entropy(
                hidden_ND, model.output_rows(), batch.targets_BT.flatten(), 0.0
            )
        (loss / batch.tokens).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        return loss.item() / batch.tokens

    return step
