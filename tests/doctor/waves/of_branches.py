"""Faults of feed-forwards, experts, scans, several streams, and blocks under a condition."""

import copy
import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from doctor.waves.case import Case, Fault
from doctor.waves.parts import (
    BLOCKS,
    HIDDEN,
    WIDTH,
    Attention,
    Block,
    Decoder,
    Experts,
    Made,
    Scan,
    SwiGLU,
    drawn,
)


def with_feed_forward(feed_forward: Made) -> Case:
    return Case(model=Decoder(feed_forward=feed_forward))


def of(title: str, bug: Made, says: str, twin: Made) -> Fault:
    return Fault(
        title=title,
        bug=lambda: with_feed_forward(bug),
        twin=lambda: with_feed_forward(twin),
        says=says,
    )


class GateTwice(SwiGLU):
    """`up` is never called."""

    def forward(self, x: Tensor) -> Tensor:
        return self.down(functional.silu(self.gate(x)) * self.gate(x))


class Clamped(SwiGLU):
    """Gate and up are cut off, as in gpt-oss at 7."""

    LIMIT = 7.0

    def forward(self, x: Tensor) -> Tensor:
        gate = self.gate(x).clamp(max=self.LIMIT)
        return self.down(functional.silu(gate) * self.up(x).clamp(-self.LIMIT, self.LIMIT))


class ClampedLow(Clamped):
    """A limit of 0.007: nearly every unit is cut off."""

    LIMIT = 0.007


class OverUnits(SwiGLU):
    """A softmax over the 128 hidden units for the curve: branches start 100 times smaller."""

    def forward(self, x: Tensor) -> Tensor:
        return self.down(self.gate(x).softmax(-1) * self.up(x))


class Unweighed(Experts):
    """The chosen experts are added as they are: the router never gets a gradient."""

    def weighed(self, scores: Tensor, chosen: Tensor) -> Tensor:
        return torch.full_like(scores.gather(-1, chosen), 1 / self.TOP)


class OverTokens(Experts):
    """The router's softmax is taken over the tokens of a sequence."""

    def scores(self, x: Tensor) -> Tensor:
        return self.router(x).softmax(1)


class Favoured(Experts):
    """A bias of the router's, for balance, that starts at 10 for two of four."""

    def __init__(self, number: int = 0) -> None:
        super().__init__(number)
        self.register_buffer("balance", torch.tensor([10.0, 10.0, 0.0, 0.0]))

    def chosen(self, scores: Tensor) -> Tensor:
        return (scores + self.balance).topk(self.TOP, -1).indices


class Balanced(Favoured):
    def __init__(self, number: int = 0) -> None:
        super().__init__(number)
        self.balance.zero_()


