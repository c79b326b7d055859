"""Threads, products and memory of this process, as a run's configuration wants them."""

import torch

from ..model.linear.products import fast_matmul
from ..tasks.run_config import RunConfig
from ..train.device import Precision, keep_freed_memory, prepare_cuda, set_threads


def prepare_machine(config: RunConfig, device: torch.device) -> bool:
    """Set threads, products and memory for this process; True where float32 products go through oneDNN."""
    threads = config.train.threads
    if threads != "auto":
        set_threads(threads)
    if device.type == "cpu":
        keep_freed_memory()
    else:
        prepare_cuda(precision_of(config), deterministic=config.train.deterministic)
    return fast_matmul(device).on


def precision_of(config: RunConfig) -> Precision:
    """What the run computes in; fp32 where a configuration that is not resolved leaves it open."""
    return "fp32" if config.train.precision == "auto" else config.train.precision
