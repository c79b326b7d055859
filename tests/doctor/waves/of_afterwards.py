"""Faults of a last wave, written down once the others had been mended."""

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

from doctor.waves.case import Case, Fault
from doctor.waves.of_branches import Diffuser
from doctor.waves.of_context import BothWays, masked_language, with_parts
from doctor.waves.of_pairs import Cross, Translator, translated
from doctor.waves.of_pictures import Classifier, Plain, pictures
from doctor.waves.parts import (
    BLOCKS,
    HEAD,
    HEADS,
    WIDTH,
    Attention,
    Block,
    Decoder,
    Made,
    SwiGLU,
    angles,
    drawn,
    tokens,
    turned,
)


def of_mixer(title: str, bug: Made, says: str, twin: Made = Attention) -> Fault:
    return Fault(title=title, bug=lambda: with_parts(bug), twin=lambda: with_parts(twin), says=says)


class Bare(Attention):
    """Queries and keys without norms."""

    def normed(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        return q, k

    def __init__(self, number: int) -> None:
        super().__init__(number)
        del self.q_norm, self.k_norm


class ScaledByWidth(Bare):
    """Divided by the root of the model's width, which is √heads too much."""

    def weights(self, q: Tensor, k: Tensor) -> Tensor:
        return super().weights(q / math.sqrt(HEADS), k)


class Biased(BothWays):
    """A trained bias for each distance (Raffel et al. 2020)."""

    MOST = 32

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.bias = nn.Embedding(2 * self.MOST, HEADS)
        nn.init.normal_(self.bias.weight, std=0.02)

    def placed(self, q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return q, k, v

    def rows(self, at: Tensor) -> Tensor:
        return at[None, :] - at[:, None] + self.MOST

    def weights(self, q: Tensor, k: Tensor) -> Tensor:
        rows = self.rows(torch.arange(q.shape[-2]))
        scores = q @ k.mT / math.sqrt(HEAD) + self.bias(rows).permute(2, 0, 1)
        return scores.softmax(-1)


class BiasedByKey(Biased):
    """The bias is looked up by the key's place alone."""

    def rows(self, at: Tensor) -> Tensor:
        return at[None, :] + 0 * at[:, None]


class Crept(Attention):
    """Places are divided by the length before they turn: all stand within a radian."""

    def placed(self, q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        by = angles(q.shape[-2]) / q.shape[-2]
        return turned(q, by), turned(k, by), v


class Shifted(nn.Module):
    """Each token's features are mixed with those of the token before it (Peng et al. 2023)."""

    wraps = False

    def __init__(self, number: int = 0) -> None:
        super().__init__()
        self.inner = SwiGLU()
        self.share = nn.Parameter(torch.full((WIDTH,), 0.5))

    def forward(self, x: Tensor) -> Tensor:
        before = x.roll(1, 1) if self.wraps else functional.pad(x, (0, 0, 1, 0))[:, :-1]
        return self.inner(self.share * x + (1 - self.share) * before)


class Wrapping(Shifted):
    """`roll` hands the last token to the first."""

    wraps = True


def muon(everything: bool) -> Case:
    """Muon is for hidden matrices: rows of a table are no map between features. What it does not
    hold is frozen here, as an optimiser of its own would hold it.
    """
    model = Decoder()
    mine = [
        weight
        for name, weight in model.named_parameters()
        if weight.ndim == 2 and (everything or name.startswith("blocks"))
    ]
    held = {id(weight) for weight in mine}
    for weight in model.parameters():
        weight.requires_grad_(id(weight) in held)
    return Case(
        model=model, options={"optimizer": torch.optim.Muon(mine, lr=0.02, weight_decay=0.0)}
    )


class Pair(nn.Module):
    """A tower for pictures and one for words, that are to agree (Radford et al. 2021)."""

    def __init__(self, temperature: float) -> None:
        super().__init__()
        self.pictures, self.words = Classifier(), Decoder(BothWays)
        self.pictures.head = nn.Linear(WIDTH, WIDTH, bias=False)
        self.words.head = nn.Linear(WIDTH, WIDTH, bias=False)
        for head in (self.pictures.head, self.words.head):
            nn.init.normal_(head.weight, std=WIDTH**-0.5)
        self.temperature = temperature

    def forward(self, x: Tensor, ids: Tensor) -> Tensor:
        one = functional.normalize(self.pictures(x), dim=-1)
        other = functional.normalize(self.words(ids).mean(1), dim=-1)
        return self.temperature * one @ other.mT


def agreed(temperature: float) -> Case:
    rows = 16
    return Case(
        model=Pair(temperature),
        inputs=(pictures(rows), tokens(rows)),
        loss=lambda logits: functional.cross_entropy(logits, torch.arange(len(logits))),
    )


class Forecaster(nn.Module):
    """The next values of a series, from its last, each series by its own mean and deviation."""

    over = (1,)

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.into = nn.Linear(8, WIDTH)
        self.places = nn.Parameter(0.02 * torch.randn(24, WIDTH))
        self.blocks = nn.ModuleList(Block(Plain(n), SwiGLU()) for n in range(BLOCKS))
        self.norm, self.out = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 8)
        drawn(self, BLOCKS)

    def forward(self, x: Tensor) -> Tensor:
        mean = x.mean(self.over, keepdim=True)
        deviation = x.std(self.over, keepdim=True) + 1e-5
        y = self.into((x - mean) / deviation) + self.places
        for block in self.blocks:
            y = block(y, {})
        return self.out(self.norm(y)) * deviation + mean


class OverSeries(Forecaster):
    """The mean and the deviation are those of all series of the batch."""

    over = (0, 1)


def forecast(model: nn.Module) -> Case:
    generator = torch.Generator().manual_seed(6)
    x = torch.randn(4, 24, 8, generator=generator).cumsum(1)
    return Case(
        model=model,
        inputs=(x,),
        loss=lambda output: functional.mse_loss(output[:, :-1], x[:, 1:]),
    )


class WithPadding(Decoder):
    """The table keeps a row of zeros, that no gradient moves, for one index."""

    def __init__(self, index: int) -> None:
        super().__init__()
        rows = self.embedding.weight.detach().clone()
        self.embedding = nn.Embedding(*rows.shape, padding_idx=index)
        with torch.no_grad():
            self.embedding.weight.copy_(rows)
            self.embedding.weight[index] = 0.0


def common() -> int:
    """A token that stands in the middle of sentences."""
    return int(tokens()[:, 4:20].flatten().mode().values)


def asked(steps: int) -> Case:
    """For the token so many places later."""
    ids = tokens()

    def loss(logits: Tensor) -> Tensor:
        if steps > 0:
            return functional.cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten())
        return functional.cross_entropy(logits[:, 1:].flatten(0, 1), ids[:, :-1].flatten())

    return Case(model=Decoder(), loss=loss)


class OwnValues(Cross):
    """Keys are of the memory, values of the decoder's own stream."""

    def forward(self, x: Tensor, memory: Tensor, real: Tensor) -> Tensor:
        q, k, v = (
            part.unflatten(-1, (-1, HEAD)).transpose(1, 2)
            for part in (self.q(x), self.k(memory), self.v(x))
        )
        scores = q @ k.mT / math.sqrt(HEAD)
        scores = scores.masked_fill(self.hidden_keys(x.shape[1], real), float("-inf"))
        return self.o((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))


class Rounded(Diffuser):
    """Times lie between 0 and 1, and are made whole numbers."""

    def condition(self, times: Tensor, labels: Tensor) -> Tensor:
        return super().condition(times.long(), labels)


class Thousands(Diffuser):
    def condition(self, times: Tensor, labels: Tensor) -> Tensor:
        return super().condition(1000 * times, labels)


def flowing(model: nn.Module) -> Case:
    generator = torch.Generator().manual_seed(2)
    x = torch.randn(4, 24, WIDTH, generator=generator)
    times, labels = torch.tensor([0.1, 0.4, 0.7, 0.9]), torch.tensor([1, 3, 5, 7])
    return Case(
        model=model,
        inputs=(x, times, labels),
        loss=lambda output: functional.mse_loss(output, x.flip(0)),
    )


class Queried(nn.Module):
    """Eight trained queries read a picture, and each answers with a class (Carion et al. 2020)."""

    COUNT = 8

    def __init__(self, start: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.encoder = Classifier()
        self.queries = nn.Parameter(start(torch.zeros(self.COUNT, WIDTH)))
        self.blocks = nn.ModuleList(Block(Plain(n), SwiGLU()) for n in range(2))
        self.crosses = nn.ModuleList(Cross() for _ in range(2))
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in range(2))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 10)
        for part in (self.blocks, self.crosses):
            drawn(part, 2)

    def forward(self, x: Tensor) -> Tensor:
        of = self.encoder
        memory = of.embed(of.cut(x)) + of.places[:, 1:]
        for block in of.blocks:
            memory = block(memory, {})
        memory = of.norm(memory)
        real = torch.ones(memory.shape[:2], dtype=torch.bool)
        y = self.queries.expand(len(x), -1, -1)
        for block, cross, norm in zip(self.blocks, self.crosses, self.norms, strict=True):
            y = y + block.mixer(block.first_norm(y), {})
            y = y + cross(norm(y), memory, real)
            y = y + block.feed_forward(block.second_norm(y))
        return self.head(self.norm(y))


