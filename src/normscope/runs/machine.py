"""The needs of a training: threads, precision and memory by part, and the arithmetic of an update.

A model of which it is asked before the training is begun is built without memory for its weights.
What its passes keep and compute is measured on a slice of it, of one and of two blocks and few
sequences, and is carried on to all of them: both grow in a straight line.
"""

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any

import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode, sdpa_backward_flop_count, sdpa_flop_count

from ..model.linear import fast_matmul
from ..optim import make_optimizer
from ..tasks.registry import task_of
from ..tasks.run_config import RunConfig
from ..train.device import (
    Precision,
    autocast,
    give_back_freed_memory,
    keep_freed_memory,
    prepare_cuda,
)


def prepare_machine(config: RunConfig, device: torch.device, *, in_parts: bool = False) -> bool:
    """Set threads, products and memory for this process; True where float32 products go through
    oneDNN.

    in_parts: whether it holds a part of the model.
    """
    threads = config.train.threads
    if threads != "auto":
        torch.set_num_threads(threads)  # results may differ in the last bit between numbers
    if device.type == "cpu" and in_parts:
        give_back_freed_memory()
    elif device.type == "cpu":
        keep_freed_memory()
    else:
        prepare_cuda(precision_of(config), deterministic=config.train.deterministic)
    return fast_matmul(device).on


def precision_of(config: RunConfig) -> Precision:
    """Returns the precision of the run; fp32 where a configuration that is not resolved leaves it
    open.
    """
    return "fp32" if config.train.precision == "auto" else config.train.precision


SLICE_TOKENS = 1024
"""Tokens of the batch that is measured on, or one sequence where that has more."""
_Shape = tuple[int, ...]


def _added_product(total: _Shape, a: _Shape, b: _Shape, **others: Any) -> int:
    return 2 * a[0] * a[1] * b[1]


def _attention(query: _Shape, key: _Shape, value: _Shape, *others: Any, **more: Any) -> int:
    count: int = sdpa_flop_count(query, key, value)  # type: ignore[no-untyped-call]
    return count


def _attention_backward(
    gradient: _Shape, query: _Shape, key: _Shape, value: _Shape, *others: Any, **more: Any
) -> int:
    count: int = sdpa_backward_flop_count(gradient, query, key, value)  # type: ignore[no-untyped-call]
    return count


_COUNTED = {
    torch.ops.aten.addmm_: _added_product,
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu: _attention,
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward: _attention_backward,
}
"""Products on a CPU that torch's counter does not know, by the shapes of what they are given."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Bytes, and the arithmetic of an update."""

    parameters: int
    weights: int
    gradients: int
    """Several where those of an update's batches are added."""
    optimizer: int
    activations: int
    """The bytes that the forward pass of one batch keeps for the backward pass."""
    flops_per_update: float
    """Floating-point operations of all batches of an update, forward and backward; a product and a
    sum are two.
    """

    @property
    def sum(self) -> int:
        return self.weights + self.gradients + self.optimizer + self.activations


def plan(config: RunConfig, opened: Any = None) -> Plan:
    """Returns what a training takes.

    opened: the corpus of the configuration, where it is open already. Raises UserError for a
    configuration or a corpus that cannot be trained.
    """
    task = task_of(config)
    corpus = task.open(config) if opened is None else opened
    codec = corpus.codec
    device = torch.device("cpu")
    prepare_machine(config, device)
    with torch.device("meta"):
        model = task.build(config, codec)
    for parameter in model.parameters():
        parameter.grad = torch.empty_like(parameter)
    groups = task.groups(config)
    optimizer = make_optimizer(model, config.optimizer, None if groups is None else groups(model))
    for group in optimizer.param_groups:
        group["fused"] = False  # a kernel of real devices; its state is the same
    optimizer.step()
    weights = _bytes(model.parameters())
    states = (
        t for state in optimizer.state.values() for name, t in state.items() if name != "step"
    )
    activations, flops = _of_a_pass(config, corpus)
    return Plan(
        parameters=sum(p.numel() for p in model.parameters()),
        weights=weights,
        gradients=weights * gradients_at_once(config.train.accumulation),
        optimizer=_bytes(t for t in states if isinstance(t, Tensor)),
        activations=round(activations),
        flops_per_update=flops * config.train.accumulation,
    )


