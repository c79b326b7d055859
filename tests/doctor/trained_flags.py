"""Small language models that are trained as Pre-LN or Post-LN, with tensors of the same names, to be loaded as either.

`python -m doctor.trained_flags`, in tests/, trains six and says what the rule finds in each under both flags.
"""

# V = vocabulary, T = tokens of a sequence
from collections.abc import Sequence
from functools import cache

import torch
from torch import Tensor, nn

from normscope.doctor.lint.checks.training import contradicts_training
from normscope.doctor.lint.rules import Loading, Patient
from normscope.doctor.observe.examine import examined
from normscope.report.doctor.contents import Finding

VOCABULARY, TOKENS, SEQUENCES = 24, 16, 16


class Language(nn.Module):
    """A causal model with a norm at its end under both flags."""

    def __init__(self, *, pre: bool, width: int, blocks: int) -> None:
        super().__init__()
        self.embedding, self.positions = nn.Embedding(VOCABULARY, width), nn.Parameter(0.1 * torch.randn(TOKENS, width))
        nn.init.normal_(self.embedding.weight, std=0.5)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(width, 4, 2 * width, dropout=0.0, batch_first=True, norm_first=pre)
            for _ in range(blocks)
        )
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, VOCABULARY)

    def forward(self, tokens: Tensor) -> Tensor:
        mask = nn.Transformer.generate_square_subsequent_mask(tokens.shape[1])
        x = self.embedding(tokens) + self.positions[: tokens.shape[1]]
        for layer in self.layers:
            x = layer(x, src_mask=mask, is_causal=True)
        return self.head(self.norm(x))


class Text:
    """Sequences in which a token depends on the two before it."""

    def __init__(self, seed: int) -> None:
        self.generator = torch.Generator().manual_seed(seed)
        self.chances_VV = (3 * torch.randn(VOCABULARY, VOCABULARY, generator=self.generator)).softmax(-1)

    def batch(self) -> Tensor:
        x = torch.randint(VOCABULARY, (SEQUENCES, TOKENS + 1), generator=self.generator)
        for t in range(2, TOKENS + 1):
            row = (x[:, t - 1] + 2 * x[:, t - 2]) % VOCABULARY
            x[:, t] = torch.multinomial(self.chances_VV[row], 1, generator=self.generator)[:, 0]
        return x


def loss_of(logits: Tensor, tokens: Tensor) -> Tensor:
    return nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())


@cache
def trained(*, pre: bool, width: int, blocks: int, rate: float, updates: int, seed: int) -> tuple[Language, Tensor]:
    """The model, and a batch that it was not trained on."""
    torch.manual_seed(seed)
    text, model = Text(seed), Language(pre=pre, width=width, blocks=blocks)
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate, weight_decay=0.01)
    for update in range(updates):
        for group in optimizer.param_groups:
            group["lr"] = rate * min(1.0, (update + 1) / 50)
        tokens = text.batch()
        optimizer.zero_grad()
        loss_of(model(tokens[:, :-1]), tokens).backward()
        optimizer.step()
    return model, text.batch()


def found_in(model: Language, tokens: Tensor, *, pre: bool) -> tuple[Finding, ...]:
    """What the rule says of the same weights under a flag."""
    width, blocks = model.head.in_features, len(model.layers)
    other = Language(pre=pre, width=width, blocks=blocks)
    other.load_state_dict(model.state_dict())
    stacks, observed = examined(other, (tokens[:, :-1],), lambda logits: loss_of(logits, tokens))
    loading = Loading(missing=(), unexpected=())
    of = Patient(model=other, stacks=stacks, observed=observed, dtype=torch.float32, loading=loading)
    return tuple(contradicts_training(of))


SIX: Sequence[dict[str, float]] = (
    {"width": 32, "blocks": 3, "rate": 2e-3, "updates": 300, "seed": 0},
    {"width": 64, "blocks": 4, "rate": 1e-3, "updates": 300, "seed": 1},
    {"width": 32, "blocks": 6, "rate": 1e-3, "updates": 300, "seed": 2},
)


def _row(sizes: dict[str, float], *, flag: bool, loaded: bool) -> str:
    found = found_in(*trained(pre=flag, **sizes), pre=loaded)  # type: ignore[arg-type]
    told = [f"{one.severity}: {one.message}" for one in found]
    names = {True: "Pre-LN", False: "Post-LN"}
    return f"{sizes} trained as {names[flag]}, loaded as {names[loaded]}: {told or 'nothing'}"


if __name__ == "__main__":
    for sizes in SIX:
        for flag in (True, False):
            for loaded in (True, False):
                print(_row(sizes, flag=flag, loaded=loaded), flush=True)
