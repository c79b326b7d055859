"""Theorem 1: how large the gradient of the last W₂ is over depth and over width, beside its bounds."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise, product
from typing import Any, Literal

import numpy as np

from normscope.evidence.estimates import Floats, plain_estimate, with_interval
from normscope.report.chart import Kind, Panel, Series

from ..engine.page import StudyFigure, StudyTable
from ..engine.pieces import Pieces
from ..engine.study import Findings, Scale, Study
from ..theory import corrected, paper
from . import ABOUT
from .claims import DELTA, EPSILON, LONG, SHORT, SIDES, Half, Sweep, claims, order_exponent, saturated_loss_gradient
from .measure import sweeps_of_seed

_INK, _GREEN, _PINK = -1, 2, 3


def figures(sweeps: Sequence[Sweep]) -> list[StudyFigure]:
    """Over depth, and over width for both kinds of output rows."""
    sides = list({sweep.side.title: sweep.side for sweep in sweeps}.values())
    deep = [_panel([s for s in sweeps if s.side is side and s.over == "blocks"]) for side in sides]
    wide = [
        _panel([s for s in sweeps if s.side is side and s.over == "width" and s.rows == rows])
        for rows in dict.fromkeys(sweep.rows for sweep in sweeps)
        for side in sides
    ]
    titles = "The last W₂'s gradient over depth", "The last W₂'s gradient over width"
    return [
        StudyFigure.of_panels(
            name="depth",
            title=titles[0],
            caption="Measured with its 95 % interval, predicted, and the bounds, which take ‖∂L/∂x‖ to be 1; of the "
            "paper there is its order with constant 1, and the bound with the constants of its proof.",
            panels=deep,
            told=titles[0],
            wide=True,
        ),
        StudyFigure.of_panels(
            name="width",
            title=titles[1],
            caption="Above with output rows of length 1, as the theorem needs them; below with rows from N(0, 1): "
            "‖∂L/∂x‖ grows as √(2d) and brings the gradient of W₂ to order d.",
            panels=wide,
            told=titles[1],
            wide=True,
        ),
    ]


def _panel(sweeps: Sequence[Sweep]) -> Panel:
    first = sweeps[0]
    where = f"d = {first.shapes[0][1]}" if first.over == "blocks" else f"{first.shapes[0][0]} blocks"
    return Panel(
        title=f"{first.side.title}, {where}" + (f", rows {first.rows}" if first.over == "width" else ""),
        xlabel="blocks L" if first.over == "blocks" else "width d",
        ylabel="‖∂L/∂W₂‖",
        series=list(_series(sweeps)),
        log_x=True,
        log_y=True,
    )


def _series(sweeps: Sequence[Sweep]) -> Iterator[Series]:
    def line(label: str, kind: Kind, hue: int, y: Sequence[float]) -> Series:
        return Series(label=label, kind=kind, hue=hue, x=first.x, y=y)

    first = sweeps[0]
    for hue, sweep in enumerate(sweeps):
        found = sweep.mean
        yield Series(
            label=f"measured, {sweep.name}",
            kind="measured",
            hue=hue,
            x=sweep.x,
            y=found.mean.tolist(),
            low=found.low.tolist(),
            high=found.high.tolist(),
        )
        if np.isfinite(sweep.predicted_X).all():
            yield line(f"predicted, {sweep.name}", "predicted", hue, sweep.predicted_X.tolist())
    yield line("paper's order, d√(ln d) or d√(ln d / L)", "claimed", _INK, first.bounds("paper_order").tolist())
    if first.rows == SHORT:
        yield line("paper's bound with its constants", "claimed", _PINK, first.bounds("paper_bound").tolist())
        yield line("corrected bound, O(√d) or O(√(d/L))", "claimed", _GREEN, first.bounds("corrected_bound").tolist())


def tables(sweeps: Sequence[Sweep]) -> list[StudyTable]:
    """Exponents first, then every sweep's values."""
    return [_exponents(sweeps), *(_values_table(sweep) for sweep in sweeps)]


def _exponents(sweeps: Sequence[Sweep]) -> StudyTable:
    def claimed(sweep: Sweep) -> float:
        return order_exponent(sweep) if sweep.over == "width" else sweep.side.depth_exponent

    def expected(sweep: Sweep) -> float:
        if sweep.over == "blocks":
            return sweep.side.depth_exponent
        return 0.5 if sweep.rows == SHORT else 1.0

    return StudyTable(
        title="Exponents of the gradient, fitted seed by seed (over depth: the deeper half)",
        columns=["placement", "over", "output rows", "sequence", "measured", "paper", "corrected"],
        rows=[
            [s.side.title, s.over, s.rows, s.name, with_interval(s.exponent), claimed(s), expected(s)] for s in sweeps
        ],
    )


