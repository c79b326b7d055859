"""The manual's pages on choosing, written from the evidence: one to read, and one of tables, a
section a model.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import get_args

from normscope.choosing.case import NEAR, ModelToTrain
from normscope.choosing.choice import EvidenceForModel, SizeClass, choose
from normscope.choosing.evidence import QUESTIONS, BestRate, Evidence, EvidenceRow, published
from normscope.choosing.law import CRITICAL, SHALLOW, RateFacts, law
from normscope.choosing.parts import PageSection, TextTable, advice_part, own_parts, published_part
from normscope.choosing.query_key import evidence as query_key_evidence, evidence_parts
from normscope.choosing.rates import (
    HELD,
    HELD_BEYOND_GPT3,
    HELD_BY_MEDIANS,
    HELD_LADDERS,
    WITHIN,
    WRONG_NATS,
    typical_rate,
)
from normscope.choosing.recipes import RateRecipe, recipes
from normscope.placement.base import ModelKind
from normscope.report.words import learning_rate, number

from ..engine.judging import LEARNED_NATS
from ..engine.page import table_lines

CASES = (
    ModelToTrain(model="decoder-only", blocks=24, width=1024, optimizer="muon", tokens=5e9),
    ModelToTrain(model="decoder-only", blocks=12, width=768, optimizer="adamw", tokens=1e10),
    ModelToTrain(model="decoder-only", blocks=96, width=8192, optimizer="adamw", tokens=1e12),
    ModelToTrain(model="decoder-only", blocks=4, width=128, optimizer="adamw", tokens=2e6),
    ModelToTrain(model="decoder-only", blocks=12, width=256, optimizer="lion", tokens=1e8),
    ModelToTrain(model="decoder-only", blocks=6, width=128, optimizer="sgd", tokens=1e6),
    ModelToTrain(model="encoder-decoder", blocks=6, width=512, optimizer="adam", tokens=7e7),
    ModelToTrain(model="encoder-decoder", blocks=18, width=512, optimizer="radam", tokens=1e9),
    ModelToTrain(model="encoder-only", blocks=12, width=768, optimizer="adamw", tokens=1e11),
    ModelToTrain(model="encoder-only", blocks=6, width=128, optimizer="muon"),
)
"""The cases that the page shows: sizes that people train, sizes that were measured, and some of
which nothing is known.
"""

_INTRODUCTION = f"""\
# Choosing a placement, a learning rate and a warm-up

<!-- Written by `python -m normscope_studies.manual docs`; change the results or the code, not this page. -->

`normscope choose` says, for a model that you want to train, what is known: which placements end lower, which train without
warm-up, at which rates they were best, and which of this is **supported**, **contradicted**, **undecided** or **not
known**. It knows nothing by itself: every number is in a result of this repository or in a source that is cited beside
it, and says so.

```console
$ normscope choose --model decoder-only --blocks 24 --width 1024 --optimizer muon --tokens 5e9
$ normscope choose peri-ln deepnorm --model decoder-only --blocks 24 --width 1024 --optimizer muon --json
```

