"""Wirings beyond sums of x and F(x): gates of a token's own, shifted tokens, attention as a
function of functions.

Each is rebuilt small; it is named, or shown as it is computed, and never warned of for what it is
meant to be.
"""

from collections.abc import Callable
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

from doctor.test_not_misread import said, seen
from doctor.wired import VOCABULARY, WIDTH, Attention, Block, F, Model, Stack, post, pre
from normscope.doctor.identify.stacks import as_stacks, streams_in

IDS = torch.randint(VOCABULARY, (2, 9), generator=torch.Generator().manual_seed(2))


class Gate(nn.Module):
    """(1 - z)·x + z·h, where h looks at x through r, as GTrXL writes a GRU."""

    def __init__(self) -> None:
        super().__init__()
        self.of_y, self.of_x = (nn.Linear(WIDTH, 3 * WIDTH, bias=False) for _ in range(2))
        self.bias = nn.Parameter(torch.full((WIDTH,), 2.0))

    def forward(self, y: Tensor, x: Tensor) -> Tensor:
        (yr, yz, yh), (xr, xz, _) = self.of_y(y).chunk(3, -1), self.of_x(x).chunk(3, -1)
        reset, z = torch.sigmoid(yr + xr), torch.sigmoid(yz + xz - self.bias)
        h = torch.tanh(yh + functional.linear(reset * x, self.of_x.weight[-WIDTH:]))
        return (1 - z) * x + z * h


class TorchGate(nn.Module):
    """The same of torch's, which is given rows, and writes into its own memory."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.GRUCell(WIDTH, WIDTH)

    def forward(self, y: Tensor, x: Tensor) -> Tensor:
        return self.cell(y.reshape(-1, WIDTH), x.reshape(-1, WIDTH)).view_as(x)


class GatedBlock(Block):
    def __init__(self, gate: Callable[[], nn.Module]) -> None:
        super().__init__([pre, pre])
        self.gates = nn.ModuleList(gate() for _ in self.joins)
        self.joins = [self._joined(gate) for gate in self.gates]

    @staticmethod
    def _joined(gate: nn.Module) -> Callable[[Tensor, F, F], Tensor]:
        return lambda x, f, norm: gate(f(norm(x)), x)


@pytest.mark.sampled(one_in=2)
@pytest.mark.parametrize("gate", [Gate, TorchGate])
def test_gates_of_a_gru_are_shown_as_what_they_weigh(gate):
    model = Model(lambda: Stack(blocks=[GatedBlock(gate) for _ in range(6)], final=1))
    found = seen(model, IDS)
    (stack,) = found.stacks
    assert len(stack.sublayers) == 12
    assert {one.placement for one in stack.sublayers} == {""}
    assert all(str(one.formula).count("token · ") == 2 for one in stack.sublayers)
    # Of 12 halves of the stream next to nothing is left; gates learn to keep it.
    assert (found.verdict, said(found)) == ("unknown wiring", [])


def test_a_recurrence_is_no_stream():
    """Every step of a GRU is such a mean too, of the step before, by one and the same matrix."""

    class Recurrent(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table, self.cell, self.last = (
                nn.Embedding(VOCABULARY, WIDTH),
                nn.GRUCell(WIDTH, WIDTH),
                nn.Linear(16, 4),
            )

        def forward(self, ids: Tensor) -> Tensor:
            h = torch.zeros(len(ids), WIDTH)
            for x in self.table(ids).unbind(1):
                h = self.cell(x, h)
            return self.last(h)

    with pytest.raises(ValueError, match="no residual stream found"):
        streams_in(Recurrent(), (IDS,))


class ShiftedMixing(nn.Module):
    """RWKV's channel mixing: every token is mixed with the one before it, feature by feature."""

    def __init__(self) -> None:
        super().__init__()
        self.key, self.receptance, self.value = (
            nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(3)
        )
        self.of_key, self.of_receptance = (nn.Parameter(torch.rand(WIDTH)) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        before = functional.pad(x[:, :-1], (0, 0, 1, 0))
        key = self.key(x * self.of_key + before * (1 - self.of_key)).relu().square()
        receptance = self.receptance(x * self.of_receptance + before * (1 - self.of_receptance))
        return torch.sigmoid(receptance) * self.value(key)


def test_shifted_tokens_are_a_part_of_what_reads_them():
    """x·m + shifted·(1 - m) is a sum of a stream's value and what came of it, without a sub-layer
    in between.
    """

    def block() -> Block:
        made = Block([pre, pre])
        made.f = nn.ModuleList(ShiftedMixing() for _ in range(2))
        return made

    found = seen(Model(lambda: Stack(blocks=[block() for _ in range(4)], final=1)), IDS)
    (stack,) = found.stacks
    assert [(one.placement, one.confidence) for one in stack.sublayers] == [("pre-ln", "sure")] * 8
    assert {str(one.formula) for one in stack.sublayers} == {"x ← x + convolution(norm(x))"}
    assert said(found) == []


class OverFrames(nn.Module):
    """Attention over frames, then over patches, as TimeSformer divides them; a class token takes
    the second alone.
    """

    def __init__(self) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in range(3))
        self.over_time, self.over_space = Attention(), Attention()
        self.last = nn.Sequential(nn.Linear(WIDTH, 32), nn.GELU(), nn.Linear(32, WIDTH))

    def forward(self, x: Tensor, frames: int = 2, patches: int = 4) -> Tensor:
        batch = len(x)
        first, rest = x[:, :1], x[:, 1:]
        lines = rest.view(batch, frames, patches, WIDTH).transpose(1, 2).flatten(0, 1)
        moved = (
            self.over_time(self.norms[0](lines)).view(batch, patches, frames, WIDTH).transpose(1, 2)
        )
        rest = rest + moved.reshape(batch, frames * patches, WIDTH)
        frame = first.expand(batch, frames, WIDTH).reshape(-1, 1, WIDTH)
        seen_by = torch.cat([frame, rest.reshape(batch * frames, patches, WIDTH)], 1)
        found = self.over_space(self.norms[1](seen_by)).view(batch, frames, 1 + patches, WIDTH)
        first_found, rest_found = (
            found[:, :, 0].mean(1, keepdim=True),
            found[:, :, 1:].reshape(batch, -1, WIDTH),
        )
        x = torch.cat([first, rest], 1) + torch.cat([first_found, rest_found], 1)
        return x + self.last(self.norms[2](x))


