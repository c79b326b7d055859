"""The way from a trained model to text: beam search of an encoder-decoder, and what a decoder alone
goes on with.

The search finds hypothesis for hypothesis what fairseq 0.12.2's `SequenceGenerator` finds.
"""

# In the beam search: S = sentences still searched, R = rows (beams) of a sentence, C = candidates
# of a sentence, V = vocabulary, T = length.
# In sampling: B = samples, V = vocabulary.

import sys
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ..model import Cache, EncoderDecoder, LanguageModel, Layout
from ..model.embedding import PAD
from ..signals import between_units

EOS = 2
"""Ends every sentence and begins every decoder input; fairseq's number, as are all special ids
here.
"""

_LEAVE_SHARE = 8  # copying the caches pays once an eighth of the rows is of no more use


@dataclass(frozen=True, slots=True, kw_only=True)
class BeamConfig:
    """The settings of a search with a beam. The defaults are fairseq's, with the beam and the
    length limit of the paper's recipe.
    """

    beam: int = 5
    """Hypotheses kept for each sentence at each step, and found in the end; 1 is greedy
    decoding.
    """
    length_penalty: float = 1.0
    """score = (sum of log-probabilities) / length ** length_penalty; the length counts the end
    token.
    """
    max_length_ratio: float = 1.2
    """A hypothesis has at most int(max_length_ratio · source length + max_length_extra) tokens
    before the end token; the source length counts its end token."""
    max_length_extra: int = 10
    min_length: int = 1
    """Tokens before the end token, at least; it wins over the limit above."""

    def __post_init__(self) -> None:
        if self.beam < 1:
            raise ValueError(f"beam must be at least 1, got {self.beam}")
        if self.max_length_ratio < 0 or self.max_length_extra < 0 or self.min_length < 0:
            raise ValueError(
                "max_length_ratio, max_length_extra and min_length must not be negative, "
                f"got {self.max_length_ratio}, {self.max_length_extra} and {self.min_length}"
            )

    def limit(self, source_length: int) -> int:
        """Most tokens before the end token; source_length counts the source's end token.

        fairseq takes the longest source of the batch here. A sentence's own length makes its
        translation independent of what else is translated.
        """
        return max(
            int(self.max_length_ratio * source_length + self.max_length_extra), self.min_length
        )


@dataclass(frozen=True, slots=True)
class Hypothesis:
    """One finished translation."""

    tokens: list[int]
    """Ends with EOS."""
    score: float


def beam_search(
    model: EncoderDecoder, source_tokens: list[Tensor], config: BeamConfig | None = None
) -> list[list[Hypothesis]]:
    """For each source (int64 ids that end with EOS) the best hypotheses found, best first, `beam`
    of them or fewer.

    Scores are counted in float32 whatever the model's dtype, as fairseq does. A sentence's result
    does not depend on its companions but through rounding. Fewer than `beam` come back where the
    limit is reached or no more exist. Raises FloatingPointError where the model's output is not
    finite.
    """
    if not source_tokens:
        return []
    training = model.training
    model.eval()
    try:
        with torch.inference_mode():
            found = _search(model, source_tokens, config or BeamConfig())
    finally:
        model.train(training)
    if not all(found):
        raise FloatingPointError(
            "the model gives no finite log-probabilities: its weights diverged or are damaged"
        )
    return [sorted(hypotheses, key=lambda h: h.score, reverse=True) for hypotheses in found]


@dataclass(slots=True)
class _Beams:
    """The unfinished hypotheses of the sentences that have not left."""

    sentences: list[int]
    """Number of each in what the caller gave."""
    limits: list[int]
    tokens_SRT: Tensor
    """Begins with EOS, the first decoder input; so T is also the length of what ends at this step,
    EOS counted.
    """
    parent_SR: Tensor
    score_SR: Tensor
    """Sum of log-probabilities."""

    @property
    def position(self) -> int:
        """Tokens of each hypothesis so far."""
        return self.tokens_SRT.shape[2] - 1


@dataclass(frozen=True, slots=True)
class _Candidates:
    """The best continuations of each sentence, best first."""

    score_SC: Tensor
    token_SC: Tensor
    row_SC: Tensor


def _search(
    model: EncoderDecoder, sources: list[Tensor], config: BeamConfig
) -> list[list[Hypothesis]]:
    device = model.target_embedding.weight.device
    layout = Layout(torch.tensor([source.numel() for source in sources]), device)
    cache = Cache(model.encode(torch.cat(sources).to(device), layout), layout)
    first = torch.zeros(len(sources), 1, dtype=torch.int64, device=device)
    beams = _Beams(
        sentences=list(range(len(sources))),
        limits=[config.limit(source.numel()) for source in sources],
        tokens_SRT=torch.full_like(first, EOS)[:, :, None],
        parent_SR=first,
        score_SR=torch.zeros_like(first, dtype=torch.float32),
    )
    found: list[list[Hypothesis]] = [[] for _ in sources]
    while True:
        between_units()
        candidates = _candidates(_log_probs(model, beams, cache, config), beams, config)
        _collect(candidates, beams, config, found)
        done = [
            len(found[sentence]) == config.beam or beams.position >= limit
            for sentence, limit in zip(beams.sentences, beams.limits, strict=True)
        ]
        if all(done):
            return found
        _advance(beams, candidates, config)
        _leave(beams, cache, done)


