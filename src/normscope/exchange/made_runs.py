"""Run folders that hold a model before its first update here: brought from elsewhere, or made of another run's."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

from ..errors import UserError
from ..files import disk_errors, whole_folder
from ..optim.optimizers import make_optimizer
from ..runs.resolving import resolve
from ..settings.tables import to_toml
from ..tasks.run_config import RunConfig
from ..train import RunFolder
from ..train.checkpoint import contents, save
from ..train.environment import describe
from ..train.saving import first_state
from .forms import Model


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Where a run's first weights come from, for its `environment.json`."""

    made_from: str
    data_fingerprint: str = ""
    """Of the corpus that the run may go on with; empty where it has none."""


def refuse_occupied(path: Path) -> None:
    """Raise UserError where a new folder would overwrite something."""
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise UserError(f"{path} exists and is not an empty folder; choose another one")


def write_run(
    path: Path, config: RunConfig, model: Model, save_vocabularies: Callable[[Path], None], origin: Origin
) -> None:
    """A run folder with `model` as its checkpoint `step-0`, whole or not at all.

    `normscope train PATH/config.toml --run PATH` goes on from there. Raises UserError where `path` is not free.
    """
    refuse_occupied(path)
    config = resolve(config, RunFolder(path))
    device = torch.device(config.train.device)
    environment = describe(
        device=device, seed=config.seed, data_fingerprint=origin.data_fingerprint, fast_matmul=False
    ) | {"made_from": origin.made_from}
    with disk_errors(f"writing {path}"), whole_folder(path.resolve()) as temporary:
        folder = RunFolder(temporary)
        folder.vocabularies.mkdir()
        save_vocabularies(folder.vocabularies)
        folder.checkpoints.mkdir()
        folder.write_config(to_toml(config))
        folder.write_environment(environment)
        state = first_state(folder.identity(origin.data_fingerprint))
        save(folder.checkpoints, 0, contents(model, _fresh(model, config)), state)


def _fresh(model: nn.Module, config: RunConfig) -> torch.optim.Optimizer:
    return make_optimizer(model, config.optimizer)
