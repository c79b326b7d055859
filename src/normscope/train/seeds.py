"""Random numbers of a run, derived from its seed and the number of the batch: nothing to save, nothing to restore."""

import numpy as np
import torch

_DROPOUT, _WEIGHTS = 1, 2


def seed_weights(seed: int) -> None:
    """Seed torch's generators for drawing the initial weights."""
    torch.manual_seed(_derive(seed, _WEIGHTS, 0))


def seed_micro_batch(seed: int, number: int) -> None:
    """Seed torch's generators for the dropout of one batch, counted over all epochs.

    As the batch has its number whichever process works on it, the masks do not depend on how many processes there are.
    """
    torch.manual_seed(_derive(seed, _DROPOUT, number))


def _derive(*words: int) -> int:
    return int(np.random.SeedSequence(words).generate_state(1, np.uint64)[0])
