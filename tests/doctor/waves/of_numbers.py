"""Faults of numbers: curves, first weights, losses, rates and chances."""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.optim.lr_scheduler import CosineAnnealingLR, LambdaLR, LRScheduler

from doctor.waves.case import Case, Fault
from doctor.waves.parts import BLOCKS, HIDDEN, VOCABULARY, WIDTH, Decoder, SwiGLU, tokens


class Twice(SwiGLU):
    """The curve is taken of the curve."""

    def forward(self, x: Tensor) -> Tensor:
        return self.down(functional.silu(functional.silu(self.gate(x))) * self.up(x))


class Positive(SwiGLU):
    """Matrices by torch.rand: all of their entries lie between 0 and a bound."""

    def __init__(self, number: int = 0) -> None:
        super().__init__(number)
        del self.gate, self.up
        self.gate_up = nn.Parameter(0.04 * torch.rand(2 * HIDDEN, WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        gate, up = functional.linear(x, self.gate_up).chunk(2, -1)
        return self.down(functional.silu(gate) * up)


class Centred(Positive):
    def __init__(self, number: int = 0) -> None:
        super().__init__(number)
        self.gate_up.data -= 0.02


class Dropping(Decoder):
    """Dropout on the embedding and on every branch."""

    def __init__(self, chance: float) -> None:
        super().__init__()
        self.dropout = nn.Dropout(chance)

    def hidden(self, ids: Tensor) -> Tensor:
        x, memo = self.dropout(self.embedding(ids)), {}
        for block in self.blocks:
            x = x + self.dropout(block.mixer(block.first_norm(x), memo))
            x = x + self.dropout(block.feed_forward(block.second_norm(x)))
        return self.norm(x)


class Cosines(Decoder):
    """Logits are cosines, times a number."""

    def __init__(self, times: float) -> None:
        super().__init__()
        self.times = times

    def logits(self, hidden: Tensor) -> Tensor:
        rows = functional.normalize(self.head.weight, dim=-1)
        return self.times * functional.linear(functional.normalize(hidden, dim=-1), rows)


def smoothed(each: float) -> Callable[[Tensor], Tensor]:
    """Targets of 0.9 for the right class, and of so much for each of the others."""
    targets = tokens()[:, 1:]
    wanted = torch.full((*targets.shape, VOCABULARY), each)
    wanted.scatter_(-1, targets[..., None], 0.9)
    return lambda logits: -(wanted * logits[:, :-1].log_softmax(-1)).sum(-1).mean()


def viewed(logits: Tensor) -> Tensor:
    """Cross-entropy takes (batch, classes, length): a view makes that shape, and mixes both."""
    targets = tokens()[:, 1:]
    given = logits[:, :-1].reshape(len(logits), VOCABULARY, -1)
    return functional.cross_entropy(given, targets)


def transposed(logits: Tensor) -> Tensor:
    return functional.cross_entropy(logits[:, :-1].mT, tokens()[:, 1:])


def scheduled(make: Callable[[torch.optim.Optimizer], LRScheduler]) -> Callable[[], Case]:
    def case() -> Case:
        model = Decoder()
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.0)
        options = {"optimizer": optimizer, "scheduler": make(optimizer)}
        return Case(model=model, options=options)

    return case


def warmed_up(peak: float) -> Callable[[torch.optim.Optimizer], LRScheduler]:
    return lambda optimizer: LambdaLR(optimizer, lambda step: peak * min(1.0, (step + 1) / 200))


def by_depth(decay: float) -> Case:
    """Each block's rate is that of the next one times a number, as fine-tuning has them."""
    model = Decoder()
    below = [model.embedding, *model.blocks]
    groups = [
        {"params": [*one.parameters()], "lr": 1e-3 * decay ** (BLOCKS - number)}
        for number, one in enumerate(below)
    ]
    groups.append({"params": [*model.norm.parameters(), *model.head.parameters()], "lr": 1e-3})
    return Case(model=model, options={"optimizer": torch.optim.AdamW(groups, weight_decay=0.0)})


def rates_fall() -> Case:
    """The decay is counted from the wrong end: the embedding moves most, the last block least."""
    model = Decoder()
    parts = [model.embedding, *model.blocks, nn.ModuleList([model.norm, model.head])]
    groups = [
        {"params": [*one.parameters()], "lr": 1e-3 * 0.65**number}
        for number, one in enumerate(parts)
    ]
    return Case(model=model, options={"optimizer": torch.optim.AdamW(groups, weight_decay=0.0)})


def fed_forward(part: Callable[[int], nn.Module]) -> Case:
    return Case(model=Decoder(feed_forward=part))


FAULTS = [
    Fault(
        title="a curve of a curve",
        bug=lambda: fed_forward(Twice),
        twin=lambda: fed_forward(SwiGLU),
        says=r"curve|silu|twice",
    ),
    Fault(
        title="matrices between 0 and a bound",
        bug=lambda: fed_forward(Positive),
        twin=lambda: fed_forward(Centred),
        says=r"gate_up.*(positive|mean|sign|above 0)|(positive|mean|sign).*gate_up",
    ),
    Fault(
        title="the share to keep is given for dropout",
        bug=lambda: Case(model=Dropping(0.9)),
        twin=lambda: Case(model=Dropping(0.1)),
        says=r"dropout",
    ),
    Fault(
        title="cosines are the logits",
        bug=lambda: Case(model=Cosines(1.0)),
        twin=lambda: Case(model=Cosines(10.0)),
        says=r"logits",
    ),
    Fault(
        title="smoothing of 0.1 for each class",
        bug=lambda: Case(model=Decoder(), loss=smoothed(0.1)),
        twin=lambda: Case(model=Decoder(), loss=smoothed(0.1 / (VOCABULARY - 1))),
        says=r"smooth|sum to|target",
    ),
    Fault(
        title="logits are viewed for the loss, and not transposed",
        bug=lambda: Case(model=Decoder(), loss=viewed),
        twin=lambda: Case(model=Decoder(), loss=transposed),
        says=r"(loss|softmax).*(dimension|classes|view|transpos)|transpos",
    ),
    Fault(
        title="a cosine that counts epochs",
        bug=scheduled(lambda optimizer: CosineAnnealingLR(optimizer, 10)),
        twin=scheduled(lambda optimizer: CosineAnnealingLR(optimizer, 10_000)),
        says=r"schedule|rate",
    ),
    Fault(
        title="a schedule's factor is a rate",
        bug=scheduled(warmed_up(1e-3)),
        twin=scheduled(warmed_up(1.0)),
        says=r"rate|schedule",
    ),
    Fault(
        title="rates that fall with depth",
        bug=rates_fall,
        twin=lambda: by_depth(0.65),
        says=r"rate.*(block|depth)|(block|depth).*rate",
    ),
]
