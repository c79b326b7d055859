"""The law of uses, of places: outputs know where tokens stand as the model is meant to, by a table,
by a rotation or not at all, and other tokens as far as attention looks.
"""

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from doctor.test_laws_movement import BLOCKS, VOCABULARY, WIDTH
from normscope import diagnose
from normscope.doctor.result import Finding

HEADS, EACH = 2, 8
IDS = torch.randint(1, VOCABULARY, (4, 16), generator=torch.Generator().manual_seed(0))

# B = sequences, H = heads, T = tokens, E = width of a head, D = width of the stream


def turned(x_BHTE: Tensor) -> Tensor:
    """Pairs of features at angles that grow with the place (Su et al. 2021, equation 34)."""
    places_T = torch.arange(x_BHTE.shape[-2], dtype=x_BHTE.dtype)
    angles_TE = places_T[:, None] * 10.0 ** -torch.arange(EACH // 2)
    one, other = x_BHTE.chunk(2, -1)
    cos, sin = angles_TE.cos(), angles_TE.sin()
    return torch.cat((one * cos - other * sin, one * sin + other * cos), -1)


def masked_before(scores: Tensor, sees: Tensor) -> Tensor:
    return scores.masked_fill(~sees, -math.inf).softmax(-1)


def masked_after(scores: Tensor, sees: Tensor) -> Tensor:
    return scores.softmax(-1) * sees


def of_keys(weights: Tensor, v_BHTE: Tensor) -> Tensor:
    return torch.einsum("bhqk,bhkd->bhqd", weights, v_BHTE)


def of_queries(weights: Tensor, v_BHTE: Tensor) -> Tensor:
    return torch.einsum("bhqk,bhqd->bhqd", weights, v_BHTE)


class Attention(nn.Module):
    """window: how many tokens each looks at, its own among them; turns: whether by rotation."""

    def __init__(
        self, *, turns: bool, weighed: Callable, summed: Callable, window: int, causal: bool
    ) -> None:
        super().__init__()
        self.q, self.k, self.v, self.o = (nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(4))
        self.turns, self.weighed, self.summed = turns, weighed, summed
        self.window, self.causal = window, causal

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (
            made(x).unflatten(-1, (HEADS, EACH)).transpose(1, 2)
            for made in (self.q, self.k, self.v)
        )
        if self.turns:
            q, k = turned(q), turned(k)
        places = torch.arange(x.shape[1])
        apart = places[:, None] - places
        sees = apart.abs() < self.window
        if self.causal:
            sees = sees & (apart >= 0)
        weights = self.weighed(q @ k.mT * EACH**-0.5, sees)
        return self.o(self.summed(weights, v).transpose(1, 2).flatten(-2))


class Block(nn.Module):
    def __init__(self, **how: object) -> None:
        super().__init__()
        self.n1, self.n2 = nn.RMSNorm(WIDTH), nn.RMSNorm(WIDTH)
        self.attention = Attention(**how)
        self.up, self.down = nn.Linear(WIDTH, 32, bias=False), nn.Linear(32, WIDTH, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.n1(x))
        return x + self.down(functional.gelu(self.up(self.n2(x))))


class Decoder(nn.Module):
    """table: where in a table of positions each token looks, None for none; around: what becomes of
    the last state, (B, T, D).
    """

    def __init__(
        self,
        *,
        turns: bool = True,
        table: Callable | None = None,
        weighed: Callable = masked_before,
        summed: Callable = of_keys,
        window: int = 99,
        causal: bool = True,
        around: Callable = lambda x: x,
    ) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embedding, self.around = nn.Embedding(VOCABULARY, WIDTH), around
        self.positions, self.table = nn.Embedding(32, WIDTH) if table else None, table
        how = {"turns": turns, "weighed": weighed, "summed": summed}
        how |= {"window": window, "causal": causal}
        self.blocks = nn.ModuleList(Block(**how) for _ in range(BLOCKS))
        self.norm, self.head = nn.RMSNorm(WIDTH), nn.Linear(WIDTH, VOCABULARY, bias=False)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.embedding(ids)
        if self.positions is not None:
            x = x + self.positions(self.table(torch.arange(ids.shape[1])))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(self.around(x)))


def told(rule: str, model: nn.Module, ids: Tensor = IDS) -> list[Finding]:
    found = diagnose(model, (ids,), advise=False)
    return [one for one in found.findings if one.id == rule]


PLACES: list[dict[str, object]] = [
    {"turns": True},
    {"turns": False},
    {"turns": False, "table": lambda places: places},
    {"turns": True, "table": lambda places: places},
    {"turns": True, "causal": False},
    {"turns": True, "window": 3},
]
NAMES = ["turned", "none", "table", "table-and-turned", "encoder", "window"]
"""By rotation, not at all, by a table, by both, without a mask, and in a window."""


@pytest.mark.parametrize("how", PLACES, ids=NAMES)
def test_a_healthy_model_is_silent_whatever_its_places_are(how):
    found = diagnose(Decoder(**how), (IDS,), advise=False)
    asked = {"places-read", "context-unread", "order-unread", "reads-ahead"}
    assert [one.message for one in found.findings if one.id in asked] == []
    assert asked <= {one.id for one in found.rules if not one.reason}


def test_a_mask_that_is_applied_behind_the_softmax_makes_outputs_count_their_place():
    (warning,) = told("places-read", Decoder(weighed=masked_after))
    assert warning.severity == "warning"
    assert "a sequence of one token again and again gives other outputs" in warning.message


def test_a_table_that_is_read_at_one_row_gives_a_decoder_no_places():
    model = Decoder(turns=False, table=torch.zeros_like)
    (warning,) = told("order-unread", model)
    assert warning.severity == "warning"
    assert "though the model has a table of positions" in warning.message
    # What turns lets tokens know how far they are apart without the table.
    assert told("order-unread", Decoder(turns=True, table=torch.zeros_like)) == []


@pytest.mark.parametrize("causal", [True, False])
def test_weights_that_multiply_a_querys_own_value_leave_other_tokens_unread(causal):
    (warning,) = told("context-unread", Decoder(summed=of_queries, causal=causal))
    assert warning.severity == "warning"
    assert "changes no output but its own" in warning.message


def running_mean(x: Tensor) -> Tensor:
    return x + x.cumsum(1) / torch.arange(1, x.shape[1] + 1)[:, None]


def test_a_token_that_is_known_farther_away_than_attention_looks_is_a_note():
    ids = torch.randint(1, VOCABULARY, (4, 32), generator=torch.Generator().manual_seed(0))
    (note,) = told("context-unread", Decoder(window=3, around=running_mean), ids)
    assert note.severity == "info"
    assert f"the attention of all blocks together carries it {2 * BLOCKS}" in note.message
    assert told("context-unread", Decoder(window=3), ids) == []
    assert told("context-unread", Decoder(around=running_mean), ids) == []


def test_a_branch_that_starts_at_a_millionth_is_read_all_the_same():
    model = Decoder()
    for block in model.blocks:
        block.attention.o.weight.data.mul_(1e-6)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-9)
    found = diagnose(model, (IDS,), optimizer=optimizer, advise=False)
    assert "context-unread" not in {one.id for one in found.findings}