def _log_probs(model: EncoderDecoder, beams: _Beams, cache: Cache, config: BeamConfig) -> Tensor:
    """(S, R, V) log-probabilities of the next token, -inf where it is not allowed."""
    hidden = model.step(beams.tokens_SRT[:, :, -1], beams.parent_SR, cache)
    log_probs = (
        model.logits(hidden).log_softmax(-1, dtype=torch.float32).view(*beams.score_SR.shape, -1)
    )
    log_probs[:, :, PAD] = -torch.inf
    if beams.position < config.min_length:
        log_probs[:, :, EOS] = -torch.inf
    at_limit = [s for s, limit in enumerate(beams.limits) if beams.position >= limit]
    if at_limit:
        end = log_probs[at_limit, :, EOS]
        log_probs[at_limit] = -torch.inf
        log_probs[at_limit, :, EOS] = end
    return log_probs


def _candidates(log_probs_SRV: Tensor, beams: _Beams, config: BeamConfig) -> _Candidates:
    """Twice as many as beams, so that there are enough to go on with whichever of them end."""
    total = log_probs_SRV.add_(beams.score_SR[:, :, None]).flatten(1)
    vocabulary = log_probs_SRV.shape[2]
    score_SC, index_SC = total.topk(min(2 * config.beam, total.shape[1]))
    return _Candidates(score_SC, index_SC % vocabulary, index_SC // vocabulary)


def _collect(
    candidates: _Candidates, beams: _Beams, config: BeamConfig, found: list[list[Hypothesis]]
) -> None:
    """Take the candidates that end, if they are among the first `beam`; a later one ends nothing
    and is dropped.
    """
    ends = (candidates.token_SC == EOS) & (candidates.score_SC > -torch.inf)
    length = beams.position + 1
    final_SC = candidates.score_SC / length**config.length_penalty
    for s, c in ends[:, : config.beam].nonzero().tolist():
        hypotheses = found[beams.sentences[s]]
        if len(hypotheses) < config.beam:
            tokens = beams.tokens_SRT[s, candidates.row_SC[s, c], 1:].tolist()
            hypotheses.append(Hypothesis([*tokens, EOS], final_SC[s, c].item()))


def _advance(beams: _Beams, candidates: _Candidates, config: BeamConfig) -> None:
    """Go on with the best candidates that do not end."""
    going_on = candidates.score_SC.masked_fill(candidates.token_SC == EOS, -torch.inf)
    score_SC, order_SC = going_on.sort(dim=1, descending=True, stable=True)
    order_SR = order_SC[:, : config.beam]
    beams.score_SR = score_SC[:, : config.beam]
    beams.parent_SR = candidates.row_SC.gather(1, order_SR)
    token_SR = candidates.token_SC.gather(1, order_SR)
    history = beams.parent_SR[:, :, None].expand(-1, -1, beams.tokens_SRT.shape[2])
    beams.tokens_SRT = torch.cat([beams.tokens_SRT.gather(1, history), token_SR[:, :, None]], 2)


def _leave(beams: _Beams, cache: Cache, done: list[bool]) -> None:
    """Drop the finished sentences once they are many. Until then they add nothing: what they found
    is full, or they are past their limit, where every score is -inf."""
    if not any(done) or sum(done) * _LEAVE_SHARE < len(done):
        return
    stay = [s for s, is_done in enumerate(done) if not is_done]
    index = torch.tensor(stay, device=beams.score_SR.device)
    beams.sentences, beams.limits = (
        [beams.sentences[s] for s in stay],
        [beams.limits[s] for s in stay],
    )
    beams.tokens_SRT = beams.tokens_SRT.index_select(0, index)
    beams.score_SR = beams.score_SR.index_select(0, index)
    # The cache moves to the rows' parents at the next step, so it is selected by sentence alone.
    beams.parent_SR = beams.parent_SR.index_select(0, index)
    cache.select(stay)


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingConfig:
    """The settings by which the next token is drawn."""

    tokens: int = 200
    """New ones, at most: a text also ends where the model ends it."""
    samples: int = 1
    temperature: float = 1.0
    """Logits are divided by it; 0 takes the likeliest token."""
    top_k: int | None = None
    """The number of the likeliest tokens that are drawn from (Fan et al. 2018, arXiv:1805.04833,
    section 5).
    """
    top_p: float = 1.0
    """The probability that the likeliest tokens, which alone are drawn from, have together
    (Holtzman et al. 2019, arXiv:1904.09751, section 3.1).
    """
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
    """New tokens that a model with learned positions has places for; without bound for any
    other.
    """
    return (
        model.config.positions - len(prompt)
        if model.config.position_encoding == "learned"
        else sys.maxsize
    )


@torch.no_grad()
def sample(
    model: LanguageModel, prompt: list[int], config: SamplingConfig, *, end: int
) -> list[list[int]]:
    """Returns the new ids of every sample, without `end`, after a prompt of at least one id.

    They stop at `end`, at `config.tokens`, and where a model with learned positions has no more of
    them. Equal seeds give equal texts on one machine. Raises ValueError for a prompt that is empty,
    or that leaves no position.
    """
    room = min(config.tokens, positions_left(model, prompt))
    if not prompt or room < 1:
        raise ValueError(
            f"a prompt must have 1 to {model.config.positions - 1} tokens, got {len(prompt)}"
        )
    model.eval()
    device = model.embedding.weight.device
    layout = Layout(torch.ones(config.samples, dtype=torch.int64), device)
    cache, first = (
        Cache(None, layout),
        torch.zeros(config.samples, 1, dtype=torch.int64, device=device),
    )
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
    """Returns the next token of each sample, (B,)."""
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