def test_no_sum_is_lost_where_tokens_part_and_meet_again():
    found = seen(Model(lambda: Stack(blocks=[OverFrames() for _ in range(4)], final=1)), IDS)
    assert all(stack.continues is None for stack in found.stacks)
    assert "errors" not in found.verdict
    assert said(found) == []


class FlexAttention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.all, self.last = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        tokens = x.shape[1]
        mask = create_block_mask(
            lambda b, h, query, key: query >= key, None, None, tokens, tokens, device="cpu"
        )
        query, key, value = (
            part.unflatten(-1, (2, -1)).transpose(1, 2) for part in self.all(x).chunk(3, -1)
        )
        return self.last(
            flex_attention(query, key, value, block_mask=mask).transpose(1, 2).flatten(2)
        )


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
def test_flex_attention_is_followed():
    """torch computes no gradient of it on a processor, which is said in its own words; what is
    wired is read.
    """

    def block() -> Block:
        made = Block([pre, pre])
        made.f[0] = FlexAttention()
        return made

    model = Model(lambda: Stack(blocks=[block() for _ in range(3)], final=1)).requires_grad_(False)
    _, streams = streams_in(model, (IDS,))
    (stack,) = as_stacks(streams)
    assert [one.kind for one in stack.sublayers] == ["attention", "feed_forward"] * 3
    assert {(one.placement, one.confidence) for one in stack.sublayers} == {("pre-ln", "sure")}
    with pytest.raises(ValueError, match="FlexAttention does not support backward on CPU"):
        seen(model.requires_grad_(True), IDS)


class WithTower(Model):
    """A second tower, for inputs that were not given."""

    def __init__(self) -> None:
        super().__init__(lambda: Stack(pre, pre, final=1))
        self.tower = Stack(pre, pre, final=1)


def test_norms_of_a_tower_that_was_given_nothing_are_not_forgotten_ones():
    assert said(seen(WithTower(), IDS)) == []


class Stages(nn.Module):
    """Two stages, and a configuration whose number of layers is of neither."""

    def __init__(self) -> None:
        super().__init__()
        self.config = SimpleNamespace(num_hidden_layers=4)
        self.stages = nn.ModuleList(
            nn.ModuleList(Block([pre, pre]) for _ in range(2)) for _ in range(2)
        )
        self.between = nn.ModuleList([nn.Linear(WIDTH, WIDTH), nn.LayerNorm(WIDTH)])

    def forward(self, x: Tensor) -> Tensor:
        for block in self.stages[0]:
            x = block(x)
        x = self.between[0](self.between[1](x))
        for block in self.stages[1]:
            x = block(x)
        return x


def test_stages_have_a_depth_of_their_own():
    found = seen(Model(Stages), IDS)
    assert [stack.blocks for stack in found.stacks] == [2, 2]
    assert "depth-unlike-configuration" not in said(found)


class FromNothing(nn.Module):
    """A decoder whose queries are zeros, with rows that are added to what attention reads, as
    DETR's.
    """

    def __init__(self) -> None:
        super().__init__()
        self.rows = nn.Parameter(torch.randn(5, WIDTH))
        self.blocks = nn.ModuleList(Block([pre, pre, pre]) for _ in range(4))
        self.last = nn.LayerNorm(WIDTH)

    def forward(self, memory: Tensor) -> Tensor:
        x = torch.zeros(len(memory), 5, WIDTH)
        for block in self.blocks:
            x = block.norms[0](x + block.f[0](x + self.rows))
            x = block.norms[1](x + block.f[1](x + self.rows, memory))
            x = block.norms[2](x + block.f[2](x))
        return self.last(x)


