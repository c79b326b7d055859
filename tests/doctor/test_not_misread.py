"""Models that are right and were misread, or ended in a traceback: each rebuilt small."""

import torch
from torch import Tensor, nn

import normscope
from doctor.wired import VOCABULARY, WIDTH, Block, Model, Stack, pre, tokens
from normscope.doctor.diagnosis import Diagnosis


def seen(model: nn.Module, *inputs: Tensor, **options: object) -> Diagnosis:
    return normscope.diagnose(model, inputs or tokens(model), advise=False, **options)


def said(found: Diagnosis) -> list[str]:
    return [finding.id for finding in found.findings if finding.severity != "info"]


class TwoTowers(nn.Module):
    """Two encoders whose outputs meet in a matrix of similarities, of which the second view is returned first."""

    def __init__(self) -> None:
        super().__init__()
        self.some, self.others = (Model(lambda: Stack(pre, pre, blocks=3, final=1)) for _ in range(2))

    def forward(self, some: Tensor, others: Tensor) -> tuple[Tensor, Tensor]:
        similar = self.some(some).mean(1) @ self.others(others).mean(1).t()
        return similar.t(), similar


def test_logits_that_do_not_lie_in_a_row():
    torch.manual_seed(0)
    ids = torch.randint(VOCABULARY, (3, 7))
    found = seen(TwoTowers(), ids[:2], ids)
    assert [stack.placement for stack in found.stacks] == ["pre-ln", "pre-ln"]


class Gated(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gate, self.up, self.down = nn.Linear(WIDTH, 32), nn.Linear(WIDTH, 32), nn.Linear(32, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(nn.functional.silu(self.gate(x)) * self.up(x))


def gated_block() -> Block:
    block = Block([pre, pre])
    block.f[1] = Gated()
    return block


def test_a_gated_feed_forward_of_zeros_is_dead_and_breaks_nothing():
    model = Model(lambda: Stack(blocks=[gated_block() for _ in range(4)], final=1))
    with torch.no_grad():
        for linear in (model.encoder.blocks[1].f[1].up, model.encoder.blocks[1].f[1].down):
            linear.weight.zero_()
            linear.bias.zero_()
    found = seen(model)
    assert "dead-sublayer" in said(found)
    (stack,) = found.stacks
    assert stack.predicted is not None
    assert len(stack.predicted.stream_square) == 8


class WithNothing(nn.Module):
    """A stack beside which the same norms run over no tokens at all, as over images that were not given."""

    def __init__(self) -> None:
        super().__init__()
        self.stack, self.last = Stack(pre, pre, blocks=3, final=1), nn.Linear(WIDTH, VOCABULARY)

    def forward(self, x: Tensor) -> Tensor:
        none = x[:0]
        none = none * none.pow(2).mean(-1, keepdim=True).add(1e-6).rsqrt()
        none = none + self.last.weight[:1] * torch.tanh(self.last(none)[..., :1])
        return self.last(torch.cat([self.stack(x), none]))


def test_norms_and_sums_of_no_tokens():
    assert [stack.placement for stack in seen(WithNothing(), torch.randn(2, 5, WIDTH)).stacks] == ["pre-ln"]
