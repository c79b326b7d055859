"""Models that are right and were misread, or ended in a traceback: each rebuilt small."""

from collections.abc import Callable
from functools import reduce
from operator import add

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import normscope
from doctor.wired import VOCABULARY, WIDTH, Block, Model, Stack, post, pre, tokens
from normscope.doctor.diagnose import Diagnosis


def seen(model: nn.Module, *inputs: Tensor, **options: object) -> Diagnosis:
    return normscope.diagnose(model, inputs or tokens(model), advise=False, **options)


def said(found: Diagnosis) -> list[str]:
    return [finding.id for finding in found.findings if finding.severity != "info"]


class TwoTowers(nn.Module):
    """Two encoders whose outputs meet in a matrix of similarities, of which the second view is
    returned first.
    """

    def __init__(self) -> None:
        super().__init__()
        self.some, self.others = (
            Model(lambda: Stack(pre, pre, blocks=3, final=1)) for _ in range(2)
        )

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
        self.gate, self.up, self.down = (
            nn.Linear(WIDTH, 32),
            nn.Linear(WIDTH, 32),
            nn.Linear(32, WIDTH),
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.down(functional.silu(self.gate(x)) * self.up(x))


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
    """A stack beside which the same norms run over no tokens at all, as over images that were not
    given.
    """

    def __init__(self) -> None:
        super().__init__()
        self.stack, self.last = Stack(pre, pre, blocks=3, final=1), nn.Linear(WIDTH, VOCABULARY)

    def forward(self, x: Tensor) -> Tensor:
        none = x[:0]
        none = none * none.pow(2).mean(-1, keepdim=True).add(1e-6).rsqrt()
        none = none + self.last.weight[:1] * torch.tanh(self.last(none)[..., :1])
        return self.last(torch.cat([self.stack(x), none]))


def test_norms_and_sums_of_no_tokens():
    assert [stack.placement for stack in seen(WithNothing(), torch.randn(2, 5, WIDTH)).stacks] == [
        "pre-ln"
    ]


OUTPUTS: dict[str, Callable[[list[Tensor]], Tensor]] = {
    "python's sum": sum,
    "sum of a stack": lambda outputs: torch.stack(outputs).sum(0),
    "sum of a last dimension": lambda outputs: torch.stack(outputs, -1).sum(-1),
}
ADDED: dict[str, tuple[Callable[[Tensor, Tensor, nn.Linear], Tensor], str]] = {
    "addmm": (
        lambda x, h, w: torch.addmm(
            (w.bias + x).flatten(0, 1), h.flatten(0, 1), w.weight.t()
        ).view_as(x),
        "x ← x + feed_forward(norm(x))",
    ),
    "addcmul": (
        lambda x, h, w: torch.addcmul(x, w(h), w.bias),
        "x ← x + trained · feed_forward(norm(x))",
    ),
    "lerp": (lambda x, h, w: x.lerp(w(h), 0.25), "x ← x + 0.25 · (feed_forward(norm(x)) - x)"),
}
"""How a last matrix's product is added, and what formula that is."""


class Listed(nn.Module):
    """A Pre-LN stack that keeps the outputs of its sub-layers, and adds them up for each of them
    anew.
    """

    def __init__(self, whole: Callable[[list[Tensor]], Tensor]) -> None:
        super().__init__()
        self.blocks, self.whole = nn.ModuleList(Block([pre, pre]) for _ in range(3)), whole
        self.start, self.last = nn.Embedding(VOCABULARY, WIDTH), nn.Linear(WIDTH, VOCABULARY)
        self.norm = nn.LayerNorm(WIDTH)

    def forward(self, ids: Tensor) -> Tensor:
        outputs = [self.start(ids)]
        for block in self.blocks:
            for f, norm in zip(block.f, block.norms, strict=True):
                outputs.append(f(norm(self.whole(outputs))))
        return self.last(self.norm(self.whole(outputs)))


@pytest.mark.parametrize("written", OUTPUTS)
def test_a_stream_that_is_the_sum_of_a_list(written):
    torch.manual_seed(0)
    found = seen(Listed(OUTPUTS[written]), torch.randint(VOCABULARY, (2, 7)))
    torch.manual_seed(0)
    usual = seen(Listed(lambda outputs: reduce(add, outputs)), torch.randint(VOCABULARY, (2, 7)))
    assert [(stack.placement, stack.blocks, stack.final_norm) for stack in found.stacks] == [
        ("pre-ln", 3, True)
    ]
    for one, other in zip(found.stacks[0].sublayers, usual.stacks[0].sublayers, strict=True):
        assert one.measured.share == pytest.approx(other.measured.share, rel=1e-5)
        assert one.measured.stream_square == pytest.approx(other.measured.stream_square, rel=1e-5)
    assert said(found) == []


class Added(nn.Module):
    """Feed-forwards alone, whose last product and residual sum are one operation."""

    def __init__(self, how: Callable[[Tensor, Tensor, nn.Linear], Tensor]) -> None:
        super().__init__()
        self.how, self.norms = how, nn.ModuleList(nn.LayerNorm(WIDTH) for _ in range(4))
        self.first, self.second = (
            nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(4)) for _ in range(2)
        )
        self.last = nn.Sequential(nn.LayerNorm(WIDTH), nn.Linear(WIDTH, VOCABULARY))

    def forward(self, x: Tensor) -> Tensor:
        for norm, first, second in zip(self.norms, self.first, self.second, strict=True):
            x = self.how(x, torch.relu(first(norm(x))), second)
        return self.last(x)


