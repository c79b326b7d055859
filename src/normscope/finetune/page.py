"""The report of a search: `report.html`, which needs nothing else, and its data, `results.json`."""

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import fmean
from typing import Any

from ..files import write_over
from ..limits import kinds
from ..limits.ours import refuse_other
from ..provenance import provenance
from ..report.chart import Panel, Series
from ..report.chart_svg import panels_svg
from ..report.explorer import environment, scripted
from ..report.svg import inlined
from ..report.words import (
    Tone,
    TonedWords,
    counted,
    learning_rate,
    number,
    percentage,
    significant,
)
from .cells import TuningCell, TuningScores
from .opened import OpenedSearch
from .summary import TunedSetting

PAGE, RESULTS = "report.html", "results.json"
_TEMPLATE = "finetune.html.j2"
_MAJORITY = "majority class"


def refuse_other_page(folder: Path) -> None:
    """Refuses a place for the report in which files of another's stand. Raises UserError."""
    refuse_other(folder / PAGE, kinds.PAGE)
    refuse_other(folder / RESULTS, kinds.RESULTS)


def write_page(
    opened: OpenedSearch,
    searched: Sequence[TuningCell],
    best: Sequence[TuningCell],
    tuned: TunedSetting,
    folder: Path,
    *,
    command: str,
) -> None:
    """Writes both files, each whole or not at all."""
    created = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    head = {"title": title_of(opened), "created": created, **provenance(), "command": command}
    data = head | results(opened, searched, best, tuned)
    html = _page(opened, searched, best, tuned, created=created, command=command)
    write_over(folder / RESULTS, json.dumps(data, indent=1) + "\n", kinds.RESULTS)
    write_over(folder / PAGE, html, kinds.PAGE)


def title_of(opened: OpenedSearch) -> str:
    """Returns the title of the page, and of its data."""
    return f"Fine-tuning of {opened.start.folder.name}"


def results(
    opened: OpenedSearch,
    searched: Sequence[TuningCell],
    best: Sequence[TuningCell],
    tuned: TunedSetting,
) -> dict[str, Any]:
    """Returns every cell's numbers, with what they were made from, as plain values."""
    data = opened.data
    summary = asdict(tuned) | {"beats_majority": tuned.beats_majority}
    return {
        "start": {"words": opened.start.words, "update": opened.start.update, **opened.asked},
        "rows": {"train": len(data.train), "dev": len(data.dev), "cut": data.cut},
        "labels": list(data.labels),
        "dev_labels": data.dev.labels_P.tolist(),
        "majority_label": data.labels[data.majority],
        "searched": [_cell_data(cell) for cell in searched],
        "best": [_cell_data(cell) for cell in best],
        "summary": summary,
    }


def _cell_data(cell: TuningCell) -> dict[str, Any]:
    scores = cell.scores()
    return {
        "setting": asdict(cell.setting),
        "seed": cell.seed,
        "updates": cell.updates,
        "scores": None if scores is None else asdict(scores),
    }


def _page(
    opened: OpenedSearch,
    searched: Sequence[TuningCell],
    best: Sequence[TuningCell],
    tuned: TunedSetting,
    *,
    created: str,
    command: str,
) -> str:
    figures = {
        "accuracy": accuracy_panels(searched, best, tuned),
        "training-loss": [_loss_panel(best)],
    }
    pictures = {
        name: inlined(panels_svg(panels, title=_TOLD[name]), name)
        for name, panels in figures.items()
    }
    return (
        environment()
        .get_template(_TEMPLATE)
        .render(
            title=title_of(opened),
            created=created,
            version=provenance()["normscope"],
            subtitle=_subtitle(opened),
            verdict=_verdict(tuned),
            sentences=_sentences(searched, tuned),
            pictures=pictures,
            scripted=scripted(figures),
            several=len(searched) > 1,
            searched=[_row(cell) for cell in _by_accuracy(searched)],
            best=[[str(cell.seed), *_row(cell)[3:]] for cell in best],
            setting=tuned.setting.words,
            facts=_facts(opened, best),
            command=command,
        )
    )


_TOLD = {
    "accuracy": "Accuracy of the settings that were tried, and of every seed of the best",
    "training-loss": "Training loss of the best setting over updates",
}


def _subtitle(opened: OpenedSearch) -> str:
    data = opened.data
    kind = "pairs of sentences" if 1 in data.train.segments_T[0] else "sentences"
    return (
        f"How often does an encoder ({opened.start.words}) tell {kind} apart, trained on "
        f"{_with_folder(opened.config.train)} and judged on the {len(data.dev):,} rows of "
        f"{_with_folder(opened.config.dev)}?"
    )


