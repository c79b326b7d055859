"""Faults of what tokens know of each other: masks, places, documents, scans, routes."""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from doctor.waves.case import Case, Fault, next_token
from doctor.waves.parts import (
    HEAD,
    VOCABULARY,
    WIDTH,
    Attention,
    Decoder,
    Experts,
    Made,
    Scan,
    SwiGLU,
    angles,
    tokens,
    turned,
)


def with_parts(mixer: Made = Attention, feed_forward: Made = SwiGLU) -> Case:
    return Case(model=Decoder(mixer, feed_forward))


def of_mixer(title: str, bug: Made, says: str, twin: Made = Attention) -> Fault:
    return Fault(title=title, bug=lambda: with_parts(bug), twin=lambda: with_parts(twin), says=says)


class QueriesAlone(Attention):
    """Keys keep their direction: what attention sees is where a query stands."""

    def placed(self, q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return turned(q, angles(q.shape[-2])), k, v


class NotItself(Attention):
    """A causal mask from one place before: no token but the first sees itself."""

    def seen(self, length: int) -> Tensor:
        earlier = torch.ones(length, length, dtype=torch.bool).tril(-1)
        earlier[0, 0] = True
        return earlier


class Viewed(Attention):
    """Heads are cut by a view, without the transpose: each has features of other tokens."""

    def split(self, x: Tensor) -> Tensor:
        return x.reshape(len(x), -1, x.shape[1], HEAD)

    def forward(self, x: Tensor, memo: dict[str, Tensor]) -> Tensor:
        q, k, v = (self.split(f(x)) for f in (self.q, self.k, self.v))
        q, k = self.normed(q, k)
        q, k, v = self.placed(q, k, v)
        k, v = self.spread(k, v)
        return self.o((self.weights(q, k) @ v).reshape(x.shape))


class DroppedWeights(Attention):
    """Dropout on weights, behind the softmax."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.dropout = nn.Dropout(0.1)

    def weights(self, q: Tensor, k: Tensor) -> Tensor:
        return self.dropout(super().weights(q, k))


class DroppedScores(DroppedWeights):
    """Dropout in front of the softmax: where a score is dropped, 0 stands, and is attended to."""

    def weights(self, q: Tensor, k: Tensor) -> Tensor:
        scores = self.dropout(q @ k.mT / math.sqrt(HEAD))
        return scores.masked_fill(~self.seen(q.shape[-2]), float("-inf")).softmax(-1)


class Packed(Decoder):
    """Several documents in a row; `position_ids` begin anew with each."""

    apart = True

    def __init__(self) -> None:
        super().__init__()
        self.places = nn.Embedding(24, WIDTH)
        nn.init.normal_(self.places.weight, std=0.02)
        for block in self.blocks:
            block.mixer.placed = lambda q, k, v: (q, k, v)

    def forward(self, ids: Tensor, position_ids: Tensor) -> Tensor:
        documents = (position_ids[0] == 0).cumsum(0)
        same = documents[:, None] == documents
        earlier = torch.ones_like(same).tril()
        for block in self.blocks:
            block.mixer.seen = lambda length: earlier & same if self.apart else earlier
        x, memo = self.embedding(ids) + self.places(position_ids), {}
        for block in self.blocks:
            x = block(x, memo)
        return self.logits(self.norm(x))


class PackedTogether(Packed):
    """Documents see those before them: the mask is that of one sequence."""

    apart = False


def packed(model: nn.Module) -> Case:
    places = torch.cat([torch.arange(10), torch.arange(14)]).expand(4, -1)
    return Case(model=model, inputs=(tokens(), places))


class BothWays(Attention):
    def seen(self, length: int) -> Tensor:
        return torch.ones(length, length, dtype=torch.bool)


MASK = VOCABULARY - 1


def hidden_tokens() -> tuple[Tensor, Tensor]:
    """Tokens some of which are hidden, and where these are."""
    ids = tokens(4, 24).clamp(max=MASK - 1)
    generator = torch.Generator().manual_seed(3)
    hidden = torch.rand(ids.shape, generator=generator) < 0.2
    return ids.masked_fill(hidden, MASK), hidden


def masked_language(mixer: Made, *, counts_all: bool = False) -> Case:
    """Asks for tokens that are hidden, or for all of them."""
    given, hidden = hidden_tokens()
    wanted = tokens(4, 24).clamp(max=MASK - 1)
    counted = torch.ones_like(hidden) if counts_all else hidden

    def loss(logits: Tensor) -> Tensor:
        return functional.cross_entropy(logits[counted], wanted[counted])

    return Case(model=Decoder(mixer), inputs=(given,), loss=loss)


class Sinusoids(Decoder):
    """Vaswani et al. 2017, beside attention that knows nothing of places."""

    sign = -1.0

    def __init__(self) -> None:
        super().__init__()
        for block in self.blocks:
            block.mixer.placed = lambda q, k, v: (q, k, v)
        frequencies = (self.sign * math.log(1e4) * torch.arange(0, WIDTH, 2) / WIDTH).exp()
        by = torch.arange(64)[:, None] * frequencies
        self.register_buffer("positions", torch.stack([by.sin(), by.cos()], -1).flatten(1))

    def numbers(self, length: int) -> Tensor:
        return torch.arange(length)

    def hidden(self, ids: Tensor) -> Tensor:
        numbers = self.numbers(ids.shape[1])
        x, memo = math.sqrt(WIDTH) * self.embedding(ids) + self.positions[numbers], {}
        for block in self.blocks:
            x = block(x, memo)
        return self.norm(x)


class FastSinusoids(Sinusoids):
    """The exponent without its minus: frequencies from 1 to 10,000 radians a token."""

    sign = 1.0


class CutOffPlaces(Sinusoids):
    """Places above 7 are 7."""

    def numbers(self, length: int) -> Tensor:
        return super().numbers(length).clamp(max=7)


class FewerTokens(Decoder):
    """Tokens from 48 on are looked up as token 48."""

    def forward(self, ids: Tensor) -> Tensor:
        return super().forward(ids.clamp(max=VOCABULARY // 2))


class Soft(Decoder):
    """A trained prompt before the tokens of a frozen model (Lester et al. 2021)."""

    LENGTH = 4
    before = True

    def __init__(self) -> None:
        super().__init__()
        self.requires_grad_(False)
        self.prompt = nn.Parameter(0.02 * torch.randn(self.LENGTH, WIDTH))

    def hidden(self, ids: Tensor) -> Tensor:
        prompt, x = self.prompt.expand(len(ids), -1, -1), self.embedding(ids)
        x, memo = torch.cat([prompt, x] if self.before else [x, prompt], 1), {}
        for block in self.blocks:
            x = block(x, memo)
        x = x[:, self.LENGTH :] if self.before else x[:, : -self.LENGTH]
        return self.norm(x)


class SoftBehind(Soft):
    """The prompt stands behind the tokens, which do not look ahead."""

    before = False


class Chunked(Scan):
    """The scan runs over chunks of eight tokens, and hands its state on."""

    hands_on = True

    def forward(self, x: Tensor, memo: dict[str, Tensor]) -> Tensor:
        if self.hands_on:
            return super().forward(x, memo)
        return torch.cat([super(Chunked, self).forward(part, memo) for part in x.split(8, 1)], 1)


class Forgetting(Chunked):
    """Every chunk begins at a state of 0."""

    hands_on = False


class TwoWays(nn.Module):
    """A scan from each end (Zhu et al. 2024)."""

    back = True

    def __init__(self, number: int) -> None:
        super().__init__()
        self.forwards, self.backwards = Scan(number), Scan(number)

    def forward(self, x: Tensor, memo: dict[str, Tensor]) -> Tensor:
        other = self.backwards(x.flip(1), memo)
        return self.forwards(x, memo) + (other.flip(1) if self.back else other)


class NotTurnedBack(TwoWays):
    """What the second scan makes is added in the order that it was made in."""

    back = False


def in_order(experts: Experts, x: Tensor, *, put_back: bool) -> Tensor:
    """Every token's best expert, over tokens that are sorted by their expert."""
    scores = experts.scores(x).flatten(0, 1)
    chosen = scores.argmax(-1)
    order = chosen.argsort(stable=True)
    rows = x.flatten(0, 1)[order]
    counts = torch.bincount(chosen, minlength=experts.COUNT).tolist()
    parts = rows.split(counts)
    made = torch.cat([one(part) for one, part in zip(experts.experts, parts, strict=True)])
    weighed = made * scores[order].gather(1, chosen[order][:, None]) * experts.COUNT
    back = torch.zeros_like(weighed).index_copy(0, order, weighed) if put_back else weighed
    return back.view_as(x)


class Sorted(Experts):
    def forward(self, x: Tensor) -> Tensor:
        return in_order(self, x, put_back=True)


class NotPutBack(Experts):
    """Results stay in the order of their experts."""

    def forward(self, x: Tensor) -> Tensor:
        return in_order(self, x, put_back=False)


class WithPictures(Decoder):
    """Features of a picture stand where the token of a picture does."""

    PICTURE, LENGTH = 1, 4
    at_their_place = True

    def __init__(self) -> None:
        super().__init__()
        self.project = nn.Linear(WIDTH, WIDTH)
        nn.init.normal_(self.project.weight, std=0.02)
        nn.init.zeros_(self.project.bias)

    def forward(self, ids: Tensor, pictures: Tensor) -> Tensor:
        x, memo = self.embedding(ids), {}
        made = self.project(pictures)
        at = ids == self.PICTURE
        if not self.at_their_place:
            at = torch.zeros_like(at)
            at[:, : self.LENGTH] = True
        x = x.masked_scatter(at[..., None], made)
        for block in self.blocks:
            x = block(x, memo)
        return self.logits(self.norm(x))


class OverTheFirst(WithPictures):
    """Features take the place of the first tokens, wherever the picture's tokens are."""

    at_their_place = False


def with_pictures(model: nn.Module) -> Case:
    ids = tokens().clamp(min=2)
    ids[:, 10 : 10 + WithPictures.LENGTH] = WithPictures.PICTURE
    generator = torch.Generator().manual_seed(5)
    pictures = torch.randn(4, WithPictures.LENGTH, WIDTH, generator=generator)
    return Case(model=model, inputs=(ids, pictures), loss=next_token(ids))


def of_model(title: str, bug: Callable[[], Any], says: str, twin: Callable[[], Any]) -> Fault:
    return Fault(
        title=title, bug=lambda: Case(model=bug()), twin=lambda: Case(model=twin()), says=says
    )


FAULTS = [
    of_mixer("only queries turn", QueriesAlone, r"rotat|position|places"),
    of_mixer("a mask that hides the token itself", NotItself, r"itself|own (place|token)|mask"),
    of_mixer("heads are cut without a transpose", Viewed, r"ahead|later|heads|other tokens"),
    of_mixer("dropout in front of the softmax", DroppedScores, r"dropout", DroppedWeights),
    Fault(
        title="documents of a row see each other",
        bug=lambda: packed(PackedTogether()),
        twin=lambda: packed(Packed()),
        says=r"document|restart|packed|begin",
    ),
    Fault(
        title="hidden tokens behind a causal mask",
        bug=lambda: masked_language(Attention),
        twin=lambda: masked_language(BothWays),
        says=r"causal|later|hidden|both sides",
    ),
    Fault(
        title="a loss of tokens that are not hidden",
        bug=lambda: masked_language(BothWays, counts_all=True),
        twin=lambda: masked_language(BothWays),
        says=r"target|same token|copy|hidden",
    ),
    of_model("frequencies that grow", FastSinusoids, r"frequenc|position|place", Sinusoids),
    of_model("places are cut off at eight", CutOffPlaces, r"position|place", Sinusoids),
    of_model("tokens above a number are one", FewerTokens, r"token|embedding|rows", Decoder),
    of_model("a soft prompt behind the tokens", SoftBehind, r"prompt", Soft),
    of_mixer("a scan that forgets between chunks", Forgetting, r"chunk|cut|state|places", Chunked),
    Fault(
        title="a backward scan is not turned back",
        bug=lambda: masked_language(NotTurnedBack),
        twin=lambda: masked_language(TwoWays),
        says=r"order|reverse|turned|neighbour|own",
    ),
    Fault(
        title="experts' results stay sorted by expert",
        bug=lambda: with_parts(feed_forward=NotPutBack),
        twin=lambda: with_parts(feed_forward=Sorted),
        says=r"batch|rows|sequences|ahead|later|other tokens|own",
    ),
    Fault(
        title="pictures over the first tokens",
        bug=lambda: with_pictures(OverTheFirst()),
        twin=lambda: with_pictures(WithPictures()),
        says=r"unread|reads it|no output depends",
    ),
]