@pytest.mark.parametrize("operation", ADDED)
def test_a_sum_and_a_product_in_one_operation(operation):
    torch.manual_seed(0)
    how, formula = ADDED[operation]
    (stack,) = seen(Added(how), torch.randn(2, 5, WIDTH)).stacks
    assert [str(sublayer.formula) for sublayer in stack.sublayers] == [formula] * 4


def test_a_feed_forward_that_its_bias_keeps_shut_is_not_said_to_open():
    model = Model(lambda: Stack(pre, pre, blocks=4, final=1))
    with torch.no_grad():
        model.encoder.blocks[1].f[1][0].bias.fill_(-100)
    (dead,) = [finding for finding in seen(model).findings if finding.id == "dead-sublayer"]
    assert (dead.severity, dead.where) == ("warning", "encoder.blocks.1.f.1")
    assert "none of whose matrices gets a gradient" in dead.message
    assert "open" not in dead.message


class Denoiser(nn.Module):
    """Gives a vector for each token, which a loss compares with another one."""

    def __init__(self) -> None:
        super().__init__()
        self.stack, self.last = Stack(pre, pre, blocks=3, final=1), nn.Linear(WIDTH, 24)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.stack(x))


def test_a_mean_square_is_not_held_against_the_chance_of_classes():
    torch.manual_seed(0)
    model, x = Denoiser(), torch.randn(2, 6, WIDTH)
    found = seen(model, x, loss=lambda output: 0.01 * output.square().mean())
    assert found.measured.classes is None
    assert "loss-far-from-chance" not in said(found)
    assert [rule.asked for rule in found.rules if rule.id == "loss-far-from-chance"] == [False]


@pytest.mark.parametrize(("smoothing", "normalised"), [(0.0, False), (0.1, False), (0.0, True)])
def test_a_cross_entropy_is(smoothing, normalised):
    torch.manual_seed(0)
    model, x = Denoiser(), torch.randn(2, 6, WIDTH)
    targets = torch.randint(24, (12,))

    def loss(output: Tensor) -> Tensor:
        scores = output.reshape(12, 24)
        if normalised:
            return 10 - (scores[torch.arange(12), targets]).mean()
        return 10 + functional.cross_entropy(scores, targets, label_smoothing=smoothing)

    found = seen(nn.Sequential(model, nn.LogSoftmax(-1)) if normalised else model, x, loss=loss)
    assert found.measured.classes == 24
    assert "loss-far-from-chance" in said(found)


