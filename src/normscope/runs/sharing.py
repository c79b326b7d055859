"""The sharing of a run among the processes that torchrun has started, and the runs that cannot be
shared.
"""

import hashlib

import torch
from torch import nn

from ..errors import UserError
from ..model import profile
from ..optim import OptimizerConfig
from ..settings.tables import to_toml
from ..tasks.run_config import RunConfig
from ..train import Objective, TrainConfig
from ..train.device import Precision, autocast
from ..train.together.group import Group, Several
from ..train.together.shards import Shards
from ..train.together.sharing import Replicas, Sharing, refuse_running_statistics


def refuse_unshardable(model: nn.Module, config: RunConfig) -> None:
    """Raise UserError for what several processes cannot do with the model, by name."""
    how = config.train.parallel
    refuse_running_statistics(model, how)
    if how == "shards":
        _refuse_whole_matrices(config.optimizer)


def _refuse_whole_matrices(optimizer: OptimizerConfig) -> None:
    if optimizer.name in _WHOLE:
        raise UserError(
            f"train.parallel = shards: optimizer {optimizer.name} {_WHOLE[optimizer.name]}; choose "
            "another optimizer.name, or train.parallel = replicas"
        )


_WHOLE = {"muon": "takes whole matrices, of which each process holds a part"}


def device_type(train: TrainConfig) -> str:
    """Returns cuda where gradients may be on such a device, and cpu otherwise."""
    if train.device == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    return "cuda" if train.device.startswith("cuda") else "cpu"


def refuse_unlike(group: Group, config: RunConfig, fingerprint: str) -> None:
    """Raise UserError where the processes have read different configurations or corpora."""
    table = to_toml(config)
    seen = group.gather((hashlib.sha256(table.encode()).hexdigest(), fingerprint))
    for rank, (configuration, corpus) in enumerate(seen):
        for what, one, first in (
            ("configuration", configuration, seen[0][0]),
            ("corpus", corpus, seen[0][1]),
        ):
            if one != first:
                raise UserError(
                    f"process {rank} of {group.size} has read another {what} than process 0: give "
                    "every machine the same files under the same paths"
                )


def profiled_before(model: nn.Module, objective: Objective, precision: Precision) -> None:
    """Sets what placements take from a first batch, while the model is whole; a run that goes on
    takes it from its checkpoint instead.
    """
    with autocast(objective.device, precision):
        profile(model, lambda: objective.loss_sums(model, objective.micro_batch(0)))


def shared(
    model: nn.Module, config: RunConfig, group: Group, precision: Precision, *, keeps_whole: bool
) -> Sharing:
    """Returns what the processes of the group do with a model that all of them have built.

    keeps_whole: whether the first is to measure, or to decode with, the whole of a sharded one.
    """
    if not isinstance(group, Several):
        return Sharing(model)
    with group.noticing():
        if config.train.parallel == "replicas":
            return Replicas(model, group)
        return Shards(model, group, precision=precision, keeps_whole=keeps_whole)
