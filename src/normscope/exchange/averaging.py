"""The mean of a run's last checkpoints, as recipes report it: every verb that loads a run can be given it.

Averaging is Vaswani et al. 2017, section 6.1, and fairseq's `average_checkpoints.py`: the weights of checkpoints of one
run are averaged with the same share each, and nothing is trained.
"""

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from ..errors import UserError
from ..files import disk_errors
from ..model import renormalise, unit_vectors
from ..runs.trained import load_run
from ..tasks.registry import task_from_scratch
from ..train import RunFolder
from ..train.checkpoint import Checkpoint, existing
from .verbs import write_run

_FORMS = "last:N, or numbers of updates separated by commas"


@dataclass(frozen=True, slots=True, kw_only=True)
class AveragedRun:
    """A run whose only checkpoint is the mean of another's."""

    run: Path
    """There while the averaging is open."""
    updates: tuple[int, ...]
    """Of the checkpoints that were averaged, rising."""

    @property
    def words(self) -> str:
        """ "mean of 3 checkpoints, updates 10, 20, 30"."""
        return f"mean of {len(self.updates)} checkpoints, updates {', '.join(map(str, self.updates))}"


@contextmanager
def averaged(run: Path, asked: str) -> Iterator[AveragedRun]:
    """The mean of some of a run's checkpoints, as a run in a folder that is removed afterwards.

    asked: "last:10", or the numbers of updates "100,200,300". Raises UserError for what is neither, for a run that
    cannot be loaded, and for checkpoints that it does not have or that are damaged.
    """
    folder = RunFolder(run)
    updates = _updates(run, existing(folder.checkpoints), asked)
    checkpoints = [folder.checkpoint(str(update)) for update in updates]
    loaded = load_run(run, which=str(updates[-1]), device="cpu")
    average_into(loaded.model, checkpoints)
    task = task_from_scratch(loaded.config, f"{run} cannot be averaged")
    with ExitStack() as stack:
        with disk_errors("making a temporary folder for the mean"):
            place = stack.enter_context(tempfile.TemporaryDirectory(prefix="normscope-average-"))
        made = Path(place) / run.resolve().name
        write_run(
            made,
            loaded.config,
            loaded.model,
            lambda where: task.save_codec(loaded.codec, where),
            made_from=f"{run.resolve()}, mean of updates {', '.join(map(str, updates))}",
            data_fingerprint=loaded.environment.get("data_fingerprint", ""),
        )
        yield AveragedRun(run=made, updates=tuple(updates))


@torch.no_grad()
def average_into(model: nn.Module, checkpoints: Sequence[Checkpoint]) -> None:
    """Put the mean of the checkpoints' parameters into `model`: summed in float64, rounded once to their own type.

    A parameter that two modules share is averaged once. Buffers, which are numbers that follow the updates or were
    profiled before the first, are those of the last of the checkpoints. What a placement keeps at length 1, as nGPT
    does, is put back to it, as after every update. Raises UserError where a checkpoint is of another model.
    """
    sums: dict[str, Tensor] = {}
    for checkpoint in checkpoints:
        checkpoint.load_model(model)
        for name, parameter in model.named_parameters():
            weights = parameter.detach().to(torch.float64)
            sums[name] = sums[name].add_(weights) if name in sums else weights.clone()
    for name, parameter in model.named_parameters():
        parameter.copy_(sums[name] / len(checkpoints))
    renormalise(unit_vectors(model))


def _updates(run: Path, there: Sequence[Checkpoint], asked: str) -> list[int]:
    """The checkpoints that are asked for, by their updates, rising."""
    have = [checkpoint.update for checkpoint in there]
    kind, colon, count = asked.partition(":")
    if colon and kind.strip() == "last" and count.strip().isdecimal() and int(count) > 0:
        wanted = have[-int(count) :]
        if len(wanted) < int(count):
            raise UserError(
                f"--average {asked}: {run} has {_counted(have)}, and this needs {int(count)}. A run keeps the last "
                f"train.keep_checkpoints, and the best: train it with --set train.keep_checkpoints={int(count)}, and "
                "with train.checkpoint_every for how often; what was removed is gone"
            )
        return wanted
    numbers = [part.strip() for part in asked.split(",")]
    if not all(number.isdecimal() for number in numbers):
        raise UserError(f"--average takes {_FORMS}, such as last:10 or 800,900,1000; got {asked!r}")
    updates = sorted(map(int, numbers))
    if len(set(updates)) < len(updates):
        raise UserError(f"--average {asked}: each update counts once, and one is given twice")
    if missing := [str(update) for update in updates if update not in have]:
        raise UserError(f"--average {asked}: {run} has {_counted(have)}, and none of {' or '.join(missing)}")
    return updates


def _counted(updates: Sequence[int]) -> str:
    if not updates:
        return "no checkpoint"
    noun = "checkpoint, of update" if len(updates) == 1 else "checkpoints, of updates"
    return f"{len(updates)} {noun} {', '.join(map(str, updates))}"