def _values_table(sweep: Sweep) -> StudyTable:
    found = sweep.mean
    lines = [sweep.bounds("corrected_bound"), sweep.bounds("paper_order"), sweep.bounds("paper_bound")]
    columns = [found.mean, found.half_width, sweep.predicted_X, *lines]
    numbers = np.where(np.isfinite(columns), columns, np.nan).T.tolist()
    return StudyTable(
        title=f"{sweep.side.title} over {sweep.over}, {sweep.name}, rows {sweep.rows}",
        columns=[sweep.over, "measured", "±", "predicted", "corrected bound", "paper's order", "paper's bound"],
        rows=[
            [x, *(value if np.isfinite(value) else None for value in row)]
            for x, row in zip(sweep.x, numbers, strict=True)
        ],
    )


# S = seeds, X = places of a sweep, Q = sequences


@dataclass(frozen=True, slots=True, kw_only=True)
class Theorem1Config:
    """Encoders in the setting of section 3.3. Raises ValueError for what cannot be drawn or fitted."""

    depths: tuple[int, ...]
    """Blocks, at `width`."""
    width: int
    widths: tuple[int, ...]
    """At `blocks` blocks."""
    blocks: int
    seeds: int
    tokens: int = 16
    """Of the longer sequences; the others have one."""
    sequences: int = 8
    """Of each draw of the weights, each with a loss of its own."""
    vocabulary: int = 4096

    def __post_init__(self) -> None:
        for name, values in (("depths", self.depths), ("widths", self.widths)):
            if len(values) < 3 or values[0] < 1 or any(a >= b for a, b in pairwise(values)):
                raise ValueError(f"{name} must be three or more rising numbers from 1 on, got {values}")
        for name, least in {"width": 4, "blocks": 1, "seeds": 2, "tokens": 2, "sequences": 1, "vocabulary": 2}.items():
            if getattr(self, name) < least:
                raise ValueError(f"{name} must be at least {least}, got {getattr(self, name)}")
        if odd := [width for width in (self.width, *self.widths) if width % 2 or width < 4]:
            raise ValueError(f"widths must be even and at least 4, got {odd[0]}")

    def shapes(self, over: Literal["blocks", "width"]) -> list[tuple[int, int]]:
        """(blocks, width) of every place of a sweep."""
        if over == "blocks":
            return [(depth, self.width) for depth in self.depths]
        return [(self.blocks, width) for width in self.widths]


CPU = Theorem1Config(
    depths=(2, 4, 6, 8, 12, 16, 24, 32, 48), width=512, widths=(64, 128, 256, 512, 1024), blocks=6, seeds=32
)
SCALES = {
    "smoke": Scale(
        config=Theorem1Config(
            depths=(2, 4, 8), width=32, widths=(16, 32, 64), blocks=2, seeds=3, tokens=4, sequences=2, vocabulary=256
        ),
        decides=False,
    ),
    "cpu": Scale(config=CPU),
    "paper": Scale(config=Theorem1Config(**{**asdict(CPU), "seeds": 64})),
}


def run(config: Theorem1Config, pieces: Pieces) -> Findings:
    """Measure what is missing, predict, and judge."""
    sweeps = [sweep for side in SIDES.values() for sweep in _sweeps(side, config, pieces)]
    return Findings(
        conditions=_conditions(config),
        claims=claims(sweeps),
        figures=figures(sweeps),
        tables=tables(sweeps),
        data={"probability": _probabilities(config.tokens), "sweeps": [_data(sweep) for sweep in sweeps]},
    )


def _sweeps(side: Half, config: Theorem1Config, pieces: Pieces) -> Iterator[Sweep]:
    """In both directions, for both numbers of tokens, and over width for both kinds of rows."""
    seeds = []
    for done in range(config.seeds):
        pieces.watch(side.title, done, config.seeds)
        seeds.append(_seed(side, config, done + 1, pieces))
    pieces.watch(side.title, config.seeds, config.seeds)
    choices: list[tuple[Literal["blocks", "width"], str]] = [("blocks", SHORT), ("width", SHORT), ("width", LONG)]
    for (over, rows), tokens in product(choices, (1, config.tokens)):
        shapes = config.shapes(over)
        yield Sweep(
            side=side,
            over=over,
            tokens=tokens,
            rows=rows,
            shapes=shapes,
            gradients_SXQ=_values(seeds, over, tokens, rows, "gradient_norms"),
            loss_gradients_SXQ=_values(seeds, over, tokens, rows, "loss_gradient_norms"),
            predicted_X=np.array([_predicted(side, shape, tokens, rows, config.vocabulary) for shape in shapes]),
        )


