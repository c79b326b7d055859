"""Predictions of `normscope predict` beside models as they are drawn: the error of every curve.

Run: python benchmarks/theory_draws.py draw [SETTING ...] draws models and writes what they have to
theory_draws.json, an hour of one core for all settings; python benchmarks/theory_draws.py print
compares that with today's predictions, in seconds, and prints the table of docs/theory.md.

An error is predicted over measured, less 1, in per cent, with the standard error of the measured
root mean square over draws. Of a group of matrices the table has the error that is largest for
certain: where |error| less two standard errors is largest over matrices and blocks.
"""

import argparse
import json
import math
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from normscope.theory.doubts import Doubt
from normscope.theory.predict import ModelSetting, StackPrediction, predict

FILE = Path(__file__).with_name("theory_draws.json")
LIMIT = 7.0
"""Per cent, of gradients of W_V, W_O, W_1 and W_2 and of the stream."""
LIMIT_OF_QUERIES = 10.0
"""The same of W_Q and W_K."""
QUERIES = ("query", "key", "cross_query", "cross_key")


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawn:
    """A model that is drawn again and again."""

    placement: str
    model: ModelSetting
    draws: int = 30


def _narrow(**changes: Any) -> ModelSetting:
    """Returns a narrow model: 10 blocks of width 128 with Xavier's normal weights."""
    sizes = {"blocks": 10, "width": 128, "ffn_width": 512, "heads": 4, "tokens": 16}
    rest = {"vocabulary": 1000, "setting": "xavier-normal"}
    return ModelSetting(**{**sizes, **rest, **changes})


def _wide(**changes: Any) -> ModelSetting:
    """Returns a model three times as wide."""
    return _narrow(**{"width": 384, "ffn_width": 1536, "heads": 6, **changes})


def _paired(**changes: Any) -> ModelSetting:
    """Returns an encoder-decoder with the weights of fairseq."""
    return _narrow(
        **{"stack": "encoder-decoder", "blocks": 6, "tokens": 20, "setting": "paper", **changes}
    )


def _tied(**changes: Any) -> ModelSetting:
    """Returns a shallow model whose output projection holds most of the probability of what it
    reads.
    """
    return _narrow(**{"blocks": 2, "width": 256, "activation": "gelu", **changes})


