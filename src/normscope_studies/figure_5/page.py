"""Figure 5's panels as the paper lays them out, the loss in its parts, and the numbers under them."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from normscope.compare.manifest import in_words
from normscope.data.opening import open_documents
from normscope.evidence.estimates import estimate, plain_estimate
from normscope.report.chart import Panel, Series

from ..engine.figures import curves, line, measured
from ..engine.page import StudyFigure, StudyTable, table
from ..translation.config import PLACEMENTS
from ..translation.page import shares_table
from .config import Figure5Config
from .trainings import Chance, PretrainingCurves, TunedTask, advantages, shares

_TUNED_CAPTION = (
    " (b), (c): accuracy of fine-tuned checkpoints on the development set, with 95 % intervals over fine-tuning seeds."
)
_HALF_WIDTH = 0.3
"""Of a point's interval, drawn beside the other arm's."""


def figures(pretrained: PretrainingCurves, chance: Chance, tuned: Mapping[str, TunedTask]) -> list[StudyFigure]:
    """In the paper's layout, and the loss in its parts."""
    updates = next(iter(pretrained.values()))[0].updates
    ends = [float(updates[0]), float(updates[-1])]
    unigram = line("unigram baseline", "claimed", -1, ends, chance.nll_nats)
    always = line("always the same answer", "claimed", -1, ends, chance.next_sentence_accuracy)
    return [
        StudyFigure.of_panels(
            name="figure_5",
            title="Figure 5, in the paper's layout",
            caption="(a): validation loss of masked tokens and next sentences over updates, mean over seeds with the "
            "range of all of them." + (_TUNED_CAPTION if tuned else ""),
            panels=[
                _over_updates("(a) validation loss", "nats", pretrained, "loss_nats"),
                *(_accuracy_panel(task, one, pretrained) for task, one in tuned.items()),
            ],
            told="Validation loss and accuracy over updates of pre-training",
            wide=True,
        ),
        StudyFigure.of_panels(
            name="parts",
            title="The loss in its parts",
            caption="Of masked tokens, beside the unigram entropy of the validation text; and the accuracy on next "
            "sentences, beside that of always giving the more frequent answer. Mean over seeds with the range of all "
            "of them.",
            panels=[
                _over_updates("masked tokens", "nats per masked token", pretrained, "nll_nats", unigram),
                _over_updates("next sentences", "accuracy", pretrained, "next_sentence_accuracy", always),
            ],
            told="Masked-token loss and next sentences over updates",
            wide=True,
        ),
    ]


def _over_updates(title: str, ylabel: str, pretrained: PretrainingCurves, what: str, *beside: Series) -> Panel:
    rows, x = {}, next(iter(pretrained.values()))[0].updates
    for arm, runs in pretrained.items():
        # A run that stopped early ends the curve.
        length = min(len(run.updates) for run in runs)
        rows[arm.title] = [getattr(run, what)[:length] for run in runs]
        x = max(x, runs[0].updates, key=len)
    return curves(title, rows, x=x, xlabel="updates", ylabel=ylabel, beside=beside)


def _accuracy_panel(task: str, tuned: TunedTask, pretrained: PretrainingCurves) -> Panel:
    """Over updates; of one checkpoint an arm there is no curve: each has a place of its own, and a width to be seen."""
    title = f"({'b' if task == 'mrpc' else 'c'}) {task.upper()}"
    updates = sorted({update for _, update in tuned.points})
    hues = {arm: hue for hue, arm in enumerate(pretrained) if any(arm == one for one, _ in tuned.points)}
    series, single = [], len(updates) == 1
    for place, (arm, hue) in enumerate(hues.items()):
        own = [update for update in updates if (arm, update) in tuned.points]
        found = [estimate(tuned.points[arm, update].accuracies) for update in own]
        x: Sequence[float] = [place - _HALF_WIDTH, place, place + _HALF_WIDTH] if single else own
        means, half_widths = ([float(getattr(one, part)) for one in found] for part in ("mean", "half_width"))
        times = 3 if single else 1
        series.append(measured(arm.title, hue, x, means * times, half_widths * times))
    ends = [-0.5, len(hues) - 0.5] if single else [float(updates[0]), float(updates[-1])]
    series.append(line("always the more frequent label", "claimed", -1, ends, tuned.majority))
    if not single:
        return Panel(title=title, xlabel="updates", ylabel="accuracy", series=series)
    ticks, xlabel = [PLACEMENTS[arm.placement] for arm in hues], f"pre-trained for {updates[0]:,} updates"
    return Panel(title=title, xlabel=xlabel, ylabel="accuracy", series=series, ticks=ticks)