def _with_folder(file: Path) -> str:
    """Returns a file's name behind that of its folder: GLUE's are all train.tsv and dev.tsv."""
    return "/".join(file.absolute().parts[-2:])


def _verdict(tuned: TunedSetting) -> TonedWords:
    words = {
        True: TonedWords("above the majority class", Tone.GOOD),
        False: TonedWords("not above the majority class", Tone.BAD),
        None: TonedWords("undecided beside the majority class", Tone.PLAIN),
    }
    return words[tuned.beats_majority]


def _sentences(searched: Sequence[TuningCell], tuned: TunedSetting) -> list[str]:
    """Returns the findings, in words."""
    above = tuned.above_majority
    seeds = counted(tuned.accuracy.seeds, "seed")
    found = [
        f"{percentage(tuned.accuracy.mean)} accuracy, {tuned.accuracy.words} over {seeds} (95 % "
        f"interval, Student's t), with {tuned.setting.words}.",
        f"Always giving the most frequent label has {percentage(tuned.majority)}: the difference "
        f"is {number(above.mean, 4)}, and in 95 % of resamples of the dev rows it lies from "
        f"{number(above.low, 4)} to {number(above.high, 4)}.",
    ]
    if tuned.non_finite_seeds:
        numbers = ", ".join(map(str, tuned.non_finite_seeds))
        found.append(f"Not finite, and left out of everything: seed {numbers}.")
    others = tuned.accuracy_of_other_seeds
    if len(searched) > 1 and others is not None:
        found.append(
            f"The setting is the best of {len(searched)} on the same dev rows, by the first seed, "
            f"which favours it; the other seeds alone have {others.words}."
        )
    return found


def _scored(cells: Sequence[TuningCell]) -> list[tuple[TuningCell, TuningScores]]:
    """Returns the cells that stayed finite, with their scores."""
    found = []
    for cell in cells:
        scores = cell.scores()
        if scores is not None and scores.accuracy is not None:
            found.append((cell, scores))
    return found


def accuracy_panels(
    searched: Sequence[TuningCell], best: Sequence[TuningCell], tuned: TunedSetting
) -> list[Panel]:
    """Returns the settings that were tried, where there were several, and every seed of the best;
    both with the majority class.
    """
    return [*_search_panels(searched, tuned), _seeds_panel(best, tuned)]


_AXES = (
    ("peak_lr", "peak learning rate"),
    ("epochs", "epochs"),
    ("batch_sequences", "sequences of a batch"),
)


def _search_panels(searched: Sequence[TuningCell], tuned: TunedSetting) -> list[Panel]:
    """Accuracy over the axis with the most values, a curve for each of the other settings; none
    where there was nothing to choose.
    """
    if len(searched) < 2:
        return []
    values = {}
    for name, _ in _AXES:
        values[name] = {getattr(cell.setting, name) for cell in searched}
    along = max(_AXES, key=lambda axis: len(values[axis[0]]))
    curves: dict[str, list[tuple[float, float]]] = {}
    for cell, scores in _scored(searched):
        at = getattr(cell.setting, along[0])
        curves.setdefault(_others(cell, along[0], values), []).append((at, scores.accuracy or 0.0))
    series = []
    for hue, (label, points) in enumerate(curves.items()):
        x, y = zip(*sorted(points), strict=True)
        series.append(Series(label=label, hue=hue, x=list(x), y=list(y)))
    ends = sorted(values[along[0]])
    return [
        Panel(
            title="Settings, first seed",
            xlabel=along[1],
            ylabel="accuracy",
            series=[*series, _majority([ends[0], ends[-1]], tuned)],
            log_x=along[0] == "peak_lr",
        )
    ]


def _others(cell: TuningCell, along: str, values: Mapping[str, set[Any]]) -> str:
    """Returns what distinguishes a curve from the others."""
    setting = cell.setting
    words = {
        "batch_sequences": f"batch {setting.batch_sequences}",
        "peak_lr": f"rate {learning_rate(setting.peak_lr)}",
        "epochs": counted(setting.epochs, "epoch"),
    }
    return (
        ", ".join(said for name, said in words.items() if name != along and len(values[name]) > 1)
        or "accuracy of a setting"
    )


