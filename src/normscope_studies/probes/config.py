"""The trainings on the toy language, and the words of it that are probed."""

from dataclasses import dataclass

from normscope.data.opening import TOY

from ..converged.config import ConvergedConfig
from ..engine import checks
from ..engine.study import scales

_SHARED = (
    "peak_lrs",
    "seeds",
    "updates",
    "ladder_updates",
    "validations",
    "blocks",
    "width",
    "ffn_width",
    "heads",
    "dropout",
    "max_tokens",
    "device",
    "precision",
)
"""Settings of the trainings, as `converged` has them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbesConfig:
    """Encoder-decoders that translate the toy language, each placement at its best rate, whose
    encoders are probed.

    Raises ValueError for what cannot be trained or probed.
    """

    placements: tuple[str, ...] = ("post-ln", "pre-ln", "peri-ln", "deepnorm")
    base: str = "pre-ln"
    """The placement that the others are compared with."""
    post: str = "post-ln"
    """The one whose deep blocks are compared with the base's."""
    warmup_share: float = 0.2
    """The share of updates that is warm-up."""
    peak_lrs: tuple[float, ...] = (1e-3, 2e-3, 4e-3)
    seeds: int = 3
    """The seeds of the models that are probed; another one chose the rate."""
    updates: int = 1500
    ladder_updates: int = 500
    """The updates of the runs that choose the rate."""
    validations: int = 10
    blocks: int = 6
    """The blocks of each stack."""
    width: int = 64
    ffn_width: int = 128
    heads: int = 4
    dropout: float = 0.1
    max_tokens: int = 1024
    probe_sentences: int = 1800
    """The number of sentences whose words are probed; every third one is held out from the
    probes.
    """
    frequent: int = 20
    """The number of most frequent words that are classes."""
    accuracy_edge: float = 0.02
    """Accuracies that differ by less are alike."""
    device: str = "cpu"
    """The device of the trainings: auto, cpu, cuda, cuda:1 …"""
    precision: str = "auto"
    """The precision of products, as `train.precision`."""

    def __post_init__(self) -> None:
        checks.check_different(self, "placements")
        for name in ("base", "post"):
            if getattr(self, name) not in self.placements:
                raise ValueError(f"{name}={getattr(self, name)} must be among the placements")
        if self.base == self.post:
            raise ValueError(f"base and post must be two placements, got {self.base} twice")
        checks.check_least(self, blocks=2, frequent=2, probe_sentences=30)
        checks.check_positive(self, "accuracy_edge")
        # What is wrong with the trainings is said by what trains them.
        assert self.trainings

    @property
    def trainings(self) -> ConvergedConfig:
        """Returns what is trained: one seed chooses each placement's rate, others are probed."""
        return ConvergedConfig(
            corpus=TOY,
            warmups=tuple(f"{name}:{self.warmup_share}" for name in self.placements),
            beside=self.base,
            split="",
            **checks.settings_of(self, *_SHARED),
        )


SCALES = scales(
    ProbesConfig,
    smoke={
        "placements": ("post-ln", "pre-ln"), "peak_lrs": (4e-3,), "seeds": 2, "updates": 20,
        "ladder_updates": 10, "validations": 2, "blocks": 2, "width": 16, "ffn_width": 16,
        "heads": 2, "dropout": 0.0, "max_tokens": 256, "probe_sentences": 90, "frequent": 5,
    },
    paper={
        "updates": 20_000, "ladder_updates": 4_000, "peak_lrs": (2e-4, 5e-4, 1e-3, 2e-3),
        "width": 512, "ffn_width": 1024, "max_tokens": 4096, "probe_sentences": 6_000,
        "device": "auto",
    },
    more={"gpu": {"width": 256, "ffn_width": 512, "device": "cuda"}},
)  # fmt: skip
"""Cost: smoke takes a minute; cpu 24 runs of two to five minutes of one core, and as many models
that are probed for a minute, an hour and a half in all; paper as many runs of an hour of an
accelerator; gpu, with `--processes 16`, some minutes of one by arithmetic, which nobody has timed.
"""
