"""A formula of every kind as one graph: what `torch.compile` cannot read would break the graph, or
be an error.
"""

import re
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from normscope.model import Context, Layout, Stack, StackConfig
from normscope.placement import Placement, StackShape, registered
from normscope.placement.reading import read
from placement.expected import expected

pytestmark = pytest.mark.sampled(one_in=9)

SHAPE = StackShape(
    kind="encoder", width=8, ffn_width=8, heads=2, encoder_blocks=1, decoder_blocks=1
)


def asked_for(placement: type[Placement]) -> tuple[object, ...]:
    """The operations that a formula prints, its streams, and whether it has trained or scheduled
    numbers.
    """
    reading = read(placement(SHAPE))
    sublayers = [reading.start, *reading.blocks[0], reading.finish]
    return (
        frozenset(re.findall(r"[a-z]+(?=[a-z_]*\()", expected(placement.name).formula)),
        len(placement.streams),
        any(asked.parameters for asked in sublayers),
        bool(reading.schedules),
    )


KINDS = {asked_for(placement): name for name, placement in reversed(registered().items())}.values()
"""One formula of those that ask for the same: they differ in numbers, and in the order of what they
ask for.
"""


class Sine(nn.Module):
    """In the place of F, whose own graph is not asked for: sin(x), after the formula's functions
    within it.
    """

    def matrices(self) -> list[tuple[str, nn.Module]]:
        return []

    def forward(
        self, x_ND: Tensor, context: Context, inside: dict[str, Callable[[Tensor], Tensor]]
    ) -> Tensor:
        for function in inside.values():
            x_ND = x_ND + function(x_ND)
        return x_ND.sin()


@pytest.mark.sampled(one_in=27)
@pytest.mark.parametrize("name", KINDS)
def test_as_one_graph(name):
    torch.manual_seed(0)
    stack = Stack(registered()[name](SHAPE), StackConfig(), f=lambda site: Sine()).eval()
    context, x_ND = Context(layout=Layout(torch.tensor([3, 2]))), torch.randn(5, 8)
    torch._dynamo.reset()
    compiled = torch.compile(lambda x_ND: stack(x_ND, context), backend="eager", fullgraph=True)
    assert torch.equal(compiled(x_ND), stack(x_ND, context))
    torch._dynamo.reset()
