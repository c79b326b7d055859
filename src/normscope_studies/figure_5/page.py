"""Figure 5's panels as the paper lays them out, the loss in its parts, and the numbers under
them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from normscope.data.opening import open_documents
from normscope.finetune.summary import RowsMean
from normscope.report.chart import Panel, Series
from normscope.report.words import counted

from ..engine.estimates import plain_estimate
from ..engine.ladders import in_words, machines
from ..engine.page import StudyFigure, StudyTable, curves, line, measured, table
from .config import Figure5Config, PretrainingArm
from .pretraining import Chance, PretrainingCurves, shares
from .tuning import TunedTask

PANELS = {"mrpc": "b", "rte": "c"}
_SPREAD = "mean over seeds with the range of all of them"


def figures(
    config: Figure5Config,
    pretrained: PretrainingCurves,
    chance: Chance,
    tuned: Mapping[str, TunedTask],
) -> list[StudyFigure]:
    """Draws the paper's layout, and the loss in its parts."""
    caption = (
        f"(a): validation loss of masked tokens and next sentences over updates, {_SPREAD}; the "
        "dotted line is a model that ignores its input."
    )
    if tuned:
        caption += (
            " (b), (c): accuracy of fine-tuned checkpoints on the development set, with 95 % "
            "intervals over seeds; the dotted line always gives the more frequent label."
        )
    whole = _over_updates("(a) validation loss", "nats", pretrained, "loss_nats", chance.loss_nats)
    masked = _over_updates(
        "masked tokens", "nats per masked token", pretrained, "nll_nats", chance.nll_nats
    )
    pairs = _over_updates(
        "next sentences",
        "accuracy",
        pretrained,
        "next_sentence_accuracy",
        chance.next_sentence_accuracy,
    )
    return [
        StudyFigure.of_panels(
            name="figure_5",
            title="Figure 5, in the paper's layout",
            caption=caption,
            panels=[whole, *(_accuracy_panel(config, one) for one in tuned.values())],
            told="Validation loss and accuracy over updates of pre-training",
        ),
        StudyFigure.of_panels(
            name="parts",
            title="The loss in its parts",
            caption="Of masked tokens, beside the unigram entropy of the validation text; and the "
            "accuracy on next sentences, beside that of always giving the more frequent answer. "
            f"The {_SPREAD}.",
            panels=[masked, pairs],
            told="Masked-token loss and next sentences over updates",
        ),
    ]


def _over_updates(
    title: str, ylabel: str, pretrained: PretrainingCurves, what: str, by_chance: float
) -> Panel:
    rows: dict[str, list[Sequence[float]]] = {}
    x: Sequence[int] = ()
    for arm, runs in pretrained.items():
        # A run that stopped early ends the curve.
        length = min(len(run.updates) for run in runs)
        if length:
            rows[arm.title] = [getattr(run, what)[:length] for run in runs]
        x = max(x, runs[0].updates, key=len)
    ends = [float(x[0]), float(x[-1])] if x else []
    baseline = line("chance", "claimed", -1, ends, by_chance)
    return curves(title, rows, x=x, xlabel="updates", ylabel=ylabel, beside=[baseline])


def _accuracy_panel(config: Figure5Config, tuned: TunedTask) -> Panel:
    """Draws the accuracy over updates; a single checkpoint is a point, with a width to be seen."""
    every = config.tuned_updates
    half = config.checkpoint_every / 4
    series: list[Series] = []
    for hue, arm in enumerate(config.arms[:2]):
        own = [update for update in every if tuned.of(arm, update)]
        found = [tuned.accuracy(arm, update) for update in own]
        means = [float(one.mean) for one in found]
        widths = [float(one.half_width) for one in found]
        x = [float(update) for update in own]
        if len(own) == 1:
            x = [x[0] - half, x[0], x[0] + half]
            means, widths = means * 3, widths * 3
        series.append(measured(arm.title, hue, x, means, widths))
    ends = [every[0] - half, every[-1] + half]
    series.append(line("majority class", "claimed", -1, ends, tuned.majority))
    letter = PANELS.get(tuned.task, "b")
    return Panel(
        title=f"({letter}) {tuned.task.upper()}",
        xlabel="updates of pre-training",
        ylabel="accuracy",
        series=series,
    )


