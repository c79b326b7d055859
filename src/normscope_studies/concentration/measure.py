"""The measurements of the study of concentration: squared norms of the hidden states of one
initialised model, summed up.
"""

# N = packed tokens
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor

from normscope.data.opening import DataConfig, open_corpus
from normscope.data.parallel.corpus import Corpus
from normscope.measure import Point, depth_points, recording
from normscope.model import EncoderDecoder, Layout, ModelConfig, Stack, profile
from normscope.tasks.translation import (
    TRANSLATION,
    TranslationConfig,
    TranslationObjective,
    TranslationRunConfig,
)

from ..engine.checks import check_least
from ..theory.paper import ALPHA_0

STACKS: tuple[Literal["encoder", "decoder"], ...] = ("encoder", "decoder")
Quantity = Literal["state", "read", "last"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConcentrationConfig:
    """The settings of the study. Raises ValueError for what cannot be measured, UserError for a
    placement that no such model has.
    """

    corpus: str = "toy"
    """A folder made by `normscope data prepare`, or toy for the embedded language."""
    toy_pairs: int = 5000
    placements: tuple[str, ...] = ("post-ln", "pre-ln")
    blocks: int = 6
    """The blocks of the encoder and of the decoder."""
    width: int = 512
    ffn_width: int = 1024
    heads: int = 4
    max_tokens: int = 4096
    """The largest number of tokens of a batch."""
    batches: int = 6
    seeds: int = 5
    """Models, each with its own batches."""
    dropout: float = 0.0
    """The dropout on embeddings and sub-layers; the paper does not say whether its measurement had
    any.
    """
    epsilon: float = 0.1
    delta: float = 0.125
    """Xiong et al. 2020, section 3.4: hidden states are (0.1, 0.125)-bounded."""
    vectors: int = 20_000
    """Gaussian vectors beside the chi-square."""

    def __post_init__(self) -> None:
        check_least(self, toy_pairs=1, max_tokens=1, batches=1, seeds=2, vectors=1)
        for name in ("epsilon", "delta"):
            if not 0 < getattr(self, name) < 1:
                raise ValueError(f"{name} must lie between 0 and 1, got {getattr(self, name)}")
        if not self.placements:
            raise ValueError("placements needs at least one name")
        for placement in self.placements:
            self.model(placement, shared=True)

    def model(self, placement: str, *, shared: bool) -> ModelConfig:
        return ModelConfig(
            placement=placement,
            width=self.width,
            ffn_width=self.ffn_width,
            heads=self.heads,
            encoder_blocks=self.blocks,
            decoder_blocks=self.blocks,
            dropout=self.dropout,
            embeddings="shared" if shared else "separate",
        )

    @property
    def epsilons(self) -> list[float]:
        """The deviations of the curves, the claimed one included."""
        return sorted(
            {0.02, 0.04, 0.06, 0.08, 0.1, 0.12, 0.14, 0.16, 0.18, 0.2, 0.25, 0.3, self.epsilon}
        )

    def open_corpus(self) -> Corpus:
        return open_corpus(
            DataConfig(corpus=self.corpus, toy_pairs=self.toy_pairs, max_tokens=self.max_tokens)
        )


@torch.no_grad()
def measure_model(
    config: ConcentrationConfig, placement: str, corpus: Corpus, seed: int
) -> dict[str, Any]:
    """Measures, by stack and quantity, a summary for each depth.

    state: the hidden states x_0 … x_L; read: what the norm at the feed-forward of blocks 1 … L
    reads, where the placement has one; last: what the last norm of all reads. EZ is the mean over
    the tokens of all batches.
    """
    run = replace(
        TranslationRunConfig(), seed=seed, model=config.model(placement, shared=corpus.codec.joint)
    )
    model = TRANSLATION.build(run, corpus.codec).train()
    task = TranslationObjective(
        corpus,
        TranslationConfig(),
        max_tokens=config.max_tokens,
        seed=seed,
        device=torch.device("cpu"),
    )
    profile(model, lambda: _forward(model, task, 0))
    places = {
        f"{kind} {name}": point
        for kind in STACKS
        for name, point in _points(getattr(model, kind)).items()
    }
    with recording(places, squared_norms) as found:
        for number in range(config.batches):
            _forward(model, task, number)
    norms = {name: torch.cat(batches) / config.width for name, batches in found.items() if batches}
    summed = {name: summarised(one, config) for name, one in norms.items()}
    result: dict[str, Any] = {kind: _by_quantity(kind, summed, config.blocks) for kind in STACKS}
    return {**result, "tokens": {kind: norms[f"{kind} x_0"].numel() for kind in STACKS}}


def summarised(values_N: Tensor, config: ConcentrationConfig) -> dict[str, Any]:
    """Summarises samples of Z > 0: their mean, their spread, and how often they leave the mean by
    more than each ε.
    """
    mean = float(values_N.mean())
    above, outside = (
        counts / values_N.numel() for counts in beyond(values_N, mean, config.epsilons)
    )
    apart_N = values_N / mean - 1
    return {
        "mean": mean,
        "deviation": float(apart_N.std(correction=0)),
        "above": above.tolist(),
        "outside": outside.tolist(),
        "epsilon_above": max(0.0, float(apart_N.quantile(1 - config.delta))),
        "epsilon_outside": float(apart_N.abs().quantile(1 - config.delta)),
        "shrunk": float((values_N <= ALPHA_0 * mean).double().mean()),
    }


def gaussians(config: ConcentrationConfig) -> dict[str, Any]:
    """The same of ‖Y‖² / d, Y ~ N(0, I_d), about the mean 1 that it has."""
    counts = torch.zeros(2, len(config.epsilons), dtype=torch.float64)
    generator = torch.Generator().manual_seed(1)
    for start in range(0, config.vectors, 1000):
        count = min(1000, config.vectors - start)
        norms = squared_norms(torch.randn(count, config.width, generator=generator)) / config.width
        counts += beyond(norms, 1.0, config.epsilons)
    above, outside = counts / config.vectors
    # As if one more lay outside and one more inside: no value seen there would claim certainty.
    smoothed = (counts[0] + 1) / (config.vectors + 2)
    error = (smoothed * (1 - smoothed) / config.vectors).sqrt()
    return {"above": above.tolist(), "above_error": error.tolist(), "outside": outside.tolist()}


def squared_norms(x: Tensor) -> Tensor:
    """‖x‖² of each token in float64; (..., D) to (...)."""
    return x.detach().double().square().sum(-1)


def beyond(values_N: Tensor, mean: float, epsilons: Sequence[float]) -> Tensor:
    """Counts the values that leave (1 + ε) EZ upwards, and those that leave (1 ± ε) EZ, for each ε;
    (2, E), float64.

    Definition 1 of Xiong et al. 2020 counts the first; the proof of Theorem 1 needs the second.
    """
    apart_N = values_N.double() - mean
    limits_E1 = torch.tensor(epsilons, dtype=torch.float64)[:, None] * mean
    return torch.stack(
        [(side_N > limits_E1).sum(-1) for side_N in (apart_N, apart_N.abs())]
    ).double()


def _points(stack: Stack) -> dict[str, Point]:
    reads: Iterable[tuple[int, Any]] = enumerate(stack.blocks, 1)
    return {
        **depth_points(stack.blocks, pick=stack.placement.hidden),
        **{f"read {depth}": Point(block.feed_forward.norm, "input") for depth, block in reads},
        "finish": Point(stack.finish.norm, "input"),
    }


def _by_quantity(kind: str, summed: dict[str, Any], blocks: int) -> dict[Quantity, list[Any]]:
    reads = [
        summed[name] for depth in range(1, blocks + 1) if (name := f"{kind} read {depth}") in summed
    ]
    last = summed.get(f"{kind} finish", reads[-1] if reads else None)
    return {
        "state": [summed[f"{kind} x_{depth}"] for depth in range(blocks + 1)],
        "read": reads,
        "last": [last] if last is not None else [],
    }


def _forward(model: EncoderDecoder, task: TranslationObjective, number: int) -> None:
    batch = task.micro_batch(number)
    source, target = Layout(batch.source_lengths_B), Layout(batch.target_lengths_B)
    model(source.pack(batch.source_BS), source, target.pack(batch.target_in_BT), target)
