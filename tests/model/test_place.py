"""Modules of a user's own under every placement: the weights, the norms and the outputs of the
registry's models.
"""

import copy
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import normscope
from normscope import Decoder, Encoder, place
from normscope.model.padded.modules import Placed
from normscope.placement import registered
from stacks import CLOSE, FFN_WIDTH, HEADS, WIDTH, schedule

SIZES = {"width": WIDTH, "heads": HEADS, "ffn_width": FFN_WIDTH}
BLOCKS = 4
DEFINED = {
    kind: [name for name, placement in registered().items() if kind in placement.models]
    for kind in ("encoder-only", "encoder-decoder")
}


class Attention(nn.Module):
    """A user's: four linear layers in an order of its own, and functions where a formula wants
    them.
    """

    num_heads = HEADS

    def __init__(self) -> None:
        super().__init__()
        self.o_proj, self.v_proj = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.q_proj, self.k_proj = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)

    def attended(self, x: Tensor, read: Tensor, inside, *, causal: bool = False) -> Tensor:
        def apply(place: str, value: Tensor) -> Tensor:
            return inside[place](value) if place in inside else value

        q, k, v = (
            apply("query", self.q_proj(x)),
            apply("key", self.k_proj(read)),
            apply("value", self.v_proj(read)),
        )
        q, k, v = (t.unflatten(-1, (HEADS, -1)).transpose(1, 2) for t in (q, k, v))
        scores = q @ k.transpose(-2, -1) * q.shape[-1] ** -0.5
        if causal:
            scores = scores.masked_fill(torch.ones(scores.shape[-2:]).triu(1).bool(), -torch.inf)
        mixed = (scores.softmax(-1) @ v).transpose(1, 2).flatten(-2)
        return self.o_proj(apply("output", mixed))

    def forward(self, x: Tensor, *, inside, causal: bool = False) -> Tensor:
        return self.attended(x, x, inside, causal=causal)


class Crossing(Attention):
    def forward(self, x: Tensor, *, inside, memory: Tensor) -> Tensor:
        return self.attended(x, memory, inside)