class Stacked(nn.Module):
    """Experts as three tensors, all four added with the router's weights."""

    COUNT = 4

    def __init__(self, number: int = 0) -> None:
        super().__init__()
        self.router = nn.Linear(WIDTH, self.COUNT, bias=False)
        self.gates, self.ups = (
            nn.Parameter(torch.randn(self.COUNT, WIDTH, HIDDEN)) for _ in range(2)
        )
        self.downs = nn.Parameter(torch.randn(self.COUNT, HIDDEN, WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        weights = self.router(x).softmax(-1)
        hidden = functional.silu(torch.einsum("btd,edh->bteh", x, self.gates))
        hidden = hidden * torch.einsum("btd,edh->bteh", x, self.ups)
        return torch.einsum("bteh,ehd,bte->btd", hidden, self.downs, weights)


def stacked(*, initialised: bool) -> Case:
    """The scheme is applied to nn.Linear alone, where it was not."""
    model = Decoder(feed_forward=Stacked)
    for module in model.modules():
        if isinstance(module, Stacked) and initialised:
            nn.init.normal_(module.gates, std=0.02)
            nn.init.normal_(module.ups, std=0.02)
            nn.init.normal_(module.downs, std=0.02 / math.sqrt(2 * BLOCKS))
    return Case(model=model)


def copied_experts() -> Case:
    model = Decoder(feed_forward=Experts)
    for block in model.blocks:
        experts = block.feed_forward.experts
        for number in range(1, len(experts)):
            experts[number] = copy.deepcopy(experts[0])
    return Case(model=model)


class Growing(Scan):
    """Rates without their sign: the state grows with every token."""

    def rates(self) -> Tensor:
        return self.log_rates.exp()


class Centred(Scan):
    """A convolution that is padded on both sides."""

    def convolved(self, x: Tensor) -> Tensor:
        return self.convolution(functional.pad(x, (1, self.KERNEL - 2)))


class Motionless(Scan):
    """A step that starts next to 0, as where a scheme for all biases came after its own."""

    def start(self) -> None:
        nn.init.constant_(self.step.bias, -25.0)


def hybrid(scan: Made) -> Case:
    """Three scans to an attention."""
    return Case(model=Decoder(lambda n: Attention(n) if n % 4 == 3 else scan(n), blocks=4))


def of_hybrid(title: str, scan: Made, says: str) -> Fault:
    return Fault(title=title, bug=lambda: hybrid(scan), twin=lambda: hybrid(Scan), says=says)


class Streams(Decoder):
    """Hyper-connections with trained numbers (Zhu et al. 2024): each sub-layer reads a weighted sum
    of four streams, and is added to each with a weight of its own.
    """

    COUNT = 4

    def __init__(self) -> None:
        super().__init__()
        reads = torch.full((2 * BLOCKS, self.COUNT), 1 / self.COUNT)
        self.reads = nn.Parameter(reads + 0.1 * torch.rand_like(reads))
        self.writes = nn.Parameter(torch.ones_like(reads) + 0.1 * torch.randn_like(reads))
        self.mixings = nn.Parameter(self.mixing().repeat(2 * BLOCKS, 1, 1))

    def mixing(self) -> Tensor:
        return torch.eye(self.COUNT)

    def written(self, place: int) -> Tensor:
        return self.writes[place]

    def gathered(self, x: Tensor) -> Tensor:
        return x.mean(-2)

    def hidden(self, ids: Tensor) -> Tensor:
        x, memo = self.embedding(ids)[..., None, :].repeat(1, 1, self.COUNT, 1), {}
        place = 0
        for block in self.blocks:
            for norm, branch in (
                (block.first_norm, lambda y, of=block: of.mixer(y, memo)),
                (block.second_norm, block.feed_forward),
            ):
                y = branch(norm(self.reads[place] @ x))
                x = self.mixings[place] @ x + self.written(place)[:, None] * y[..., None, :]
                place += 1
        return self.norm(self.gathered(x))


class GrowingStreams(Streams):
    """The mixing starts as the identity and a mean on top of it: rows sum to 2."""

    def mixing(self) -> Tensor:
        return torch.eye(self.COUNT) + 1 / self.COUNT


class FirstStream(Streams):
    """The output is made of the first stream alone, which a mask keeps from being written to, and
    streams are not mixed.
    """

    def __init__(self) -> None:
        super().__init__()
        self.mixings.requires_grad_(False)

    def written(self, place: int) -> Tensor:
        return self.writes[place] * torch.tensor([0.0, 1.0, 1.0, 1.0])

    def gathered(self, x: Tensor) -> Tensor:
        return x[..., 0, :]


class Modulated(nn.Module):
    """A block of DiT (Peebles and Xie 2023): shift, scale and gate come from a condition."""

    def __init__(self) -> None:
        super().__init__()
        self.block = Block(Attention(0), SwiGLU())
        self.block.first_norm = self.block.second_norm = None
        self.modulation = nn.Linear(WIDTH, 6 * WIDTH)

    def scaled(self, x: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
        return functional.layer_norm(x, (WIDTH,)) * (1 + scale) + shift

    def forward(self, x: Tensor, condition: Tensor) -> Tensor:
        parts = self.modulation(functional.silu(condition))[:, None].chunk(6, -1)
        x = x + parts[2] * self.block.mixer(self.scaled(x, parts[0], parts[1]), {})
        return x + parts[5] * self.block.feed_forward(self.scaled(x, parts[3], parts[4]))


class WithoutOne(Modulated):
    """norm(x) · scale for norm(x) · (1 + scale): at zeros nothing ever gets a gradient."""

    def scaled(self, x: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
        return functional.layer_norm(x, (WIDTH,)) * scale


class Diffuser(nn.Module):
    def __init__(self, block: type[Modulated] = Modulated) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.into, self.out = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.of_time, self.classes = nn.Linear(WIDTH, WIDTH), nn.Embedding(10, WIDTH)
        self.places = nn.Parameter(0.02 * torch.randn(24, WIDTH))
        self.blocks = nn.ModuleList(block() for _ in range(BLOCKS))
        drawn(self, BLOCKS)
        for one in self.blocks:
            nn.init.zeros_(one.modulation.weight)

    def condition(self, times: Tensor, labels: Tensor) -> Tensor:
        waves = times[:, None] * 1e4 ** (-torch.arange(WIDTH // 2) / (WIDTH // 2))
        return self.of_time(torch.cat([waves.sin(), waves.cos()], -1)) + self.classes(labels)

    def forward(self, x: Tensor, times: Tensor, labels: Tensor) -> Tensor:
        x, condition = self.into(x) + self.places, self.condition(times, labels)
        for block in self.blocks:
            x = block(x, condition)
        return self.out(functional.layer_norm(x, (WIDTH,)))


class WithoutTime(Diffuser):
    """The class overwrites what the time was."""

    def condition(self, times: Tensor, labels: Tensor) -> Tensor:
        super().condition(times, labels)
        return self.classes(labels)


class FirstCondition(Diffuser):
    """The condition of the first picture of the batch is used for all."""

    def condition(self, times: Tensor, labels: Tensor) -> Tensor:
        return super().condition(times[:1], labels[:1])


def diffused(model: nn.Module) -> Case:
    generator = torch.Generator().manual_seed(2)
    x = torch.randn(4, 24, WIDTH, generator=generator)
    noise = torch.randn(4, 24, WIDTH, generator=generator)
    times, labels = torch.tensor([10.0, 200.0, 500.0, 900.0]), torch.tensor([1, 3, 5, 7])
    return Case(
        model=model,
        inputs=(x, times, labels),
        loss=lambda output: functional.mse_loss(output, noise),
    )


def of_diffuser(title: str, bug: type[nn.Module], says: str) -> Fault:
    def built() -> nn.Module:
        return Diffuser(bug) if issubclass(bug, Modulated) else bug()

    return Fault(
        title=title, bug=lambda: diffused(built()), twin=lambda: diffused(Diffuser()), says=says
    )


FAULTS = [
    of("the gate's matrix in both places", GateTwice, r"feed_forward\.up", SwiGLU),
    of("hidden units are cut off at 0.007", ClampedLow, r"cut off|clamp|flat|bound", Clamped),
    of("a softmax over hidden units", OverUnits, r"softmax|feed.forward.*(small|little)", SwiGLU),
    of("experts without their router's weights", Unweighed, r"router", Experts),
    of("a router's softmax over tokens", OverTokens, r"softmax|ahead|later", Experts),
    of("a bias that sends all tokens to two experts", Favoured, r"experts", Balanced),
    Fault(
        title="experts in one tensor, left at N(0, 1)",
        bug=lambda: stacked(initialised=False),
        twin=lambda: stacked(initialised=True),
        says=r"(gates|ups|downs|feed_forward).*(start|drawn|larger|deviation|std|N\()",
    ),
    Fault(
        title="experts that are copies of one",
        bug=copied_experts,
        twin=lambda: with_feed_forward(Experts),
        says=r"experts.*(copies|same|alike|agree)|(copies|same|alike|agree).*experts",
    ),
    of_hybrid("a state that grows with every token", Growing, r"grow|amplif|explo|times larger"),
    of_hybrid("a convolution that looks ahead", Centred, r"ahead|later"),
    of_hybrid("a step next to 0", Motionless, r"step|flat|softplus|\bshut"),
    Fault(
        title="streams whose mixing has rows of 2",
        bug=lambda: Case(model=GrowingStreams()),
        twin=lambda: Case(model=Streams()),
        says=r"mixing|grow|amplif|stochastic|rows",
    ),
    Fault(
        title="an output of the one stream that nothing is written to",
        bug=lambda: Case(model=FirstStream()),
        twin=lambda: Case(model=Streams()),
        says=r"stream|unused|no gradient|reaches",
    ),
    of_diffuser("a scale without its one", WithoutOne, r"modulation|\b0\b.*gradient"),
    of_diffuser("a time that is computed and dropped", WithoutTime, r"of_time|times|inputs\[1\]"),
    of_diffuser("one condition for the whole batch", FirstCondition, r"batch|rows|sequences"),
]
