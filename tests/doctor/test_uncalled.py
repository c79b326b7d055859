"""Blocks that are built and never called: named, unless they may wait for inputs that were not
given.
"""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import normscope
from doctor.wired import VOCABULARY, WIDTH, Model, Stack, pre
from normscope.doctor.result import Finding

IDS = torch.randint(4, VOCABULARY, (2, 7), generator=torch.Generator().manual_seed(0))
OTHERS = torch.randint(4, VOCABULARY, (2, 5), generator=torch.Generator().manual_seed(1))


class Translator(nn.Module):
    """An encoder-decoder, whose encoder may be forgotten."""

    def __init__(self, *, called: bool) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.called = called
        self.embedding, self.head = nn.Embedding(VOCABULARY, WIDTH), nn.Linear(WIDTH, VOCABULARY)
        self.encoder = Stack(pre, pre, blocks=3, final=1)
        self.decoder = Stack(pre, pre, pre, blocks=3, final=1)

    def forward(self, source: Tensor, target: Tensor, mask: Tensor | None = None) -> Tensor:
        memory = self.embedding(source)
        if self.called:
            memory = self.encoder(memory)
        return self.head(self.decoder(self.embedding(target), memory))


class Copied(nn.Module):
    """torch's encoder, which copies the layer that it is given; kept: whether that stays."""

    def __init__(self, *, kept: bool) -> None:
        super().__init__()
        torch.manual_seed(0)
        layer = nn.TransformerEncoderLayer(WIDTH, 2, 32, dropout=0.0, batch_first=True)
        if kept:
            self.template = layer
        self.embedding, self.head = nn.Embedding(VOCABULARY, WIDTH), nn.Linear(WIDTH, VOCABULARY)
        self.encoder = nn.TransformerEncoder(layer, 3, enable_nested_tensor=False)
        for weight in self.encoder.parameters():
            if weight.ndim > 1:
                nn.init.xavier_uniform_(weight)

    def forward(self, source: Tensor) -> Tensor:
        return self.head(self.encoder(self.embedding(source)))


class TwoOfThree(nn.Module):
    """Torch's own Transformer, of which the decoder alone is called."""

    def __init__(self, *, called: bool) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.called = called
        self.embedding, self.head = nn.Embedding(VOCABULARY, WIDTH), nn.Linear(WIDTH, VOCABULARY)
        self.both = nn.Transformer(WIDTH, 2, 2, 2, 32, dropout=0.0, batch_first=True)

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        x, y = self.embedding(source), self.embedding(target)
        return self.head(self.both(x, y) if self.called else self.both.decoder(y, x))


def unused(model: nn.Module, *inputs: Tensor) -> list[Finding]:
    found = normscope.diagnose(model, inputs, advise=False).findings
    return [one for one in found if one.id == "unused-parameters"]


@pytest.mark.parametrize(
    ("bug", "right", "inputs", "where"),
    [
        (
            lambda: Translator(called=False),
            lambda: Translator(called=True),
            (IDS, OTHERS),
            [f"encoder.blocks.{n}" for n in range(3)],
        ),
        (lambda: Copied(kept=True), lambda: Copied(kept=False), (IDS,), ["template"]),
        (
            lambda: TwoOfThree(called=False),
            lambda: TwoOfThree(called=True),
            (IDS, OTHERS),
            [f"both.encoder.layers.{n}" for n in range(2)],
        ),
    ],
)
def test_blocks_that_nothing_calls_are_named(
    bug: Callable[[], nn.Module],
    right: Callable[[], nn.Module],
    inputs: tuple[Tensor, ...],
    where: list[str],
):
    (finding,) = unused(bug(), *inputs)
    assert finding.severity == "warning"
    assert finding.where.split(", ") == where
    assert "are built and never called" in finding.message
    assert unused(right(), *inputs) == []


class Waiting(Model):
    """A tower that waits for images, of which a batch has none."""

    def __init__(self) -> None:
        super().__init__(lambda: Stack(pre, pre, final=1))
        self.tower = Stack(pre, pre, final=1)

    def forward(self, source: Tensor, images: Tensor | None = None) -> Tensor:
        seen = super().forward(source)
        return seen if images is None else seen + self.projection(self.tower(images))


def test_what_may_wait_for_inputs_that_were_not_given_is_left_alone():
    assert unused(Waiting(), IDS) == []
    assert unused(Waiting(), IDS, torch.randn(2, 7, WIDTH)) == []
    # A function may do anything with the model.
    model = Translator(called=False)
    found = normscope.diagnose(model, lambda of: of(IDS, OTHERS), advise=False)
    assert [one.id for one in found.findings if one.severity != "info"] == []
