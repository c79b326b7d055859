"""Placements that a user could write: each is one class, and everything else follows from its formula.

Every one is compared with its equations in float64, over an encoder, a decoder and an encoder-decoder.
"""

import math

import pytest
import torch
from torch import Tensor

from normscope.model import EncoderDecoder, Layout
from normscope.placement import Placement, Sublayer, Value, register
from normscope.placement.printing import formula
from normscope.placement.symbol import Symbol
from reference import ReferenceStack
from stacks import FFN_WIDTH, WIDTH, assert_model_matches, assert_stack_matches, small_model, small_stack


class Own(Placement):
    citation, year = "tests", 2026


class ReZero(Own):
    """One gate a block, 0 at first, and no norm at all (Bachlechner et al. 2020)."""

    name = title = "own-rezero"

    def join(self, x, sublayer, norm):
        return x + sublayer.parameter("a", initial=0.0, shared_by_block=True) * sublayer(x)


def rezero(x: Tensor, stack: ReferenceStack) -> Tensor:
    for block in stack.by_block():
        gate = stack.w[f"{stack.at}blocks.{block[0].block - 1}.placed.a"]
        for f in block:
            x = x + gate * f(x)
    return x


class SubLN(Own):
    """A second norm before the last matrix of F (Magneto, Wang et al. 2022)."""

    name = title = "own-sub-ln"

    def join(self, x, sublayer, norm):
        return x + sublayer(norm(x), output=norm.inner)

    def finish(self, state, end):
        return end.norm(state)


def sub_ln(x: Tensor, stack: ReferenceStack) -> Tensor:
    for f in stack.sublayers():
        x = x + f(f.norm(x), output=lambda y, f=f: f.norm.named("inner", y))
    return stack.final_norm(x)


class HybridNorm(Own):
    """Norms on the projections, and one between attention and feed-forward (Zhuo et al. 2025)."""

    name = title = "own-hybrid"

    def join(self, x, sublayer, norm):
        if sublayer.site.kind == "feed_forward":
            return x + sublayer(x)
        return norm(x + sublayer(x, query=norm.query, key=norm.key, value=norm.value))


def hybrid(x: Tensor, stack: ReferenceStack) -> Tensor:
    for f in stack.sublayers():
        if f.kind == "feed_forward":
            x = x + f(x)
        else:
            places = ("query", "key", "value")
            x = f.norm(x + f(x, **{p: lambda y, f=f, p=p: f.norm.named(p, y) for p in places}))
    return x


class BottomToTop(Own):
    """A skip from the block's input to its last norm (Takase et al. 2022)."""

    name = title = "own-b2t"

    def block(self, state, sublayers):
        x = state
        *others, last = sublayers
        for sublayer in others:
            x = sublayer.norm(x + sublayer(x))
        return last.norm(state + x + last(x))


def bottom_to_top(x: Tensor, stack: ReferenceStack) -> Tensor:
    for block in stack.by_block():
        start = x
        for f in block[:-1]:
            x = f.norm(x + f(x))
        x = block[-1].norm(start + x + block[-1](x))
    return x


class Sandwich(Own):
    """A norm before F and one after it (CogView; Peri-LN)."""

    name = title = "own-sandwich"

    def start(self, x, end):
        return end.norm(x)

    def join(self, x, sublayer, norm):
        return x + norm.after(sublayer(norm.before(x)))


def sandwich(x: Tensor, stack: ReferenceStack) -> Tensor:
    for number, f in enumerate(stack.sublayers()):
        if number == 0:
            first = type(f.norm)(stack.w, f"{stack.at}start.norm.", stack.norm, stack.epsilon)
            x = first(x)
        x = x + f.norm.named("after", f(f.norm.named("before", x)))
    return x


class LayerNormScaling(Own):
    """The normed input divided by the root of the block's number (Sun et al. 2025)."""

    name = title = "own-lns"

    def join(self, x, sublayer, norm):
        return x + sublayer(norm(x) / math.sqrt(sublayer.site.block))

    def finish(self, state, end):
        return end.norm(state)


def layer_norm_scaling(x: Tensor, stack: ReferenceStack) -> Tensor:
    for f in stack.sublayers():
        x = x + f(f.norm(x) * f.block**-0.5)
    return stack.final_norm(x)


class MixLN(Own):
    """Post-LN in the first half of the blocks, Pre-LN after it (Li et al. 2024, there a quarter)."""

    name = title = "own-mix"

    def join(self, x, sublayer, norm):
        if sublayer.site.block <= self.stack.blocks // 2:
            return norm(x + sublayer(x))
        return x + sublayer(norm(x))

    def finish(self, state, end):
        return end.norm(state)


