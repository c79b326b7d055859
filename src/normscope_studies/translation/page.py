"""Shows what the pages of figures 2, 4 and 6 have alike: curves over epochs and over rates, tables,
data and conditions.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any, Literal

from normscope.measure import Estimate
from normscope.report.chart import Panel
from normscope.report.words import counted

from ..engine.claims import of_one_seed
from ..engine.estimates import plain_estimate
from ..engine.ladders import in_words
from ..engine.page import Claim, Findings, StudyFigure, StudyTable, curves, line, ranged, table
from ..engine.pieces import Pieces
from .arms import TranslationArm
from .config import PAPER_EPOCH_UPDATES, PAPER_EPOCHS, PAPER_LONG, PAPER_SHORT, RunsConfig
from .ladder import RateLadder, climbed, settled
from .runs import Trained, TranslationCurve, trained

_Legend = Mapping[str, TranslationArm]
"""Arms of one panel by their words in the legend; the same words have the same colour in every
panel of a figure.
"""
_RatePanels = Mapping[str, Mapping[str, Sequence[TranslationArm]]]
"""Arms that differ in their rate alone, in rising order of it, by panel and words."""
SPREAD = "mean over seeds with the range of all of them"


def findings(
    config: RunsConfig,
    found: Trained,
    *,
    claims: Sequence[Claim],
    figures: Sequence[StudyFigure],
    data: Mapping[str, Any],
    rates: _RatePanels | None = None,
) -> Findings:
    """Returns the findings of one figure; data: its own. rates: what a sensitivity to the rate is
    stated of, where it has several.
    """
    sensitivity = [] if rates is None else sensitivity_data(rates, found)
    return Findings(
        conditions=_conditions(config, found),
        claims=claims,
        figures=figures,
        tables=[*([_sensitivity_table(sensitivity)] if sensitivity else []), _ends_table(found)],
        data={
            **_runs_data(found),
            **data,
            **({} if rates is None else {"lr_sensitivity": sensitivity}),
        },
    )


def answer(
    config: Any,
    pieces: Pieces,
    *,
    claims: Callable[[Any, Trained], Sequence[Claim]],
    figures: Callable[[Any, Trained], Sequence[StudyFigure]],
    data: Callable[[Any, Trained], Mapping[str, Any]],
    rates: Callable[[Any], _RatePanels] | None = None,
) -> Findings:
    """Returns what the arms of one figure are found to say, once what the folder lacks of them is
    trained.

    Raises UserError for text that is not there, and for a training that fails.
    """
    ladders = climbed(config, pieces)
    config = settled(config, ladders)
    found = trained(config, config.arms(), pieces)
    made = findings(
        config,
        found,
        claims=claims(config, found),
        figures=figures(config, found),
        data=data(config, found),
        rates=rates and rates(config),
    )
    return with_ladders(made, ladders)


def with_ladders(made: Findings, ladders: Sequence[RateLadder]) -> Findings:
    """Returns the findings with what the ladders came to, if any were climbed."""
    if not ladders:
        return made
    came_to = "; ".join(one.words for one in ladders)
    words = {"rates": f"multiples of the best of a ladder: {came_to}"}
    return replace(
        made,
        conditions={**made.conditions, **words},
        data={**made.data, "ladders": [one.data for one in ladders]},
    )


def with_caveat(claims: Sequence[Claim], found: Trained) -> list[Claim]:
    """The claims; where there is one seed of each arm, each says that this decides nothing."""
    several = len(next(iter(found.curves.values()))) > 1
    return list(claims) if several else of_one_seed(claims)


def epochs_figure(
    name: str,
    title: str,
    panels: Mapping[str, _Legend],
    found: Trained,
    *,
    epoch: int,
    told: str,
    schedules: str = "",
) -> StudyFigure:
    """Validation loss, above the unigram baseline, and BLEU over epochs of `epoch` updates.

    panels: by their titles; a single one of no title is named by what it shows. schedules: what the
    caption adds.
    """
    words = dict.fromkeys(words for arms in panels.values() for words in arms)
    hues = {one: hue for hue, one in enumerate(words)}
    drawn: list[Panel] = []
    for heading, arms in panels.items():
        ends = [1.0, max(arm.updates for arm in arms.values()) / epoch]
        unigram = found.unigram(next(iter(arms.values())))
        runs = [run.updates for arm in arms.values() for run in found.curves[arm]]
        axis: dict[str, Any] = {
            "x": [at / epoch for at in max(runs, key=len)],
            "xlabel": "epochs",
            "hues": hues,
        }
        baseline = line("unigram baseline", "claimed", -1, ends, unigram)
        losses, bleu = _over_epochs(arms, found, "nll_nats"), _over_epochs(arms, found, "bleu")
        drawn += [
            curves(
                heading or "validation loss",
                losses,
                ylabel="validation loss, nats",
                beside=[baseline],
                **axis,
            ),
            curves(heading or "BLEU", bleu, ylabel="BLEU", from_zero=True, **axis),
        ]
    caption = f"Validation loss and BLEU at every epoch, {SPREAD}{schedules}."
    return StudyFigure.of_panels(name=name, title=title, caption=caption, panels=drawn, told=told)


def rates_figure(panels: _RatePanels, found: Trained, *, caption: str) -> StudyFigure:
    """The last loss over the peak rate; caption: what it says of the rates, after the spread."""
    hues = list(dict.fromkeys(words for kinds in panels.values() for words in kinds))
    drawn = []
    for title, kinds in panels.items():
        series = []
        for words, arms in kinds.items():
            rising = sorted(arms, key=lambda arm: arm.peak_lr)
            rows = list(zip(*map(found.finals, rising), strict=True))
            series.append(ranged(words, hues.index(words), [arm.peak_lr for arm in rising], rows))
        ylabel = "last validation loss, nats"
        drawn.append(
            Panel(title=title, xlabel="peak rate", ylabel=ylabel, series=series, log_x=True)
        )
    return StudyFigure.of_panels(
        name="over_rates",
        title="The last loss over the rate",
        caption=f"Last validation loss, {SPREAD}, {caption}",
        panels=drawn,
        told="Last validation loss over the peak rate",
        wide=len(panels) > 1,
    )


def _over_epochs(
    arms: _Legend, found: Trained, what: Literal["nll_nats", "bleu"]
) -> dict[str, list[Sequence[float]]]:
    """Returns the courses by words, a row a seed. A run that stopped early ends the curve, and one
    that stopped at once leaves none.
    """
    shown: dict[str, list[Sequence[float]]] = {}
    for words, arm in arms.items():
        runs = found.curves[arm]
        shortest = min(len(run.updates) for run in runs)
        if shortest:
            shown[words] = [getattr(run, what)[:shortest] for run in runs]
    return shown


def sensitivity_data(panels: _RatePanels, found: Trained) -> list[dict[str, Any]]:
    """Returns the sensitivity of each curve over the rate, by the title of its panel; a panel of
    one rate has none.
    """
    curves = []
    for title, kinds in panels.items():
        if not all(len(arms) > 1 for arms in kinds.values()):
            continue
        for words, arms in kinds.items():
            one = found.lr_sensitivity(arms)
            curves.append(
                {
                    "panel": title,
                    "configuration": words,
                    "peak_lrs": [arm.peak_lr for arm in arms],
                    "best_peak_lr": arms[one.best_rate].peak_lr,
                    "sensitivity_nats": one.value,
                    "low": one.low,
                    "high": one.high,
                    "seeds": one.seeds,
                }
            )
    return curves


def _sensitivity_table(data: Sequence[Mapping[str, Any]]) -> StudyTable:
    return table(
        "Sensitivity of the last loss to the rate: nats above that at the best rate, on average "
        "over the rates (Wortsman et al. 2023, arXiv:2309.14322), with the range over resamples of "
        "the seeds",
        data,
        [
            ("panel", lambda one: one["panel"]),
            ("configuration", lambda one: one["configuration"]),
            ("rates", lambda one: ", ".join(f"{rate:g}" for rate in one["peak_lrs"])),
            ("best rate", lambda one: f"{one['best_peak_lr']:g}"),
            ("sensitivity, nats", lambda one: one["sensitivity_nats"]),
            (
                "95 % of resamples",
                lambda one: (
                    "one seed" if one["seeds"] == 1 else f"{one['low']:.3f} to {one['high']:.3f}"
                ),
            ),
            ("seeds", lambda one: one["seeds"]),
        ],
    )


def _ends_table(found: Trained) -> StudyTable:
    """Lists where every run ends."""
    return table(
        "Where the runs end",
        [
            (arm, seed, run)
            for arm, runs in found.curves.items()
            for seed, run in enumerate(runs, 1)
        ],
        [
            ("text", lambda row: row[0].pair),
            ("configuration", lambda row: row[0].title),
            ("cumulative learning rate", lambda row: row[0].summed_lr),
            ("seed", lambda row: row[1]),
            ("loss, nats", lambda row: row[2].final_nats),
            ("loss, bits", lambda row: row[2].final_nats / math.log(2)),
            ("BLEU", lambda row: row[2].final_bleu),
            ("ended", lambda row: row[2].ended),
        ],
    )


def _runs_data(found: Trained) -> dict[str, Any]:
    """Returns every curve, and the baseline of every language pair."""
    return {
        "configurations": [_arm_data(arm, runs) for arm, runs in found.curves.items()],
        "unigram_nats": found.unigram_nats,
        "runs": found.trained_by,
    }


def _arm_data(arm: TranslationArm, runs: Sequence[TranslationCurve]) -> dict[str, Any]:
    return {
        "text": arm.pair,
        "title": arm.title,
        "placement": arm.placement,
        "optimizer": arm.optimizer,
        "peak_lr": arm.peak_lr,
        "schedule": arm.schedule_words,
        "updates": arm.updates,
        "summed_lr": arm.summed_lr,
        "last_loss_nats": [curve.final_nats for curve in runs],
        "last_bleu": [curve.final_bleu for curve in runs],
        "seeds": [asdict(curve) for curve in runs],
    }


def plain(found: Estimate | None) -> dict[str, Any] | None:
    """Returns an estimate for results.json; None where there is none."""
    return None if found is None else plain_estimate(found)


def _conditions(config: RunsConfig, found: Trained) -> dict[str, str]:
    """Says how the runs were made."""
    optimizers = {arm.optimizer for arm in found.curves}
    settings = [
        "plain, without momentum" if name == "sgd" else f"{name}, betas 0.9 and 0.98"
        for name in optimizers
    ]
    sentences = counted(config.bleu_sentences, "validation sentence")
    return {
        "loss": "negative log-likelihood per target token of the whole validation split, natural "
        "logarithm, not smoothed (the paper's is smoothed, in bits); trained with label "
        f"smoothing {config.label_smoothing:g}",
        "gradients": "of the mean loss per target token; not clipped",
        "BLEU": f"sacreBLEU of the first {sentences} at every checkpoint, beam {config.bleu_beam}, "
        f"length penalty {config.bleu_length_penalty:g}",
        "text": "; ".join(found.texts),
        "model": f"{config.blocks}+{config.blocks} blocks, width {config.width}, feed-forward "
        f"{config.ffn_width}, {config.heads} heads, dropout {config.dropout:g}, all embeddings "
        "shared",
        "training": (
            f"{config.updates:,} updates of at most {config.max_tokens * config.accumulation:,} "
            f"tokens a side; {'; '.join(sorted(settings))}; no weight decay"
        ),
        "scaling": scaling(config),
        "seeds": f"{config.seeds} of each configuration: weights and order; intervals are of 95 %, "
        "Student's t",
        "trained by": in_words(found.trained_by),
    }


def scaling(config: RunsConfig) -> str:
    """Says how an epoch and the warm-ups stand to the paper's."""
    paper = PAPER_EPOCHS * PAPER_EPOCH_UPDATES
    if config.updates == paper and config.long_warmup_updates == PAPER_LONG:
        return "none: epochs and warm-ups are the paper's"
    long, short = config.long_warmup_updates, config.short_warmup_updates
    return (
        f"an epoch is {config.epoch_updates:,} updates, and {config.epochs} of them a run, where "
        f"the paper's {PAPER_EPOCHS} have about {paper:,}; its warm-ups of {PAPER_LONG:,} and "
        f"{PAPER_SHORT} are here {long:,} and {short:,}: {long / config.updates:.3f} and "
        f"{short / config.updates:.3f} of a run, there {PAPER_LONG / paper:.3f} and "
        f"{PAPER_SHORT / paper:.3f}"
    )
