"""What `predict` says of the stream and the gradients over depth, beside models drawn and measured
on the device.
"""

import time
from collections.abc import Iterator, Mapping
from functools import partial

import numpy as np
import torch

from gpu.part import Arm, Measured, Part, Row, Where
from gpu.timing import set_precision, synchronise
from normscope.model import Layout
from normscope.theory.predict import ModelSetting, predict
from normscope.train.device import Precision, autocast
from normscope_studies.theory.simulation import SEQUENCES, Simulation

PLACEMENTS = ("post-ln", "pre-ln", "deepnorm", "peri-ln")
MATRIX = "ffn_out"


def _arms(where: Where) -> dict[str, Arm]:
    precisions: tuple[Precision, ...] = (
        ("fp32", "tf32", "bf16") if where.device.type == "cuda" else ("fp32", "bf16")
    )
    cpu = Where(device=torch.device("cpu"), quick=where.quick)
    arms: dict[str, Arm] = {}
    for placement in PLACEMENTS:
        arms |= {f"{placement}, {p}": partial(_measured, where, placement, p) for p in precisions}
        arms[f"{placement}, fp32 on the CPU"] = partial(_measured, cpu, placement, "fp32")
    return arms


def _measured(where: Where, placement: str, precision: Precision) -> Measured:
    """Means over draws, whose random numbers are the device's own: they agree with the CPU's as
    draws do.
    """
    set_precision(where, precision)
    width, blocks, vocabulary, draws = (32, 2, 100, 2) if where.quick else (512, 12, 1000, 16)
    model = ModelSetting(
        blocks=blocks, width=width, ffn_width=width, tokens=16, vocabulary=vocabulary
    )
    simulation = Simulation(placement, model)
    simulation.modules.to(where.device)
    simulation.layout = Layout(torch.full((SEQUENCES,), model.tokens), where.device)
    begun = time.perf_counter()
    with torch.device(where.device), autocast(where.device, precision):
        drawn = [simulation.draw(seed)["encoder"] for seed in range(1, draws + 1)]
    synchronise(where)
    theory = predict(placement, model)["encoder"]
    return {
        "seconds": (time.perf_counter() - begun) / draws,
        "q": np.mean([one.q for one in drawn], axis=0).tolist(),
        "gradient_norm": np.sqrt(np.mean([one.squares[MATRIX] for one in drawn], axis=0)).tolist(),
        "predicted_q": theory.q.tolist(),
        "predicted_gradient_norm": theory.gradient_norm[MATRIX].tolist(),
    }


def _rows(arms: Mapping[str, Measured]) -> Iterator[Row]:
    for name, one in arms.items():
        row: Row = {"placement": name, "seconds a draw": one["seconds"]}
        for what in ("q", "gradient_norm"):
            off = np.abs(np.array(one[what]) / np.array(one[f"predicted_{what}"]) - 1)
            row[f"{what.replace('_', ' ')}, % from theory at most"] = 100 * float(off.max())
        yield row


PREDICT = Part(arms=_arms, rows=_rows)