class Convolving(nn.Module):
    """x + conv(x) on images, and no norm at all."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = (nn.Conv2d(WIDTH, WIDTH, 3, padding=1) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.second(torch.relu(self.first(x)))


def test_convolutions_without_norms_are_no_placement_with_norms():
    torch.manual_seed(0)
    found = seen(nn.Sequential(*(Convolving() for _ in range(3))), torch.randn(2, WIDTH, 6, 6))
    assert {sublayer.placement for stack in found.stacks for sublayer in stack.sublayers} == {""}
    assert "no-norm" in {finding.id for finding in found.findings}


class Latents(nn.Module):
    """Learnt rows that read the input by cross-attention first, as Perceiver's, and then go through
    blocks.
    """

    def __init__(self, learnt: bool) -> None:
        super().__init__()
        self.rows, self.learnt = nn.Parameter(torch.randn(6, WIDTH)), learnt
        self.blocks, self.last = Stack(pre, pre, blocks=4, final=1), nn.Linear(WIDTH, VOCABULARY)

    def forward(self, x: Tensor) -> Tensor:
        attention, feed_forward = self.blocks.blocks[0].f
        norms = self.blocks.blocks[0].norms
        rows = self.rows.expand(len(x), -1, -1)
        read = attention(norms[0](rows), x)
        x = rows + read if self.learnt else attention(norms[0](x))
        x = x + feed_forward(norms[1](x))
        for block in self.blocks.blocks[1:]:
            x = block(x)
        return self.last(self.blocks.final_norm(x))


@pytest.mark.parametrize("learnt", [True, False])
def test_a_first_sum_with_learnt_rows_is_not_lost(learnt):
    torch.manual_seed(0)
    errors = [
        f.id
        for f in seen(Latents(learnt), torch.randn(2, 6, WIDTH)).findings
        if f.severity == "error"
    ]
    assert errors == ([] if learnt else ["lost-residual"])


class Around(nn.Module):
    """A block, a deep stack over every other token, and a block on what both give, as CANINE's."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = (Stack(post, post, blocks=1) for _ in range(2))
        self.deep, self.both = Stack(post, post, blocks=3), nn.Linear(2 * WIDTH, WIDTH)
        self.down, self.head = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, VOCABULARY)
        self.norm = nn.LayerNorm(WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        deep = self.deep(self.norm(self.down(x[:, ::2]))).repeat_interleave(2, 1)
        return self.head(self.last(self.norm(self.both(torch.cat([x, deep], -1)))))


def test_a_stack_between_two_others_is_no_lost_sum():
    torch.manual_seed(0)
    found = seen(Around(), torch.randn(2, 6, WIDTH))
    assert len(found.stacks) == 3
    assert said(found) == []


class Stages(nn.Module):
    """Pre-LN at two resolutions, with a matrix between; the last alone ends in a norm."""

    def __init__(self) -> None:
        super().__init__()
        self.fine, self.coarse = Stack(pre, pre, blocks=2), Stack(pre, pre, blocks=2, final=1)
        self.merge, self.head = nn.Linear(2 * WIDTH, WIDTH), nn.Linear(WIDTH, VOCABULARY)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.coarse(self.merge(self.fine(x).unflatten(1, (-1, 2)).flatten(2))))


def test_a_stage_that_hands_on_to_the_next_needs_no_final_norm():
    torch.manual_seed(0)
    found = seen(Stages(), torch.randn(2, 6, WIDTH))
    assert [stack.placement for stack in found.stacks] == ["pre-ln", "pre-ln"]
    assert said(found) == []


class ByEinsum(nn.Module):
    """Static hyper-connections on one tensor whose streams begin as views of one embedding (Zhu et
    al. 2024).
    """

    def __init__(self) -> None:
        super().__init__()
        self.blocks, self.start = (
            Stack(pre, pre, blocks=3, final=1),
            nn.Embedding(VOCABULARY, WIDTH),
        )
        self.mix = nn.ParameterList(torch.eye(3) + 0.1 * torch.rand(3, 3) for _ in range(6))
        self.write = nn.ParameterList(1 + torch.rand(3) for _ in range(6))
        self.last = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, ids: Tensor) -> Tensor:
        streams = self.start(ids).unsqueeze(2).expand(-1, -1, 3, -1)
        weights = zip(self.mix, self.write, strict=True)
        for block in self.blocks.blocks:
            for f, norm in zip(block.f, block.norms, strict=True):
                mix, write = next(weights)
                read = torch.einsum("n,btnd->btd", mix[0], streams)
                streams = torch.einsum("mn,btnd->btmd", mix, streams) + write[:, None] * f(
                    norm(read)
                ).unsqueeze(2)
        return self.last(self.blocks.final_norm(streams.sum(2)))


