"""Depth: how large the hidden state is after every block at initialisation, a thousand blocks deep."""

# N = tokens, D = width
import json
import math
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ... import __version__
from ...errors import UserError
from ...files import disk_errors, write_atomically
from ...measure import depth_points, recording
from ...model import SCHEMES, Context, Layout, Stack, StackConfig
from ...model.initialisation import initialise
from ...model.profiling import profile
from ...placement import StackShape, named, registered
from ...placement.printing import formula
from ...report.depth_svg import DepthLine, depth_svg
from ...train.seeds import seed_weights
from ..protocol.study import as_json, environment_of, plain

STILL, HELD, FALLS, GROWS, OVERFLOWS = "hardly moves", "stays at 1", "falls", "grows", "leaves float32"
_HELD_WITHIN, _STILL_WITHIN, _FALLEN_BELOW = 0.005, 1.1, 0.8
_EVERY_DEPTH_UP_TO, _DEPTHS_A_DECADE = 20, 20
TITLE = "The hidden state over depth at initialisation"


@dataclass(frozen=True, slots=True, kw_only=True)
class DepthConfig:
    """An encoder-only stack for every placement. Raises UserError for what no stack can be built with."""

    placements: tuple[str, ...]
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
        for name in ("blocks", "width", "seeds", "ffn_width", "heads", "sentences", "sentence_tokens"):
            if getattr(self, name) < 1:
                raise UserError(f"{name} must be at least 1, got {getattr(self, name)}")
        if self.width % self.heads:
            raise UserError(f"width={self.width} must be a multiple of heads={self.heads}")
        if self.initialisation not in ("as-placement", *SCHEMES):
            raise UserError(f"unknown initialisation {self.initialisation!r}; choose one of {', '.join(SCHEMES)}")
        if self.initialisation == "theory" and (self.heads != 1 or self.ffn_width != self.width):
            raise UserError("initialisation theory is stated for heads = 1 and ffn_width = width")
        if not self.placements or len(set(self.placements)) < len(self.placements):
            raise UserError(f"placements: give one or more different names, got {self.placements}")
        for name in self.placements:
            try:
                named(name)(self.shape)
            except ValueError as error:
                raise UserError(str(error)) from error

    @property
    def shape(self) -> StackShape:
        return StackShape(
            kind="encoder",
            width=self.width,
            ffn_width=self.ffn_width,
            heads=self.heads,
            encoder_blocks=self.blocks,
        )

    @property
    def depths(self) -> list[int]:
        """What is recorded: every depth at first, then some in each decade, and the last."""
        decades = math.log10(max(self.blocks, 1))
        spaced = [round(10 ** (i / _DEPTHS_A_DECADE)) for i in range(int(decades * _DEPTHS_A_DECADE) + 1)]
        return sorted({*range(min(self.blocks, _EVERY_DEPTH_UP_TO) + 1), *spaced, self.blocks})


def encoder_placements() -> tuple[str, ...]:
    """All registered placements that are defined for an encoder alone."""
    return tuple(name for name, placement in registered().items() if "encoder-only" in placement.models)


@torch.no_grad()
def hidden_rms(placement: str, config: DepthConfig, seed: int) -> list[float]:
    """√(E‖x_l‖² / D) at each of `config.depths`, of x_0 from N(0, 1); a number a block is kept, and no state."""
    seed_weights(seed)
    kind = named(placement)
    stack = Stack(kind(config.shape), StackConfig())
    initialise(stack, config.initialisation, kind)
    layout = Layout(torch.full((config.sentences,), config.sentence_tokens))
    x_ND, context = torch.randn(layout.tokens, config.width), Context(layout=layout)
    profile(stack, lambda: stack(x_ND, context))

    points = depth_points(stack.blocks, pick=stack.placement.hidden)
    with recording(points, _rms) as found:
        stack(x_ND, context)
    return [found[f"x_{depth}"][0] for depth in config.depths]


def _rms(x_ND: Tensor) -> float:
    return float(x_ND.double().square().mean().sqrt())