def _seeds_panel(best: Sequence[TuningCell], tuned: TunedSetting) -> Panel:
    found = _scored(best)
    places = [float(cell.seed) for cell, _ in found]
    edges = [min(places) - 0.5, max(places) + 0.5]
    half = tuned.accuracy.half_width
    mean = tuned.accuracy.mean
    low, high = ([], []) if half is None else ([mean - half] * 2, [mean + half] * 2)
    return Panel(
        title="Best setting, every seed",
        xlabel="seed",
        ylabel="accuracy",
        series=[
            Series(
                label="mean, 95 % interval over seeds",
                kind="predicted",
                hue=0,
                x=edges,
                y=[mean, mean],
                low=low,
                high=high,
            ),
            Series(
                label="a seed",
                kind="points",
                hue=1,
                x=places,
                y=[scores.accuracy for _, scores in found],
            ),
            _majority(edges, tuned),
        ],
    )


def _majority(ends: Sequence[float], tuned: TunedSetting) -> Series:
    return Series(label=_MAJORITY, kind="claimed", hue=-1, x=ends, y=[tuned.majority] * len(ends))


def _loss_panel(best: Sequence[TuningCell]) -> Panel:
    """The mean over the seeds, in the range of all of them; values that are not finite end it."""
    rows = []
    for _, scores in _scored(best):
        rows.append([loss for _, loss in scores.losses])
    finite = []
    columns = []
    for place, losses in enumerate(zip(*rows, strict=False)):
        known = [float(loss) for loss in losses if loss is not None]
        if len(known) == len(losses):
            finite.append(place)
            columns.append(known)
    updates = next(scores.losses for _, scores in _scored(best))
    return Panel(
        title="Training loss of the best setting",
        xlabel="update",
        ylabel="cross-entropy, nats",
        series=[
            Series(
                label="mean over seeds, range of all of them",
                hue=0,
                x=[float(updates[place][0]) for place in finite],
                y=[fmean(column) for column in columns],
                low=[min(column) for column in columns],
                high=[max(column) for column in columns],
            )
        ],
    )


def _by_accuracy(cells: Sequence[TuningCell]) -> list[TuningCell]:
    """The best first; those that are not finite last."""

    def place(cell: TuningCell) -> float:
        scores = cell.scores()
        return -1.0 if scores is None or scores.accuracy is None else scores.accuracy

    return sorted(cells, key=place, reverse=True)


def _row(cell: TuningCell) -> list[str]:
    """Returns the cells of a table: setting, updates and scores."""
    setting, scores = cell.setting, cell.scores()
    accuracy = None if scores is None else scores.accuracy
    nll_nats = None if scores is None else scores.nll_nats
    return [
        str(setting.batch_sequences),
        learning_rate(setting.peak_lr),
        str(setting.epochs),
        significant(cell.updates),
        "not finite" if accuracy is None else number(accuracy, 4),
        number(nll_nats, 4),
    ]


def _facts(opened: OpenedSearch, best: Sequence[TuningCell]) -> list[tuple[str, str]]:
    """Returns how the result was made."""
    data = opened.data
    start = opened.start
    scored = _scored(best)
    made_by = scored[0][1].made_by
    spent = [scores.processor_seconds for _, scores in scored]
    return [
        ("Encoder", f"{start.folder.name}: {start.words}; weights SHA-256 {start.weights_sha256}"),
        ("Head", "first token, tanh layer, linear layer, the same above every encoder"),
        (
            "Rows",
            f"{len(data.train):,} to train on, {len(data.dev):,} to judge; labels "
            f"{', '.join(data.labels)}; up to {opened.sequence_length} tokens, "
            f"{counted(data.cut, 'row')} cut",
        ),
        (
            "Training",
            "transformers' Trainer: AdamW, betas 0.9 and 0.999, weight decay 0.01, gradients "
            f"clipped at norm 1; the rate rises over {percentage(opened.config.warmup_share, 0)} "
            f"of the updates and falls in a straight line; dropout {opened.config.dropout:g}",
        ),
        ("Accuracy", "share of the dev rows with the right label, after the last update"),
        ("Intervals", "over seeds: Student's t, 95 %; over dev rows: bootstrap, 95 % of resamples"),
        *_time_fact(spent),
        ("Trained by", ", ".join(f"{name} {value}" for name, value in made_by.items() if value)),
    ]


def _time_fact(seconds: Sequence[float | None]) -> list[tuple[str, str]]:
    """Returns the time of a cell; empty where a device trained some."""
    known = [one for one in seconds if one is not None]
    if len(known) < len(seconds):
        return []
    mean = significant(fmean(known), 3)
    return [("Time of a cell", f"{mean} s of one core on average, of the best setting")]
