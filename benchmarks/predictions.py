"""How far predictions lie from models as they are drawn, deep and narrow ones: a line for each placement.

    python benchmarks/predictions.py --width 128 --draws 6 mhc siamese-norm

For 6, 24 and 48 blocks: the largest deviation over depth of q, of the stream that the formula names first, and of the
gradients of W₂ and of the values over blocks, as shares of what is drawn (root mean squares over draws and sequences).
Theory is for wide models, and a mean over few draws has an error of its own, which is printed beside: the largest
standard error over depth.
"""

import argparse
import time

import numpy as np
from numpy.typing import NDArray

from normscope.studies.settings.simulation import Simulation, mean_of
from normscope.theory.predict import ModelSetting, predict

GRADIENTS = ("ffn_out", "value")
NEWER = [
    "attn-res-inkling",
    "completep",
    "denseformer",
    "depth-mup",
    "depth-scaled",
    "doge",
    "gated-multi-stream",
    "gpas",
    "granite",
    "hyper-connections",
    "hyper-connections-static",
    "independent-hyper-connections",
    "layer-scale",
    "mhc",
    "minicpm",
    "normformer",
    "normformer-fairseq",
    "parallel",
    "parallel-two-norms",
    "siamese-norm",
    "siamese-norm-hybrid",
    "variance-gate",
    "x0-residual",
    "x0-residual-modded",
    "zaya",
]


def deviations(placement: str, model: ModelSetting, draws: int) -> tuple[float, float, float, float]:
    """Of q and of gradients: the largest deviation, and the largest standard error of what is drawn."""
    simulation = Simulation(placement, model)
    found = [simulation.draw(seed)["encoder"] for seed in range(1, draws + 1)]
    mean, predicted = mean_of(found), predict(placement, model)["encoder"]
    gradients = [abs(predicted.gradient_norm[name] / mean.gradient_norm[name] - 1).max() for name in GRADIENTS]
    return (
        float(abs(predicted.q / mean.q - 1).max()),
        _error([draw.q for draw in found]),
        float(max(gradients)),
        # Of a root, half of its square's.
        max(_error([draw.squares[name] for draw in found]) / 2 for name in GRADIENTS),
    )


def _error(curves: list[NDArray[np.float64]]) -> float:
    """The largest standard error of the mean over draws, as a share of it."""
    many = np.array(curves)
    return float((many.std(0, ddof=1) / len(many) ** 0.5 / many.mean(0)).max())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("placements", nargs="*", default=NEWER)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--draws", type=int, default=6)
    parser.add_argument("--blocks", type=int, nargs="+", default=[6, 24, 48])
    asked = parser.parse_args()
    print(
        f"width {asked.width}, 8 tokens, {asked.draws} draws of 6 sequences, setting theory; % off (± standard error)"
    )
    print(f"{'placement':32}" + "".join(f"{f'q, {n} blocks':>20}{'gradients':>16}" for n in asked.blocks))
    for placement in asked.placements:
        line = f"{placement:32}"
        started = time.process_time()
        for blocks in asked.blocks:
            width = asked.width
            model = ModelSetting(blocks=blocks, width=width, ffn_width=width, tokens=8, vocabulary=500)
            q, q_error, gradient, gradient_error = (100 * x for x in deviations(placement, model, asked.draws))
            line += f"{f'{q:.1f} ± {q_error:.1f}':>20}{f'{gradient:.1f} ± {gradient_error:.1f}':>16}"
        print(f"{line}{time.process_time() - started:8.0f} s", flush=True)


if __name__ == "__main__":
    main()
