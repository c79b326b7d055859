"""The evidence on norms of queries and keys for one model: `normscope choose qk-norm`.

The evidence is `query_key.toml`: what others have published and what a result of ours says.
"""

import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

from ..placement.query_key import SUFFIX
from ..report.words import counted, interval, joined, learning_rate, number, significant
from .case import NEAR, ModelToTrain
from .evidence import BASELINE
from .law import RateFacts
from .parts import PageSection
from .rates import typical_rate

SUBJECT = SUFFIX
"""The word by which this is asked."""
_QUESTIONS = {
    "ends lower": "Does a model end lower with them?",
    "higher rates": "Does it stand higher rates?",
    "cost": "What do they cost?",
    "trained already": "Can a trained model be given them?",
}
_CHECKED = {"read": "read at the place cited", "second-hand": "read in another text"}
_OVER = {"head": "each head on its own", "whole": "all heads together", "none": "none"}
_RATES = (1, 2, 4)
"""Times the usual rate: they are said to matter where it is high."""
_SEEDS = 3
_OPERATIONS = 6
"""The operations of a parameter and a token, forward and backward."""
_MATRICES = 12
"""Parameters of a block over its width squared, where the feed-forward is four times as wide."""
_FILE = Path(__file__).with_name("query_key.toml")


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryKeyEvidence:
    """One number, or one statement, of somebody."""

    question: Literal["ends lower", "higher rates", "cost", "trained already"]
    claim: str
    citation: str
    side: Literal["with", "without", "neither"]
    """The side that it supports; neither where it decides nothing."""
    difference: float | None = None
    """The loss with these norms less that without, in nats."""
    half_width: float | None = None
    """Half the width of the 95 % interval; None for one training each."""
    width: int | None = None
    blocks: int | None = None
    optimizer: str = ""
    source: Sequence[str] = ()
    """The places of the losses in the file of a result of ours."""
    checked: Literal["read", "second-hand"]


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryKeyFamilies:
    """Published models that have such norms, or none."""

    norms: Literal["head", "whole", "none"]
    names: Sequence[str]


@cache
def _table() -> dict[str, Any]:
    return tomllib.loads(_FILE.read_text(encoding="utf-8"))


def evidence() -> list[QueryKeyEvidence]:
    """Returns all that we can cite, in the order of the file."""
    return [QueryKeyEvidence(**one) for one in _table()["evidence"]]


def families() -> list[QueryKeyFamilies]:
    """Returns the published models by the norms on queries and keys that they have."""
    return [QueryKeyFamilies(**one) for one in _table()["family"]]


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryKeyAnswer:
    """The answer for a case."""

    case: ModelToTrain
    advice: str
    """The advice: what we would do."""
    sure: Sequence[str]
    """The certainty of the advice, and its sources."""
    naive: str
    """The common advice without evidence, and the evidence against it."""
    unknown: Sequence[str]
    command: str
    """The command that decides it on one's own text."""
    trainings: int
    """The number of trainings that the command makes."""
    operations: float | None
    """The operations of all trainings; None where the length is not known."""
    evidence: Sequence[QueryKeyEvidence]
    """The nearest in width first."""
    families: Sequence[QueryKeyFamilies]

    def plain(self) -> dict[str, Any]:
        """Returns the answer as plain values for JSON."""
        return asdict(self)

    @property
    def cost(self) -> str:
        """The cost of the command, in words."""
        taken = f"{self.trainings} trainings of your model"
        if self.operations is None:
            return (
                f"{taken}; with --tokens it is told how many operations they take, and "
                "`--dry-run` behind the command tells their memory"
            )
        return (
            f"{taken}, about {significant(self.operations, 2)} operations (6 a parameter and "
            "token, embeddings left out); a tenth of the length decides first, where the "
            "difference is one of failing"
        )


def is_asked_by(words: Iterable[str]) -> bool:
    """Tells whether norms on queries and keys are asked about, by the word in a placement's place.
    Raises ValueError for placements beside it.
    """
    asked = [word.strip().lower() for text in words for word in text.split(",") if word.strip()]
    if SUBJECT in asked and len(asked) > 1:
        raise ValueError(
            f"{SUBJECT} is a question of its own, and here it stands beside "
            f"{', '.join(word for word in asked if word != SUBJECT)}: ask it alone"
        )
    return asked == [SUBJECT]


def title_of(found: QueryKeyAnswer) -> str:
    """Returns the title above the sections of an answer."""
    return f"Norms on queries and keys for: {found.case}"


