"""A model looked at without a trace of it: modes, buffers, attributes and random numbers are put back."""

import random
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel


@contextmanager
def looked_at(model: nn.Module) -> Iterator[None]:
    """Evaluation mode without gradients; attention, encoder layers and compiled code step by step; undone at the end.

    Undone is what `left_unchanged` undoes. What a forward pass writes *into* a tensor is for `recorded` to put back.
    """
    fast = torch.backends.mha.get_fastpath_enabled()
    with left_unchanged(model):
        try:
            torch.backends.mha.set_fastpath_enabled(False)
            # Compiled code would run as a whole, and complains of being watched.
            with warnings.catch_warnings(), torch.compiler.set_stance("force_eager"):
                warnings.filterwarnings("ignore", "Using `torch.compile")
                with torch.no_grad(), sdpa_kernel([SDPBackend.MATH]):
                    yield
        finally:
            torch.backends.mha.set_fastpath_enabled(fast)


@contextmanager
def left_unchanged(model: nn.Module, written: Sequence[Tensor] = ()) -> Iterator[None]:
    """Evaluation mode; at the end, after an error too, the model and the random generators are as they were.

    That is every module's mode, attributes and tables of parameters, buffers and modules, and the random state of torch
    (all devices), numpy and `random`.
    written: tensors that the forward pass writes into, whose values are put back as well.
    """
    # A model may replace what it holds while it runs: caches, or tables of positions that grow.
    attributes = [(vars(module), dict(vars(module))) for module in model.modules()]
    tables = [
        (table, dict(table))
        for module in model.modules()
        for table in (module._buffers, module._parameters, module._modules)
    ]
    values = [(tensor, tensor.detach().clone()) for tensor in written]
    with random_state_kept():
        try:
            for module in model.modules():
                module.training = False
            yield
        finally:
            for found, before in [*attributes, *tables]:
                found.clear()
                found.update(before)
            with torch.no_grad():
                for tensor, value in values:
                    tensor.copy_(value)


@contextmanager
def random_state_kept() -> Iterator[None]:
    """The random state of torch (all devices), numpy and `random` at the end is that of the beginning."""
    of_torch, of_numpy, of_python = torch.get_rng_state(), np.random.get_state(), random.getstate()
    of_devices = torch.cuda.get_rng_state_all() if torch.cuda.is_available() else []
    try:
        yield
    finally:
        torch.set_rng_state(of_torch)
        np.random.set_state(of_numpy)
        random.setstate(of_python)
        if of_devices:
            torch.cuda.set_rng_state_all(of_devices)
