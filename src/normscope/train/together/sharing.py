"""The division of a model among the processes of a training: one holds it, or each a replica, or
each a part.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from torch import Tensor, nn

from ...errors import UserError
from ...measure import gradient_norms
from .group import ALONE, Group, Several

_Result = TypeVar("_Result")
Work = Callable[[nn.Module], _Result]
"""The work on a model: a forward pass, or several."""


class Sharing:
    """One process holds the model and does all passes; `Replicas` and `Shards` share them out."""

    in_step = False
    """True where a pass needs all processes, so that each makes as many as any other."""
    factor = 1.0
    """The factor of a loss, with which gradients are summed over processes."""

    def __init__(self, model: nn.Module, group: Group = ALONE) -> None:
        self.model, self.group = model, group

    def passing(self, work: Work[_Result]) -> _Result:
        """Returns what the work gives, whose gradients may be wanted."""
        return work(self.model)

    @contextmanager
    def before_last_pass(self) -> Iterator[None]:
        """Holds for every pass of an update but the last."""
        yield

    def finish(self) -> None:
        """Makes the gradients of an update those of all processes."""

    def validated(self, work: Work[_Result]) -> _Result:
        """Returns what a validation gives; its objective asks `group` for the part that is ours."""
        return work(self.model)

    @property
    def validating(self) -> Group:
        """The group that shares out the batches of a validation."""
        return self.group

    @contextmanager
    def whole(self) -> Iterator[nn.Module]:
        """The model with all its weights, for the first process to measure or decode with."""
        yield self.model

    @property
    def measured_model(self) -> nn.Module:
        """The module that `whole` gives."""
        return self.model

    def gradient_norms(self) -> dict[str, float]:
        """Returns the norm of each parameter's gradient, by name; the same in every process."""
        return gradient_norms(self.model)

    def gradient_norm(self) -> Tensor:
        """Returns the norm of all gradients together, a scalar; the same in every process."""
        return nn.utils.get_total_norm(self._gradients())

    def clip(self, norm: Tensor, largest: float) -> None:
        """Scales the gradients, whose norm is given, down to the largest norm."""
        nn.utils.clip_grads_with_norm_(self.model.parameters(), largest, norm)

    def _gradients(self) -> list[Tensor]:
        return [p.grad for p in self.model.parameters() if p.grad is not None]


class Calling(nn.Module):
    """A model around which torch's engines see one forward pass, whatever is done with the model.

    A loss reads weights outside the model's own `forward`, such as those of a tied output.
    """

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, work: Work[Any]) -> Any:
        """Returns what the work gives."""
        return work(self.model)


def refuse_running_statistics(model: nn.Module, how: str) -> None:
    """Raise UserError for a model whose forward passes depend on the batches that a process has
    seen.
    """
    for name, module in model.named_modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm) and module.track_running_stats:
            raise UserError(
                f"train.parallel = {how}: {name or 'the model'} keeps running statistics of the "
                "batches, of which each process sees its own alone; train it in one process, or "
                "without track_running_stats"
            )


class Replicas(Sharing):
    """A model of which every process holds a whole copy, by torch's DistributedDataParallel."""

    def __init__(self, model: nn.Module, group: Several) -> None:
        """Wraps the model. Raises UserError for a model that would not be the same in every
        process.
        """
        super().__init__(model, group)
        refuse_running_statistics(model, "replicas")
        from torch.nn.parallel import DistributedDataParallel

        # Its mean over processes becomes a sum.
        self.factor = float(group.size)
        # Weights and buffers are a function of the seed, or of the checkpoint, in each of them. A
        # placement may have parameters that no pass reaches.
        self._calling = DistributedDataParallel(Calling(model), find_unused_parameters=True)

    def passing(self, work: Work[_Result]) -> _Result:
        found: _Result = self._calling(work)
        return found

    @contextmanager
    def before_last_pass(self) -> Iterator[None]:
        with self._calling.no_sync():
            yield
