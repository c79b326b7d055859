"""The cases of the study of advice: models, texts, initial weights and optimisers, and how long
each is trained.
"""

from dataclasses import dataclass
from itertools import zip_longest
from typing import Literal, cast

from normscope.optim.optimizers import OptimizerName
from normscope.optim.schedules import Decay
from normscope.settings.tables import check_choices

from ..engine.checks import check_least

_TextName = Literal["toy", "characters", "pieces", "arithmetic", "markov", "multi30k", "digits"]
OURS = ("decoder", "encoder", "encoder-decoder")
"""Models of this library, which have a placement and a scheme of initial weights; others have those
of their makers.
"""
_NORMED = ("post-ln", "deepnorm", "residual", "b2t", "bert", "torch-post", "torch-encoder")
"""Placements, and models of others, whose residual sums are normed."""
ITS_OWN = "its-own"
HEAD_WIDTH = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class AdviceCase:
    """A model, its initial weights, its optimiser and schedule, and the text it is trained on."""

    model: str
    """One of `OURS`, or a key of `models.FOREIGN`."""
    text: _TextName
    """toy: the embedded language; characters, pieces: of a file of running text; arithmetic,
    markov: made by a rule; multi30k: a prepared corpus; digits: images."""
    initialisation: str = ITS_OWN
    """The initialisation: for our models a name of `normscope.model.SCHEMES`; "zero-head" for
    another model whose output matrix starts at 0.
    """
    placement: str = ITS_OWN
    blocks: int
    """The blocks of each stack."""
    width: int
    """Heads have 16 dimensions."""
    optimizer: OptimizerName = "adamw"
    decay: Decay = "cosine"
    """The decay after the warm-up, to a tenth of the peak where it has an end."""
    tokens: int = 256
    """The tokens of a batch."""
    length: int = 32
    """The length of a sequence."""
    reach: int = 2
    """For how many lengths the study of horizons trains it."""
    narrower: float = 1.0
    """The factor by which the model is narrower that its rates are measured by: matrices and the
    head take steps so much smaller, and begin smaller by its root, as in µP (Yang et al. 2022,
    arXiv:2203.03466, table 8).
    """

    def __post_init__(self) -> None:
        check_choices(self)
        if self.blocks < 1 or self.width % HEAD_WIDTH:
            raise ValueError(
                f"blocks must be at least 1 and width a multiple of 16, got {self.blocks}, "
                f"{self.width}"
            )
        if (self.model in OURS) != (self.placement != ITS_OWN):
            raise ValueError(
                f"models of ours have a placement and others have their own, got {self.placement!r}"
            )
        if self.length < 4 or self.tokens < self.length:
            raise ValueError("length must be at least 4, and tokens at least that")

    @property
    def family(self) -> str:
        """Cases of one are not independent."""
        return f"{self.model}, {self.text}, {self.initialisation}"

    @property
    def name(self) -> str:
        """Safe as a part of a file's name."""
        kind = f"{self.model}_{self.text}_{self.initialisation}_{self.placement}"
        sizes = f"{self.blocks}x{self.width}_{self.tokens}-{self.length}"
        return f"{kind}_{sizes}_{self.optimizer}_{self.decay}{'' if self.narrower == 1 else '_mup'}"

    @property
    def usual_warmup_share(self) -> float:
        """The share of updates that is warm-up: 8 % where residual sums are normed, else 1 %."""
        return 0.08 if {self.model, self.placement} & set(_NORMED) else 0.01

    def apart(self, other: "AdviceCase") -> bool:
        """Tells whether two cases share neither model nor text nor a scheme of initial weights."""
        same_weights = self.initialisation == other.initialisation != ITS_OWN
        return self.model != other.model and self.text != other.text and not same_weights


def rate_of(step: int) -> float:
    """The ladder: each rate is twice the one below, and step 0 is 0.001."""
    return float(f"{1e-3 * 2.0**step:.3g}")


