"""Measures how large the hidden state is after every block at initialisation, a thousand blocks
deep.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from normscope.model import SCHEMES
from normscope.placement import StackShape, named
from normscope.placement.printing import formula
from normscope.report.chart import Panel
from normscope.report.words import counted

from .engine.checks import check_least, settings_but, settings_of
from .engine.page import Findings, StudyFigure, StudyTable, line, table
from .engine.pieces import Pieces, plain
from .engine.study import Study, scales
from .theory import simulation

_EVERY_DEPTH_UP_TO, _DEPTHS_A_DECADE = 20, 20


@dataclass(frozen=True, slots=True, kw_only=True)
class _DepthConfig:
    """An encoder-only stack for every placement. Raises ValueError for what no stack can be built
    with.
    """

    placements: tuple[str, ...] = ()
    """The placements; without any, all that are defined for an encoder."""
    blocks: int = 1000
    width: int = 64
    seeds: int = 3
    initialisation: str = "as-placement"
    """as-placement: each as its source draws it; or one of `normscope.model.SCHEMES` for all."""
    ffn_width: int = 256
    heads: int = 4
    sentences: int = 2
    sentence_tokens: int = 16

    def __post_init__(self) -> None:
        check_least(
            self, blocks=1, width=1, seeds=1, ffn_width=1, heads=1, sentences=1, sentence_tokens=1
        )
        if self.width % self.heads:
            raise ValueError(f"width={self.width} must be a multiple of heads={self.heads}")
        if self.initialisation not in ("as-placement", *SCHEMES):
            raise ValueError(
                f"unknown initialisation {self.initialisation!r}; choose one of "
                f"{', '.join(SCHEMES)}"
            )
        if self.initialisation == "theory" and (self.heads != 1 or self.ffn_width != self.width):
            raise ValueError("initialisation theory is stated for heads = 1 and ffn_width = width")
        if len(set(self.placements)) < len(self.placements):
            raise ValueError(f"placements: give different names, got {self.placements}")
        for name in self.placements:
            named(name)(self.shape)

    @property
    def shape(self) -> StackShape:
        """Returns the shape of the encoder."""
        sizes = settings_of(self, "width", "ffn_width", "heads")
        return StackShape(kind="encoder", encoder_blocks=self.blocks, **sizes)

    @property
    def depths(self) -> list[int]:
        """Returns the depths that are recorded: every one at first, then some in each decade, and
        the last.
        """
        decades = math.log10(max(self.blocks, 1))
        spaced = [
            round(10 ** (i / _DEPTHS_A_DECADE)) for i in range(int(decades * _DEPTHS_A_DECADE) + 1)
        ]
        return sorted({*range(min(self.blocks, _EVERY_DEPTH_UP_TO) + 1), *spaced, self.blocks})


class _Behaviour(StrEnum):
    """Names what becomes of a curve, in the order in which figures give behaviours their hues."""

    GROWS = "grows"
    HELD = "stays at 1"
    STILL = "hardly moves"
    FALLS = "falls"
    OVERFLOWS = "leaves float32"


_COINCIDE = 0.025
"""Largest relative distance between curves that share a line."""
_HELD_WITHIN = 0.005
_STILL_WITHIN = 1.1
_FALLEN_BELOW = 0.8


def behaviour(depths: Sequence[int], rms: Sequence[float | None]) -> _Behaviour:
    """Names what a curve does after its first block; None in `rms` is what is not finite."""
    values = [
        value for depth, value in zip(depths, rms, strict=True) if depth >= 1 and value is not None
    ]
    if None in rms:
        return _Behaviour.OVERFLOWS
    # The first block may be another than the others (KEEL, HybridNorm*).
    if all(abs(value - 1) < _HELD_WITHIN for value in values[1:] or values):
        return _Behaviour.HELD
    if max(values) < _STILL_WITHIN * min(values):
        return _Behaviour.STILL
    return _Behaviour.FALLS if values[-1] < _FALLEN_BELOW * values[0] else _Behaviour.GROWS


def exponent(depths: Sequence[int], rms: Sequence[float | None]) -> float | None:
    """Returns the slope of ln RMS over ln depth in the last tenfold of depth: ½ where every block
    adds as much to E‖x‖².
    """
    since = next(i for i, depth in enumerate(depths) if depth >= max(1, depths[-1] // 10))
    first, last = rms[since], rms[-1]
    if first is None or last is None or depths[since] == depths[-1]:
        return None
    return round(math.log(last / first) / math.log(depths[-1] / depths[since]), 3)


_SHOWN = (1, 10, 100, 1000)
"""Depths of the table, with the last one."""
_DRAWN = tuple(round(10 ** (quarter / 4)) for quarter in range(17))
"""Depths of the figure, the same."""
_NEAR_1 = (0.5, 2.0)
"""The axis of what stays where it is: one that fitted the curves would show rounding."""


def run(config: _DepthConfig, pieces: Pieces) -> Findings:
    """One piece a placement: all its seeds."""
    names = config.placements or simulation.encoder_placements()
    curves = [_curve(name, config, pieces) for name in pieces.each("placements", names)]
    figure = picture(config.depths, curves)
    return Findings(
        conditions=_conditions(config),
        claims=[],
        figures=[figure],
        tables=[_table(config.depths, curves)],
        data={"depths": config.depths, "placements": curves},
        lines=[*_lines(config.depths, curves), f"figure: {pieces.folder / f'{figure.name}.svg'}"],
    )


def picture(depths: Sequence[int], curves: Sequence[dict[str, Any]]) -> StudyFigure:
    """A panel for each behaviour; curves that coincide share a line."""
    at = _places(depths, _DRAWN)
    x = [depths[place] for place in at]
    panels = []
    for behaviour in _Behaviour:
        bundles = bundled([curve for curve in curves if curve["behaviour"] == behaviour])
        series = []
        for hue, bundle in enumerate(bundles):
            y = [bundle[0]["mean_rms"][place] for place in at]
            series.append(line(_named(bundle), "measured", hue, x, y))
        if series:
            panel = Panel(
                title=f"what {behaviour}" if behaviour in _MOVING else behaviour,
                xlabel="completed blocks",
                ylabel="RMS of the hidden state",
                series=series,
                log_x=True,
                log_y=True,
                y_range=_NEAR_1 if behaviour in (_Behaviour.HELD, _Behaviour.STILL) else None,
            )
            panels.append(panel)
    return StudyFigure.of_panels(
        name="hidden_rms",
        title="Root mean square of the hidden state after every block",
        caption=(
            "Mean over draws of the weights; both axes are logarithmic. Curves that coincide share "
            "a line, which is named after the first of them."
        ),
        panels=panels,
    )


def bundled(curves: Sequence[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """Curves that coincide with the first of their bundle at every depth."""
    bundles: list[list[dict[str, Any]]] = []
    for curve in curves:
        own = next(
            (bundle for bundle in bundles if _coincide(bundle[0]["mean_rms"], curve["mean_rms"])),
            None,
        )
        if own is None:
            bundles.append([curve])
        else:
            own.append(curve)
    return bundles


def _coincide(one: Sequence[float | None], other: Sequence[float | None]) -> bool:
    pairs = [(a, b) for a, b in zip(one[1:], other[1:], strict=True) if a != b]
    return all(a is not None and b is not None and abs(a / b - 1) <= _COINCIDE for a, b in pairs)


def _named(bundle: Sequence[dict[str, Any]]) -> str:
    first, others = bundle[0]["title"], len(bundle) - 1
    return f"{first} and {counted(others, 'other')}" if others else str(first)


_MOVING = (_Behaviour.GROWS, _Behaviour.FALLS)


def _curve(name: str, config: _DepthConfig, pieces: Pieces) -> dict[str, Any]:
    """Returns the placement's curves and what they do."""
    text = formula(named(name), config.shape)
    found = pieces.get(
        name,
        {"placement": name, "settings": settings_but(config, "placements"), "formula": text},
        simulation.hidden_rms,
        name,
        config.shape,
        range(1, config.seeds + 1),
        depths=config.depths,
        **settings_of(config, "initialisation", "sentences", "sentence_tokens"),
    )
    mean_rms = [
        None if None in values else plain(math.fsum(values) / len(values))
        for values in zip(*found, strict=True)
    ]
    return {
        "name": name,
        "title": named(name).title,
        "citation": named(name).citation,
        "formula": text,
        "behaviour": behaviour(config.depths, mean_rms),
        "exponent": exponent(config.depths, mean_rms),
        "mean_rms": mean_rms,
        "seeds_rms": found,
    }