def flops_per_update(config: RunConfig, opened: Any = None) -> float:
    """Returns the floating-point operations of an update, as `plan` does, without the model as a
    whole: a thousand blocks take minutes to build.

    opened: the corpus of the configuration, where it is open already. Raises UserError for a
    configuration or a corpus that cannot be trained.
    """
    corpus = task_of(config).open(config) if opened is None else opened
    prepare_machine(config, torch.device("cpu"))
    return _of_a_pass(config, corpus)[1] * config.train.accumulation


def _of_a_pass(config: RunConfig, corpus: Any) -> tuple[float, float]:
    """Returns the bytes that a forward pass keeps, and the operations of it and its gradients."""
    task = task_of(config)
    device = torch.device("cpu")
    activations, flops = _carried_on(
        lambda one: _measured(task, one, corpus, corpus.codec, device), task, config, corpus, device
    )
    return activations, flops


def counting() -> FlopCounterMode:
    """While it is entered, counts the floating-point operations of products, forward and backward,
    on any device.
    """
    return FlopCounterMode(display=False, custom_mapping=_COUNTED)


def gradients_at_once(batches: int) -> int:
    """Gradients of batches, and sums of them, that are held at the worst moment of an update
    (`TreeSum`).
    """
    return batches.bit_length()


def blocks_of(config: Any) -> dict[str, int]:
    """Returns the settings of a model that count its blocks; a user's own model has none."""
    names = [field.name for field in fields(config.model) if field.name.endswith("blocks")]
    return {name: getattr(config.model, name) for name in names}


def with_blocks(config: Any, counts: dict[str, int]) -> Any:
    """Returns the configuration of the same model with so many blocks."""
    return replace(config, model=replace(config.model, **counts))


def _carried_on(
    measure: Callable[[Any], tuple[float, float]],
    task: Any,
    config: Any,
    corpus: Any,
    device: torch.device,
) -> list[float]:
    """Returns the bytes kept and operations of one batch of the whole model, from those of
    slices.
    """
    few = task.in_smaller_batches(config, SLICE_TOKENS)
    tokens = [task.objective(one, corpus, device) for one in (config, few)]
    whole, part = (objective.target_tokens(objective.micro_batch(0)) for objective in tokens)
    counts = blocks_of(config)
    first = measure(with_blocks(few, dict.fromkeys(counts, 1)))
    found = list(first)
    for name, count in counts.items():
        more = measure(with_blocks(few, {**dict.fromkeys(counts, 1), name: 2}))
        for number in range(2):
            found[number] += (count - 1) * (more[number] - first[number])
    return [number * whole / part for number in found]


def _measured(
    task: Any, config: Any, corpus: Any, codec: Any, device: torch.device
) -> tuple[float, float]:
    """Bytes that the forward pass of the first batch keeps, and operations of both passes."""
    model = task.build(config, codec)
    objective = task.objective(config, corpus, device)
    batch = objective.micro_batch(0)
    own = {
        tensor.untyped_storage().data_ptr() for tensor in (*model.parameters(), *model.buffers())
    }
    kept: dict[int, int] = {}

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    keeping = torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor)
    with counting() as counted:
        with keeping, autocast(device, precision_of(config)):
            loss, _ = objective.loss_sums(model, batch)
        loss.backward()
    return sum(kept.values()), counted.get_total_flops()


def _bytes(tensors: Any) -> int:
    return sum(tensor.numel() * tensor.itemsize for tensor in tensors)