_FAMILIES = """
decoder arithmetic xavier-uniform: pre-ln 4x32 adamw **; post-ln 3x32 adam *; peri-ln 2x48 muon; deepnorm 4x32 lion
encoder arithmetic normal-0.02: pre-ln 3x32 adam *; post-ln 3x48 adamw; sandwich 2x32 lion
nanogpt characters its-own: its-own 3x48 adamw **; its-own 2x32 muon; its-own 3x32 sgd
encoder-decoder toy megatron: pre-ln 2x32 sgd *; post-ln 2x32 adam; hybrid-norm 2x48 adamw linear
vit digits its-own: its-own 3x32 adamw **; its-own 2x32 sgd; its-own 3x48 lion
decoder markov normal-0.02: pre-ln 3x48 muon **; post-ln 4x32 adamw; rezero 4x32 adam; pre-ln 2x32 sgd
llama toy its-own: its-own 2x48 adamw *; its-own 3x32 lion; its-own 2x32 muon
bert arithmetic its-own: its-own 2x48 adamw *; its-own 3x32 adam linear
decoder pieces megatron: pre-ln 3x48 lion **; deepnorm 4x32 adamw; post-ln 2x48 adam; residual 3x32 sgd
encoder characters xavier-uniform: post-ln 3x32 adamw *; pre-ln 4x32 muon; peri-ln 3x32 adam
t5 markov its-own: its-own 2x32 adamw *; its-own 2x48 adam inverse-sqrt; its-own 1x32 sgd
gpt2 pieces its-own: its-own 2x48 adamw *; its-own 3x32 adam wsd; its-own 2x32 lion
encoder-decoder multi30k xavier-uniform: pre-ln 1x32 adam *; post-ln 1x48 adam inverse-sqrt; deepnorm 2x32 adamw
olmo2 arithmetic its-own: its-own 2x48 adamw **; its-own 3x32 lion; its-own 2x32 sgd
torch-post toy its-own: its-own 3x32 adamw *; its-own 2x48 sgd
decoder characters normal-0.02: post-ln 6x32 adamw; pre-ln 6x32 adamw wsd; pre-ln 2x64 adamw; b2t 3x32 adam
encoder markov megatron: hybrid-norm 3x32 adamw; pre-ln 2x48 sgd; post-ln 3x32 lion; mix-ln 4x32 adam
torch-encoder markov its-own: its-own 2x48 adam *; its-own 3x32 adamw
encoder-decoder arithmetic normal-0.02: post-ln 2x32 adamw; peri-ln 2x32 muon; pre-ln 2x32 lion linear
nanogpt markov zero-head: its-own 3x32 adamw; its-own 2x48 adam wsd; its-own 3x32 lion
torch-pre characters its-own: its-own 3x32 adam; its-own 2x48 adamw inverse-sqrt
"""  # noqa: E501
"""Model, text and initial weights, then placements with blocks x width, an optimiser and a decay
other than cosine; * and ** reach for one horizon more and for two.
"""
_SHAPES = ((256, 32), (256, 64), (384, 64), (256, 128))
"""Tokens and length of the batches, in turn."""
_ENCODERS, _SHORT = ("encoder", "bert", "torch-encoder"), 8
"""The models that see what is beside a masked token, and the length of their sequences: of longer
ones they learn no more in 1,000 updates than how frequent tokens are.
"""


def cases(families: str = _FAMILIES) -> list[AdviceCase]:
    """All of them: the first of every family, then the second of each, and so on."""
    found = [
        list(_family(number, line)) for number, line in enumerate(families.strip().splitlines())
    ]
    return [case for some in zip_longest(*found) for case in some if case is not None]


def _family(number: int, line: str) -> list[AdviceCase]:
    """line: "decoder toy normal-0.02: post-ln 2x32 adam; pre-ln 2x32 adamw linear *"."""
    kind, sizes = line.split(":")
    model, text, initialisation = kind.split()
    found = []
    for place, size in enumerate(sizes.split(";")):
        placement, shape, optimizer, *rest = size.split()
        blocks, width = map(int, shape.split("x"))
        tokens, length = _SHAPES[(number + place) % len(_SHAPES)]
        stars = len(rest.pop()) if rest and rest[-1].startswith("*") else 0
        found.append(
            AdviceCase(
                model=model,
                text=cast(_TextName, text),
                initialisation=initialisation,
                placement=placement,
                blocks=blocks,
                width=width,
                optimizer=optimizer,
                decay=cast(Decay, rest[0] if rest else "cosine"),
                tokens=tokens,
                length=_SHORT if model in _ENCODERS else length,
                reach=2 + stars,
            )
        )
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class AdviceConfig:
    """Cases, and how long they are trained."""

    cases: tuple[AdviceCase, ...]
    updates: int = 1_000
    """The updates of a training."""
    range_test_updates: int = 60
    """The updates of a range test."""
    warmup_shares: tuple[float, ...] = (0.0, 0.01, 0.02, 0.04, 0.08, 0.16)
    """Warm-ups that are tried at the best rate, as shares of the updates."""
    text_file: str = "corpora/wikipedia.txt"
    """Running text, for characters and pieces."""
    corpus: str = "corpora/multi30k_deen"
    """A folder made by `normscope data prepare`, for translation."""
    processes: int = 0
    """Cases at a time; 0 for as many as there are cores."""

    def __post_init__(self) -> None:
        if len({case.family for case in self.cases}) < 3:
            raise ValueError(
                "cases must be of at least three families, because each is judged by a rule fitted "
                "to the others"
            )
        check_least(self, updates=20, range_test_updates=1, processes=0)
        if not all(0 <= share <= 0.5 for share in self.warmup_shares):
            raise ValueError(f"warmup_shares must lie in [0, 0.5], got {self.warmup_shares}")

    @property
    def places(self) -> dict[str, str]:
        """The places of the texts, as measurements take them."""
        return {"text_file": self.text_file, "corpus": self.corpus}
