"""Theorem 1: how large the gradient of the last W₂ is over depth and over width, beside its bounds."""

# S = seeds, X = places of a sweep, Q = sequences

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise, product
from typing import Any, Literal

import numpy as np

from normscope.evidence.estimates import Floats, plain_estimate

from ..engine.pieces import Pieces
from ..engine.study import Findings, Scale, Study
from ..theory import corrected, paper
from . import ABOUT
from .bounds import DELTA, EPSILON, SIDES, Side, saturated_loss_gradient
from .claims import LONG, SHORT, Sweep, claims, order_exponent
from .figures import figures, tables
from .measure import sweeps_of_seed


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


def _sweeps(side: Side, config: Theorem1Config, pieces: Pieces) -> Iterator[Sweep]:
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


def _seed(side: Side, config: Theorem1Config, seed: int, pieces: Pieces) -> dict[str, Any]:
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


def _predicted(side: Side, shape: tuple[int, int], tokens: int, rows: str, vocabulary: int) -> float:
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
