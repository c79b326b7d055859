"""The evidence as plain values: where it was measured, what it says of a placement, and whose it
is.

Ours is `evidence.json` in the package: what the results of the repository said when the manual's
page was made. What others have published is `published.toml`."""

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

from ..limits.ours import SealedJson
from ..placement.base import ModelKind

BASELINE = "pre-ln"
"""The placement that others are compared with, as most decoders of today have it."""
NEEDS_NATS = 0.1
"""A loss so much higher without warm-up counts as one that needs it, as in the study of
optimisers.
"""
Support = Literal["supported", "contradicted", "undecided", "not known"]
"""The position of an interval: on the side of the claim, on the other, or across the edge; or
nothing was measured.
"""
QuestionName = Literal["lower-loss", "no-warmup"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A question that is asked of every placement."""

    name: QuestionName
    heading: str
    rule: str
    """The condition under which it counts as answered."""
    unit: str


QUESTIONS: Mapping[QuestionName, Question] = {
    question.name: question
    for question in (
        Question(
            name="lower-loss",
            heading="Which placements end lower than Pre-LN?",
            rule="supported where the 95 % interval of the loss less Pre-LN's lies below 0, "
            "contradicted where above",
            unit="nats per token",
        ),
        Question(
            name="no-warmup",
            heading="Which placements train without warm-up?",
            rule="supported where the 95 % interval of the loss without warm-up less that with it "
            f"lies below {NEEDS_NATS}, contradicted where it lies above 0",
            unit="nats per token",
        ),
    )
}


@dataclass(frozen=True, slots=True, kw_only=True)
class EvidenceSetting:
    """The setting of a measurement: a result in one kind of model."""

    name: str
    result: str
    """The folder below results/."""
    title: str
    created: str
    model: ModelKind
    blocks: tuple[int, int]
    """The least and the greatest number of blocks in a stack."""
    width: tuple[int, int]
    tokens: int
    """The tokens that a training saw; where batches are filled up to a limit, the most that it can
    have seen.
    """
    updates: int
    text: str
    """The text that it was trained on."""
    unigram_nats: float | None
    """The loss of a model that ignores its input; None where it is not recorded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EvidenceRow:
    """One number with its interval, and what it answers."""

    question: QuestionName
    placement: str
    optimizer: str
    setting: str
    answer: Support
    mean: float
    half_width: float | None
    """Half the width of the 95 % interval; None for one seed, which decides nothing."""
    seeds: int
    """Trainings in pairs."""
    source: Sequence[str]
    """JSON pointers into the result: the interval itself; or the losses of the seeds, of which this
    is the mean of the first less the second."""
    note: str = ""
    """The reservation that belongs to the result."""
    learned: bool = True
    """False where no loss of either side is well below the unigram baseline: that decides
    nothing.
    """
    leans: bool = True
    """False where one rate was tried for both sides: another may be the better one for either, so
    that the difference speaks for neither."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BestRate:
    """The rate with the lowest loss of a ladder."""

    placement: str
    optimizer: str
    setting: str
    warmup_updates: int
    peak_lr: float
    ladder: tuple[float, float]
    """The smallest and the largest rate that was tried."""
    at_an_end: bool
    """True where a better rate may lie beyond the sweep."""
    loss_nats: Sequence[float]
    """The loss of every seed at that rate."""
    source: str
    """JSON pointer to these losses."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainedRate:
    """The best peak rate of a ladder of small trainings under a schedule."""

    family: str
    """Ladders of one have architecture, text and initial weights in common."""
    optimizer: str
    width: int
    sublayers: int
    """The number of sub-layers of all stacks."""
    normed_sums: float
    """The share of them whose residual sum is normed."""
    batch_tokens: float
    """The tokens of one update, about."""
    updates: int
    best_rate: float
    source: str
    """The folder below results/ with a JSON pointer to the rate."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedLadder:
    """The best peak rate of a ladder that others have published: Pre-LN decoders under AdamW."""

    family: str
    """Ladders of one have source and shape of the model in common."""
    width: int
    blocks: int
    batch_tokens: float
    tokens: float
    """The tokens of the whole training."""
    best_rate: float
    """The rate at the vertex of a parabola through the lowest loss and its neighbours."""
    source: str
    """The folder below results/ with a JSON pointer to the rate."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Depth:
    """The change of the hidden state over depth at initialisation, as observed."""

    placement: str
    behaviour: str
    exponent: float | None
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AdviceClaim:
    """A claim that a study has judged, in its own words."""

    result: str
    statement: str
    found: str
    verdict: str
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """All of ours."""

    settings: Mapping[str, EvidenceSetting]
    findings: Sequence[EvidenceRow]
    rates: Sequence[BestRate]
    trained: Sequence[TrainedRate]
    published_ladders: Sequence[PublishedLadder]
    depths: Sequence[Depth]
    depth_blocks: int
    """The largest number of blocks at which these were measured."""
    advice: Sequence[AdviceClaim]
    """The claims on how often the doctor's learning rates and warm-ups were right."""
    optimizers: Sequence[str]
    """The optimisers that there are, measured or not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """A number of somebody else."""

    claim: str
    """A sentence with its numbers."""
    citation: str
    model: ModelKind
    placements: Sequence[str]
    optimizer: str = ""
    """Empty where the source does not say, or we do not know."""
    blocks: Sequence[int] = ()
    """The numbers of blocks, for a stack, of the models that it was measured on; empty where not
    known.
    """
    width: Sequence[int] = ()
    checked: Literal["read", "second-hand"]
    """The way in which we checked it: read at the place cited, or in another text."""


_PUBLISHED = Path(__file__).with_name("published.toml")


@cache
def published() -> Sequence[Published]:
    """Returns every published entry, in the order of the file."""
    return [
        Published(**one)
        for one in tomllib.loads(_PUBLISHED.read_text(encoding="utf-8"))["published"]
    ]


FILE = Path(__file__).with_name("evidence.json")
_SEALED = SealedJson(
    format_name="normscope-evidence",
    version=1,
    keys=frozenset(Evidence.__dataclass_fields__),
    again="install NormScope again, or in a clone run `python -m normscope_studies.manual docs`",
)


def packed(evidence: Evidence) -> str:
    """Returns the file's content."""
    return _SEALED.text(asdict(evidence))


@cache
def stored() -> Evidence:
    """Returns the evidence that the package holds. Raises UserError where the file is damaged."""
    return unpacked(_SEALED.read(FILE))


def unpacked(table: Mapping[str, Any]) -> Evidence:
    """Rebuilds evidence from plain values, as `asdict` makes them and JSON gives them back."""
    settings = {}
    for name, one in table["settings"].items():
        pairs = {key: tuple(one[key]) for key in ("blocks", "width")}
        settings[name] = EvidenceSetting(**{**one, **pairs})
    return Evidence(
        settings=settings,
        findings=[EvidenceRow(**one) for one in table["findings"]],
        rates=[BestRate(**dict(one, ladder=tuple(one["ladder"]))) for one in table["rates"]],
        trained=[TrainedRate(**one) for one in table["trained"]],
        published_ladders=[PublishedLadder(**one) for one in table["published_ladders"]],
        depths=[Depth(**one) for one in table["depths"]],
        depth_blocks=table["depth_blocks"],
        advice=[AdviceClaim(**one) for one in table["advice"]],
        optimizers=table["optimizers"],
    )
