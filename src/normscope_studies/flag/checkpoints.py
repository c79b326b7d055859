"""Which models are trained and loaded under both flags, and what tells the wiring of each checkpoint."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

from normscope.doctor.lint.checks.training import LEAST_DIFFERENCE, SHIFTS_TOGETHER
from normscope.report.svg import HUES, INK, house_style, to_svg

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
class FlagCheckpoint:
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


def checkpoint(trained_pre: bool, width: int, blocks: int, seed: int, found: dict[str, Any]) -> FlagCheckpoint:
    """From a row of a piece."""
    rest = {key: value for key, value in found.items() if key != "loaded_pre"}
    trained, loaded = NAMES[trained_pre], NAMES[found["loaded_pre"]]
    return FlagCheckpoint(trained=trained, loaded=loaded, width=width, blocks=blocks, seed=seed, **rest)


_DOTTED = (0, (1, 2))


def differences_svg(checkpoints: Sequence[FlagCheckpoint]) -> str:
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


def _points(axes: Axes, places: Sequence[tuple[FlagCheckpoint, float, float, bool]]) -> None:
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
