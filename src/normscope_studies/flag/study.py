"""Sixteen small trainings loaded under the right flag and the wrong one: the checkpoints, the claims and the page."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import product
from operator import itemgetter
from statistics import fmean
from typing import Any

from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

from normscope.doctor.lint.checks.training import CLEARLY, LEAST_DIFFERENCE, SHIFTS_TOGETHER
from normscope.evidence.estimates import proportion
from normscope.report.svg import HUES, INK, house_style, to_svg

from ..engine.claims import share_claim
from ..engine.page import Claim, StudyFigure, StudyTable, table
from ..engine.pieces import Pieces
from ..engine.study import Findings, Study, scales
from . import ABOUT
from .measure import HEADS, SEQUENCES, TOKENS, VOCABULARY, WARMUP_UPDATES, measured

FEWEST_BLOCKS = 3
"""The doctor compares sub-layers with those after them, and asks for five sub-layers at least."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FlagConfig:
    """Trainings of small causal language models on sequences of random dependencies. Raises ValueError."""

    widths: tuple[int, ...] = (32, 64)
    blocks: tuple[int, ...] = (3, 4)
    seeds: tuple[int, ...] = (101, 102)
    """Of weights and data; the rule's thresholds were chosen on seeds 0 to 2."""
    after: tuple[int, ...] = (300, 1000)
    """Updates of one training after which its weights are loaded under both flags."""
    rate: float = 1e-3

    def __post_init__(self) -> None:
        for name in ("widths", "blocks", "seeds", "after"):
            given = getattr(self, name)
            if not given or min(given) < 0 or sorted(set(given)) != list(given):
                raise ValueError(f"{name} must be different numbers in rising order, at least one, got {given}")
        if self.blocks[0] < FEWEST_BLOCKS:
            raise ValueError(f"blocks must be at least {FEWEST_BLOCKS}: below, there is too little to compare")
        if any(width % 4 or not width for width in self.widths):
            raise ValueError(f"widths must be multiples of 4, the number of heads, got {self.widths}")
        if self.after[0] < 1 or not self.rate > 0:
            raise ValueError("after must be at least 1, and rate positive")


NAMES = {True: "Pre-LN", False: "Post-LN"}


@dataclass(frozen=True, slots=True, kw_only=True)
class _FlagCheckpoint:
    """What it is, and what the doctor says of it."""

    trained: str
    loaded: str
    width: int
    blocks: int
    seed: int
    updates: int
    said: str
    """Severity of the finding; "" where nothing is said."""
    said_of_weights: str
    """The same without a batch of the text, from the weights alone."""
    difference: float
    standard_errors: float
    shifts: float
    """Mean correlation of norms' shifts with the biases of their own sub-layers' outputs."""
    loss_nats: float
    rewired_loss_nats: float
    """Under the other flag, as the doctor computes it from the recorded pass."""

    @property
    def flag_is_wrong(self) -> bool:
        return self.trained != self.loaded

    @property
    def words(self) -> str:
        """Names the training and its length."""
        return f"{self.trained} {self.width} × {self.blocks}, seed {self.seed}, {self.updates} updates"


def checkpoint(trained_pre: bool, width: int, blocks: int, seed: int, found: dict[str, Any]) -> _FlagCheckpoint:
    """From a row of a piece."""
    rest = {key: value for key, value in found.items() if key != "loaded_pre"}
    trained, loaded = NAMES[trained_pre], NAMES[found["loaded_pre"]]
    return _FlagCheckpoint(trained=trained, loaded=loaded, width=width, blocks=blocks, seed=seed, **rest)


_DOTTED = (0, (1, 2))


def differences_svg(checkpoints: Sequence[_FlagCheckpoint]) -> str:
    """checkpoints: under the wrong flag."""
    with house_style():
        figure = Figure(figsize=(9, 4), layout="constrained")
        FigureCanvasSVG(figure)
        of_weights, of_losses = figure.subplots(1, 2)
        _points(of_weights, [(one, one.difference, one.shifts, bool(one.said_of_weights)) for one in checkpoints])
        for edge in (-LEAST_DIFFERENCE, LEAST_DIFFERENCE):
            of_weights.axvline(edge, color=INK, lw=1, ls=_DOTTED)
        of_weights.axhline(SHIFTS_TOGETHER, color=INK, lw=1, ls=_DOTTED)
        of_weights.set_xlabel("gains: own − following")
        of_weights.set_ylabel("shifts and biases")
        of_weights.set_title("weights alone")
        _points(of_losses, [(one, one.loss_nats, one.rewired_loss_nats, bool(one.said)) for one in checkpoints])
        ends = [min(one.rewired_loss_nats for one in checkpoints), max(one.loss_nats for one in checkpoints)]
        of_losses.plot(ends, ends, color=INK, lw=1, ls=_DOTTED)
        of_losses.set_xlabel("loss as loaded (nats)")
        of_losses.set_ylabel("loss wired the other way (nats)")
        of_losses.set_title("with a batch of text")
        handles, labels = of_weights.get_legend_handles_labels()
        more, others = of_losses.get_legend_handles_labels()
        named = dict(zip([*labels, *others], [*handles, *more], strict=True))
        figure.legend(named.values(), named.keys(), loc="outside lower center", ncols=2)
        return to_svg(
            figure,
            title="Checkpoints under the wrong flag, by their weights and by their losses",
            desc="On the left Pre-LN's lie to the right and Post-LN's above; on the right all lie below the line.",
        )


def _points(axes: Axes, places: Sequence[tuple[_FlagCheckpoint, float, float, bool]]) -> None:
    """places: of each checkpoint, with whether it is found there."""
    for hue, trained in zip(HUES, dict.fromkeys(one.trained for one, *_ in places), strict=False):
        for found in (True, False):
            some = [(x, y) for one, x, y, is_found in places if one.trained == trained and is_found is found]
            if some:
                axes.plot(
                    *zip(*some, strict=True),
                    ls="",
                    marker="o",
                    color=hue,
                    markerfacecolor=hue if found else "none",
                    label=f"trained as {trained}, {'found' if found else 'not found'}",
                )


def run(config: FlagConfig, pieces: Pieces) -> Findings:
    """One piece a training, with both flags."""
    found: list[_FlagCheckpoint] = []
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


def _claims(found: Sequence[_FlagCheckpoint]) -> list[Claim]:
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


def _counts(found: Sequence[_FlagCheckpoint]) -> list[dict[str, Any]]:
    """By training, its length and the flag: how many there are, and of how many something is said."""
    groups: dict[tuple[str, str, int], list[_FlagCheckpoint]] = {}
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


def _each(found: Sequence[_FlagCheckpoint]) -> StudyTable:
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
