"""Placements that a user writes: each is one class, and everything else follows from its
formula.
"""

import pytest
import torch
from torch import Tensor

from normscope.model import EncoderDecoder, Layout, ModelConfig
from normscope.placement import Placement, named, register, registered
from normscope.placement.base import EVERY_MODEL
from normscope.placement.operations import mix, unit
from normscope.placement.printing import formula
from reference import Equations, ReferenceStack, length
from stacks import (
    FFN_WIDTH,
    WIDTH,
    assert_model_matches,
    assert_stack_matches,
    small_model,
    small_stack,
)


class Own(Placement):
    citation, year = "tests", 2026


class Gated(Own):
    """x moves a learned part of the way to the normed branch."""

    name = title = "own-gated"

    def join(self, x, sublayer, norm):
        gate = sublayer.parameter("gate", initial=0.05)
        return (1 - gate) * x + gate * norm(sublayer(x))


def gated(x: Tensor, stack: ReferenceStack) -> Tensor:
    for f in stack.sublayers():
        x = x + f.placed("gate") * (f.norm(f(x)) - x)
    return x


class Everything(Own):
    """All that the protocol offers: a history, numbers of both ends, of a sub-layer, of a block and
    of an update.
    """

    name = title = "own-everything"
    streams = ("x", "past")

    def input_rows(self, rows):
        return 3.0 * unit(rows)

    def start(self, x, end):
        x = end.parameter("scale", initial=1.0, shape=(self.stack.width,)) * end.norm.first(x)
        return x, (x,)

    def join(self, x, sublayer, norm):
        stream, past = x
        share, query = (
            sublayer.parameter("share", initial=0.5, shared_by_block=True),
            sublayer.parameter("query", initial=0.0, shape=(self.stack.width,)),
        )
        branch = sublayer(mix(query, past, norm.key), output=norm.inner)
        joined = norm(
            stream / 2 + share * branch - sublayer.scheduled("let_in", initial=0.0) * branch
        )
        return joined, (*past, branch)

    def finish(self, state, end):
        stream, past = state
        return end.norm.last(stream + past[-1]) - past[0]

    def output_rows(self, rows, head, vocabulary):
        return head.parameter("temperature", initial=1.0, shape=(vocabulary, 1)) * rows


def everything(x: Tensor, stack: ReferenceStack) -> Tensor:
    x = stack.w[f"{stack.at}start.placed.scale"] * stack.end("start").named("first", x)
    past = [x]
    for f in stack.sublayers():
        scores = torch.stack([f.norm.named("key", v) @ f.placed("query") for v in past], -1).exp()
        shares = scores / scores.sum(-1, keepdim=True)
        read = torch.einsum("bti,ibtd->btd", shares, torch.stack(past))
        branch = f(read, output=lambda y, f=f: f.norm.named("inner", y))
        share = stack.w[f"{stack.at}blocks.{f.block - 1}.placed.share"]
        x = f.norm(0.5 * x + (share - stack.scheduled) * branch)
        past.append(branch)
    return stack.final_norm.named("last", x + past[-1]) - past[0]


EQUATIONS = {
    Gated: Equations(stack=gated),
    Everything: Equations(
        stack=everything,
        rows=lambda rows: 3 * rows / length(rows),
        logits=lambda hidden, table, w: w["head.placed.temperature"][:, 0] * (hidden @ table.T),
    ),
}
OWN = pytest.mark.parametrize("placement", EQUATIONS, ids=lambda p: p.name)


@pytest.fixture(autouse=True)
def _registered(registry):
    for placement in EQUATIONS:
        register(placement)


@OWN
@pytest.mark.parametrize("kind", ["encoder", "decoder"])
def test_one_stack_follows_the_equations(placement, kind):
    assert_stack_matches(small_stack(placement.name, kind, blocks=3), EQUATIONS[placement])


@OWN
@pytest.mark.parametrize("embeddings", ["shared", "separate"])
def test_an_encoder_decoder_follows_the_equations(placement, embeddings):
    assert_model_matches(small_model(placement.name, embeddings=embeddings), EQUATIONS[placement])


