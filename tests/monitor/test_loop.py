"""What a watched update shows: the call of the model, and gradients before anything is done to
them.
"""

from contextlib import closing

import pytest
import torch
from torch import nn

from normscope.monitor.loop import _UpdateRecorder


class Wrapper(nn.Module):
    """A module as a training framework has it: its own `forward` is never called."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(5, 4, sparse=True)
        self.net = nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 2))
        self.unused = nn.Linear(2, 2)
        self.frozen = nn.Linear(2, 2).requires_grad_(False)

    def loss(self, x_ND: torch.Tensor, ids_N: torch.Tensor) -> torch.Tensor:
        return (self.frozen(self.net(x_ND)) ** 2).sum() + (self.table(ids_N) ** 3).sum()


def batches(count: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
    generator = torch.Generator().manual_seed(3)
    return [
        (torch.randn(6, 4, generator=generator), torch.randint(0, 5, (7,), generator=generator))
        for _ in range(count)
    ]


def test_norms_are_of_the_accumulated_gradient_before_it_is_clipped():
    torch.manual_seed(0)
    wrapper = Wrapper()
    several = batches(3)
    with closing(_UpdateRecorder(wrapper)) as watch:
        for batch in several:
            wrapper.loss(*batch).backward()
        nn.utils.clip_grad_norm_(wrapper.net.parameters(), 1e-3)
    wanted = torch.autograd.grad(
        sum(wrapper.loss(*batch) for batch in several),
        [wrapper.table.weight, *wrapper.net.parameters()],
    )
    found = watch.gradient_norms(wrapper)
    assert list(found) == [
        "table.weight",
        "net.0.weight",
        "net.0.bias",
        "net.2.weight",
        "net.2.bias",
    ]
    for norm, gradient in zip(found.values(), wanted, strict=True):
        assert norm == pytest.approx(float(gradient.to_dense().norm()), rel=1e-5)
        assert norm > 1e-2
    assert watch.gradient_norms(wrapper.net).keys() == {"0.weight", "0.bias", "2.weight", "2.bias"}


def test_the_first_outermost_call_is_seen_with_its_arguments():
    wrapper = Wrapper()
    (first, ids), (second, _) = batches(2)
    with closing(_UpdateRecorder(wrapper)) as watch:
        wrapper.loss(first, ids).backward()
        wrapper.loss(second, ids).backward()
    assert watch.called is not None
    module, args, kwargs = watch.called
    assert module is wrapper.net
    assert len(args) == 1
    assert args[0] is first
    assert kwargs == {}


def test_no_hook_stays_after_an_error():
    wrapper = Wrapper()
    with pytest.raises(RuntimeError, match="mat1"), closing(_UpdateRecorder(wrapper)):
        wrapper.loss(torch.zeros(1, 9), torch.zeros(1, dtype=torch.long))
    assert not any(module._forward_pre_hooks for module in wrapper.modules())
    assert not any(parameter._post_accumulate_grad_hooks for parameter in wrapper.parameters())
