"""Each process holds a part of every parameter, of its gradient and of the optimiser's state, by
torch's `fully_shard`: for models larger than one device.

A block's weights are put together before it runs and taken apart behind it; what is in no block is
together from the beginning of a pass to its end. Numbers without a dimension, which cannot be
parted, are whole everywhere.
"""

import copy
import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from ...errors import UserError
from ..device import Precision
from .group import ALONE, Group, Several, SharedError
from .parts import is_part, local_square, own_part, whole
from .sharing import Calling, Sharing, Work, refuse_running_statistics

_Result = TypeVar("_Result")


class Shards(Sharing):
    """A model of which every process holds its part."""

    in_step = True

    def __init__(
        self, model: nn.Module, group: Several, *, precision: Precision, keeps_whole: bool
    ) -> None:
        """keeps_whole: whether the first process is to have a second model, which `whole` fills.

        Raises UserError for a model that cannot be sharded.
        """
        super().__init__(model, group)
        refuse_running_statistics(model, "shards")
        self._twin = _without_memory(model) if keeps_whole and group.first else None
        self._scalars = [p for p in model.parameters() if p.ndim == 0]
        self._calling = _sharded(model, set(self._scalars), group, precision)

    def passing(self, work: Work[_Result]) -> _Result:
        try:
            # Torch warns of views, which a loss of two sums is.
            found: _Result = self._calling(lambda model: tree_map(_apart, work(model)))
        except (RuntimeError, UserError) as error:
            if "mixed torch.Tensor and DTensor" not in str(error):
                raise
            raise SharedError(
                "train.parallel = shards: this model reads weights of a block outside the block's "
                "own call, where they are in parts; train it with train.parallel = replicas"
            ) from error
        return found

    def finish(self) -> None:
        """Sums the gradients of numbers without a dimension, which torch does not."""
        reached = [float(p.grad is not None) for p in self._scalars]
        values = [0.0 if p.grad is None else float(p.grad) for p in self._scalars]
        if not values:
            return
        summed = self.group.total([*reached, *values])
        for place, parameter in enumerate(self._scalars):
            if summed[place]:
                number = summed[len(values) + place]
                parameter.grad = torch.full_like(parameter, number)

    def validated(self, work: Work[_Result]) -> _Result:
        found = self.passing(work)
        # Without a backward pass, what is in no block would stay together.
        for module in self._calling.modules():
            if hasattr(module, "reshard"):
                module.reshard()  # type: ignore[operator]
        return found

    @property
    def validating(self) -> Group:
        return ALONE

    @property
    def measured_model(self) -> nn.Module:
        return self.model if self._twin is None else self._twin

    @contextmanager
    def whole(self) -> Iterator[nn.Module]:
        twins = {} if self._twin is None else dict(self._twin.named_parameters())
        for name, parameter in self.model.named_parameters():
            put_together = whole(parameter.detach())
            if name in twins:
                twins[name].data = put_together
        if self._twin is not None:
            buffers = dict(self.model.named_buffers())
            for name, buffer in self._twin.named_buffers():
                buffer.copy_(buffers[name])
        try:
            yield self.measured_model
        finally:
            for parameter in twins.values():
                parameter.data = parameter.data.new_empty(0)
                parameter.grad = None

    def gradient_norms(self) -> dict[str, float]:
        """Returns the norms of gradients, from squares of our own parts that one call adds over the
        processes.
        """
        gradients = {n: p.grad for n, p in self.model.named_parameters() if p.grad is not None}
        squares = {name: local_square([gradient]) for name, gradient in gradients.items()}
        parted = [name for name, gradient in gradients.items() if is_part(gradient)]
        summed = self.group.total([squares[name] for name in parted])
        squares |= dict(zip(parted, summed, strict=True))
        return {name: math.sqrt(square) for name, square in squares.items()}

    def gradient_norm(self) -> Tensor:
        gradients = self._gradients()
        (parted,) = self.group.total([local_square(g for g in gradients if is_part(g))])
        plain = local_square(g for g in gradients if not is_part(g))
        return torch.tensor(math.sqrt(parted + plain), dtype=torch.float64)

    def clip(self, norm: Tensor, largest: float) -> None:
        # As torch's clip_grads_with_norm_ has it.
        share = min(1.0, largest / (float(norm) + 1e-6))
        torch._foreach_mul_([own_part(gradient) for gradient in self._gradients()], share)


def _apart(value: Any) -> Any:
    return value.clone() if isinstance(value, Tensor) else value


def _sharded(
    model: nn.Module, scalars: set[nn.Parameter], group: Several, precision: Precision
) -> Calling:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard

    mesh = init_device_mesh(next(model.parameters()).device.type, (group.size,))
    # Weights travel as products take them; sums of gradients, and the stream, are float32.
    mixed = MixedPrecisionPolicy(
        param_dtype=torch.bfloat16, reduce_dtype=torch.float32, cast_forward_inputs=False
    )
    exact = MixedPrecisionPolicy(cast_forward_inputs=False)
    policy = mixed if precision == "bf16" else exact
    blocks = blocks_of(model)
    outside = _outside(model, blocks)
    for block in blocks:
        kept = (scalars | outside) & set(block.parameters())
        fully_shard(block, mesh=mesh, mp_policy=policy, ignored_params=kept)
    calling = Calling(model)
    fully_shard(calling, mesh=mesh, mp_policy=exact, ignored_params=scalars)
    for module in calling.modules():
        if isinstance(module, FSDPModule):
            # The loss is divided by the tokens of all; and gloo takes its mean for a sum.
            module.set_gradient_divide_factor(1.0)
            module.set_force_sum_reduction_for_comms(True)
    return calling


def blocks_of(model: nn.Module) -> list[nn.Module]:
    """Returns the modules that stand in a list of several of one class, the outermost lists
    alone.
    """
    found = dict[nn.Module, None]()
    inner = set[nn.Module]()
    for module in model.modules():
        if module in inner or not isinstance(module, nn.ModuleList | nn.Sequential):
            continue
        several = list(module)
        alike = len({type(one) for one in several}) == 1 and len(several) > 1
        if alike and all(any(True for _ in one.parameters()) for one in several):
            found.update(dict.fromkeys(several))
            inner.update(below for one in several for below in one.modules())
    return list(found)


def _outside(model: nn.Module, blocks: list[nn.Module]) -> set[nn.Parameter]:
    """Returns the parameters that a second block has too, or what is in none: they belong to the
    whole.
    """
    inside = [set(block.parameters()) for block in blocks]
    within = {module for block in blocks for module in block.modules()}
    shared = {
        parameter
        for module in model.modules()
        if module not in within
        for parameter in module.parameters(recurse=False)
    }
    seen = set[nn.Parameter]()
    for parameters in inside:
        shared |= seen & parameters
        seen |= parameters
    return shared


def _without_memory(model: nn.Module) -> nn.Module:
    """Returns a second model of the same kind, whose parameters take no memory until they are put
    there.
    """
    try:
        twin = copy.deepcopy(model)
    except Exception as error:
        raise UserError(
            "train.parallel = shards: measuring or decoding takes a copy of the model, which "
            f"cannot be made ({error}); leave out train.monitor_every and BLEU, or use replicas"
        ) from error
    for parameter in twin.parameters():
        parameter.data = parameter.data.new_empty(0)
    return twin