SETTINGS: dict[str, Drawn] = {
    "attn-res": Drawn(placement="attn-res", model=_narrow(norm="rms-norm")),
    "deepnorm-36": Drawn(placement="deepnorm", model=_narrow(blocks=36), draws=16),
    "depth-scaled-36": Drawn(
        placement="depth-scaled",
        model=_narrow(
            blocks=36,
            ffn_width=344,
            tokens=24,
            activation="swiglu",
            norm="rms-norm",
            stack="decoder",
        ),
        draws=16,
    ),
    "pair-post-ln": Drawn(placement="post-ln", model=_paired()),
    "pair-pre-ln": Drawn(
        placement="pre-ln", model=_paired(width=384, ffn_width=768, heads=6), draws=12
    ),
    "gated-multi-stream": Drawn(
        placement="gated-multi-stream",
        model=_narrow(
            ffn_width=384, tokens=24, setting="normal-0.02", activation="swiglu", norm="rms-norm"
        ),
    ),
    "gated-multi-stream-causal": Drawn(
        placement="gated-multi-stream",
        model=_narrow(
            ffn_width=384,
            tokens=24,
            setting="normal-0.02",
            activation="swiglu",
            norm="rms-norm",
            stack="decoder",
        ),
    ),
    "hybrid-norm": Drawn(
        placement="hybrid-norm", model=_narrow(setting="megatron", activation="gelu")
    ),
    "independent-hyper-connections": Drawn(
        placement="independent-hyper-connections",
        model=_narrow(ffn_width=256, heads=2, activation="gelu"),
    ),
    "keel": Drawn(placement="keel", model=_narrow(setting="normal-0.02")),
    "layer-scale": Drawn(placement="layer-scale", model=_narrow(activation="gelu")),
    "mhc": Drawn(
        placement="mhc",
        model=_narrow(tokens=20, setting="normal-0.02", activation="gelu", norm="rms-norm"),
    ),
    "normformer": Drawn(placement="normformer", model=_wide(), draws=12),
    "parallel-36": Drawn(
        placement="parallel",
        model=_narrow(blocks=36, setting="normal-0.02", activation="gelu"),
        draws=24,
    ),
    "parallel-36-causal": Drawn(
        placement="parallel",
        model=_narrow(blocks=36, activation="gelu", stack="decoder"),
        draws=24,
    ),
    "parallel-36-wide": Drawn(
        placement="parallel",
        model=_wide(blocks=36, setting="normal-0.02", activation="gelu", stack="decoder"),
        draws=6,
    ),
    "post-ln-36": Drawn(placement="post-ln", model=_narrow(blocks=36), draws=120),
    "post-ln-dyt": Drawn(placement="post-ln", model=_narrow(setting="theory", norm="dyt")),
    "post-ln-36-rms": Drawn(
        placement="post-ln",
        model=_narrow(blocks=36, norm="rms-norm", activation="gelu"),
        draws=120,
    ),
    "post-ln-36-theory": Drawn(
        placement="post-ln",
        model=_narrow(blocks=36, width=384, ffn_width=384, heads=1, setting="theory"),
        draws=16,
    ),
    "pre-ln-36-swiglu": Drawn(
        placement="pre-ln",
        model=_narrow(blocks=36, heads=2, tokens=24, activation="swiglu", norm="rms-norm"),
        draws=16,
    ),
    "pre-ln-36-relu": Drawn(
        placement="pre-ln", model=_narrow(blocks=36, heads=2, tokens=24), draws=16
    ),
    "pre-ln-dyt": Drawn(placement="pre-ln", model=_wide(norm="dyt", activation="gelu"), draws=12),
    "residual": Drawn(placement="residual", model=_narrow(width=384, ffn_width=768), draws=16),
    "siamese-norm": Drawn(
        placement="siamese-norm",
        model=_narrow(heads=8, tokens=32, activation="gelu", stack="decoder"),
    ),
    "variance-gate": Drawn(
        placement="variance-gate",
        model=_wide(ffn_width=1024, setting="normal-0.02", activation="swiglu", norm="rms-norm"),
        draws=12,
    ),
    # Ten with a tied output projection that holds much of the token's own row.
    "tied-pre-ln-1": Drawn(placement="pre-ln", model=_tied(blocks=1, tokens=24), draws=40),
    "tied-pre-ln-1-causal": Drawn(
        placement="pre-ln", model=_tied(blocks=1, tokens=24, stack="decoder"), draws=40
    ),
    "tied-post-ln-1-causal": Drawn(
        placement="post-ln", model=_tied(blocks=1, stack="decoder"), draws=40
    ),
    "tied-pre-ln-2-swiglu": Drawn(
        placement="pre-ln",
        model=_tied(
            tokens=24,
            setting="normal-0.02",
            activation="swiglu",
            norm="rms-norm",
            stack="decoder",
        ),
    ),
    "tied-post-ln-2-relu": Drawn(placement="post-ln", model=_tied(activation="relu")),
    "tied-peri-ln-2-causal": Drawn(placement="peri-ln", model=_tied(stack="decoder")),
    "tied-hybrid-norm-16": Drawn(
        placement="hybrid-norm", model=_narrow(blocks=16, activation="gelu")
    ),
    "tied-deepnorm-6-causal": Drawn(
        placement="deepnorm", model=_narrow(blocks=6, activation="gelu", stack="decoder")
    ),
    "tied-sandwich-4": Drawn(placement="sandwich", model=_narrow(blocks=4)),
    "tied-pre-ln-1-head": Drawn(placement="pre-ln", model=_tied(blocks=1, heads=1), draws=40),
    # Three that nobody had looked at.
    "pair-deepnorm": Drawn(placement="deepnorm", model=_paired(), draws=40),
    "pair-deepnorm-xavier": Drawn(
        placement="deepnorm", model=_paired(setting="xavier-normal"), draws=40
    ),
    "hyper-connections": Drawn(placement="hyper-connections", model=_narrow(), draws=40),
}

Curves = dict[str, dict[str, dict[str, list[float]]]]
"""By stack and what: `mean`, the root mean square over draws (of q the mean), and `error`, its
standard error as a share of it.
"""


def drawn(setting: Drawn) -> Curves:
    """Draws a setting's models and returns what they have on average."""
    from normscope_studies.theory.simulation import draws_of

    draws = draws_of(setting.placement, setting.model, setting.draws)
    found: Curves = {}
    for stack, first in draws[0].items():
        found[stack] = {}
        for name in first:
            values = np.array([draw[stack][name] for draw in draws])
            found[stack][name] = _averaged(values, squared=name != "q")
    return found


