"""Which placements are trained, and what is said of them by those who proposed them."""

from dataclasses import dataclass
from typing import Literal

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
class Promise:
    """What a source says its placement does beside a Pre-LN of the same size."""

    ends: Literal["lower", "comparable"]
    source: str


PROMISES = {
    "mhc": Promise(ends="lower", source="Xie et al. 2025, arXiv:2512.24880, section 5"),
    "hyper-connections": Promise(ends="lower", source="Zhu et al. 2024, arXiv:2409.19606, section 4"),
    "hyper-connections-static": Promise(ends="lower", source="Zhu et al. 2024, arXiv:2409.19606, section 4"),
    "siamese-norm": Promise(ends="lower", source="Li et al. 2026, arXiv:2602.08064"),
    "denseformer": Promise(ends="lower", source="Pagliardini et al. 2024, arXiv:2402.02622, section 4"),
    "x0-residual": Promise(ends="lower", source="Karpathy 2025, nanochat, which keeps what lowers its loss"),
    "x0-residual-modded": Promise(ends="lower", source="Jordan et al. 2024, modded-nanogpt, a record of speed"),
    "layer-scale": Promise(ends="lower", source="Touvron et al. 2021, arXiv:2103.17239, of deep vision Transformers"),
    "gpas": Promise(ends="lower", source="Chen et al. 2025, arXiv:2506.22049, section 4"),
    "normformer": Promise(ends="lower", source="Shleifer et al. 2021, arXiv:2110.09456, section 4"),
    "parallel": Promise(ends="comparable", source="Wang & Komatsuzaki 2021, GPT-J-6B"),
    "parallel-two-norms": Promise(ends="comparable", source="Black et al. 2022, arXiv:2204.06745, section 2.1"),
}
"""By placement. The others of `NEW` come from public code that states no such comparison, or, as CompleteP and
depth-µP, promise that rates carry over between depths, which this study does not ask."""
