"""What only a part of a model goes through, and what no loss teaches: further members of the kinds
that the waves of faults showed, each beside what is right.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional

from doctor.test_laws_movement import Adapted, adapted
from doctor.waves import of_attention, of_branches
from doctor.waves.case import next_token
from doctor.waves.parts import (
    GROUPS,
    HEADS,
    HIDDEN,
    WIDTH,
    Attention,
    Decoder,
    Experts,
    SwiGLU,
    tokens,
)
from normscope import diagnose
from normscope.doctor.result import Finding, Severity


def told(rule: str, model: nn.Module) -> list[Finding]:
    found = diagnose(model, (tokens(),), loss=next_token(tokens()), advise=False)
    return [one for one in found.findings if one.id == rule]


def fed(feed_forward: type[nn.Module]) -> Decoder:
    return Decoder(feed_forward=feed_forward)


class OneFavoured(of_branches.Balanced):
    """Every token's first choice is the last expert; the second is its own."""

    def __init__(self, number: int = 0) -> None:
        super().__init__(number)
        self.balance[3] = 10.0


def test_experts_that_a_bias_keeps_all_tokens_from():
    (warning,) = told("experts-without-tokens", fed(of_branches.Favoured))
    assert "the same experts, 0, 1 of 4" in warning.message
    assert told("experts-without-tokens", fed(of_branches.Balanced)) == []
    # Its second choice still reaches the others.
    assert told("experts-without-tokens", fed(OneFavoured)) == []


def test_experts_that_start_as_one():
    (warning,) = told("identical-experts", of_branches.copied_experts().model)
    assert "start as copies of one" in warning.message
    assert told("identical-experts", fed(Experts)) == []


class ClampedAtHalf(of_branches.Clamped):
    """The median unit is cut off, which is less than most of them."""

    LIMIT = 0.1


def test_units_that_are_shared_out_or_cut_off():
    (shared,) = told("units-cut-off", fed(of_branches.OverUnits))
    assert f"a softmax over {HIDDEN} hidden units" in shared.message
    (cut,) = told("units-cut-off", fed(of_branches.ClampedLow))
    assert "a bound cuts off" in cut.message
    assert told("units-cut-off", fed(ClampedAtHalf)) == []


class Leaky(nn.Module):
    """h = keep · h + W x, token by token."""

    KEEP = 0.9

    def __init__(self, number: int) -> None:
        super().__init__()
        self.into, self.o = (nn.Linear(WIDTH, WIDTH) for _ in range(2))

    def forward(self, x: Tensor, memo: dict[str, Tensor]) -> Tensor:
        given = self.into(x)
        state, outputs = torch.zeros_like(given[:, 0]), []
        for place in range(x.shape[1]):
            state = self.KEEP * state + given[:, place]
            outputs.append(state)
        return self.o(torch.stack(outputs, 1))


class Summing(Leaky):
    """A sum of all tokens grows with their root, and not by a factor each."""

    KEEP = 1.0


class Explosive(Leaky):
    KEEP = 1.4


def test_a_state_with_a_factor_above_1():
    (warning,) = told("growing-state", Decoder(Explosive))
    assert warning.where.startswith("blocks.[0–3].mixer")
    assert told("growing-state", Decoder(Leaky)) == []
    assert told("growing-state", Decoder(Summing)) == []


class DetachedOutput(Attention):
    """The output matrix is detached in every other block."""

    def forward(self, x: Tensor, memo: dict[str, Tensor]) -> Tensor:
        weight = self.o.weight
        self.o.forward = lambda y: functional.linear(
            y, weight.detach() if self.number % 2 else weight
        )
        return super().forward(x, memo)


def test_a_matrix_that_is_detached_where_it_is_read():
    (warning,) = told("detached-weights", Decoder(DetachedOutput))
    assert warning.where == "blocks.1.mixer.o.weight, blocks.3.mixer.o.weight"
    assert told("detached-weights", Decoder()) == []


class UpDropped(SwiGLU):
    def forward(self, x: Tensor) -> Tensor:
        self.up(x)
        return self.down(functional.silu(self.gate(x)))