def tables(config: Figure5Config, pretrained: PretrainingCurves, tuned: Mapping[str, TunedTask]) -> list[StudyTable]:
    """Where the pre-trainings end, how soon Pre-LN is there, and the fine-tunings."""
    runs = [(arm, seed, run) for arm, several in pretrained.items() for seed, run in enumerate(several, 1)]
    found = [
        table(
            "Where the pre-trainings end",
            runs,
            [
                ("configuration", lambda row: row[0].title),
                ("seed", lambda row: row[1]),
                ("loss, nats", lambda row: row[2].loss_nats[-1]),
                ("masked tokens, nats", lambda row: row[2].nll_nats[-1]),
                ("next sentences, accuracy", lambda row: row[2].next_sentence_accuracy[-1]),
                ("ended", lambda row: row[2].ended),
            ],
        ),
        shares_table({pair.name: shares(pair, pretrained) for pair in config.pairs}),
    ]
    for task, one in tuned.items():
        found += [
            table(
                f"{task.upper()}, fine-tuned",
                one.points.items(),
                [
                    ("pre-trained", lambda row: row[0][0].title),
                    ("updates", lambda row: row[0][1]),
                    ("accuracy", lambda row: estimate(row[1].accuracies)),
                    ("F1", lambda row: estimate(row[1].f1s) if row[1].f1s else ""),
                    ("setting", lambda row: row[1].setting),
                ],
            ),
            table(
                f"{task.upper()}: the search, first seed",
                one.searched,
                [
                    ("pre-trained", lambda row: row[0].title),
                    ("updates", lambda row: row[1]),
                    ("setting", lambda row: row[2]),
                    ("accuracy", lambda row: row[3]),
                ],
            ),
        ]
    return found


def data(
    config: Figure5Config, pretrained: PretrainingCurves, chance: Chance, tuned: Mapping[str, TunedTask]
) -> dict[str, Any]:
    """Every curve, and what the claims quote."""
    kept = ("loss_nats", "nll_nats", "next_sentence_accuracy", "ended")
    return {
        "pre_training": {
            arm.title: {
                **arm._asdict(),
                "updates": runs[0].updates,
                "last_loss_nats": [curve.loss_nats[-1] for curve in runs],
                "seeds": [{name: getattr(curve, name) for name in kept} for curve in runs],
            }
            for arm, runs in pretrained.items()
        },
        "chance": asdict(chance),
        "share_of_updates": {pair.name: shares(pair, pretrained) for pair in config.pairs},
        "fine_tuning": {task: _tuned_data(config, one) for task, one in tuned.items()},
    }


def _tuned_data(config: Figure5Config, tuned: TunedTask) -> dict[str, Any]:
    return {
        "majority": tuned.majority,
        "points": [
            {
                "arm": arm.title,
                "updates": update,
                **asdict(point),
                "accuracy": plain_estimate(estimate(point.accuracies)),
                "f1": plain_estimate(estimate(point.f1s)) if point.f1s else None,
                "above_majority": float(estimate(point.accuracies).low) > tuned.majority,
            }
            for (arm, update), point in tuned.points.items()
        ],
        "pre_less_post": {str(update): plain_estimate(one) for update, one in advantages(config, tuned).items()},
        "searched": [
            {"arm": arm.title, "updates": update, "setting": setting, "accuracy": accuracy}
            for arm, update, setting, accuracy in tuned.searched
        ],
    }


def conditions(
    config: Figure5Config,
    pretrained: PretrainingCurves,
    tuned: Mapping[str, TunedTask],
    trained_by: dict[str, dict[str, Any]],
) -> dict[str, str]:
    """How the trainings were made."""
    corpus = open_documents(config.training().data)
    train, valid = corpus.splits["train"], corpus.splits["valid"]
    tokens = config.sequence_length * config.batch_sequences * config.accumulation
    found = {
        "loss": "of masked tokens, mean per masked token, plus of next sentences, mean per pair; natural logarithm; "
        "the same held-out pairs and masks for every run",
        "gradients": f"of that sum; an update's is clipped to norm {config.clip_norm:g}",
        "text": f"{len(train):,} documents ({train.words:,} words, {len(train.tokens):,} tokens of a vocabulary of "
        f"{len(corpus.tokeniser):,}) to train on, {len(valid):,} held out",
        "model": f"BERT's form: {config.blocks} blocks, width {config.width}, feed-forward {config.ffn_width}, "
        f"{config.heads} heads, dropout {config.dropout:g}; weights from N(0, 0.02²)",
        "training": f"{config.updates:,} updates of at most {tokens:,} tokens "
        f"({config.batch_sequences * config.accumulation} sequences of up to {config.sequence_length}); AdamW, betas "
        f"{config.betas[0]:g} and {config.betas[1]:g}, weight decay {config.weight_decay:g}; the rate falls in a "
        "straight line to 0 at the last update",
        "configurations": "; ".join(arm.title for arm in pretrained),
        "seeds": f"{config.seeds} of each pre-training: weights, pairs, masks and order",
        "trained by": in_words(trained_by),
    }
    for task, one in tuned.items():
        found[task.upper()] = f"{one.conditions}; intervals are of 95 %, Student's t over seeds"
    return found
