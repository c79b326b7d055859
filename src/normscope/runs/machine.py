"""What a run takes of the machine: threads, precision, memory, and its share of a model that is sharded."""

from collections.abc import Iterator

import torch
from torch import nn

from ..errors import UserError
from ..model import Stack, unit_vectors
from ..model.linear import fast_matmul
from ..optim.groups import roles
from ..tasks.run_config import RunConfig
from ..train.device import Precision, keep_freed_memory, prepare_cuda, set_threads
from ..train.replicas import Group
from ..train.replicas.group import Replicas
from ..train.replicas.shards import shard

SHARED_OUT = ("embedding", "matrix", "head")
"""Roles of what is large. An optimiser has a group for each role, so that each holds parts or whole tensors alone."""


def sharded(model: nn.Module, config: RunConfig, group: Group) -> None:
    """Have each process of the group keep its part of the model's matrices; a process alone keeps all.

    Raises UserError for a model or a training of which that is not known to work.
    """
    for problem in _problems(model, config, group):
        raise UserError(f"train.shard: {problem}")
    if isinstance(group, Replicas):
        of = roles(model)
        whole = [parameter for name, parameter in model.named_parameters() if of[name] not in SHARED_OUT]
        blocks = [block for stack in model.modules() if isinstance(stack, Stack) for block in stack.blocks]
        shard(model, blocks, whole, group)


def _problems(model: nn.Module, config: RunConfig, group: Group) -> Iterator[str]:
    train, title = config.train, config.model.placement
    if train.reduction != "fast":
        yield 'the parts of a gradient are added by the backend in its own order; set train.reduction = "fast"'
    if train.accumulation % group.size:
        yield (
            f"every process takes part in every batch's sums, so train.accumulation={train.accumulation} must be a "
            f"multiple of the {group.size} processes"
        )
    if unit_vectors(model):
        yield f"the placement {title} keeps rows and columns of matrices at length 1, which needs them whole"
    if any(isinstance(stack, Stack) and stack.placement.is_profiled() for stack in model.modules()):
        yield f"the placement {title} takes initial values from a first batch, which is not done with parts of a model"
    if config.optimizer.name == "muon":
        yield "muon makes the whole matrix of a step orthogonal; choose another optimizer.name"
    if train.clip_update_rms < float("inf"):
        yield "train.clip_update_rms measures whole steps; leave it out"
    if config.adaptive.controller != "none":
        yield "adaptive.controller measures the model in one process; leave it out"
    if train.monitor_every:
        yield "train.monitor_every measures the model in one process; leave it out"
    if getattr(getattr(config, "translation", None), "bleu_sentences", 0):
        yield "translation.bleu_sentences decodes in one process; leave it out, and evaluate the run afterwards"
    if train.compile:
        yield "train.compile is not known to work with it; leave one of them out"


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