def run_depth(
    config: DepthConfig,
    folder: Path,
    *,
    command: str,
    watch: Callable[[str, int, int], None],
    say: Callable[[str], None],
) -> dict[str, Any]:
    """Measure what is not there yet, then write results.json and hidden_rms.svg into `folder`; returns the results.

    A placement that `folder` holds under the same settings is not measured again.
    """
    with disk_errors(f"writing into {folder}"):
        (folder / "placements").mkdir(parents=True, exist_ok=True)
        curves = []
        for done, name in enumerate(config.placements):
            watch("placements", done, len(config.placements))
            curves.append(_curve(name, config, folder / "placements" / f"{name}.json", say))
        watch("placements", len(curves), len(config.placements))
        results = {
            "title": TITLE,
            "created": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "normscope": __version__,
            "settings": _settings(config),
            "depths": config.depths,
            "placements": curves,
            "commands": [command],
            "environment": environment_of(),
        }
        write_atomically(folder / "results.json", as_json(results))
        write_atomically(folder / "hidden_rms.svg", picture(results))
    return results


def picture(results: dict[str, Any]) -> str:
    """The curves of `results.json`."""
    lines = [
        DepthLine(
            label=curve["title"],
            group=curve["behaviour"],
            note=f"depth^{curve['exponent']:.2g}" if curve["behaviour"] in (GROWS, FALLS) else curve["behaviour"],
            depths=results["depths"],
            values=curve["mean_rms"],
        )
        for curve in results["placements"]
    ]
    return depth_svg(lines, groups=(GROWS, HELD, STILL, FALLS, OVERFLOWS), title=TITLE)


def _curve(name: str, config: DepthConfig, file: Path, say: Callable[[str], None]) -> dict[str, Any]:
    """The placement's curves and what they do."""
    text = formula(named(name), config.shape)
    seeds_rms = _seeds_rms(name, config, {"settings": _settings(config), "formula": text}, file, say)
    mean_rms = [_mean(values) for values in zip(*seeds_rms, strict=True)]
    return {
        "name": name,
        "title": named(name).title,
        "citation": named(name).citation,
        "formula": text,
        "behaviour": behaviour(config.depths, mean_rms),
        "exponent": exponent(config.depths, mean_rms),
        "mean_rms": mean_rms,
        "seeds_rms": seeds_rms,
    }


def _seeds_rms(
    name: str, config: DepthConfig, asked: dict[str, Any], file: Path, say: Callable[[str], None]
) -> list[list[float | None]]:
    """A curve for each seed, read where they were measured with the same settings and formula."""
    if file.is_file():
        found = json.loads(file.read_text(encoding="utf-8"))
        if {key: found.get(key) for key in asked} == asked:
            return found["seeds_rms"]  # type: ignore[no-any-return]
    started = time.monotonic()
    seeds_rms = [[plain(value) for value in hidden_rms(name, config, seed)] for seed in range(1, config.seeds + 1)]
    write_atomically(file, as_json({**asked, "seeds_rms": seeds_rms}))
    say(f"{name}: measured in {time.monotonic() - started:.0f} s")
    return seeds_rms


def behaviour(depths: list[int], rms: list[float | None]) -> str:
    """What a curve does after its first block, in two words."""
    values = [value for depth, value in zip(depths, rms, strict=True) if depth >= 1 and value is not None]
    if None in rms:
        return OVERFLOWS
    # The first block may be another than the others (KEEL, HybridNorm*).
    if all(abs(value - 1) < _HELD_WITHIN for value in values[1:] or values):
        return HELD
    if max(values) < _STILL_WITHIN * min(values):
        return STILL
    return FALLS if values[-1] < _FALLEN_BELOW * values[0] else GROWS


def exponent(depths: list[int], rms: list[float | None]) -> float | None:
    """Slope of ln RMS over ln depth in the last tenfold of depth: ½ where every block adds as much to E‖x‖²."""
    since = next(i for i, depth in enumerate(depths) if depth >= max(1, depths[-1] // 10))
    first, last = rms[since], rms[-1]
    if first is None or last is None or depths[since] == depths[-1]:
        return None
    return round(math.log(last / first) / math.log(depths[-1] / depths[since]), 3)


def _settings(config: DepthConfig) -> dict[str, Any]:
    return {key: value for key, value in asdict(config).items() if key != "placements"}


def _mean(values: tuple[float | None, ...]) -> float | None:
    known = [value for value in values if value is not None]
    return plain(math.fsum(known) / len(known)) if len(known) == len(values) else None
