"""The mean of a run's last checkpoints, as recipes that report a score take it.

Vaswani et al. 2017, section 6.1, and fairseq's `average_checkpoints.py`: the weights of checkpoints
of one run are averaged with the same share each, and nothing is trained.
"""

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor, nn

from ..errors import UserError
from ..model import renormalise, unit_vectors
from ..train import RunFolder
from ..train.checkpoint import Checkpoint, existing

_FORMS = "a number of checkpoints, such as 10, or updates separated by commas, such as 800,900,1000"


def asked_checkpoints(run: Path, asked: str) -> list[Checkpoint]:
    """Returns the checkpoints of a run that are to be averaged, the newest last.

    asked: "10" for the last ten, or the numbers of updates "800,900,1000". Raises UserError for
    what is neither, and for checkpoints that the run does not have.
    """
    folder = RunFolder(run)
    there = {checkpoint.update: checkpoint for checkpoint in existing(folder.checkpoints)}
    if asked.strip().isdecimal():
        updates = _last(run, sorted(there), int(asked))
    else:
        updates = _named(run, sorted(there), asked)
    return [folder.checkpoint(str(update)) for update in updates]


@torch.no_grad()
def average_into(model: nn.Module, checkpoints: Sequence[Checkpoint]) -> None:
    """Puts the mean of the checkpoints' parameters into `model`.

    Parameters are summed in float64 and rounded once to their own type; one that two modules share
    is averaged once. Buffers, which are numbers that follow the updates or were profiled before the
    first, are those of the last of the checkpoints. What a placement keeps at length 1, as nGPT
    does, is put back to it, as after every update. Raises UserError where a checkpoint is damaged,
    or of another model.
    """
    sums: dict[str, Tensor] = {}
    for checkpoint in checkpoints:
        checkpoint.load_model(model)
        for name, parameter in model.named_parameters():
            weights = parameter.detach().to(torch.float64)
            if name in sums:
                sums[name] += weights
            else:
                sums[name] = weights.clone()
    for name, parameter in model.named_parameters():
        parameter.copy_(sums[name] / len(checkpoints))
    renormalise(unit_vectors(model))


def _last(run: Path, have: Sequence[int], count: int) -> list[int]:
    if count < 1:
        raise UserError(f"--average takes {_FORMS}; got {count}")
    if len(have) < count:
        raise UserError(
            f"--average {count}: {run} has {_counted(have)}. A run keeps the last "
            f"train.keep_checkpoints, and the best: train it with --set "
            f"train.keep_checkpoints={count}, and with train.checkpoint_every for how often; what "
            "was removed is gone"
        )
    return list(have[-count:])


def _named(run: Path, have: Sequence[int], asked: str) -> list[int]:
    numbers = [part.strip() for part in asked.split(",")]
    if not all(number.isdecimal() for number in numbers):
        raise UserError(f"--average takes {_FORMS}; got {asked!r}")
    updates = sorted(map(int, numbers))
    if len(set(updates)) < len(updates):
        raise UserError(f"--average {asked}: each update counts once, and one is given twice")
    missing = [str(update) for update in updates if update not in have]
    if missing:
        raise UserError(
            f"--average {asked}: {run} has {_counted(have)}, and none of {' or '.join(missing)}"
        )
    return updates


def _counted(updates: Sequence[int]) -> str:
    if not updates:
        return "no checkpoint"
    noun = "checkpoint, of update" if len(updates) == 1 else "checkpoints, of updates"
    return f"{len(updates)} {noun} {', '.join(map(str, updates))}"
