"""Measure on a CUDA device: python -m gpu [--parts step-bert decode ...] [--device cuda] [--out
FOLDER] [--quick].
"""

import argparse
import os
import sys
from pathlib import Path

import torch

from gpu.decode import DECODE
from gpu.doctor import DOCTOR
from gpu.part import Part, Where, run
from gpu.predict import PREDICT
from gpu.step import part as step
from gpu.systems import bert, llama, translation
from gpu.training import TRAINING

PARTS: dict[str, Part] = {
    "step-translation": step(translation.family),
    "step-bert": step(bert.family),
    "step-llama": step(llama.family),
    "decode": DECODE,
    "training": TRAINING,
    "doctor": DOCTOR,
    "predict": PREDICT,
}
BUDGET_SECONDS = 540.0
"""Of a part; no arm is begun that would likely end later."""


def main() -> int:
    """Every part that is asked for, one after another; 1 where an arm failed."""
    parser = argparse.ArgumentParser(prog="python -m gpu", description=__doc__)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument(
        "--device", default="cuda", help="cuda, cuda:1 …; cpu goes through the code with --quick"
    )
    parser.add_argument(
        "--out", type=Path, default=Path("results/gpu"), help="holds a JSON file a part"
    )
    parser.add_argument("--budget-seconds", type=float, default=BUDGET_SECONDS, help="of each part")
    parser.add_argument(
        "--quick", action="store_true", help="tiny sizes, to try the code and not to measure"
    )
    options = parser.parse_args()
    device = torch.device(options.device)
    if device.type == "cuda" and not torch.cuda.is_available():
        print("nothing is measured: torch sees no CUDA device")
        return 0
    if device.type == "cuda":
        # cuBLAS reads it once. Trainings with fixed bits need it, and those without have it too, in
        # the same process.
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        device = torch.device("cuda", device.index or 0)
        torch.cuda.set_device(device)
    where = Where(device=device, quick=options.quick)
    went = [
        run(name, PARTS[name], where, folder=options.out, budget_seconds=options.budget_seconds)
        for name in options.parts
    ]
    return 0 if all(went) else 1


if __name__ == "__main__":
    sys.exit(main())