def tables(
    config: Figure5Config,
    pretrained: PretrainingCurves,
    chance: Chance,
    tuned: Mapping[str, TunedTask],
) -> list[StudyTable]:
    """Lists where the pre-trainings end, how soon Pre-LN is there, and the fine-tunings."""
    runs = [
        (arm, seed, run)
        for arm, several in pretrained.items()
        for seed, run in enumerate(several, 1)
    ]
    found = [
        table(
            "Where the pre-trainings end",
            runs,
            [
                ("configuration", lambda row: row[0].title),
                ("seed", lambda row: row[1]),
                ("loss, nats", lambda row: _last(row[2].loss_nats)),
                ("masked tokens, nats", lambda row: _last(row[2].nll_nats)),
                ("next sentences, accuracy", lambda row: _last(row[2].next_sentence_accuracy)),
                ("ended", lambda row: row[2].ended),
            ],
        ),
        _shares_table(config, pretrained, chance),
    ]
    for one in tuned.values():
        found += _task_tables(config, one)
    return found


def _last(values: Sequence[float]) -> float | None:
    return values[-1] if values else None


def _shares_table(
    config: Figure5Config, pretrained: PretrainingCurves, chance: Chance
) -> StudyTable:
    rows = [
        (pair.name, seed, share)
        for pair in config.pairs
        for seed, share in enumerate(_shares(config, pretrained, chance, pair), 1)
    ]
    return table(
        "Updates after which Pre-LN is where Post-LN ends, as a part of all",
        rows,
        [
            ("rates", lambda row: row[0]),
            ("seed", lambda row: row[1]),
            ("share", lambda row: "never" if row[2] is None else row[2]),
        ],
    )


def _shares(
    config: Figure5Config, pretrained: PretrainingCurves, chance: Chance, pair: Any
) -> list[float | None]:
    return shares(pair, pretrained, updates=config.updates, chance_nats=chance.loss_nats)


def _task_tables(config: Figure5Config, tuned: TunedTask) -> list[StudyTable]:
    every = [
        (arm, update)
        for update in config.tuned_updates
        for arm in config.arms[:2]
        if tuned.of(arm, update)
    ]
    title = tuned.task.upper()
    return [
        table(
            f"{title}, fine-tuned: intervals over seeds, and over dev pairs beside the majority "
            "class",
            every,
            [
                ("pre-trained", lambda row: row[0].title),
                ("updates", lambda row: row[1]),
                ("accuracy, 95 % over seeds", lambda row: tuned.accuracy(*row)),
                ("above the majority class", lambda row: _written(tuned.above_majority(*row))),
                ("setting", lambda row: tuned.of(*row)[0].setting),
            ],
        ),
        table(
            f"{title}, every checkpoint",
            tuned.points,
            [
                ("pre-trained", lambda point: point.arm.title),
                ("seed", lambda point: point.seed),
                ("updates", lambda point: point.update),
                ("accuracy", lambda point: point.accuracy),
                ("lowest", lambda point: min(point.accuracies)),
                ("highest", lambda point: max(point.accuracies)),
                ("fine-tunings", lambda point: len(point.accuracies)),
            ],
        ),
        table(
            f"{title}: the search, first seed of pre-training and of fine-tuning",
            tuned.searched,
            [
                ("pre-trained", lambda tried: tried.arm.title),
                ("setting", lambda tried: tried.setting),
                ("accuracy", lambda tried: tried.accuracy),
            ],
        ),
    ]


def _written(found: RowsMean) -> str:
    return found.words


def data(
    config: Figure5Config,
    pretrained: PretrainingCurves,
    chance: Chance,
    tuned: Mapping[str, TunedTask],
) -> dict[str, Any]:
    """Returns every curve, and the numbers that the claims quote."""
    kept = ("loss_nats", "nll_nats", "next_sentence_accuracy", "ended")
    by_arm = {}
    for arm, runs in pretrained.items():
        longest = max((run.updates for run in runs), key=len)
        seeds = []
        for run in runs:
            seeds.append({name: getattr(run, name) for name in kept})
        by_arm[arm.title] = {**arm._asdict(), "updates": longest, "seeds": seeds}
    return {
        "pre_training": by_arm,
        "chance": {**asdict(chance), "loss_nats": chance.loss_nats},
        "share_of_updates": {
            pair.name: _shares(config, pretrained, chance, pair) for pair in config.pairs
        },
        "fine_tuning": {task: _tuned_data(config, one) for task, one in tuned.items()},
    }


