"""How the work of identification grows with depth, counted in calls, where every block reads all
that came before.
"""

import sys
from collections.abc import Callable
from types import FrameType

import pytest
import torch
from torch import Tensor, nn

from doctor.several_streams import SeveralStreams, by_matmul, ids
from doctor.test_wirings import WIDTH, Wired
from normscope.doctor import find_stacks


class Dense(Wired):
    """DenseFormer: after every block a weighted sum of the embedding and all blocks (Pagliardini et
    al. 2024).
    """

    def forward(self, x: Tensor) -> Tensor:
        states = [x]
        for number in range(0, len(self.f), 2):
            x = states[-1]
            for f, norm in zip(
                self.f[number : number + 2], self.norms[number : number + 2], strict=True
            ):
                x = x + f(norm(x))
            total = 0.1 * states[0]
            for state in [*states[1:], x]:
                total = total + 0.9 * state
            states.append(total)
        return self.final(states[-1])


class TwoStreams(Wired):
    """Hyper-connections of rate 2 (Zhu et al. 2024): every sub-layer reads a mean of both
    streams.
    """

    def forward(self, x: Tensor) -> Tensor:
        one, two = x, x
        for f, norm in zip(self.f, self.norms, strict=True):
            branch = f(norm(0.5 * one + 0.5 * two))
            one, two = 0.9 * one + 0.1 * two + branch, 0.1 * one + 0.9 * two + branch
        return self.final(one + two)


def calls(run: Callable[[], object]) -> int:
    """How many functions of the package are called."""
    counted = 0

    def count(frame: FrameType, event: str, _: object) -> None:
        nonlocal counted
        counted += event == "call" and "normscope" in frame.f_code.co_filename

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        run()
    finally:
        sys.setprofile(before)
    return counted


@pytest.mark.sampled(one_in=2)
@pytest.mark.parametrize("wiring", [Dense, TwoStreams])
def test_twice_the_blocks_are_at_most_four_times_the_work(wiring: type[nn.Module]):
    """Where each way through the sums was gone on its own, two blocks more took three to four times
    as long.
    """
    work = []
    for blocks in (4, 8):
        model, x = wiring(lambda: None, blocks=blocks, final=True), torch.randn(2, 5, WIDTH)
        find_stacks(model, x)  # what is remembered of formulas is not counted
        work.append(calls(lambda model=model, x=x: find_stacks(model, x)))
    assert work[1] <= 4 * work[0]


@pytest.mark.thorough
def test_streams_in_one_tensor_too():
    """Of mHC: 2.0 times the calls for twice the blocks up to 16, and no more than that in seconds
    up to 64.
    """
    work = []
    for blocks in (2, 4):
        model, given = SeveralStreams(by_matmul, blocks=blocks), ids()
        find_stacks(model, given)  # what is remembered of formulas is not counted
        work.append(calls(lambda model=model, given=given: find_stacks(model, given)))
    assert work[1] <= 4 * work[0]
