"""Random numbers in float64 with a seed of their own, and what is said of many draws."""

import math

import numpy as np
import torch

from normscope_studies.theory.simulation import Simulation, _StackDraw


def layer_norm(x):
    return torch.nn.functional.layer_norm(x, x.shape[-1:], eps=0.0)


def normals(seed):
    generator = torch.Generator().manual_seed(seed)
    return lambda *shape: torch.randn(*shape, generator=generator, dtype=torch.float64)


def mean_and_error(draws):
    draws = np.asarray(draws)
    return draws.mean(0), draws.std(0, ddof=1) / math.sqrt(len(draws))


def simulate(placement, model, draws, seed=0):
    """Means over `draws` models of float32, by stack: "encoder", "decoder" or both."""
    simulation = Simulation(placement, model)
    drawn = [simulation.draw(seed * draws + i) for i in range(draws)]
    return {
        kind: _StackDraw(
            q=np.mean([one[kind].q for one in drawn], axis=0),
            p=np.mean([one[kind].p for one in drawn], axis=0),
            squares={
                name: np.mean([one[kind].squares[name] for one in drawn], axis=0)
                for name in drawn[0][kind].squares
            },
        )
        for kind in drawn[0]
    }