def _tuned_data(config: Figure5Config, tuned: TunedTask) -> dict[str, Any]:
    post, pre = config.arms[:2]
    both = [
        update
        for update in config.tuned_updates
        if tuned.of(post, update) and tuned.of(pre, update)
    ]
    return {
        "majority": tuned.majority,
        "points": [
            {
                "arm": point.arm.title,
                "seed": point.seed,
                "updates": point.update,
                "setting": point.setting,
                "accuracies": point.accuracies,
            }
            for point in tuned.points
        ],
        "arms": [
            _arm_data(tuned, arm, update)
            for update in config.tuned_updates
            for arm in (post, pre)
            if tuned.of(arm, update)
        ],
        "pre_less_post": {
            str(update): {
                "over_seeds": plain_estimate(tuned.advantage(pre, post, update)),
                "over_dev_pairs": asdict(tuned.advantage_over_rows(pre, post, update)),
            }
            for update in both
        },
        "searched": [
            {"arm": tried.arm.title, "setting": tried.setting, "accuracy": tried.accuracy}
            for tried in tuned.searched
        ],
    }


def _arm_data(tuned: TunedTask, arm: PretrainingArm, update: int) -> dict[str, Any]:
    return {
        "arm": arm.title,
        "updates": update,
        "accuracy": plain_estimate(tuned.accuracy(arm, update)),
        "above_majority": asdict(tuned.above_majority(arm, update)),
    }


def conditions(
    config: Figure5Config,
    cells: Sequence[Any],
    pretrained: PretrainingCurves,
    tuned: Mapping[str, TunedTask],
    trained_by: Mapping[str, Mapping[str, Any]],
) -> dict[str, str]:
    """Says how the trainings were made."""
    corpus = open_documents(config.training().data)
    train, valid = corpus.splits["train"], corpus.splits["valid"]
    sequences = config.batch_sequences * config.accumulation
    found = {
        "loss": "of masked tokens, mean per masked token, plus of next sentences, mean per pair; "
        "natural logarithm; the same held-out pairs and masks for every run",
        "gradients": f"of that sum; an update's is clipped to norm {config.clip_norm:g}",
        "text": f"{len(train):,} documents ({len(train.tokens):,} tokens of a vocabulary of "
        f"{len(corpus.tokeniser):,}) to train on, {len(valid):,} held out",
        "model": f"BERT's form: {config.blocks} blocks, width {config.width}, feed-forward "
        f"{config.ffn_width}, {config.heads} heads, dropout {config.dropout:g}; weights from "
        "N(0, 0.02²)",
        "training": f"{config.updates:,} updates of at most {config.tokens_per_update:,} tokens "
        f"({sequences} sequences of up to {config.sequence_length}); AdamW, betas "
        f"{config.betas[0]:g} and {config.betas[1]:g}, weight decay {config.weight_decay:g}; the "
        "rate falls in a straight line to 0 at the last update",
        "configurations": "; ".join(arm.title for arm in pretrained),
        "seeds": f"{config.seeds} of each pre-training: weights, pairs, masks and order",
        "machine": machines(cells),
        "trained by": in_words(trained_by),
    }
    if tuned:
        found["fine-tuning"] = _tuned_words(config)
    return found


def _tuned_words(config: Figure5Config) -> str:
    batches = " or ".join(map(str, config.tune_batch_sizes))
    rates = " or ".join(f"{rate:g}" for rate in config.tune_rates)
    *fewer, most = config.tune_epochs
    epochs = " or ".join([*map(str, fewer), counted(most, "epoch")])
    checkpoints = " and ".join(f"{update:,}" for update in config.tuned_updates)
    return (
        f"checkpoints after {checkpoints} updates of the paper's two arms, every seed; "
        f"{config.tune_seeds} seeds of fine-tuning each; batch {batches}, rate {rates}, {epochs}, "
        f"sequences of up to {config.sequence_length} tokens, dropout "
        f"{config.tune_dropout:g}; the setting is chosen for each arm and task by the accuracy of "
        "the first seed on the same development set, at the last checkpoint; intervals are of "
        "95 %, Student's t over seeds and a paired bootstrap over dev pairs"
    )