def test_a_stream_that_begins_within_a_block_has_no_norm_too_early():
    found = seen(Model(lambda: nn.Sequential(Stack(post, post), FromNothing())), IDS)
    assert "misplaced-step" not in said(found)


def test_a_bare_sum_among_norms_is_no_t_fixup():
    def bare(x: Tensor, f: F, norm: F) -> Tensor:
        return x + f(x)

    (stack,) = seen(Model(lambda: Stack(bare, pre, final=1)), IDS).stacks
    assert {one.placement for one in stack.sublayers if one.kind == "attention"} == {""}


class Tempered(Model):
    """One trained number multiplies what leaves the last norm, as CLIP's logit scale does."""

    def __init__(self) -> None:
        super().__init__(lambda: Stack(pre, pre, final=1))
        self.scale = nn.Parameter(torch.tensor(2.0))

    def forward(self, ids: Tensor) -> Tensor:
        return self.projection(self.encoder(self.embedding(ids)) * self.scale)


def test_a_trained_number_is_no_gain_and_breaks_nothing():
    (stack,) = seen(Tempered(), IDS).stacks
    assert (stack.placement, stack.final_norm) == ("pre-ln", True)


class TalkingHeads(nn.Module):
    """A matrix mixes the weights of all heads after the softmax, as CaiT's patches have it."""

    def __init__(self) -> None:
        super().__init__()
        self.all, self.last = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.mixing = nn.Parameter(torch.randn(4, 4))

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = (
            part.unflatten(-1, (4, -1)).transpose(1, 2) for part in self.all(x).chunk(3, -1)
        )
        weights = (query @ key.mT / 2).softmax(-1)
        weights = torch.einsum("bhij,hg->bgij", weights, self.mixing)
        return self.last((weights @ value).transpose(1, 2).flatten(2))


def test_heads_that_talk_have_their_softmax_over_keys():
    def block() -> Block:
        made = Block([pre, pre])
        made.f[0] = TalkingHeads()
        return made

    assert said(seen(Model(lambda: Stack(blocks=[block() for _ in range(3)], final=1)), IDS)) == []


class ClassAttention(nn.Module):
    """A class token, which no input makes, looks at itself and all tokens, as in CaiT."""

    def __init__(self) -> None:
        super().__init__()
        self.token = nn.Parameter(torch.randn(1, 1, WIDTH))
        self.blocks = nn.ModuleList(Block([pre, pre]) for _ in range(3))
        self.last = nn.LayerNorm(WIDTH)

    def forward(self, patches: Tensor) -> Tensor:
        x = self.token.expand(len(patches), -1, -1)
        for block in self.blocks:
            x = x + 0.1 * block.f[0](block.norms[0](x), torch.cat([block.norms[0](x), patches], 1))
            x = x + 0.1 * block.f[1](block.norms[1](x))
        return self.last(x)


def test_attention_of_a_class_token_is_attention_and_loses_no_sum():
    found = seen(Model(lambda: nn.Sequential(Stack(pre, pre, final=1), ClassAttention())), IDS)
    last = found.stacks[-1]
    # What the first one adds to is no data, and the stream begins with its output.
    assert [one.kind for one in last.sublayers] == [
        "feed_forward",
        *["attention", "feed_forward"] * 2,
    ]
    assert [finding.id for finding in found.findings if finding.severity == "error"] == []


def test_unit_vectors_are_unit_to_the_last():
    """nGPT in vectors of norm 1: the number that makes them so belongs to every norm, that of the
    last block too.
    """

    def unit(x: Tensor) -> Tensor:
        return functional.normalize(x, dim=-1)

    class Step(Block):
        def __init__(self) -> None:
            super().__init__([pre, pre])
            self.norms, self.steps = nn.ModuleList(), nn.Parameter(torch.full((2, WIDTH), 0.05))

        def forward(self, x: Tensor, memory: Tensor | None = None) -> Tensor:
            for f, step in zip(self.f, self.steps, strict=True):
                x = unit(torch.lerp(x, unit(f(x)), step))
            return x

    found = seen(Model(lambda: Stack(blocks=[Step() for _ in range(3)])), IDS)
    (stack,) = found.stacks
    assert len({str(one.formula).replace(one.kind, "F") for one in stack.sublayers}) == 1
    assert (found.verdict, said(found)) == ("unknown wiring", [])


class Masked(Attention):
    """What it gives is multiplied by a mask of true and false, as the resets of RecurrentGemma's
    recurrence are.
    """

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("kept", torch.ones(1, 9, 1, dtype=torch.bool))

    def forward(self, x: Tensor, memory: Tensor | None = None) -> Tensor:
        return super().forward(x, memory) * self.kept


def test_a_mask_of_true_and_false_shuts_nothing():
    def block() -> Block:
        made = Block([pre, pre])
        made.f[0] = Masked()
        return made

    assert said(seen(Model(lambda: Stack(blocks=[block() for _ in range(3)], final=1)), IDS)) == []