def test_streams_that_begin_as_views_of_one_value_are_joined_by_the_first_sum_too():
    torch.manual_seed(0)
    found = seen(ByEinsum(), torch.randint(VOCABULARY, (2, 5)))
    assert [(stack.streams, len(stack.sublayers)) for stack in found.stacks] == [(3, 6)]
    assert [finding.id for finding in found.findings if finding.severity == "error"] == []


class BufferedScaling(nn.Module):
    """LayerNorm scaling with 1/√l in a buffer, whose first entry is 1."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("scale", torch.arange(1.0, 5.0).rsqrt())
        joins = [self.joined(block) for block in range(4)]
        self.inner = Model(lambda: Stack(blocks=[Block((join, join)) for join in joins], final=1))

    def joined(self, block: int) -> Callable[..., Tensor]:
        return lambda x, f, norm: x + f(norm(x) * self.scale[block])

    def forward(self, ids: Tensor) -> Tensor:
        return self.inner(ids)


def test_a_number_in_a_buffer_is_that_of_the_formula_whatever_the_order_of_hashes():
    torch.manual_seed(0)
    found = seen(BufferedScaling(), torch.randint(VOCABULARY, (2, 7)))
    assert {(one.placement, one.confidence) for one in found.stacks[0].sublayers} == {
        ("lns", "sure")
    }
    assert found.verdict == "healthy"


class InPlace(nn.LayerNorm):
    """Writes into its input, which the skip path reads after it (nano-vllm 170)."""

    def forward(self, x: Tensor) -> Tensor:
        return x.mul_(torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6)) * self.weight


def test_a_norm_that_overwrites_its_input_is_named():
    model = Model(lambda: Stack(pre, pre, blocks=3, final=1))
    for block in model.encoder.blocks:
        block.norms[1] = InPlace(WIDTH)
    (found,) = [one for one in seen(model).findings if one.id == "no-gradient"]
    assert (found.severity, found.where.split(", ")[0]) == ("error", "encoder.blocks.0.norms.1")
    assert "modified by an inplace operation" in found.message
    assert "no-gradient" not in said(seen(Model(lambda: Stack(pre, pre, blocks=3, final=1))))


def test_of_a_pass_without_autograd_the_structure_is_told_and_no_health():
    model = Model(lambda: Stack(pre, pre, blocks=3, final=1))
    usual = model.forward
    model.forward = torch.no_grad()(usual)
    found = seen(model)
    assert [(one.id, one.severity) for one in found.findings] == [("no-gradient", "info")]
    assert (found.stacks[0].placement, found.measured.gradient_norms) == ("pre-ln", {})
    assert "healthy" not in str(found)
    model.forward = usual
    assert "healthy" in str(seen(model))


class TwoEnds(nn.Module):
    """Its first output knows of the table alone, which attention reads too; the blocks' own stands
    beside it.
    """

    def __init__(self) -> None:
        super().__init__()
        self.inner = Model(lambda: Stack(pre, pre, blocks=3, final=1))
        self.places = nn.Embedding(7, WIDTH)

    def forward(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        places = self.places(torch.arange(7)).expand(len(ids), -1, -1)
        x = self.inner.embedding(ids)
        for block in self.inner.encoder.blocks:
            x = x + block.f[0](block.norms[0](x) + places)
            x = x + block.f[1](block.norms[1](x))
        return places, self.inner.projection(x)


def test_a_table_that_a_branch_reads_too_is_no_bias_of_it():
    """Deformable DETR's queries, on which the first output's loss depends and the blocks' weights
    do not.
    """
    torch.manual_seed(0)
    ids = torch.randint(VOCABULARY, (2, 7))
    assert "dead-sublayer" not in said(
        seen(TwoEnds(), ids, loss=lambda output: output[0].square().mean())
    )


def normed_skip(x: Tensor, f: nn.Module, norm: nn.Module) -> Tensor:
    return (y := norm(x)) + f(y)


@pytest.mark.sampled(one_in=3)
@pytest.mark.parametrize("odd", [1, 2, 3])
def test_a_block_whose_skip_is_normed_does_not_take_the_final_norm(odd):
    """The feed-forward before it ends as the last one does, in a norm."""
    torch.manual_seed(0)
    joins = [(normed_skip if block == odd else pre, pre) for block in range(6)]
    (stack,) = seen(Model(lambda: Stack(blocks=[Block(two) for two in joins], final=1))).stacks
    assert stack.final_norm
    assert {one.placement for one in stack.sublayers if one.block in (5, 6)} == {"pre-ln"}


def conformer(change: bool):
    from transformers import LasrEncoderConfig
    from transformers.models.lasr.modeling_lasr import LasrEncoder

    torch.manual_seed(0)
    sizes = {
        "hidden_size": 32,
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
        "intermediate_size": 48,
    }
    convolutions = {"num_mel_bins": 16, "subsampling_conv_channels": 8, "conv_kernel_size": 5}
    model = LasrEncoder(LasrEncoderConfig(**sizes, **convolutions)).eval()
    if change:
        model.out_norm = nn.Sequential(model.out_norm, nn.LayerNorm(32))
    return model


@pytest.mark.parametrize(("change", "severity"), [(False, "info"), (True, "warning")])
def test_a_norm_after_a_norm_is_a_note_where_a_library_has_it(change, severity):
    """And no factor of its blocks amplifies the stream, for each ends in a norm."""
    found = seen(conformer(change), torch.randn(2, 48, 16)).findings
    assert {one.severity for one in found if one.id == "double-final-norm"} == {severity}
    assert "amplified-stream" not in {one.id for one in found}


def mixed(first: Callable, rest: Callable) -> nn.Module:
    torch.manual_seed(0)
    return Model(
        lambda: Stack(
            blocks=[Block((first, first)), *(Block((rest, rest)) for _ in range(4))], final=1
        )
    )


@pytest.mark.parametrize(("first", "said"), [(post, ["info"]), (pre, [])])
def test_one_block_that_makes_a_mixture_is_told(first, said):
    found = [one for one in seen(mixed(first, pre)).findings if one.id == "mixed-placements"]
    assert [one.severity for one in found] == said
    assert all(
        "block 1 of 5 alone makes this Mix-LN: the others are wired as Pre-LN too" in one.message
        for one in found
    )


class Writing(nn.Module):
    def __init__(self, write: bool) -> None:
        super().__init__()
        self.gain, self.write = nn.Parameter(torch.ones(WIDTH)), write

    def forward(self, x: Tensor) -> Tensor:
        factor = (x.square().mean(-1, keepdim=True) + 1e-6).rsqrt()
        return (x.mul_(factor) if self.write else x * factor) * self.gain


@pytest.mark.parametrize("write", [False, True])
def test_norms_that_write_into_the_stream_are_told_without_a_gradient(write):
    torch.manual_seed(0)
    model = Model(lambda: Stack(pre, pre, final=1))
    for name, one in list(model.named_modules()):
        if isinstance(one, nn.LayerNorm):
            model.set_submodule(name, Writing(write))
    model.forward = torch.no_grad()(model.forward)
    found = [one.message for one in seen(model).findings if one.id == "altered-stream"]
    assert [one.partition(" norms write into")[0] for one in found] == ["8"] * write


@pytest.mark.parametrize("places", [False, True])
def test_without_places_no_token_knows_which_one_is_next(places):
    """An encoder whose loss is of the next token: the first of the two is a set's model."""
    torch.manual_seed(0)
    ids = torch.randint(VOCABULARY, (3, 12))
    layer = nn.TransformerEncoderLayer(WIDTH, 2, 32, batch_first=True, norm_first=True)
    stack = nn.TransformerEncoder(layer, 3, norm=nn.LayerNorm(WIDTH), enable_nested_tensor=False)
    position = [Placed()] if places else []
    model = nn.Sequential(
        nn.Embedding(VOCABULARY, WIDTH), *position, stack, nn.Linear(WIDTH, VOCABULARY)
    )

    def loss(logits: Tensor) -> Tensor:
        return functional.cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten())

    (found,) = [one for one in seen(model, ids, loss=loss).findings if one.id == "attention-mask"]
    assert found.severity == ("warning" if places else "info")


class Placed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.randn(20, WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.table[: x.shape[1]]
