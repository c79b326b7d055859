"""Checkpoints under the wrong placement flag: which the doctor finds, and what it says of those under their own."""

from collections.abc import Sequence
from dataclasses import asdict
from itertools import product
from operator import itemgetter
from statistics import fmean
from typing import Any

from normscope.doctor.lint.checks.training import CLEARLY, LEAST_DIFFERENCE, SHIFTS_TOGETHER
from normscope.evidence.estimates import proportion

from ..engine.claims import share_claim
from ..engine.page import Claim, StudyFigure, StudyTable, table
from ..engine.pieces import Pieces
from ..engine.study import Findings, Study, scales
from . import ABOUT
from .checkpoints import NAMES, FlagCheckpoint, FlagConfig, checkpoint, differences_svg
from .measure import HEADS, SEQUENCES, TOKENS, VOCABULARY, WARMUP_UPDATES, measured


def run(config: FlagConfig, pieces: Pieces) -> Findings:
    """One piece a training, with both flags."""
    found: list[FlagCheckpoint] = []
    asked = list(product(config.seeds, config.widths, config.blocks, NAMES))
    for seed, width, blocks, pre in pieces.each("trainings", asked):
        settings: dict[str, Any] = {"trained_pre": pre, "width": width, "blocks": blocks, "seed": seed}
        settings |= {"rate": config.rate, "after": config.after}
        rows = pieces.get(f"{NAMES[pre].lower()}/{width}-{blocks}-{seed}", settings, measured, **settings)
        found += [checkpoint(pre, width, blocks, seed, row) for row in rows]
    wrong = [one for one in found if one.flag_is_wrong]
    counts = _counts(found)
    return Findings(
        conditions=_conditions(config),
        claims=_claims(found),
        figures=[
            StudyFigure(
                name="differences",
                title="What the weights and the losses say, under the wrong flag",
                caption="One point a checkpoint. Left: the correlation of a norm's gains with the columns of its own "
                "sub-layer's matrices, less that with the next one's, and the correlation of a norm's shifts with the "
                f"biases of its own sub-layer's output; dotted, what the rule asks for, {LEAST_DIFFERENCE} either way "
                f"(and {CLEARLY:g} standard errors) or {SHIFTS_TOGETHER}. Right: the loss as the model is wired, and "
                "wired the other way round; below the line the other wiring is better.",
                svg=differences_svg(wrong),
                wide=True,
            )
        ],
        tables=[_summary(counts), _each(found)],
        data={"counts": counts, "checkpoints": [asdict(one) for one in found]},
    )


def _claims(found: Sequence[FlagCheckpoint]) -> list[Claim]:
    """That those under the wrong flag are found, and that nothing is said of the others."""
    source = "docs/doctor.md, contradicts-training"
    made = [
        share_claim(
            f"{name} found",
            f"a checkpoint trained as {name} and loaded as the other is found",
            source=source,
            of="checkpoints",
            holds={one.words: bool(one.said) for one in found if one.flag_is_wrong and one.trained == name},
        )
        for name in NAMES.values()
    ]
    silent = {one.words: not one.said and not one.said_of_weights for one in found if not one.flag_is_wrong}
    statement = "nothing is said of a checkpoint under its own flag, with its text or without"
    return [*made, share_claim("silent", statement, source=source, of="checkpoints", holds=silent)]


def _counts(found: Sequence[FlagCheckpoint]) -> list[dict[str, Any]]:
    """By training, its length and the flag: how many there are, and of how many something is said."""
    groups: dict[tuple[str, str, int], list[FlagCheckpoint]] = {}
    for one in found:
        groups.setdefault((one.trained, one.loaded, one.updates), []).append(one)
    return [
        {
            "trained": trained,
            "loaded": loaded,
            "updates": updates,
            "checkpoints": len(some),
            "said": sum(bool(one.said) for one in some),
            "errors": sum(one.said == "error" for one in some),
            "said_of_weights": sum(bool(one.said_of_weights) for one in some),
            "mean_difference": fmean(one.difference for one in some),
            "mean_shifts": fmean(one.shifts for one in some),
            "mean_loss_nats": fmean(one.loss_nats for one in some),
            "mean_rewired_loss_nats": fmean(one.rewired_loss_nats for one in some),
            "interval_of_said": proportion(sum(bool(one.said) for one in some), len(some)),
        }
        for (trained, loaded, updates), some in groups.items()
    ]


_SHOWN = {
    "trained": "trained as", "loaded": "loaded as", "updates": "updates", "checkpoints": "checkpoints", "said": "said",
    "errors": "errors", "said_of_weights": "said of the weights alone", "mean_difference": "difference",
    "mean_shifts": "shifts", "mean_loss_nats": "loss, nats", "mean_rewired_loss_nats": "rewired",
}  # fmt: skip
"""Headings of the counts that a table shows."""


def _summary(counts: Sequence[dict[str, Any]]) -> StudyTable:
    title = "Of how many checkpoints the doctor says that the flag is wrong"
    return table(title, counts, [(heading, itemgetter(key)) for key, heading in _SHOWN.items()])


def _each(found: Sequence[FlagCheckpoint]) -> StudyTable:
    return StudyTable(
        title="Every checkpoint",
        columns=[
            *("trained as", "loaded as", "width", "blocks", "seed", "updates"),
            *("said", "of the weights alone", "difference", "standard errors", "shifts", "loss, nats", "rewired"),
        ],
        rows=[list(asdict(one).values()) for one in found],
    )


def _conditions(config: FlagConfig) -> dict[str, str]:
    sizes = [" and ".join(map(str, some)) for some in (config.widths, config.blocks, config.after)]
    return {
        "Models": f"causal language models, width {sizes[0]}, {sizes[1]} blocks, {HEADS} heads; torch's own layers",
        "Text": f"random: each of {VOCABULARY} tokens depends on the two before it",
        "Training": f"{sizes[2]} updates of {SEQUENCES} sequences of {TOKENS} tokens, AdamW at {config.rate:g} after a "
        f"warm-up of {WARMUP_UPDATES}",
        "Loaded": "under both flags, with every tensor in its place; looked at on a new batch of the same text",
        "Gradient normalisation": "of the mean loss per token; the rule does not use gradients",
        "Logarithm": "natural",
        "Seeds": f"{', '.join(map(str, config.seeds))}: weights and text; thresholds were chosen on 0 to 2",
        "Spread": "intervals are Wilson's for shares; several lengths are of one training, not independent",
    }


STUDY = Study(
    about=ABOUT,
    scales=scales(
        FlagConfig,
        smoke={"widths": (32,), "blocks": (3,), "seeds": (101,), "after": (40,)},
        paper={"widths": (32, 64, 128), "blocks": (3, 4, 6, 12), "seeds": tuple(range(101, 111)), "after": (300, 3000)},
    ),
    run=run,
)
