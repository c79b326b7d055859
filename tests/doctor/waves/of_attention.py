"""Faults of attention: rotations, grouped queries, norms of queries and keys, windows, caps, values
of the first block, gates, keys and values that blocks share.
"""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from doctor.waves.case import Case, Fault, next_token
from doctor.waves.parts import (
    BLOCKS,
    GROUPS,
    HEAD,
    HEADS,
    WIDTH,
    Attention,
    Decoder,
    Made,
    angles,
    tokens,
    turned,
)


def with_mixer(mixer: Made) -> Case:
    return Case(model=Decoder(mixer))


def of(title: str, bug: Made, says: str, twin: Made = Attention) -> Fault:
    return Fault(title=title, bug=lambda: with_mixer(bug), twin=lambda: with_mixer(twin), says=says)


class Restarting(Attention):
    """A table of rotations of eight places, read modulo its length."""

    def placed(self, q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        by = angles(8)[torch.arange(q.shape[-2]) % 8]
        return turned(q, by), turned(k, by), v


class OtherHalves(Attention):
    """Partial rotation: the first half of a query's features, the second of a key's."""

    def placed(self, q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        by = angles(q.shape[-2])[:, : HEAD // 4]
        (q_first, q_second), (k_first, k_second) = q.chunk(2, -1), k.chunk(2, -1)
        q = torch.cat([turned(q_first, by), q_second], -1)
        k = torch.cat([k_first, turned(k_second, by)], -1)
        return q, k, v


class FirstHalves(Attention):
    def placed(self, q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        by = angles(q.shape[-2])[:, : HEAD // 4]
        (q_first, q_second), (k_first, k_second) = q.chunk(2, -1), k.chunk(2, -1)
        q = torch.cat([turned(q_first, by), q_second], -1)
        k = torch.cat([turned(k_first, by), k_second], -1)
        return q, k, v


class NotDivided(Attention):
    """The exponent is not divided by the width: all pairs but the first stand still."""

    def placed(self, q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        frequencies = 1e4 ** -torch.arange(0.0, HEAD, 2)
        by = torch.arange(q.shape[-2])[:, None] * frequencies
        return turned(q, by), turned(k, by), v


class OtherWay(Attention):
    """Keys turn against queries: what attention sees is m + n, and not m - n."""

    def placed(self, q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        by = angles(q.shape[-2])
        return turned(q, by), turned(k, -by), v


class ValuesToo(Attention):
    def placed(self, q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        by = angles(q.shape[-2])
        return turned(q, by), turned(k, by), turned(v, by)


class HalfPrecisionPlaces(Attention):
    """Places are counted in bfloat16, which has no 257."""

    def placed(self, q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        by = angles(2)[1:] * torch.arange(q.shape[-2]).bfloat16().float()[:, None]
        return turned(q, by), turned(k, by), v


class OtherHeads(Attention):
    """Keys are spread as 0 0 1 1, values as 0 1 0 1."""

    def spread(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        each = HEADS // GROUPS
        return k.repeat_interleave(each, 1), v.repeat(1, each, 1, 1)


class FirstGroup(Attention):
    """All heads read the first group's keys and values."""

    def spread(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        return k[:, :1].expand(-1, HEADS, -1, -1), v[:, :1].expand(-1, HEADS, -1, -1)


class OverTokens(Attention):
    """Queries and keys are normed over the sequence, by a norm that was given mT."""

    def normed(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        return functional.normalize(q, dim=-2) * 4, functional.normalize(k, dim=-2) * 4


class ScaledTwice(Attention):
    """Unit queries and keys, whose product lies within 1, are divided by √d all the same."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.q_norm = self.k_norm = None

    def normed(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        return functional.normalize(q, dim=-1), functional.normalize(k, dim=-1)


class ScaledByRoot(ScaledTwice):
    """The same, with a product that is multiplied by √d instead."""

    def weights(self, q: Tensor, k: Tensor) -> Tensor:
        return super().weights(q * HEAD, k)


class Windowed(Attention):
    """A window of eight tokens in every other block, as Gemma has them."""

    WINDOW = 8

    def seen(self, length: int) -> Tensor:
        whole = super().seen(length)
        if self.number % 2:
            return whole
        return whole & torch.ones_like(whole).triu(1 - self.WINDOW)


class ForwardWindow(Windowed):
    """The window of local blocks stands without the causal mask."""

    def seen(self, length: int) -> Tensor:
        if self.number % 2:
            return super().seen(length)
        both = torch.ones(length, length, dtype=torch.bool)
        return both.triu(1 - self.WINDOW) & both.tril(self.WINDOW - 1)


class ItselfAlone(Windowed):
    """A window of one token: local blocks see nothing else."""

    WINDOW = 1


class CappedBehindMask(Attention):
    """The cap is taken of what is masked, and makes -5 of minus infinity."""

    def weights(self, q: Tensor, k: Tensor) -> Tensor:
        scores = q @ k.mT / math.sqrt(HEAD)
        scores = scores.masked_fill(~self.seen(q.shape[-2]), float("-inf"))
        return (5 * torch.tanh(scores / 5)).softmax(-1)


class CappedBeforeMask(Attention):
    def weights(self, q: Tensor, k: Tensor) -> Tensor:
        scores = 5 * torch.tanh(q @ k.mT / math.sqrt(HEAD) / 5)
        return scores.masked_fill(~self.seen(q.shape[-2]), float("-inf")).softmax(-1)


class Undivided(Decoder):
    """30 tanh(x), where 30 tanh(x / 30) was meant."""

    def logits(self, hidden: Tensor) -> Tensor:
        return 30 * torch.tanh(self.head(hidden))


class Divided(Decoder):
    def logits(self, hidden: Tensor) -> Tensor:
        return 30 * torch.tanh(self.head(hidden) / 30)


class FirstValues(Attention):
    """Half of a block's own values and half of the first one's (Zhou et al. 2024)."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.shares = nn.Parameter(torch.full((2,), 0.5)) if number else None

    def mixed(self, v: Tensor, first: Tensor | None) -> Tensor:
        return v if first is None else self.shares[0] * v + self.shares[1] * first


class NeighboursValues(FirstValues):
    """The first values were kept with the sequences in another order."""

    def mixed(self, v: Tensor, first: Tensor | None) -> Tensor:
        return super().mixed(v, None if first is None else first.flip(0))


class FirstValuesAlone(FirstValues):
    """Both shares are of the first values: a block's own are computed and not read."""

    def mixed(self, v: Tensor, first: Tensor | None) -> Tensor:
        return super().mixed(v if first is None else first, first)


class Gated(Attention):
    """A gate of what each token is (Qiu et al. 2025)."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.gate = nn.Linear(WIDTH, WIDTH, bias=False)

    def gated(self, y: Tensor, x: Tensor) -> Tensor:
        return y * torch.sigmoid(self.gate(x))


class GatedByMean(Gated):
    """A gate of the mean over the whole sequence."""

    def gated(self, y: Tensor, x: Tensor) -> Tensor:
        return super().gated(y, x.mean(1, keepdim=True))


def without_gates() -> Case:
    """The optimiser leaves out what is called a gate, as if it were a router's."""
    model = Decoder(Gated)
    held = [weight for name, weight in model.named_parameters() if "mixer.gate" not in name]
    optimizer = torch.optim.AdamW(held, lr=1e-3, weight_decay=0.0)
    return Case(model=model, options={"optimizer": optimizer})


def with_gates() -> Case:
    model = Decoder(Gated)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.0)
    return Case(model=model, options={"optimizer": optimizer})


class Borrowing(Attention):
    """The upper half of the blocks reads keys and values of the last one below (YOCO, Gemma 3n)."""

    TURNS_AGAIN = False

    def __init__(self, number: int) -> None:
        super().__init__(number)
        if number >= BLOCKS // 2:
            self.k = self.v = self.k_norm = None

    def forward(self, x: Tensor, memo: dict[str, Tensor]) -> Tensor:
        q = self.q_norm(self.split(self.q(x)))
        by = angles(q.shape[-2])
        if self.k is not None:
            k, v = self.k_norm(self.split(self.k(x))), self.split(self.v(x))
            memo["k"], memo["v"] = turned(k, by), v
        k, v = memo["k"], memo["v"]
        if self.k is None and self.TURNS_AGAIN:
            k = turned(k, by)
        k, v = self.spread(k, v)
        y = self.weights(turned(q, by), k) @ v
        return self.o(y.transpose(1, 2).flatten(2))


class TurnedAgain(Borrowing):
    """Keys that were turned already are turned again where they are borrowed."""

    TURNS_AGAIN = True


class BuiltAndNotUsed(Borrowing):
    """The upper blocks have matrices of their own, and none is read."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        if number >= BLOCKS // 2:
            self.own_k, self.own_v = (nn.Linear(WIDTH, GROUPS * HEAD) for _ in range(2))


def long(mixer: Made) -> Case:
    ids = tokens(rows=1, length=320)
    return Case(model=Decoder(mixer), inputs=(ids,), loss=next_token(ids))


FAULTS = [
    of("rotations restart every eight tokens", Restarting, r"position|rotat|places apart"),
    of("queries and keys turn other halves", OtherHalves, r"position|rotat", FirstHalves),
    of("one pair of features turns", NotDivided, r"rotat|position|frequenc"),
    of("keys turn the other way", OtherWay, r"rotat|position|relative"),
    of("values turn as well", ValuesToo, r"rotat|position|values"),
    Fault(
        title="places are counted in bfloat16",
        bug=lambda: long(HalfPrecisionPlaces),
        twin=lambda: long(Attention),
        says=r"position|rotat|places",
    ),
    of("keys and values of other heads", OtherHeads, r"head|group"),
    of("the first group for all heads", FirstGroup, r"unused|no gradient|head|group"),
    of("queries and keys normed over tokens", OverTokens, r"norm.*(sequence|token)|later|ahead"),
    of("unit queries and keys, divided by √d", ScaledTwice, r"scale|√", ScaledByRoot),
    of("a window that looks ahead", ForwardWindow, r"ahead|later|future|to come", Windowed),
    of("a window of one token", ItselfAlone, r"itself|alone|one (key|token)|window", Windowed),
    of("a cap behind the mask", CappedBehindMask, r"ahead|later|mask", CappedBeforeMask),
    Fault(
        title="logits are not divided before their cap",
        bug=lambda: Case(model=Undivided()),
        twin=lambda: Case(model=Divided()),
        says=r"tanh|curve|cap|logits",
    ),
    of("values of another sequence", NeighboursValues, r"sequences|rows|batch", FirstValues),
    of("first values in both places", FirstValuesAlone, r"unused|no gradient|not", FirstValues),
    of("a gate of the mean over the sequence", GatedByMean, r"ahead|later", Gated),
    Fault(
        title="gates that no group holds",
        bug=without_gates,
        twin=with_gates,
        says=r"gate.*(optimi|group|held)|(optimi|group|held).*gate",
    ),
    of("borrowed keys are turned again", TurnedAgain, r"rotat|position", Borrowing),
    of("keys and values that nobody reads", BuiltAndNotUsed, r"own_k|own_v", Borrowing),
]
