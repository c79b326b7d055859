"""The one head by which every encoder tells sentences apart: first token, tanh layer, linear layer.

It is BERT's (Devlin et al. 2018, section 4.1), above encoders of any placement and above those of
transformers, which may have other heads of their own.
"""

# B = sequences, T = tokens of the longest, N = packed tokens, D = width, C = classes

from typing import Protocol, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from ..model import Layout, MaskedEncoder
from ..tasks.loss import at_least_float32

INITIAL_DEVIATION = 0.02
"""The standard deviation of weights that are drawn, as BERT's are; biases begin at 0."""


class _Linear(Protocol):
    weight: Tensor
    bias: Tensor


class OwnEncoder(nn.Module):
    """An encoder of ours on a grid of tokens."""

    def __init__(self, model: MaskedEncoder) -> None:
        super().__init__()
        self.model = model

    def forward(self, tokens_BT: Tensor, keep_BT: Tensor, segments_BT: Tensor) -> Tensor:
        """Returns the hidden state of each sequence's first token, (B, D).

        keep_BT: 1 for tokens, 0 for what fills rows up on the right.
        """
        layout = Layout(keep_BT.sum(1).cpu(), tokens_BT.device)
        hidden_ND = self.model(layout.pack(tokens_BT), layout.pack(segments_BT), layout)
        return hidden_ND.index_select(0, layout.first_B)  # type: ignore[no-any-return]


class GivenEncoder(nn.Module):
    """An encoder of transformers."""

    def __init__(self, model: nn.Module, *, segments: int) -> None:
        """segments: how many kinds of segments it tells apart, 0 where it takes none."""
        super().__init__()
        self.model, self.segments = model, segments

    def forward(self, tokens_BT: Tensor, keep_BT: Tensor, segments_BT: Tensor) -> Tensor:
        """Returns the first token's hidden state, as `OwnEncoder` does."""
        given = {"input_ids": tokens_BT, "attention_mask": keep_BT}
        if self.segments:
            given["token_type_ids"] = segments_BT.clamp(max=self.segments - 1)
        return self.model(**given)[0][:, 0]  # type: ignore[no-any-return]


class SentenceClassifier(nn.Module):
    """An encoder with the head, in the form that `transformers.Trainer` trains."""

    def __init__(
        self,
        encoder: nn.Module,
        pooler: nn.Module | None,
        *,
        width: int,
        classes: int,
        dropout: float,
        seed: int,
    ) -> None:
        """encoder: gives the first token's hidden state, as `OwnEncoder`. pooler: a linear layer
        (width, width) that was pre-trained; None to draw one. dropout: on what is pooled. seed: of
        the layers that are drawn, whatever encoder they are for.
        """
        super().__init__()
        self.encoder = encoder
        generator = torch.Generator().manual_seed(seed)
        self.classifier = _drawn(width, classes, generator)
        self.pooler = _drawn(width, width, generator)
        if pooler is not None:
            with torch.no_grad():
                there = cast(_Linear, pooler)
                self.pooler.weight.copy_(there.weight)
                self.pooler.bias.copy_(there.bias)
        self.dropout = nn.Dropout(dropout)

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor,
        token_type_ids: Tensor,
        labels: Tensor | None = None,
    ) -> dict[str, Tensor]:
        """Returns the logits (B, C), and with labels (B,) their mean cross-entropy in nats.

        The first three are grids (B, T), filled up on the right.
        """
        first_BD = self.encoder(input_ids, attention_mask, token_type_ids)
        pooled_BD = self.pooler(first_BD).tanh()
        logits_BC = at_least_float32(self.classifier(self.dropout(pooled_BD)))
        if labels is None:
            return {"logits": logits_BC}
        return {"loss": functional.cross_entropy(logits_BC, labels), "logits": logits_BC}


def _drawn(inputs: int, outputs: int, generator: torch.Generator) -> nn.Linear:
    made = nn.Linear(inputs, outputs)
    nn.init.normal_(made.weight, std=INITIAL_DEVIATION, generator=generator)
    nn.init.zeros_(made.bias)
    return made
