"""Spikes made on purpose: what the doctor says of each log, as a table of confusions."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from normscope.history.episodes import UNKNOWN
from normscope.history.patterns import PATTERNS
from normscope.report.chart import Panel, Series

from ..engine.checks import settings_but
from ..engine.claims import judged
from ..engine.page import Claim, Findings, StudyFigure, StudyTable, line
from ..engine.pieces import Pieces
from ..engine.study import Study, scales
from .cases import CASES, SpikesConfig
from .measure import measured

_Piece = Mapping[str, Any]


def losses_figure(
    trainings: Mapping[str, Mapping[str, _Piece]], config: SpikesConfig
) -> StudyFigure:
    """A panel a training; trainings: by name, then by loop."""
    panels = []
    for name, loops in trainings.items():
        known = [
            value for piece in loops.values() for value in piece["loss"] if value is not None
        ] or [0.0]
        ends, series = [min(known), max(known)], list[Series]()
        for hue, (loop, piece) in enumerate(loops.items()):
            x = range(1, len(piece["loss"]) + 1)
            series.append(Series(label=loop, kind="measured", hue=hue, x=x, y=piece["loss"]))
            onsets = [episode["onset"] for episode in piece["episodes"]]
            series += [
                line(f"{loop}, onset found", "predicted", hue, [onset, onset], ends)
                for onset in onsets
            ]
            if piece["onset"] == config.change_at:
                series.append(line("broken", "claimed", -1, [piece["onset"]] * 2, ends))
        panels.append(Panel(title=name, xlabel="update", ylabel="loss (nats)", series=series))
    return StudyFigure.of_panels(
        name="losses",
        title="Losses of the trainings, and the onsets that the doctor found",
        caption="Dashed: the onset found. Dotted: the update at which it was broken, where that is "
        "midway.",
        panels=panels,
        told="Losses of trainings broken on purpose and of healthy ones",
    )


WITHIN_UPDATES = 5
NOTHING = "no alarm"


def run(config: SpikesConfig, pieces: Pieces) -> Findings:
    """One piece a training: its log and what the doctor says of it."""
    names, seeds = (*config.broken, *config.slow, *config.healthy), range(1, config.seeds + 1)
    sizes = settings_but(config, "loops", "broken", "slow", "healthy", "seeds")
    found: dict[tuple[str, str, int], _Piece] = {}
    each = [(seed, loop, name) for seed in seeds for loop in config.loops for name in names]
    for seed, loop, name in pieces.each("trainings", each):
        settings = {"loop": loop, "case": asdict(CASES[name]), "seed": seed, "sizes": sizes}
        found[loop, name, seed] = pieces.get(
            f"{loop}/{name}-{seed}", settings, measured, loop, name, config, seed
        )
    broken = {key: piece for key, piece in found.items() if piece["cause"]}
    healthy = {key: piece for key, piece in found.items() if key[1] in config.healthy}
    first_seed = {}
    for name in names:
        first_seed[name] = {loop: found[loop, name, 1] for loop in config.loops}
    return Findings(
        conditions=_conditions(config),
        claims=_claims(broken, healthy),
        figures=[losses_figure(first_seed, config)],
        tables=[
            _confusions({key: piece for key, piece in found.items() if key[1] not in config.slow}),
            _leads(found, config),
        ],
        data={
            "trainings": [_row(key, piece) for key, piece in found.items()],
            "alarms": false_alarms(found, config),
        },
    )


def is_dated(piece: _Piece) -> bool:
    """Returns whether an episode begins within five updates of where the training was broken, and
    none elsewhere.
    """
    return bool(piece["episodes"]) and all(
        abs(e["onset"] - piece["onset"]) <= WITHIN_UPDATES for e in piece["episodes"]
    )


def is_explained(piece: _Piece) -> bool:
    """Returns whether the first episode has the right cause."""
    return bool(piece["episodes"]) and piece["episodes"][0]["cause"] == piece["cause"]


def is_placed(piece: _Piece) -> bool:
    """Returns whether the first episode names the broken block, or says that none leads."""
    return bool(piece["episodes"]) and piece["place"] in piece["episodes"][0]["place"]


def _claims(
    broken: Mapping[tuple[str, str, int], _Piece], healthy: Mapping[tuple[str, str, int], _Piece]
) -> list[Claim]:
    """Three of what was broken and one of what is healthy, as far as there is any."""
    asked = (
        (
            "dated",
            f"the onset is found within {WITHIN_UPDATES} updates, and no other is",
            is_dated,
            broken,
        ),
        ("explained", "the cause is the one that was made", is_explained, broken),
        (
            "placed",
            "the place is the block that was broken, the output layer, or none",
            is_placed,
            broken,
        ),
        ("silent", "healthy trainings give no alarm", lambda piece: not piece["episodes"], healthy),
    )
    made = []
    for name, statement, test, trainings in asked:
        holds = {
            f"{case}, {loop}, seed {seed}": test(piece)
            for (loop, case, seed), piece in trainings.items()
        }
        found, source = (
            f"{sum(holds.values())} of {len(holds)} trainings",
            "docs/doctor.md, While it trains",
        )
        made += (
            [judged(name=name, statement=statement, source=source, found=found, holds=holds)]
            if holds
            else []
        )
    return made


def _said(piece: _Piece) -> str:
    return piece["episodes"][0]["cause"] if piece["episodes"] else NOTHING


def _confusions(found: Mapping[tuple[str, str, int], _Piece]) -> StudyTable:
    said = [*(cause.id for cause in PATTERNS), UNKNOWN, NOTHING]
    truths = [*(cause.id for cause in PATTERNS), ""]
    rows = []
    for truth in truths:
        count = Counter(_said(piece) for piece in found.values() if piece["cause"] == truth)
        if count:
            rows.append([truth or "healthy", *(str(count[word]) for word in said)])
    return StudyTable(
        title="What was done, by row, and what the doctor says, by column",
        columns=["", *said],
        rows=rows,
    )


def lead_updates(piece: _Piece) -> int | None:
    """Returns the updates from the first warning after the break to where the loss left its course;
    None where it never did, and without a warning.
    """
    first = first_warning(piece)
    return None if first is None or piece["loss_left"] is None else piece["loss_left"] - first


def first_warning(piece: _Piece) -> int | None:
    return next((at for at in piece["warned"] if at >= piece["onset"]), None)


def false_alarms(
    found: Mapping[tuple[str, str, int], _Piece], config: SpikesConfig
) -> dict[str, int]:
    """Returns the warnings of healthy trainings, and of the others before they were broken, and how
    many updates these are.
    """
    healthy = [
        (piece, piece["onset"] or config.updates + 1)
        for piece in found.values()
        if piece["onset"] != 1
    ]
    alarms = sum(at < end for piece, end in healthy for at in piece["warned"])
    return {"false_alarms": alarms, "healthy_updates": sum(end - 1 for _, end in healthy)}


def _leads(found: Mapping[tuple[str, str, int], _Piece], config: SpikesConfig) -> StudyTable:
    rows: list[list[Any]] = []
    for name in (*config.broken, *config.slow):
        case, pieces = CASES[name], [piece for key, piece in found.items() if key[1] == name]
        if case.from_start:
            continue
        leads = sorted(lead for piece in pieces if (lead := lead_updates(piece)) is not None)
        delays = [
            at - piece["onset"] for piece in pieces if (at := first_warning(piece)) is not None
        ]
        span = f"{leads[0]} to {leads[-1]}" if leads else ""
        left = sum(piece["loss_left"] is not None for piece in pieces)
        warned = f"{len(delays)} of {len(pieces)}"
        rows.append(
            [case.words, warned, max(delays, default=None), f"{left} of {len(pieces)}", span]
        )
    alarms = false_alarms(found, config)
    each = 10_000 * alarms["false_alarms"] / max(1, alarms["healthy_updates"])
    return StudyTable(
        title=(
            f"Warnings while the training goes on, and {each:.1f} false alarms per 10,000 healthy "
            "updates"
        ),
        columns=(
            "broken",
            "warned",
            "updates after the break, at most",
            "the loss left its course",
            "so many updates after the warning",
        ),
        rows=rows,
    )


def _row(key: tuple[str, str, int], piece: _Piece) -> dict[str, Any]:
    loop, name, seed = key
    first = piece["episodes"][0] if piece["episodes"] else {}
    return {
        "training": CASES[name].words,
        "loop": loop,
        "seed": seed,
        "broken_at": piece["onset"],
        "onset": first.get("onset"),
        "warned_at": None if piece["onset"] is None else first_warning(piece),
        "loss_left_at": piece["loss_left"],
        **{key: first.get(key) for key in ("cause", "place", "loss_before", "loss_worst")},
    }


def _conditions(config: SpikesConfig) -> dict[str, str]:
    return {
        "Model": (
            f"causal language models of {config.blocks} blocks, width {config.width}, Pre-LN (the "
            f"collapse: Post-LN), on a Markov chain over {config.classes} tokens"
        ),
        "Training": (
            f"{config.updates} updates of {config.sequences} sequences of {config.tokens} tokens, "
            "AdamW at 3e-3"
        ),
        "Broken": f"at update {config.change_at}, or from the first update on",
        "Logs": (
            "metrics.jsonl of this library's loop, trainer_state.json of Hugging Face's Trainer"
        ),
        "Monitor": f"every {config.every_updates} updates on one batch",
        "Gradient normalisation": "of the mean loss per token",
        "Logarithm": "natural",
        "Seeds": (
            f"{config.seeds}: weights, data, and which block is broken; no spread is estimated"
        ),
    }


_SMOKE = {
    "loops": ("normscope",),
    "broken": ("rate",),
    "slow": ("queries",),
    "healthy": ("warm-up",),
    "updates": 70,
    "change_at": 45,
    "blocks": 2,
}
_PAPER = {"seeds": 10, "width": 64, "blocks": 6, "updates": 400, "change_at": 250}
STUDY = Study(
    title="Spikes made on purpose",
    question="Does the doctor find a spike or a plateau in a training's log, date it within five "
    "updates, and name the sub-layer and the cause; and is it silent about healthy trainings?",
    help="Does the doctor find spikes made on purpose?",
    scales=scales(SpikesConfig, smoke=_SMOKE, paper=_PAPER),
    run=run,
)