def _seed(side: Half, config: Theorem1Config, seed: int, pieces: Pieces) -> dict[str, Any]:
    """By direction, for each place what `last_layer_gradients` gives."""
    sizes: dict[str, Any] = {
        "tokens": [1, config.tokens],
        "sequences": config.sequences,
        "vocabulary": config.vocabulary,
    }
    shapes = {over: config.shapes(over) for over in ("blocks", "width")}
    asked = {"placement": side.placement, "seed": seed, "shapes": shapes, **sizes}
    return pieces.get(  # type: ignore[no-any-return]
        f"{side.placement}/seed-{seed}", asked, sweeps_of_seed, side.placement, shapes, seed, **sizes
    )


def _values(seeds: Sequence[dict[str, Any]], over: str, tokens: int, rows: str, key: str) -> Floats:
    def one(entries: list[dict[str, Any]]) -> list[float]:
        found: list[float] = next(e[key] for e in entries if (e["tokens"], e["rows"]) == (tokens, rows))
        return found

    return np.array([[one(entries) for entries in seed[over]] for seed in seeds], dtype=np.float64)


def _predicted(side: Half, shape: tuple[int, int], tokens: int, rows: str, vocabulary: int) -> float:
    if rows == SHORT:
        return side.one_token(*shape) if tokens == 1 else side.predicted(*shape, tokens=tokens, vocabulary=vocabulary)
    # Behind long rows positions that are alike are all taken for the same word: no closed form for several.
    return side.one_token(*shape, saturated_loss_gradient(shape[1])) if tokens == 1 else float("nan")


def _conditions(config: Theorem1Config) -> list[tuple[str, str]]:
    draws = config.seeds * config.sequences
    return [
        ("gradient", "Frobenius norm of the gradient of the mean cross-entropy per token, one sequence at a time"),
        ("logarithm", "natural; losses are in nats"),
        ("tokens", f"1 and {config.tokens} of each sequence, independent and from N(0, 1)"),
        ("seeds and spread", f"{config.seeds} draws of weights, {config.sequences} sequences of each ({draws:,} "
         "gradients a point); ± and bands are 95 % intervals of the mean over seeds (Student's t)"),
        ("model", "encoder before any update, one head, square matrices from N(0, 1/d), W_Q = W_K = 0, no output "
         f"projection in attention, LayerNorm; d = {config.width} over depth, {config.blocks} blocks over width"),
        ("loss's gradient", "the paper takes ‖∂L/∂x‖ to be O(1): output rows are drawn from N(0, 1/d), over "
         f"{config.vocabulary:,} words, targets at random; where said so, rows from N(0, 1)"),
    ]  # fmt: skip


def _probabilities(tokens: int) -> dict[str, Any]:
    return {
        "epsilon": EPSILON,
        "delta": DELTA,
        "paper": paper.theorem_1_probability(epsilon=EPSILON, delta=DELTA),
        "corrected_one_position": corrected.theorem_1_probability(delta=DELTA),
        f"corrected_{tokens}_positions": corrected.theorem_1_probability(delta=DELTA, positions=tokens),
    }


def _data(sweep: Sweep) -> dict[str, Any]:
    found = {
        "placement": sweep.side.placement,
        "over": sweep.over,
        "tokens": sweep.tokens,
        "rows": sweep.rows,
        "blocks": [blocks for blocks, _ in sweep.shapes],
        "width": [width for _, width in sweep.shapes],
        "gradient_norm": plain_estimate(sweep.mean),
        "exponent": plain_estimate(sweep.exponent),
        "claimed_exponent": order_exponent(sweep) if sweep.over == "width" else sweep.side.depth_exponent,
        "loss_gradient_norm": np.sqrt(np.square(sweep.loss_gradients_SXQ).mean((0, 2))),
        "predicted": sweep.predicted_X,
        "measured_over_predicted": plain_estimate(sweep.ratio),
    }
    for kind in ("paper_order", "paper_bound", "corrected_bound"):
        found[kind] = sweep.bounds(kind)
        found[f"{kind}_over_measured"] = sweep.slack(kind)
    return found | {f"above_{kind}": sweep.exceeding(kind) for kind in ("paper_bound", "corrected_bound")}


STUDY = Study(
    about=ABOUT,
    scales=SCALES,
    run=run,
)