def mix_ln(x: Tensor, stack: ReferenceStack) -> Tensor:
    for f in stack.sublayers():  # of 2 or 3 blocks the first alone is Post-LN
        x = f.norm(x + f(x)) if f.block == 1 else x + f(f.norm(x))
    return stack.final_norm(x)


def attend_over(values: tuple[Value, ...], keys: list[Value], query: Value) -> Value:
    """Σ_i softmax_i(query · keys_i) values_i; a reader without sums and exponentials sees one named operation."""
    if isinstance(query, Symbol):
        return Symbol("attend", (*values, query), values[0].width)
    weights = torch.stack([(key * query).sum(-1) for key in keys]).softmax(0)
    return (weights[..., None] * torch.stack(values)).sum(0)


class AttentionResidual(Own):
    """Every sub-layer reads a learned mean of the embedding and all branches before it (arXiv:2603.15031)."""

    name = title = "own-attention-residual"
    streams = ()

    def start(self, x, end):
        return (x,)

    def join(self, x, sublayer: Sublayer, norm):
        query = sublayer.parameter("query", initial=0.0, shape=(self.stack.width,))
        return (*x, sublayer(attend_over(x, [norm(v) for v in x], query)))

    def finish(self, state, end):
        return end.norm(sum(state[1:], state[0]))


def attention_residual(x: Tensor, stack: ReferenceStack) -> Tensor:
    history = [x]
    for f in stack.sublayers():
        scores = torch.stack([f.norm(v) @ f.placed("query") for v in history], -1).exp()
        shares = scores / scores.sum(-1, keepdim=True)
        history.append(f(torch.einsum("btn,nbtd->btd", shares, torch.stack(history))))
    return stack.final_norm(torch.stack(history).sum(0))


class Admin(Own):
    """A trainable weight for each feature of the skip (Liu et al. 2020)."""

    name = title = "own-admin"

    def join(self, x, sublayer, norm):
        return norm(sublayer.parameter("skip_scale", initial=1.0, shape=(self.stack.width,)) * x + sublayer(x))


def admin(x: Tensor, stack: ReferenceStack) -> Tensor:
    for f in stack.sublayers():
        x = f.norm(x * f.placed("skip_scale") + f(x))
    return x


class Gated(Own):
    """x moves a learned part of the way to the normed branch (as nGPT does)."""

    name = title = "own-gated"

    def join(self, x, sublayer, norm):
        gate = sublayer.parameter("gate", initial=0.05)
        return (1 - gate) * x + gate * norm(sublayer(x))


def gated(x: Tensor, stack: ReferenceStack) -> Tensor:
    for f in stack.sublayers():
        x = x + f.placed("gate") * (f.norm(f(x)) - x)
    return x


FORMULAS = {
    ReZero: rezero,
    SubLN: sub_ln,
    HybridNorm: hybrid,
    BottomToTop: bottom_to_top,
    Sandwich: sandwich,
    LayerNormScaling: layer_norm_scaling,
    MixLN: mix_ln,
    AttentionResidual: attention_residual,
    Admin: admin,
    Gated: gated,
}
OWN = pytest.mark.parametrize("placement", FORMULAS, ids=lambda p: p.name)


@pytest.fixture(autouse=True)
def _registered(registry):
    for placement in FORMULAS:
        register(placement)


@OWN
@pytest.mark.parametrize("kind", ["encoder", "decoder"])
def test_one_stack_follows_the_equations(placement, kind):
    assert_stack_matches(small_stack(placement.name, kind, blocks=3), FORMULAS[placement])


@OWN
def test_an_encoder_decoder_follows_the_equations(placement):
    assert_model_matches(small_model(placement.name), FORMULAS[placement])


def of_norm(at: str, width: int = WIDTH) -> dict[str, tuple[int, ...]]:
    return {f"{at}.weight": (width,), f"{at}.bias": (width,)}