class FeedForward(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(WIDTH, FFN_WIDTH), nn.Linear(FFN_WIDTH, WIDTH)

    def forward(self, x: Tensor, inside) -> Tensor:
        hidden = self.up(x)
        hidden = inside.get("hidden", lambda h: h)(hidden).relu()
        return self.down(inside.get("output", lambda h: h)(hidden))


def rows(*kinds: type[nn.Module], blocks: int = BLOCKS) -> list[list[nn.Module]]:
    return [[kind() for kind in kinds] for _ in range(blocks)]


def same_weights(ours: Placed, theirs: Placed) -> None:
    """Every matrix and bias under its name, every norm and every parameter of the formula, to the
    last bit.
    """
    for a, b in zip(ours.stack.sublayers(), theirs.stack.sublayers(), strict=True):
        matrices = dict(a.f.matrices())
        for name, linear in b.f.matrices():
            assert torch.equal(matrices[name].weight, linear.weight), (a.site, name)
            assert torch.equal(matrices[name].bias, linear.bias), (a.site, name)
    own, registrys = (
        {name: value for name, value in module.state_dict().items() if ".f." not in name}
        for module in (ours, theirs)
    )
    assert own.keys() == registrys.keys()
    assert all(torch.equal(value, registrys[name]) for name, value in own.items())


def drawn_alike(*makers: Callable[[], Placed]) -> list[Placed]:
    """Ours and theirs, drawn from one seed: their weights are compared, and then they are ready to
    be evaluated.
    """
    modules = []
    for make in makers:
        torch.manual_seed(3)
        modules.append(make())
    same_weights(*modules)
    for module in modules:
        module.unready = False
        module.double().eval()
        schedule(module, 0.37)
    return modules


@pytest.mark.parametrize("placement", DEFINED["encoder-only"])
def test_an_encoder_of_the_users_is_the_registrys(placement: str) -> None:
    blocks = rows(Attention, FeedForward)
    ours, theirs = drawn_alike(
        lambda: place(placement, blocks, width=WIDTH),
        lambda: Encoder(placement, blocks=BLOCKS, **SIZES),
    )
    x = torch.randn(2, 5, WIDTH, dtype=torch.float64)
    torch.testing.assert_close(ours(x, causal=True), theirs(x, causal=True), **CLOSE)


@pytest.mark.parametrize("placement", DEFINED["encoder-decoder"])
def test_a_decoder_of_the_users_is_the_registrys(placement: str) -> None:
    blocks = rows(Attention, Crossing, FeedForward)
    ours, theirs = drawn_alike(
        lambda: place(placement, blocks, width=WIDTH, other_blocks=2),
        lambda: Decoder(placement, blocks=BLOCKS, encoder_blocks=2, **SIZES),
    )
    x, memory = (
        torch.randn(2, 5, WIDTH, dtype=torch.float64),
        torch.randn(2, 3, WIDTH, dtype=torch.float64),
    )
    torch.testing.assert_close(ours(x, memory=memory, causal=True), theirs(x, memory), **CLOSE)


def torchs() -> tuple[nn.Module, nn.Module]:
    attention = nn.MultiheadAttention(WIDTH, HEADS, batch_first=True)
    return attention, nn.Sequential(
        nn.Linear(WIDTH, FFN_WIDTH), nn.ReLU(), nn.Linear(FFN_WIDTH, WIDTH)
    )


@pytest.mark.parametrize("placement", ["pre-ln", "deepnorm", "attn-res"])
def test_torchs_own_modules_are_known(placement: str) -> None:
    blocks = [torchs() for _ in range(BLOCKS)]
    ours, theirs = drawn_alike(
        lambda: place(placement, blocks, width=WIDTH),
        lambda: Encoder(placement, blocks=BLOCKS, **SIZES),
    )
    x = torch.randn(2, 5, WIDTH, dtype=torch.float64)
    padding = torch.arange(5) >= torch.tensor([[4], [5]])
    found, expected = ours(x, key_padding_mask=padding), theirs(x, padding_mask=padding)
    torch.testing.assert_close(found[~padding], expected[~padding], **CLOSE)


def test_torchs_cross_attention_reads_the_memory() -> None:
    attention, feed_forward = torchs()
    crossing = nn.MultiheadAttention(WIDTH, HEADS, batch_first=True)
    ours, theirs = drawn_alike(
        lambda: place(
            "post-ln", [[attention, crossing, feed_forward]], width=WIDTH, other_blocks=1
        ),
        lambda: Decoder("post-ln", blocks=1, encoder_blocks=1, **SIZES),
    )
    x, memory = (
        torch.randn(2, 5, WIDTH, dtype=torch.float64),
        torch.randn(2, 3, WIDTH, dtype=torch.float64),
    )
    found = ours(x, memory=memory, attn_mask=torch.ones(5, 5).triu(1).bool())
    torch.testing.assert_close(found, theirs(x, memory), **CLOSE)


def test_all_three_placements_train_what_they_are_given() -> None:
    x, wanted = (
        torch.randn(4, 5, WIDTH, generator=torch.Generator().manual_seed(seed)) for seed in (0, 1)
    )
    for name in ("post-ln", "ngpt", "admin"):
        torch.manual_seed(0)
        model = place(name, rows(Attention, FeedForward, blocks=1), width=WIDTH)
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
        normscope.profile(model, lambda model=model: model(x))
        normscope.attach(model, optimizer)
        losses = []
        for _ in range(25):
            loss = (model(x) - wanted).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        assert losses[-1] < losses[0] - 0.2
    query = (
        place("ngpt", rows(Attention, FeedForward, blocks=1), width=WIDTH)
        .stack.blocks[0]
        .attention.f.module.q_proj
    )
    torch.testing.assert_close(query.weight.norm(dim=1), torch.ones(WIDTH))


def test_moved_to_another_dtype_its_unit_vectors_are_still_found() -> None:
    model = place("ngpt", rows(Attention, FeedForward, blocks=1), width=WIDTH).double()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    normscope.attach(model, optimizer)
    x = torch.randn(2, 3, WIDTH, dtype=torch.float64)
    (model(x) * torch.arange(WIDTH)).sum().backward()
    optimizer.step()
    weight = model.stack.blocks[0].attention.f.module.q_proj.weight
    torch.testing.assert_close(weight.norm(dim=1), torch.ones(WIDTH, dtype=torch.float64))


def test_kept_weights_are_kept() -> None:
    blocks = rows(Attention, FeedForward)
    before = copy.deepcopy(blocks)
    place("deepnorm", blocks, width=WIDTH, initialisation="keep")
    for row, kept in zip(blocks, before, strict=True):
        for module, same in zip(row, kept, strict=True):
            assert all(
                torch.equal(a, b)
                for a, b in zip(module.parameters(), same.parameters(), strict=True)
            )


def test_matrices_may_be_told_gated_and_transposed() -> None:
    """A SwiGLU's gate is drawn as its other first matrix; a weight stored (in, out) is given as its
    transpose.
    """

    class Gated(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.gate, self.up = nn.Linear(WIDTH, FFN_WIDTH), nn.Linear(WIDTH, FFN_WIDTH)
            self.down = nn.Parameter(torch.zeros(FFN_WIDTH, WIDTH))

        def forward(self, x: Tensor) -> Tensor:
            return nn.functional.silu(self.gate(x)) * self.up(x) @ self.down

        def matrices(self):
            return [("ffn_in", self.gate), ("ffn_in", self.up), ("ffn_out", self.down.T)]

    attention, _ = torchs()
    feed_forward = Gated()
    torch.manual_seed(0)
    place("gpt2", [[attention, feed_forward]], width=WIDTH, matrices=None)
    assert feed_forward.down.std().item() == pytest.approx(0.02 / 2**0.5, rel=0.15)
    for linear in (feed_forward.gate, feed_forward.up):
        assert linear.weight.std().item() == pytest.approx(0.02, rel=0.15)
        assert (linear.bias == 0).all()


@pytest.mark.parametrize(
    ("blocks", "options", "says"),
    [
        (lambda: [], {}, "at least one block"),
        (lambda: [[Attention()]], {}, "2 or 3 modules"),
        (
            lambda: [{"feed_forward": FeedForward(), "attention": Attention()}],
            {},
            "in the order attention",
        ),
        (
            lambda: [[Attention(), FeedForward()], [Attention(), Crossing(), FeedForward()]],
            {},
            "same modules",
        ),
        (
            lambda: [[Attention(), FeedForward()]],
            {"stack": "decoder", "other_blocks": 2},
            "cross_attention",
        ),
        (lambda: [[Attention(), Crossing(), FeedForward()]], {}, "other_blocks=0"),
        (
            lambda: [[Attention(), nn.Linear(WIDTH, WIDTH)]],
            {},
            "cannot tell which weights of Linear",
        ),
        (
            lambda: [[nn.Sequential(Attention(), nn.Linear(WIDTH, WIDTH)), FeedForward()]],
            {},
            "cannot tell",
        ),
        (lambda: [[Attention(), FeedForward()]], {"width": 8}, "does not fit width=8"),
        (lambda: [[Attention(), FeedForward()]], {"initialisation": "none"}, "keep"),
        (lambda: [[Attention(), FeedForward()]], {"placement": "pre-lnn"}, "pre-ln"),
        (
            lambda: [torchs()],
            {"placement": "sub-ln"},
            r"within attention \(output\): SelfAttention must take them",
        ),
        (lambda: [torchs()], {"placement": "hybrid-norm"}, r"\(key, query, value\)"),
        (
            lambda: [[Attention(), FeedForward()]],
            {"matrices": lambda kind, module: [("query", module.q_proj)]},
            "no key, value, output",
        ),
    ],
)
def test_what_cannot_be_placed_is_refused(blocks, options, says) -> None:
    with pytest.raises(ValueError, match=says):
        place(**{"placement": "pre-ln", "sublayers": blocks(), "width": WIDTH, **options})


def test_the_same_module_twice_is_refused() -> None:
    attention = Attention()
    with pytest.raises(ValueError, match="two places"):
        place("pre-ln", [[attention, FeedForward()], [attention, FeedForward()]], width=WIDTH)


def test_heads_are_asked_for_where_they_matter() -> None:
    class Nameless(Attention):
        num_heads = None

    with pytest.raises(ValueError, match="give heads="):
        place("hybrid-norm", rows(Nameless, FeedForward), width=WIDTH)
    place("hybrid-norm", rows(Nameless, FeedForward), width=WIDTH, heads=HEADS)
    place("pre-ln", rows(Nameless, FeedForward), width=WIDTH)


class TestRunning:
    def test_a_keyword_that_nobody_takes_is_refused(self) -> None:
        model = place("pre-ln", rows(Attention, FeedForward), width=WIDTH)
        with pytest.raises(TypeError, match="casual"):
            model(torch.randn(1, 2, WIDTH), casual=True)

    def test_functions_that_are_not_applied_are_noticed(self) -> None:
        class Deaf(FeedForward):
            def forward(self, x: Tensor, inside) -> Tensor:
                return super().forward(x, {})

        model = place("sub-ln", rows(Attention, Deaf), width=WIDTH)
        with pytest.raises(
            RuntimeError,
            match=r"feed_forward module Deaf took `inside` and did not apply .* output",
        ):
            model(torch.randn(1, 2, WIDTH))

    def test_a_module_that_gives_something_else_is_noticed(self) -> None:
        class Pair(FeedForward):
            def forward(self, x: Tensor, inside):
                return super().forward(x, inside), None

        model = place("pre-ln", rows(Attention, Pair), width=WIDTH)
        with pytest.raises(TypeError, match="gave tuple"):
            model(torch.randn(1, 2, WIDTH))

    def test_another_width_is_refused(self) -> None:
        model = place("pre-ln", rows(Attention, FeedForward), width=WIDTH)
        with pytest.raises(ValueError, match="last dimension of 12"):
            model(torch.randn(1, 2, WIDTH + 1))