def answer(case: ModelToTrain) -> QueryKeyAnswer:
    """Returns the evidence for a case, and what we would do."""
    known = sorted(evidence(), key=lambda one: _apart(case, one))
    found = typical_rate(RateFacts.of_case(case, BASELINE), case.model)
    rates = "LOW:HIGH:3"
    if found is not None:
        rates = ",".join(learning_rate(found.rate * factor, 2) for factor in _RATES)
    under = "" if case.optimizer == "adam" else f" --optimizers {case.optimizer}"
    trainings = 2 * len(_RATES) * _SEEDS
    parameters = _MATRICES * case.blocks * case.width**2
    return QueryKeyAnswer(
        case=case,
        advice=(
            "norms of each head, of the kind that the model has, before rotary positions "
            f"(`+{SUFFIX}`), where you train at a high rate or for long; at a usual rate that has "
            "not failed nothing known says that they end lower"
        ),
        sure=[_ends_lower(case, known), _higher_rates(known)],
        naive=_naive(),
        unknown=[
            "whether they end lower at this size, rate and length: no comparison that we can cite "
            "is decided by several seeds, each side at the rate that is best for it",
            "each head on its own beside all heads together, and before rotary positions beside "
            "after: published models differ, and nobody whom we can cite has compared them "
            "(`--qk-norm head,whole,head-after` does)",
            "how long a training has to be before they matter: logits grow slowly, and short "
            "trainings do not show it",
        ],
        command=(
            f"normscope compare FILE.py:FUNCTION --qk-norm none,head{under} --peak-lr {rates} "
            f"--seeds {_SEEDS}"
        ),
        trainings=trainings,
        operations=(
            None if case.tokens is None else _OPERATIONS * parameters * case.tokens * trainings
        ),
        evidence=known,
        families=families(),
    )


def _apart(case: ModelToTrain, one: QueryKeyEvidence) -> float:
    """Returns the ratio of the widths, 1 or larger; infinity for evidence without a width, which
    comes last.
    """
    if one.width is None:
        return float("inf")
    return max(case.width / one.width, one.width / case.width)


def _ends_lower(case: ModelToTrain, known: Sequence[QueryKeyEvidence]) -> str:
    told = [one for one in known if one.question == "ends lower" and one.difference is not None]
    better = [one for one in told if one.side == "with"]
    worse = [one for one in told if one.side == "without"]
    first = told[0]
    assert first.difference is not None
    far = ""
    if _apart(case, first) > NEAR:
        far = f", more than {NEAR:g} times away from this model's"
    size = interval(first.difference, first.half_width)
    between = "" if better and not worse else ", so that they disagree" if better else ""
    undecided = len(told) - len(better) - len(worse)
    return (
        f"To end lower: not known. {counted(len(better), 'comparison')} for it, {len(worse)} "
        f"against it and {undecided} undecided{between}. The nearest in width, {first.width}{far}: "
        f"{size} nats with them ({first.citation})."
    )


def _higher_rates(known: Sequence[QueryKeyEvidence]) -> str:
    told = [one for one in known if one.question == "higher rates" and one.side == "with"]
    cited = "; ".join(one.citation for one in told)
    return f"To stand a high rate: published, and not tried by us ({cited})."


def _naive() -> str:
    having = [one for one in families() if one.norms != "none"]
    count = sum(len(one.names) for one in having)
    lacking = sum(len(one.names) for one in families() if one.norms == "none")
    first = joined([one.names[0] for one in having])
    return (
        f"“Take them: {first} have them.” Of {count + lacking} published families that we looked "
        f"at {count} have them and {lacking} have not, and what a family has tells what it was "
        "trained with, not what it would have come to without."
    )


def answer_parts(found: QueryKeyAnswer) -> list[PageSection]:
    """All of it, the conclusion first."""
    sections = [
        PageSection(
            heading="What we would do", before=[f"Norms on queries and keys: {found.advice}"]
        ),
        PageSection(heading="How sure", before=[f"- {one}" for one in found.sure]),
        PageSection(heading="The naive answer", before=[found.naive]),
        PageSection(heading="Not known", before=[f"- {one}" for one in found.unknown]),
        PageSection(heading="What decides it", before=[found.command, f"Cost: {found.cost}."]),
    ]
    return [*sections, *evidence_parts(found.evidence)]


def evidence_parts(known: Sequence[QueryKeyEvidence]) -> list[PageSection]:
    """Returns the cited evidence, by question, and the families that have such norms."""
    sections = []
    for question, heading in _QUESTIONS.items():
        mine = [one for one in known if one.question == question]
        sections.append(PageSection(heading=heading, before=[_line(one) for one in mine]))
    named = [f"- {_OVER[one.norms]}: {', '.join(one.names)}" for one in families()]
    sections.append(PageSection(heading="Published families", before=named))
    return sections


def _line(one: QueryKeyEvidence) -> str:
    size = [] if one.blocks is None else [f"{one.blocks} blocks"]
    if one.width is not None:
        size.append(f"width {one.width:,}")
    if one.optimizer:
        size.append(one.optimizer)
    told = (
        ""
        if one.difference is None
        else f" The loss with them less that without: {_difference(one)}."
    )
    where = f"{one.citation}; {', '.join(size) or 'size not told'}; {_CHECKED[one.checked]}"
    return f"- {one.claim}{told} ({where})"


def _difference(one: QueryKeyEvidence) -> str:
    assert one.difference is not None
    if one.half_width is None:
        return f"{number(one.difference, 3)} nats, one training each"
    return f"{interval(one.difference, one.half_width)} nats, undecided"
