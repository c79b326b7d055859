"""Text that a decoder alone goes on with, token by token."""

# B = samples, V = vocabulary
import sys
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ..model import Cache, LanguageModel, Layout


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingConfig:
    """How the next token is drawn."""

    tokens: int = 200
    """New ones, at most: a text also ends where the model ends it."""
    samples: int = 1
    temperature: float = 1.0
    """Logits are divided by it; 0 takes the likeliest token."""
    top_k: int | None = None
    """Only so many of the likeliest tokens are drawn from (Fan et al. 2018, arXiv:1805.04833, section 5)."""
    top_p: float = 1.0
    """Only the likeliest that together have this probability (Holtzman et al. 2019, arXiv:1904.09751, section 3.1)."""
    seed: int = 1

    def __post_init__(self) -> None:
        for name in ("tokens", "samples"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        if not 0 <= self.temperature < float("inf"):
            raise ValueError(f"temperature must be 0 or more, got {self.temperature}")
        if self.top_k is not None and self.top_k < 1:
            raise ValueError(f"top_k must be at least 1, got {self.top_k}")
        if not 0 < self.top_p <= 1:
            raise ValueError(f"top_p must lie above 0 and not above 1, got {self.top_p}")


def positions_left(model: LanguageModel, prompt: Sequence[int]) -> int:
    """New tokens that a model with learned positions has places for; without bound for any other."""
    return model.config.positions - len(prompt) if model.config.position_encoding == "learned" else sys.maxsize


@torch.no_grad()
def sample(model: LanguageModel, prompt: list[int], config: SamplingConfig, *, end: int) -> list[list[int]]:
    """The new ids of every sample, without `end`, after a prompt of at least one id.

    They stop at `end`, at `config.tokens`, and where a model with learned positions has no more of them. Equal seeds
    give equal texts on one machine. Raises ValueError for a prompt that is empty, or that leaves no position.
    """
    room = min(config.tokens, positions_left(model, prompt))
    if not prompt or room < 1:
        raise ValueError(f"a prompt must have 1 to {model.config.positions - 1} tokens, got {len(prompt)}")
    model.eval()
    device = model.embedding.weight.device
    layout = Layout(torch.ones(config.samples, dtype=torch.int64), device)
    cache, first = Cache(None, layout), torch.zeros(config.samples, 1, dtype=torch.int64, device=device)
    generator = torch.Generator().manual_seed(config.seed)
    for token in prompt:
        hidden_BD = model.step(torch.full_like(first, token), first, cache)
    texts: list[list[int]] = [[] for _ in range(config.samples)]
    ended = [False] * config.samples
    for _ in range(room):
        drawn_B = _drawn(model.logits(hidden_BD).cpu(), config, generator)
        for number, token in enumerate(drawn_B.tolist()):
            ended[number] |= token == end
            if not ended[number]:
                texts[number].append(token)
        if all(ended):
            break
        hidden_BD = model.step(drawn_B[:, None].to(device), first, cache)
    return texts


def _drawn(logits_BV: Tensor, config: SamplingConfig, generator: torch.Generator) -> Tensor:
    """The next token of each sample, (B,)."""
    if config.temperature == 0:
        return logits_BV.argmax(-1)
    logits_BV = logits_BV.double() / config.temperature
    falling = logits_BV.sort(dim=-1, descending=True)
    p_BV = falling.values.softmax(-1)
    if config.top_k is not None:
        p_BV[:, config.top_k :] = 0
    # A token is kept where those before it do not yet have the whole share, so that one always is.
    p_BV = p_BV.masked_fill(p_BV.cumsum(-1) - p_BV >= config.top_p, 0)
    return falling.indices.gather(1, p_BV.multinomial(1, generator=generator)).squeeze(1)
