"""Which placements are trained, what those who proposed them promise, and how large the study is asked."""

from dataclasses import dataclass
from typing import Literal

from normscope.data.opening import TOY
from normscope.placement import named

from ..engine.checks import check_different, check_positive
from ..engine.models import PAPER_SIZE, TwoTasksConfig
from ..engine.study import scales

NEW = (
    *("mhc", "hyper-connections", "hyper-connections-static", "independent-hyper-connections", "gated-multi-stream"),
    *("siamese-norm", "siamese-norm-hybrid", "attn-res-inkling", "denseformer", "x0-residual", "x0-residual-modded"),
    *("depth-scaled", "completep", "depth-mup", "minicpm", "granite", "layer-scale", "variance-gate", "gpas"),
    *("zaya", "doge", "parallel", "parallel-two-norms", "normformer", "normformer-fairseq"),
)
OLD = ("t-fixup", "scale-norm", "admin-constant", "hybrid-norm-star", "b2t-rescaled", "attn-res-block", "rezero")
"""One of each family, in the order of their losses in `results/placements_cpu`, the better of two warm-ups each."""
BASE, POST = "pre-ln", "post-ln"
"""What all are compared with, and the one placement that is known to need a warm-up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Promise:
    """What a source says its placement does beside a Pre-LN of the same size."""

    ends: Literal["lower", "comparable"]
    source: str


PROMISES = {
    "mhc": _Promise(ends="lower", source="Xie et al. 2025, arXiv:2512.24880, section 5"),
    "hyper-connections": _Promise(ends="lower", source="Zhu et al. 2024, arXiv:2409.19606, section 4"),
    "hyper-connections-static": _Promise(ends="lower", source="Zhu et al. 2024, arXiv:2409.19606, section 4"),
    "siamese-norm": _Promise(ends="lower", source="Li et al. 2026, arXiv:2602.08064"),
    "denseformer": _Promise(ends="lower", source="Pagliardini et al. 2024, arXiv:2402.02622, section 4"),
    "x0-residual": _Promise(ends="lower", source="Karpathy 2025, nanochat, which keeps what lowers its loss"),
    "x0-residual-modded": _Promise(ends="lower", source="Jordan et al. 2024, modded-nanogpt, a record of speed"),
    "layer-scale": _Promise(ends="lower", source="Touvron et al. 2021, arXiv:2103.17239, of deep vision Transformers"),
    "gpas": _Promise(ends="lower", source="Chen et al. 2025, arXiv:2506.22049, section 4"),
    "normformer": _Promise(ends="lower", source="Shleifer et al. 2021, arXiv:2110.09456, section 4"),
    "parallel": _Promise(ends="comparable", source="Wang & Komatsuzaki 2021, GPT-J-6B"),
    "parallel-two-norms": _Promise(ends="comparable", source="Black et al. 2022, arXiv:2204.06745, section 2.1"),
}
"""By placement. The others of `NEW` come from public code that states no such comparison, or, as CompleteP and
depth-µP, promise that rates carry over between depths, which this study does not ask."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamsConfig(TwoTasksConfig):
    """Small models on two tasks, alike but for their placement."""

    placements: tuple[str, ...] = NEW
    others: tuple[str, ...] = OLD
    """Older placements, the best first."""
    others_kept: int = 6
    """How many of them are trained: the first that a task's model can have."""
    comparable_nats: float = 0.05
    """What a source calls comparable lies within that of Pre-LN's loss."""
    text: str = "corpora/wikitext2_1000"
    pairs: str = "corpora/multi30k_deen"
    width: int = 48
    ffn_width: int = 192
    """Of Pre-LN. The others have less of it where they have parameters of their own."""
    batch_sequences: int = 16
    max_tokens: int = 512

    def __post_init__(self) -> None:
        TwoTasksConfig.__post_init__(self)
        check_different(self, "placements")
        check_positive(self, "comparable_nats")
        if self.others_kept < 0:
            raise ValueError(f"others_kept must be 0 or more, got {self.others_kept}")
        for name in (*self.placements, *self.others):
            named(name)

    def trained(self, model: str) -> list[str]:
        """The placements that a task's model can have: what all are compared with, the new, the best of the others.

        model: decoder-only or encoder-decoder.
        """
        have = {name: model in named(name).models for name in (*self.placements, *self.others)}
        others = [name for name in self.others if have[name] and name not in self.placements][: self.others_kept]
        new = [name for name in self.placements if have[name]]
        return list(dict.fromkeys([BASE, POST, *new, *others]))


SCALES = scales(
    StreamsConfig,
    smoke={
        "placements": ("mhc", "parallel"), "others": ("rezero",), "peak_lrs": (1e-3, 4e-3), "seeds": 2, "updates": 4,
        "warmup_updates": 2, "text": TOY, "pairs": TOY, "toy_pairs": 300, "width": 16, "ffn_width": 128, "heads": 2,
        "blocks": 2, "stack_blocks": 1, "sequence_length": 24, "batch_sequences": 4, "max_tokens": 256,
    },
    paper={**PAPER_SIZE},
)  # fmt: skip
"""Cost: smoke takes seconds; cpu some 900 runs of ten seconds to half a minute of one core; paper, with models of 80
million parameters, about 1,900 runs of an hour of an accelerator."""