It begins with what we would do, in three lines: placement, peak rate and warm-up. Below stands how sure each is and
what would settle it. A placement of ours is named where it led in a result near the model's size and as deep, and
the length is told (`--tokens`): elsewhere it is Pre-LN, with the placement that is worth a comparison, one that ends
above Pre-LN in no result that counts. The rate is that of [one law](#the-peak-rate); `--long` prints all that is
known. Names of placements limit the answer to these; `--json` prints [the same as data](#as-data), with the place of
every number in its file. In Python, [`normscope.choose`](python.md#choose) gives the same.

**How the evidence is ranked.** A result counts for a model of the same kind under the same optimiser (Adam and AdamW
count for one another); under another, or in another kind of model, it decides nothing. What counts is ordered by
distance: how many times as deep, as wide and as long the model's training is. Within a factor of {NEAR:g} in each,
evidence is called *near*. Where the model exceeds it by more, it is *small-scale*. No result of ours says how far
evidence carries, so that the factor is a convention; the distances stand beside it.

**How verdicts are made.** By a 95 % interval over seeds in pairs (Student's t): on one side of the claim it is
supported, on the other contradicted, across the edge undecided, and one seed is undecided. Runs that end less than
{LEARNED_NATS:g} nats below the unigram baseline decide nothing. Where several results count, one that decides is
enough, unless another points the other way, with its interval or with its mean alone: then the claim is undecided, and
all are shown. Intervals that a result holds are printed as they are; others are computed from the losses of its seeds.

**What it cannot say.** Our models are small and their trainings short, many claims are judged side by side, of which
one in twenty looks certain by chance, and the corpora are few. The section by theory is about initial weights alone.
"""  # noqa: E501

TABLES = "choosing-tables.md"
_TABLES_INTRODUCTION = """\
# What is known for ten models

<!-- Written by `python -m normscope_studies.manual docs`; change the results or the code, not this page. -->

Tables of what `normscope choose --long` prints, one model a section. [Choosing](choosing.md) says how evidence is
ranked and how verdicts are made.
"""  # noqa: E501
_QUERY_KEY_NORMS = """\
## Norms on queries and keys

```console
$ normscope choose qk-norm --blocks 24 --width 1024 --tokens 5e9
```

They go with every placement (`pre-ln+qk-norm`, or `--qk-norm`), and are asked for by a word of their own. The answer has
what we would do, how sure that is, the naive answer beside it, what is not known, and the comparison that decides with
what it takes. It stands on what is below; the nearest in width comes first. `--json` prints it as data.
"""  # noqa: E501
_AS_DATA = """\
## As data

`normscope choose --json` prints one object: `case`; `measured`, a list of results that count (`setting`, with what was
trained; `distance`, the model's depth, width and tokens over the result's; `optimizers`; `scale`); `answers`, for every
`question` its `claims` (`placement`, `group`, `disagree`, `findings`); `rates`, `depths`, `advice`,
`theory`, `published` and `recommended`, with `what`, `says`, `sure` and `surer` of each of three lines. A finding has
`mean`, `half_width` of the 95 % interval (null for one seed), `seeds`, `answer` (its own verdict), `note`, `learned`
(false where no run came well below the unigram baseline), `setting`, and `source`: JSON pointers into
`results/RESULT/results.json`, one to an interval, or two to the losses whose mean difference it is (`*` stands for
every entry of a list).
"""  # noqa: E501


def pages(evidence: Evidence) -> dict[str, str]:
    """Returns the pages by their names below docs/; the same evidence gives the same bytes."""
    choices = [choose(case, evidence=evidence) for case in CASES]
    said = [
        _INTRODUCTION,
        "\n".join(_overview(choices)),
        "\n".join(_results(evidence)),
        *_by_others(evidence),
        _AS_DATA,
    ]
    shown = [_TABLES_INTRODUCTION, *("\n".join(_section(choice)) for choice in choices)]
    return {"choosing.md": "\n".join(said), TABLES: "\n".join(shown)}


def _overview(choices: Sequence[EvidenceForModel]) -> Iterator[str]:
    """A row for each model: how near the evidence is, and how many placements are supported by it
    for what.
    """
    yield "## Ten models\n"
    yield (
        "Each row is one model, with the number of placements that the evidence supports for each "
        "question, of those that it says anything about. The first column leads to all numbers, "
        "each with its source.\n"
    )
    questions = [question.heading for question in QUESTIONS.values()]
    rows = []
    for choice in choices:
        scales = [one.scale for one in choice.measured]
        nearest = next((scale for scale in get_args(SizeClass) if scale in scales), "none")
        anchor = re.sub(r"[^\w\- ]", "", str(choice.case).lower()).replace(" ", "-")
        cells = [f"[{choice.case}]({TABLES}#{anchor})", nearest]
        for answered in choice.answers:
            known = sum(claim.group != "not known" for claim in answered.claims)
            cells.append(f"{len(answered.of('supported'))} of {known}" if known else "not known")
        rows.append(cells)
    yield from table_lines(["model", "evidence", *questions], rows)
    yield ""


def _by_others(evidence: Evidence) -> Iterator[str]:
    """Says what holds for every case alike, once."""
    yield "\n".join(_part(_rate_part(), level=2))
    yield "\n".join(_part(_six_part(), level=2))
    yield "\n".join(_part(advice_part(evidence.advice), level=2))
    for model in get_args(ModelKind):
        yield "\n".join(
            _part(
                published_part(model, [one for one in published() if one.model == model]), level=2
            )
        )
    yield _QUERY_KEY_NORMS
    for part in evidence_parts(query_key_evidence()):
        yield "\n".join(_part(part))


def _law_words() -> list[str]:
    """Returns what the law is, and how often it is right."""
    found = law()
    held, of = HELD
    by_every_family, by_near_widths = HELD_BY_MEDIANS.values()
    by_all, of_all = by_every_family
    by_near, of_near = by_near_widths
    beyond, of_beyond = HELD_BEYOND_GPT3
    own = ", ".join(f"{name} {number(10**decades)}" for name, decades in found.optimizers.items())
    in_ladders, of_ladders = HELD_LADDERS
    return [
        "`normscope choose` and `normscope doctor` name the **best** rate of a model, and beside "
        "it what people train such a model with, which is lower. The best rate is "
        f"{learning_rate(10**found.constant)} at width 768 and 24 sub-layers under Adam and AdamW "
        "with a very large batch, times (width / 768) to the power "
        f"{number(found.width)}, times (sub-layers / 24) to the power {number(found.sublayers)}, "
        f"where every residual sum is normalised (as in Post-LN) times (sub-layers / {SHALLOW}) to "
        f"the power {number(found.normed_depth)}, times a constant of every other optimiser "
        f"({own}), divided by √(1 + critical / batch): far below its critical batch a rate goes "
        "with the root of the batch, and above it hardly moves. The critical batch is "
        f"{CRITICAL.tokens:,.0f} tokens in a training of 2e10, and grows with the length to the "
        f"power {CRITICAL.power:g}. A range reaches {WITHIN:g} times to either side; where the "
        "batch is not told, from that of a small batch to that of a large one. The rate of recipes "
        f"is that of a very large batch times {number(10**found.habit)}, whatever their batch.",
        "It is fitted by least squares to best rates (of published learning-rate sweeps, and of "
        "our own trainings of small models) and to the recipes below, and answers within a factor "
        f"of {NEAR:g} of the widths that an optimiser was seen at. Fitted without the shape of "
        f"model that it is asked of, its range holds {in_ladders} of {of_ladders} best rates of "
        "published learning-rate sweeps ([how near the law comes](../results/rate_law/README.md)). "
        "Fitted without a family of recipes (a repository; those of GPT-3's table count as one), "
        f"the range about the recipes' rate holds {held} of {of} of theirs, and {beyond} of "
        f"{of_beyond} of those outside GPT-3's table; one about the median of all other families' "
        f"rates under the optimiser holds {by_all} of {of_all}, and one about the median of "
        f"those within {NEAR:g} times the width {by_near} of {of_near}: as a guess at people's "
        "habits the law is not better for certain than that median. The schedule is not in it.",
        f"Half the best rate of a published ladder loses {WRONG_NATS[0.5]:g} nats in the median, "
        f"and twice it {WRONG_NATS[2.0]:g}.",
        "Best rates of other searches, which it was never fitted to (`optima.toml` in the "
        "package): of Lingle's Llamas its range holds all 18, of width 768 to 3,072 and batches "
        "of 33k to 131k; of marin's (arXiv:2509.02046) all six of Lion and none of five of AdamW, "
        "which are three to four times as high; of GPT-2 small with RMSNorm and normalised queries "
        "and keys that with 524k tokens a batch, and not that of one sequence of 1,024, ten times "
        "what it names. Of 41 best rates of our own small models over depth and width "
        "([rates over sizes](../results/rate_transfer/README.md)) it holds 37.",
    ]


def _rate_part() -> PageSection:
    """Returns the law, how often it is right, and every recipe that it is fitted to."""
    rows = [
        [
            one.name,
            one.placement,
            f"{one.blocks}",
            f"{one.width:,}",
            one.optimizer,
            learning_rate(one.peak_lr),
            "" if one.warmup_updates is None else f"{one.warmup_updates:,}",
            "" if one.updates is None else f"{one.updates:,}",
            "" if one.batch_tokens is None else f"{one.batch_tokens:,}",
            f"{one.repository}, {one.path}",
            one.commit[:10],
        ]
        for one in recipes()
    ]
    sizes = ("recipe", "placement", "blocks", "width", "optimiser")
    columns = (*sizes, "peak rate", "warm-up", "updates", "tokens a batch", "read in", "commit")
    return PageSection(
        heading="The peak rate", before=_law_words(), tables=[TextTable(columns=columns, rows=rows)]
    )


_SIX = ("GPT-2 small", "BERT-base", "TinyLlama 1.1B", "ViT-B/16", "Transformer, IWSLT14")
"""Recipes of models that people train, beside which the law's answers are shown."""
_TOY = RateRecipe(
    name="GPT on Shakespeare's characters, 10M",
    model="decoder-only",
    placement="pre-ln",
    blocks=6,
    width=384,
    optimizer="adamw",
    peak_lr=1e-3,
    warmup_updates=100,
    updates=5000,
    batch_tokens=16_384,
    repository="karpathy/nanoGPT",
    path="config/train_shakespeare_char.py",
    commit="3adf61e154",
)
"""A model that people begin with; the law is not fitted to it."""


def _six_part() -> PageSection:
    """Returns what the law says of six models that people train, beside what these are trained
    with.
    """
    named_ones = {one.name: one for one in recipes()}
    rows = []
    for one in (*(named_ones[name] for name in _SIX), _TOY):
        facts = RateFacts.of_recipe(one)
        found = typical_rate(facts, one.model)
        if found is None:
            raise ValueError(f"nothing is known near {one.name}")
        without = typical_rate(replace(facts, batch_tokens=None), one.model)
        rows.append(
            [
                one.name,
                f"{one.batch_tokens:,}",
                learning_rate(one.peak_lr),
                learning_rate(found.rate, 2),
                f"{learning_rate(found.low, 2)} to {learning_rate(found.high, 2)}",
                learning_rate(found.recipe_rate, 2),
                "" if without is None else without.words,
            ]
        )
    columns = (
        "model",
        "tokens a batch",
        "trained with",
        "best rate by the law",
        "its range",
        "recipes' rate by the law",
        "where the batch is not told",
    )
    return PageSection(
        heading="Six models that people train",
        before=[
            "What the law names with the batch and the length of each recipe, beside the rate that "
            "the recipe has. Five of them are among the recipes that its constant for recipes is "
            "fitted to; its best rates are fitted to other trainings. A best rate is one to try "
            "beside the usual one (`--peak-lr around:` that rate), and not one to begin a long "
            "run with: it is that of trainings whose rate falls to nearly 0."
        ],
        tables=[TextTable(columns=columns, rows=rows)],
    )


def command(case: ModelToTrain) -> str:
    """Returns the command that prints the case."""
    mantissa, _, power = f"{case.tokens or 0:.6e}".partition("e")
    tokens = "" if case.tokens is None else f" --tokens {float(mantissa):g}e{int(power)}"
    return (
        f"normscope choose --model {case.model} --blocks {case.blocks} --width {case.width} "
        f"--optimizer {case.optimizer}{tokens}"
    )


def _results(evidence: Evidence) -> Iterator[str]:
    yield "## What was measured\n"
    yield (
        "Tokens are those that a training saw, or the most it can have seen where batches are "
        "filled up to a limit.\n"
    )
    rows = []
    for name, one in evidence.settings.items():
        seen: list[EvidenceRow | BestRate] = [*evidence.findings, *evidence.rates]
        optimizers = dict.fromkeys(found.optimizer for found in seen if found.setting == name)
        cells = [
            f"[{one.result}](../results/{one.result}/README.md){name.removeprefix(one.result)}",
            one.model,
            ", ".join(optimizers) or "–",
            "–".join(f"{blocks}" for blocks in dict.fromkeys(one.blocks)),
            "–".join(f"{width}" for width in dict.fromkeys(one.width)),
            f"{one.updates:,}",
            f"{one.tokens:,}",
            one.text,
        ]
        rows.append(cells)
    yield from table_lines(
        ("result", "kind of model", "optimisers", "blocks", "width", "updates", "tokens", "text"),
        rows,
    )
    yield ""


def _section(choice: EvidenceForModel) -> Iterator[str]:
    yield f"## {choice.case}\n"
    yield f"```console\n$ {command(choice.case)}\n```\n"
    for part in own_parts(choice):
        yield from _part(part)


def _part(part: PageSection, level: int = 3) -> Iterator[str]:
    yield f"{'#' * level} {part.heading}\n"
    yield from _sentences(part.before)
    for table in part.tables:
        yield from _table(table)
    yield from _sentences(part.after)


def _sentences(said: Sequence[str]) -> Iterator[str]:
    """Paragraphs, and items of a list that belong together."""
    items = [line for line in said if line.startswith("- ")]
    yield from (f"{line}\n" for line in said if line not in items)
    if items:
        yield "\n".join(items) + "\n"


def _table(table: TextTable) -> Iterator[str]:
    if table.title:
        yield f"**{table.title.capitalize()}**\n"
    yield from table_lines(table.columns, map(_escaped, table.rows))
    yield ""


def _escaped(row: Sequence[str]) -> list[str]:
    """Returns a row in whose cells Markdown reads neither bars nor stars."""
    return [re.sub(r"([|*])", r"\\\1", cell) for cell in row]