class FirstUpDropped(SwiGLU):
    """One block alone computes what it does not read."""

    def __init__(self, number: int = 0) -> None:
        super().__init__(number)
        self.number = number

    def forward(self, x: Tensor) -> Tensor:
        up = self.up(x)
        return self.down(functional.silu(self.gate(x)) * (1.0 if self.number == 0 else up))


def test_a_product_that_nobody_reads():
    (warning,) = told("dropped-products", fed(UpDropped))
    assert warning.where.startswith("blocks.[0–3].feed_forward.up.weight")
    assert warning.severity is Severity.WARNING
    (note,) = told("dropped-products", fed(FirstUpDropped))
    assert note.severity is Severity.INFO
    assert told("dropped-products", fed(SwiGLU)) == []


class Raw(nn.Module):
    """Matrices as parameters; wide: whether the two last are drawn at N(0, 1)."""

    WIDE = True

    def __init__(self, number: int = 0) -> None:
        super().__init__()
        self.gate = nn.Linear(WIDTH, HIDDEN, bias=False)
        size = 1.0 if self.WIDE else 0.02
        self.up = nn.Parameter(size * torch.randn(WIDTH, HIDDEN))
        self.down = nn.Parameter(size * torch.randn(HIDDEN, WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        return (functional.silu(self.gate(x)) * (x @ self.up)) @ self.down


class RawAndNarrow(Raw):
    WIDE = False


class RawAndDivided(Raw):
    """N(0, 1), and divided by the root of the inputs where it is used."""

    def forward(self, x: Tensor) -> Tensor:
        hidden = functional.silu(self.gate(x)) * (x @ self.up / WIDTH**0.5)
        return hidden @ self.down / HIDDEN**0.5


def test_parameters_that_a_scheme_for_layers_left_at_n_0_1():
    (warning,) = told("wide-matrices", fed(Raw))
    assert warning.where == "blocks.[0–3].feed_forward.up, blocks.[0–3].feed_forward.down"
    assert told("wide-matrices", fed(RawAndNarrow)) == []
    assert told("wide-matrices", fed(RawAndDivided)) == []


def test_a_matrix_that_is_trained_beside_its_adapter():
    def of(model: nn.Module) -> list[Finding]:
        found = diagnose(model, (torch.randint(1, 16, (2, 7)),), advise=False)
        return [one for one in found.findings if one.id == "adapted-trained"]

    assert of(adapted(0.0)) == []
    model = adapted(0.0)
    for module in model.modules():
        if isinstance(module, Adapted):
            for weight in module.parameters():
                weight.requires_grad_(True)
    (warning,) = of(model)
    assert "are not frozen, as others of the model are" in warning.message
    # Where all are trained, it is a pretraining by parts of low rank.
    assert of(model.requires_grad_(True)) == []


class FusedGroups(Attention):
    """torch's own grouped attention, which spreads keys and values itself."""

    def forward(self, x: Tensor, memo: dict[str, Tensor]) -> Tensor:
        q, k, v = (self.split(f(x)) for f in (self.q, self.k, self.v))
        q, k = self.normed(q, k)
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        return self.o(y.transpose(1, 2).flatten(2))


class LastGroupForValues(Attention):
    """Keys are spread as they are meant; values of the last group go to all heads."""

    def spread(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        return k.repeat_interleave(HEADS // GROUPS, 1), v[:, -1:].expand(-1, HEADS, -1, -1)


class Tiled(Attention):
    """Both are spread as 0 1 0 1: heads share keys and values with the same ones."""

    def spread(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        return k.repeat(1, HEADS // GROUPS, 1, 1), v.repeat(1, HEADS // GROUPS, 1, 1)


def test_groups_that_other_heads_read_or_none():
    (apart,) = told("key-groups", Decoder(of_attention.OtherHeads))
    assert "share their values with other heads" in apart.message
    (unread,) = told("key-groups", Decoder(LastGroupForValues))
    assert "groups of keys or values that no head reads: 1" in unread.message
    for right in (Attention, Tiled, FusedGroups):
        assert told("key-groups", Decoder(right)) == []