def _averaged(values: NDArray[np.float64], *, squared: bool) -> dict[str, list[float]]:
    """values: (draws, L), squares of norms or q itself."""
    mean = values.mean(0)
    error = values.std(0, ddof=1) / math.sqrt(len(values))
    relative = np.divide(error, mean, out=np.zeros_like(mean), where=mean > 0)
    if squared:
        # A root scatters by half as much as its square, as a share of itself.
        mean = np.sqrt(mean)
        relative = relative / 2
    return {"mean": [_short(one) for one in mean], "error": [_short(one) for one in relative]}


def _short(number: float) -> float:
    return float(f"{number:.4g}")


class Off(NamedTuple):
    """The error of one curve at the block where it is largest for certain."""

    error: float
    """Per cent: predicted over measured, less 1."""
    standard: float
    """Its standard error."""
    matrix: str
    block: int
    """Counted from 1; of the stream the number of completed blocks."""
    doubted: bool
    """True where the prediction itself doubts this curve at this block."""
    stack: str = ""
    """The stack, where a model has two."""

    @property
    def surely(self) -> float:
        """Returns by how many per cent it is off for certain."""
        return abs(self.error) - 2 * self.standard

    @property
    def words(self) -> str:
        doubt = ", doubted" if self.doubted else ""
        where = f"{self.stack} {self.matrix} {self.block}".strip()
        return f"{self.error:+.1f} ± {self.standard:.1f} ({where}{doubt})"


def errors_of(prediction: StackPrediction, measured: dict[str, Any]) -> Iterator[Off]:
    """Yields the error of every curve at every block that has one."""
    for name, curve in measured.items():
        is_stream = name == "q"
        predicted = prediction.q if is_stream else prediction.gradient_norm[name]
        first = 0 if is_stream else 1
        for place, expected in enumerate(predicted):
            mean = curve["mean"][place]
            if not mean or not expected:
                continue
            block = place + first
            yield Off(
                error=100 * (expected / mean - 1),
                standard=100 * curve["error"][place],
                matrix=name,
                block=block,
                doubted=any(_covers(doubt, name, block) for doubt in prediction.doubts),
            )


def _covers(doubt: Doubt, name: str, block: int) -> bool:
    # What is said of q from the first block on is meant of the embedding too.
    return name in doubt.of and doubt.first <= max(block, 1) <= doubt.last


def limit_of(off: Off) -> float:
    """Returns how far a curve may be off, in per cent."""
    return LIMIT_OF_QUERIES if off.matrix in QUERIES else LIMIT


def worst(found: list[Off]) -> Off | None:
    """Returns what is off the furthest for certain, among what is not doubted where there is
    any.
    """
    trusted = [off for off in found if not off.doubted]
    return max(trusted or found, key=lambda off: off.surely, default=None)


def compared(held: dict[str, Any]) -> dict[str, list[Off]]:
    """Returns the errors of today's predictions, by setting."""
    found: dict[str, list[Off]] = {}
    for name, measured in held.items():
        setting = SETTINGS[name]
        stacks = predict(setting.placement, setting.model)
        found[name] = []
        for stack, curves in measured.items():
            of_two = stack if len(measured) > 1 else ""
            for off in errors_of(stacks[stack], curves):
                found[name].append(off._replace(stack=of_two))
    return found


def table(held: dict[str, Any]) -> str:
    """Returns the table of docs/theory.md."""
    rows = [
        "| setting | draws | q | V, O, W₁, W₂ | Q, K |",
        "| --- | --- | --- | --- | --- |",
    ]
    for name, found in compared(held).items():
        groups: dict[str, list[Off]] = {"q": [], "matrices": [], "queries": []}
        for off in found:
            if off.matrix == "q":
                groups["q"].append(off)
            else:
                groups["queries" if off.matrix in QUERIES else "matrices"].append(off)
        cells = []
        for group in groups.values():
            furthest = worst(group)
            cells.append(furthest.words if furthest else "")
        rows.append(f"| {name} | {SETTINGS[name].draws} | " + " | ".join(cells) + " |")
    return "\n".join(rows)


def held() -> dict[str, Any]:
    """Returns what was drawn so far, by setting."""
    found: dict[str, Any] = json.loads(FILE.read_text(encoding="utf-8")) if FILE.exists() else {}
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("action", choices=["draw", "print"])
    parser.add_argument("settings", nargs="*", metavar="SETTING")
    options = parser.parse_args()
    if options.action == "print":
        print(table(held()))
        return
    for name in options.settings or SETTINGS:
        found = held()
        if name in found and not options.settings:
            continue
        found[name] = drawn(SETTINGS[name])
        ordered = {known: found[known] for known in SETTINGS if known in found}
        FILE.write_text(json.dumps(ordered, separators=(",", ":")) + "\n", encoding="utf-8")
        print(name, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
