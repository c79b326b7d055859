"""Judges whether others end better than the placement beside them: claims, pictures, the table."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from normscope.data.opening import open_corpus
from normscope.measure import Estimate
from normscope.placement import named
from normscope.report.words import number, percentage
from normscope.tasks.translation import TRANSLATION

from ..engine import checks
from ..engine.claims import claim
from ..engine.estimates import estimate, plain_estimate
from ..engine.judging import LEARNED_NATS, bigram_nats, holm, learned
from ..engine.ladders import in_words, machines, mean_nats, sources
from ..engine.page import Claim, Findings, StudyFigure, StudyTable, curves, table
from ..engine.pieces import Pieces
from ..engine.study import Study
from .config import SCALES, ConvergedConfig
from .endings import PlacementEnding, trained

_SAID = (
    "Liu et al. 2020, arXiv:2004.08249, abstract, of Post-LN where it trains; the sources of "
    "others promise as much"
)


def run(config: ConvergedConfig, pieces: Pieces) -> Findings:
    """Runs the study. Raises UserError for text that is not there, and for a training that
    fails.
    """
    checks.refuse_missing(config.corpus, "corpus", "normscope data prepare")
    corpus = open_corpus(config.training(config.updates, 0.0).data)
    endings, cells = trained(config, pieces, pieces.folder)
    unigram = TRANSLATION.chance_nats(corpus)
    bigram = bigram_nats(*(corpus.splits[name].target.tokens for name in ("train", "valid")))
    runs = sources(cells)
    return Findings(
        conditions=conditions(config, (unigram, bigram), runs) | {"machine": machines(cells)},
        claims=claims(config, endings, unigram),
        figures=figures(config, endings),
        tables=[ends(config, endings)],
        data={
            "unigram_nats": unigram,
            "bigram_nats": bigram,
            "endings": [data_of(config, one) for one in endings],
            "gains": gains_data(config, endings),
            "runs": runs,
        },
    )


_NATS, _BLEU = "nats", "BLEU"
MEASURES: Mapping[str, tuple[str, Callable[[PlacementEnding], list[float]]]] = {
    _NATS: ("ends lower", lambda one: [-nats for nats in one.nats]),
    _BLEU: ("translates better", lambda one: one.bleu),
}
"""The claim that a placement makes which has more, and its values, one a seed, by unit."""


def units_of(config: ConvergedConfig) -> list[str]:
    """Returns the units that ends are stated in: BLEU too where something was translated."""
    return [_NATS, _BLEU] if config.split else [_NATS]


def gains_of(
    config: ConvergedConfig, endings: Sequence[PlacementEnding], unit: str
) -> dict[str, Estimate]:
    """Measures by how much each placement ends better than the one beside, by title; over seeds in
    pairs.
    """
    _, of = MEASURES[unit]
    (beside,) = (of(one) for one in endings if one.placement == config.beside)
    gains = {}
    for one in endings:
        if one.placement != config.beside:
            more = [a - b for a, b in zip(of(one), beside, strict=True)]
            gains[one.title] = estimate(more)
    return gains


def gains_data(
    config: ConvergedConfig, endings: Sequence[PlacementEnding]
) -> dict[str, dict[str, Any]]:
    """Returns what results.json holds of `gains_of`, by unit and title."""
    found = {}
    for unit in units_of(config):
        gains = gains_of(config, endings, unit)
        found[unit] = {title: plain_estimate(gain) for title, gain in gains.items()}
    return found


def claims(
    config: ConvergedConfig, endings: Sequence[PlacementEnding], unigram_nats: float
) -> list[Claim]:
    """Makes the claims that a placement ends lower, and that it translates better, than the one
    that it is compared with; each of all together by Holm.
    """
    title = named(config.beside).title
    did = {one.title for one in endings if learned(mean_nats(one.runs), unigram_nats)}
    made = []
    for unit in units_of(config):
        words, _ = MEASURES[unit]
        gains = gains_of(config, endings, unit)
        # A pair of which neither has learned decides nothing.
        family = {
            name: (gain, 0.0, math.inf) for name, gain in gains.items() if {name, title} & did
        }
        made.append(
            claim(
                f"{words.capitalize()} than {title}",
                f"A placement {words} than {title}, each with the warm-up and the rate that suit "
                f"it best: by more than 0 {unit}.",
                source=_SAID,
                value=f"What it gains over {title}, in {unit}",
                holds=gains,
                decided={**dict.fromkeys(gains), **holm(family)},
                beside=f"Corrected by Holm over {len(family)} placements",
            )
        )
    return made


def figures(config: ConvergedConfig, endings: Sequence[PlacementEnding]) -> list[StudyFigure]:
    """The loss over the rate of the seed that chose, and over the updates of those that judge."""
    rates = {}
    for one in endings:
        shares = dict.fromkeys(share for share, _ in one.looked)
        for share in shares:
            title = f"{one.title}, warm-up {percentage(share, 0)}" if len(shares) > 1 else one.title
            rates[title] = [[one.looked[share, lr].final_nats for lr in config.peak_lrs]]
    every = {one.title: one.validations for one in endings}
    places = [updates for runs in every.values() for updates, _ in runs]
    shortest = min(places, key=len)
    courses = {}
    for title, runs in every.items():
        courses[title] = [nats[: len(shortest)] for _, nats in runs]
    return [
        StudyFigure.of_panels(
            name="rates",
            title="The loss over the rate",
            caption=(
                f"After {config.ladder_updates:,} updates of one seed, which chose. A run that did "
                "not stay finite counts as its loss at initialisation."
            ),
            panels=[
                curves(
                    "the seed that chose",
                    rates,
                    x=config.peak_lrs,
                    xlabel="peak rate",
                    ylabel="last validation loss, nats",
                    log_x=True,
                )
            ],
        ),
        StudyFigure.of_panels(
            name="validation",
            title="The loss over the updates",
            caption=f"Mean of {config.seeds} seeds at the best warm-up and rate, in their range.",
            panels=[
                curves(
                    "the seeds that judge",
                    courses,
                    x=shortest,
                    xlabel="update",
                    ylabel="validation loss, nats",
                )
            ],
        ),
    ]


def ends(config: ConvergedConfig, endings: Sequence[PlacementEnding]) -> StudyTable:
    """Lists what was chosen for each placement and where it ended, the lowest first."""
    title = named(config.beside).title
    beside = {unit: gains_of(config, endings, unit) for unit in units_of(config)}
    translated = [
        ("BLEU", lambda one: estimate(one.bleu)),
        (f"above {title}", lambda one: beside[_BLEU].get(one.title, "")),
    ]
    return table(
        "Where each placement ends, at its best warm-up and rate (* the least or the largest that "
        "was tried)",
        sorted(endings, key=lambda one: mean_nats(one.runs)),
        [
            ("placement", lambda one: one.title),
            ("warm-up", lambda one: percentage(one.chosen[0], 0)),
            ("rate", lambda one: f"{one.chosen[1]:g}{'*' if one.at_an_end else ''}"),
            ("nats", lambda one: estimate(one.nats)),
            (f"below {title}", lambda one: beside[_NATS].get(one.title, "")),
            *translated * bool(config.split),
            ("gained by the last tenth", lambda one: one.late_gain),
        ],
    )


def conditions(
    config: ConvergedConfig, baselines: tuple[float, float], runs: Mapping[str, Any]
) -> dict[str, str]:
    """Says how the runs were made. baselines: the losses of models that know the frequencies of
    tokens, and of pairs.
    """
    shares = ", ".join(
        f"{named(placement).title} {percentage(share, 0)}" for placement, share in config.pairs
    )
    return {
        "loss": "negative log-likelihood per target token of the whole validation split, natural "
        f"logarithm; unigram baseline {number(baselines[0], 3)}, bigram baseline "
        f"{number(baselines[1], 3)}",
        "models": (
            f"encoder-decoders of {config.blocks}+{config.blocks} blocks of width {config.width}, "
            f"feed-forward {config.ffn_width}, {config.heads} heads, dropout {config.dropout:g}; "
            "initial weights as each placement's source has them"
        ),
        "training": (
            f"Adam, {config.updates:,} updates of at most {config.max_tokens:,} tokens, label "
            f"smoothing 0.1, gradients clipped to a norm of {config.clip_norm:g}; the rate rises "
            "over the warm-up and falls from there in a straight line to 0; products in "
            f"{config.precision}"
        ),
        "chosen from": f"warm-ups of {shares} of the updates, rates "
        f"{', '.join(f'{lr:g}' for lr in config.peak_lrs)}, by one seed over "
        f"{config.ladder_updates:,} updates",
        "BLEU": (
            f"sacreBLEU of the {config.split} split, by the checkpoint with the lowest validation "
            "loss"
        )
        if config.split
        else "nothing was translated",
        "seeds": f"{config.seeds} others, which judge: weights and order; intervals are of 95 %, "
        "Student's t, over seeds in pairs",
        "learned": (
            f"ends more than {LEARNED_NATS:g} nats below the unigram baseline; a pair of which "
            "neither did decides nothing"
        ),
        "trained by": in_words(dict(runs)),
    }


def data_of(config: ConvergedConfig, one: PlacementEnding) -> dict[str, Any]:
    """Returns what results.json holds of a placement."""
    share, lr = one.chosen
    shares = dict.fromkeys(share for share, _ in one.looked)
    ladders = {}
    for each in shares:
        ladders[f"{each:g}"] = [one.looked[each, lr].final_nats for lr in config.peak_lrs]
    translated = (
        {"bleu": one.bleu, "over_seeds_bleu": plain_estimate(estimate(one.bleu))}
        if one.split
        else {}
    )
    return {
        "placement": one.placement,
        "optimizer": "adam",
        "warmup_share": share,
        "warmup_updates": round(share * config.updates),
        "peak_lrs": config.peak_lrs,
        "ladders_nats": ladders,
        "ladder_nats": [ladders[f"{share:g}"]],
        "best_lr": lr,
        "best_at_an_end": one.at_an_end,
        "last_loss_nats": one.nats,
        "over_seeds_nats": plain_estimate(estimate(one.nats)),
        "late_gain_nats": one.late_gain,
        **translated,
    }


STUDY = Study(
    title="Placements trained until little is gained",
    question=(
        "Where does each placement end that is trained until little is gained, at the warm-up and "
        "the rate that suit it best: does Post-LN, once it trains, end better than Pre-LN?"
    ),
    help="Where do placements end, each at its best?",
    scales=SCALES,
    run=run,
)