def queried(start: Callable[[Tensor], Tensor]) -> Case:
    model = Queried(start)
    for unused in ("first", "head"):
        delattr(model.encoder, unused)
    labels = torch.arange(8).expand(4, -1)
    return Case(
        model=model,
        inputs=(pictures(),),
        loss=lambda scores: functional.cross_entropy(scores.flatten(0, 1), labels.flatten()),
    )


FAULTS = [
    Fault(
        title="Muon over tables",
        bug=lambda: muon(everything=True),
        twin=lambda: muon(everything=False),
        says=r"muon.*(embedding|head|table)|(embedding|head|table).*muon",
    ),
    of_mixer("a scale by the model's width", ScaledByWidth, r"scale|√", Bare),
    Fault(
        title="a bias by the key's place alone",
        bug=lambda: masked_language(BiasedByKey),
        twin=lambda: masked_language(Biased),
        says=r"place|position|bias",
    ),
    of_mixer("places within a radian", Crept, r"place|position|rotat|angle"),
    Fault(
        title="cosines times a temperature",
        bug=lambda: agreed(0.07),
        twin=lambda: agreed(8.0),
        says=r"logits|apart|cosine|temperature",
    ),
    Fault(
        title="one mean for all series",
        bug=lambda: forecast(OverSeries()),
        twin=lambda: forecast(Forecaster()),
        says=r"batch|rows|sequences",
    ),
    Fault(
        title="a word is taken for padding",
        bug=lambda: Case(model=WithPadding(common())),
        twin=lambda: Case(model=WithPadding(0)),
        says=r"padding",
    ),
    Fault(
        title="the token before is asked for",
        bug=lambda: asked(-1),
        twin=lambda: asked(1),
        says=r"target|before|shown|asks",
    ),
    Fault(
        title="the last token is handed to the first",
        bug=lambda: with_parts(feed_forward=Wrapping),
        twin=lambda: with_parts(feed_forward=Shifted),
        says=r"later|ahead",
    ),
    Fault(
        title="keys of the memory, values of its own",
        bug=lambda: translated(Translator(OwnValues)),
        twin=lambda: translated(Translator()),
        says=r"memory|values|later|ahead|own",
    ),
    Fault(
        title="times are made whole",
        bug=lambda: flowing(Rounded()),
        twin=lambda: flowing(Thousands()),
        says=r"times|inputs\[1\]|of_time",
    ),
    Fault(
        title="queries that are one",
        bug=lambda: queried(lambda zeros: zeros + 0.02 * torch.randn(1, WIDTH)),
        twin=lambda: queried(lambda zeros: zeros + 0.02 * torch.randn(zeros.shape)),
        says=r"quer|alike|same|copies",
    ),
]