def test_exactly_the_parameters_that_the_formula_asks_for():
    module = small_stack("own-everything", "encoder", blocks=1)
    shapes = {name: tuple(p.shape) for name, p in module.named_parameters(remove_duplicate=False)}
    normed = {
        f"blocks.0.{kind}.norm.{name}"
        for kind in ("attention", "feed_forward")
        for name in ("main", "key")
    }
    normed |= {"blocks.0.attention.norm.inner", "start.norm.first", "finish.norm.last"}
    assert {name: shape for name, shape in shapes.items() if ".f." not in name} == (
        {f"{at}.{last}": (WIDTH,) for at in normed for last in ("weight", "bias")}
        | {f"blocks.0.feed_forward.norm.inner.{last}": (FFN_WIDTH,) for last in ("weight", "bias")}
        | {f"blocks.0.{kind}.placed.query": (WIDTH,) for kind in ("attention", "feed_forward")}
        | {"blocks.0.placed.share": (), "start.placed.scale": (WIDTH,)}
    )


def test_gates_start_where_they_should_and_learn():
    torch.manual_seed(0)
    config = ModelConfig(
        placement="own-gated", width=WIDTH, heads=3, encoder_blocks=2, decoder_blocks=3
    )
    model = EncoderDecoder(config, 20, 20)
    gates = {name: p for name, p in model.named_parameters() if ".placed." in name}
    assert len(gates) == 2 * 2 + 3 * 3
    assert all((p == 0.05).all() for p in gates.values())
    tokens, layout = torch.tensor([4, 5, 6]), Layout(torch.tensor([3]))
    model.logits(model(tokens, layout, tokens, layout)).log_softmax(-1)[:, 7].sum().backward()
    assert [name for name, p in gates.items() if not p.grad.any()] == []


@pytest.mark.parametrize(
    ("placement", "text"),
    [
        (Gated, "x ← (1 - gate) · x + gate · norm(F(x))"),
        (
            Everything,
            "x ← scale · norm_first(x); past ← [scale · norm_first(x)]; a = F(mix(query, "
            "norm_key(past)), norm_inner(output)); x ← norm(x / 2 + share · a - let_in · a); past "
            "← [past, F(mix(query, norm_key(past)), norm_inner(output))]; y = norm_last(x + past) "
            "- past",
        ),
    ],
    ids=lambda p: p.name if isinstance(p, type) else "",
)
def test_printed(placement, text):
    assert formula(placement) == text


@pytest.mark.parametrize(
    ("place", "message"),
    [
        (
            "hidden",
            "attention has no place hidden to apply a function; it has key, output, query, value",
        ),
        ("query", "feed_forward has no place query to apply a function; it has hidden, output"),
    ],
)
def test_an_unknown_place_inside_f(registry, place, message):
    @register
    class Astray(Own):
        name = title = "own-astray"

        def join(self, x, sublayer, norm):
            return x + sublayer(x, **{place: norm})

    with pytest.raises(ValueError, match=message):
        small_stack("own-astray", "encoder", blocks=1)


def test_values_that_no_reader_knows():
    with pytest.raises(TypeError, match="no reader has registered attention over depth for str"):
        mix("query", ["x"], lambda v: v)
    with pytest.raises(TypeError, match="no reader has registered unit vectors for str"):
        unit("x")


@pytest.mark.parametrize(
    ("join", "message"),
    [
        (lambda self, x, sublayer, norm: None, "join returned nothing.*join must return the state"),
        (
            lambda self, x, sublayer, norm: torch.relu(x + sublayer(norm(x))),
            r"TypeError: relu\(\).*join must return",
        ),
        (
            lambda self, x, sublayer, norm: (x + sublayer(x)).relu(),
            "AttributeError: .*'relu'.*join must return",
        ),
    ],
)
def test_a_formula_that_nothing_can_be_made_of(registry, join, message):
    @register
    class Nothing(Own):
        name = title = "own-nothing"

    Nothing.join = join
    for look in (
        lambda: named("own-nothing"),
        registered,
        lambda: small_stack("own-nothing", "encoder", blocks=1),
    ):
        with pytest.raises(
            ValueError, match=f"test_own_placements.py: placement 'own-nothing': .*{message}"
        ):
            look()


@pytest.mark.parametrize("model", EVERY_MODEL)
def test_a_formula_is_tried_in_a_model_that_it_is_defined_for(registry, model):
    """Elsewhere it would be refused for the model, and the fault would be found by nobody."""

    @register
    class Nothing(Own):
        name = title = "own-nothing"
        models = (model,)

        def join(self, x, sublayer, norm):
            sublayer(norm(x))

    with pytest.raises(ValueError, match=r"'own-nothing': .*join returned nothing"):
        named("own-nothing")