@pytest.mark.parametrize(
    ("placement", "expected"),
    [
        (ReZero, {"blocks.0.placed.a": ()}),
        (
            SubLN,
            of_norm("blocks.0.attention.norm.main")
            | of_norm("blocks.0.attention.norm.inner")
            | of_norm("blocks.0.feed_forward.norm.main")
            | of_norm("blocks.0.feed_forward.norm.inner", FFN_WIDTH)
            | of_norm("finish.norm.main"),
        ),
        (
            HybridNorm,
            of_norm("blocks.0.attention.norm.main")
            | of_norm("blocks.0.attention.norm.query")
            | of_norm("blocks.0.attention.norm.key")
            | of_norm("blocks.0.attention.norm.value"),
        ),
        (BottomToTop, of_norm("blocks.0.attention.norm.main") | of_norm("blocks.0.feed_forward.norm.main")),
        (
            Sandwich,
            of_norm("start.norm.main")
            | of_norm("blocks.0.attention.norm.before")
            | of_norm("blocks.0.attention.norm.after")
            | of_norm("blocks.0.feed_forward.norm.before")
            | of_norm("blocks.0.feed_forward.norm.after"),
        ),
        (
            AttentionResidual,
            of_norm("blocks.0.attention.norm.main")
            | of_norm("blocks.0.feed_forward.norm.main")
            | of_norm("finish.norm.main")
            | {"blocks.0.attention.placed.query": (WIDTH,), "blocks.0.feed_forward.placed.query": (WIDTH,)},
        ),
        (
            Admin,
            of_norm("blocks.0.attention.norm.main")
            | of_norm("blocks.0.feed_forward.norm.main")
            | {"blocks.0.attention.placed.skip_scale": (WIDTH,), "blocks.0.feed_forward.placed.skip_scale": (WIDTH,)},
        ),
    ],
    ids=lambda p: p.name if isinstance(p, type) else "",
)
def test_exactly_the_parameters_that_the_formula_asks_for(placement, expected):
    stack = small_stack(placement.name, "encoder", blocks=1)
    shapes = {name: tuple(p.shape) for name, p in stack.named_parameters(remove_duplicate=False)}
    assert {name: shape for name, shape in shapes.items() if ".f." not in name} == expected


@pytest.mark.parametrize(
    ("placement", "initial"), [(ReZero, 0.0), (AttentionResidual, 0.0), (Admin, 1.0), (Gated, 0.05)]
)
def test_gates_start_where_they_should_and_learn(placement, initial):
    torch.manual_seed(0)
    model = EncoderDecoder(small_model(placement.name).config, 20, 20)
    gates = {name: p for name, p in model.named_parameters() if ".placed." in name}
    assert gates
    assert all((p == initial).all() for p in gates.values())
    tokens, layout = torch.tensor([4, 5, 6]), Layout(torch.tensor([3]))
    model.logits(model(tokens, layout, tokens, layout)).log_softmax(-1)[:, 7].sum().backward()
    # The encoder's gates wait for cross-attention's, closed in ReZero; a softmax over one value has no gradient.
    still = [name for name, p in gates.items() if name.startswith("decoder") and not p.grad.any()]
    assert still == (["decoder.blocks.0.attention.placed.query"] if placement is AttentionResidual else [])


@pytest.mark.parametrize(
    ("placement", "text"),
    [
        (ReZero, "x ← x + a · F(x)"),
        (SubLN, "x ← x + F(norm(x), norm_inner(output)); y = norm(x)"),
        (
            HybridNorm,
            "attention: x ← norm(x + F(x, norm_query(query), norm_key(key), norm_value(value))); "
            "feed_forward: x ← x + F(x)",
        ),
        (BottomToTop, "x ← norm(x + norm(x + attention(x)) + feed_forward(norm(x + attention(x))))"),
        (Sandwich, "x ← x + norm_after(F(norm_before(x)))"),
        (AttentionResidual, "v1 ← F(attend(v0, query)); y = norm(v0)"),
        (Admin, "x ← norm(skip_scale · x + F(x))"),
        (Gated, "x ← (1 - gate) · x + gate · norm(F(x))"),
    ],
    ids=lambda p: p.name if isinstance(p, type) else "",
)
def test_printed(placement, text):
    assert formula(placement) == text


def test_an_unknown_place_inside_f(registry):
    @register
    class Astray(Own):
        name = title = "own-astray"

        def join(self, x, sublayer, norm):
            return x + sublayer(x, hidden=norm)

    message = "attention has no place hidden to apply a function; it has key, output, query, value"
    with pytest.raises(ValueError, match=message):
        small_stack("own-astray", "encoder", blocks=1)


def test_an_unknown_place_of_one_kind_of_sublayer(registry):
    @register
    class Astray(Own):
        name = title = "own-astray"

        def join(self, x, sublayer, norm):
            return x + sublayer(x, query=norm)

    with pytest.raises(ValueError, match="feed_forward has no place query to apply a function; it has output"):
        small_stack("own-astray", "encoder", blocks=1)
