"""A configuration in which nothing is left open: every `auto` replaced, every path absolute."""

import dataclasses

from ..tasks.registry import task_of
from ..train import RunFolder
from ..train.device import available_cores, choose_device, refuse_precision
from .config import Config, load_run_config


def resolve(config: Config, folder: RunFolder) -> Config:
    """The configuration with every `auto` replaced, and paths made absolute.

    By what the run in `folder` began with, where there is one: it goes on as it was on a machine with more cores, too.
    Otherwise by what this machine gives. Raises UserError for a device or a precision that it does not have.
    """
    train = config.train
    if folder.is_run:
        began = load_run_config(folder).train
        automatic = [name for name in ("device", "precision", "threads") if getattr(train, name) == "auto"]
        train = dataclasses.replace(train, **{name: getattr(began, name) for name in automatic})
    device = choose_device(train.device)
    precision, threads = train.precision, train.threads
    if precision == "auto":
        precision = "bf16" if device.type == "cuda" else "fp32"
    refuse_precision(device, precision)
    train = dataclasses.replace(
        train,
        device=str(device),
        precision=precision,
        threads=available_cores() if threads == "auto" else threads,
        input_workers=train.input_workers if train.input_workers != "auto" else (2 if device.type == "cuda" else 0),
    )
    resolved: Config = task_of(config).with_absolute_paths(dataclasses.replace(config, train=train))
    return resolved