def _places(depths: Sequence[int], wanted: Sequence[int]) -> list[int]:
    """Returns where these depths stand, and the last one."""
    return [i for i, at in enumerate(depths) if at in (*wanted, depths[-1])]


def _by_size(curves: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The largest at the last depth first; what left float32 above all."""
    return sorted(curves, key=lambda curve: -(curve["mean_rms"][-1] or math.inf))


def _table(depths: Sequence[int], curves: Sequence[dict[str, Any]]) -> StudyTable:
    columns: list[tuple[str, Callable[[dict[str, Any]], Any]]] = [
        ("placement", lambda curve: curve["title"]),
        ("what it does", lambda curve: curve["behaviour"]),
        ("exponent of depth", lambda curve: curve["exponent"]),
        *(
            (f"{depths[i]:,}", lambda curve, i=i: curve["mean_rms"][i])
            for i in _places(depths, _SHOWN)
        ),
    ]
    return table("Root mean square of the hidden state by depth", _by_size(curves), columns)


def _lines(depths: Sequence[int], curves: Sequence[dict[str, Any]]) -> list[str]:
    shown = _places(depths, _SHOWN)
    lines = [f"{'placement':18} {'RMS':15} " + " ".join(f"{depths[i]:>8}" for i in shown)]
    for curve in _by_size(curves):
        values = (curve["mean_rms"][i] for i in shown)
        numbers = " ".join(
            f"{'none' if value is None else format(value, '.4g'):>8}" for value in values
        )
        lines.append(f"{curve['name']:18} {curve['behaviour']:15} {numbers}")
    return lines


def _conditions(config: _DepthConfig) -> dict[str, str]:
    own = config.initialisation == "as-placement"
    return {
        "Model": f"encoders of {config.blocks:,} blocks, width {config.width}, feed-forward "
        f"{config.ffn_width}, {config.heads} heads, before any update",
        "Initialisation": "each placement as its source draws it"
        if own
        else f"{config.initialisation} for all",
        "Tokens": (
            f"{config.sentences} sentences of {config.sentence_tokens} tokens drawn from N(0, 1)"
        ),
        "Seeds": f"{config.seeds}, counted from 1: weights and tokens; curves are means over them",
        "Gradient normalisation": "none: no loss and no gradient is computed",
        "Logarithm": "natural, in the exponents of depth",
    }


STUDY = Study(
    title="The hidden state over depth at initialisation",
    question="How large is the hidden state after every block, a thousand blocks deep, before any "
    "training: what grows, what stays, what falls?",
    help="How large is the hidden state, 1,000 blocks deep?",
    scales=scales(
        _DepthConfig,
        smoke={"blocks": 40, "seeds": 2},
        paper={"width": 512, "ffn_width": 2048, "heads": 8},
    ),
    run=run,
)
