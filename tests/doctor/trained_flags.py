"""Small causal models trained as Pre-LN or Post-LN, on seeds that the rule's thresholds were chosen
on, each once.

They are built of torch's own layers, as most models with such a flag are, and have a norm at their
end under both: so their tensors have the same names, to be loaded as either.
"""

# V = vocabulary, T = tokens of a sequence
from functools import cache

import torch
from torch import Tensor, nn

from normscope.doctor.lint.patient import Loading, Patient
from normscope.doctor.observe.examine import examined

DEEP = {"width": 64, "blocks": 4, "rate": 1e-3, "updates": 300, "seed": 1}
NARROW = {"width": 32, "blocks": 3, "rate": 2e-3, "updates": 300, "seed": 0}
HEADS, VOCABULARY, TOKENS, SEQUENCES, WARMUP_UPDATES = 4, 24, 16, 16, 50


class Language(nn.Module):
    """A causal model with a norm at its end under both flags."""

    def __init__(self, *, pre: bool, width: int, blocks: int) -> None:
        super().__init__()
        self.embedding, self.positions = (
            nn.Embedding(VOCABULARY, width),
            nn.Parameter(0.1 * torch.randn(TOKENS, width)),
        )
        nn.init.normal_(self.embedding.weight, std=0.5)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(
                width, HEADS, 2 * width, dropout=0.0, batch_first=True, norm_first=pre
            )
            for _ in range(blocks)
        )
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, VOCABULARY)

    def forward(self, tokens: Tensor) -> Tensor:
        mask = nn.Transformer.generate_square_subsequent_mask(tokens.shape[1])
        x = self.embedding(tokens) + self.positions[: tokens.shape[1]]
        for layer in self.layers:
            x = layer(x, src_mask=mask, is_causal=True)
        logits: Tensor = self.head(self.norm(x))
        return logits


def loaded(model: Language, *, pre: bool) -> Language:
    """The same weights under a flag."""
    other = Language(pre=pre, width=model.head.in_features, blocks=len(model.layers))
    other.load_state_dict(model.state_dict())
    return other


class _FlagText:
    """Sequences in which a token depends on the two before it."""

    def __init__(self, seed: int) -> None:
        self.generator = torch.Generator().manual_seed(seed)
        self.chances_VV = (
            3 * torch.randn(VOCABULARY, VOCABULARY, generator=self.generator)
        ).softmax(-1)

    def batch(self) -> Tensor:
        """(sequences, T + 1) token ids."""
        x = torch.randint(VOCABULARY, (SEQUENCES, TOKENS + 1), generator=self.generator)
        for t in range(2, TOKENS + 1):
            row = (x[:, t - 1] + 2 * x[:, t - 2]) % VOCABULARY
            x[:, t] = torch.multinomial(self.chances_VV[row], 1, generator=self.generator)[:, 0]
        return x


def loss_of(logits: Tensor, tokens: Tensor) -> Tensor:
    """The mean cross-entropy of the next token, in nats."""
    return nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())


@cache
def trained(
    *, pre: bool, width: int, blocks: int, rate: float, updates: int, seed: int
) -> tuple[Language, Tensor]:
    """The model, and a batch that it was not trained on."""
    torch.manual_seed(seed)
    text, model = _FlagText(seed), Language(pre=pre, width=width, blocks=blocks)
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate, weight_decay=0.01)
    for update in range(1, updates + 1):
        for group in optimizer.param_groups:
            group["lr"] = rate * min(1.0, update / WARMUP_UPDATES)
        tokens = text.batch()
        optimizer.zero_grad()
        loss_of(model(tokens[:, :-1]), tokens).backward()
        optimizer.step()
    return model, text.batch()


def patient_under(model: Language, tokens: Tensor, *, pre: bool) -> Patient:
    """The same weights under a flag, looked at on the data of the training."""
    other = loaded(model, pre=pre)
    stacks, observed = examined(
        other, (tokens[:, :-1],), lambda logits: loss_of(logits, tokens), rewire=True
    )
    complete = Loading(missing=(), unexpected=())
    return Patient(
        model=other, stacks=stacks, observed=observed, dtype=torch.float32, loading=complete
    )
