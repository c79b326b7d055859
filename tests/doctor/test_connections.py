"""Several streams in one tensor: found, and shown as a formula that computes what the model
computes.
"""

import pytest
import torch

from doctor.evaluated import off_by
from doctor.several_streams import (
    STREAMS,
    Dynamic,
    SeveralStreams,
    Static,
    as_it_is,
    by_einsum,
    by_matmul,
    flat,
    ids,
    sinkhorn,
)
from doctor.wired import WIDTH
from normscope.doctor import find_stacks
from normscope.doctor.identify.stacks import streams_in
from normscope.doctor.observe.examine import examined

PLAIN = "x ← expand(attention(norm(collapse(x)))) + connect(x)"
FORMULAS = {
    "matrix product": (by_matmul, Dynamic, PLAIN, "token"),
    "einsum": (
        by_einsum,
        Dynamic,
        "x ← connect(x) + expand(attention(norm(collapse(x))))",
        "token",
    ),
    "static": (by_matmul, Static, PLAIN, "trained"),
    "static, einsum": (
        by_einsum,
        Static,
        "x ← connect(x) + expand(attention(norm(collapse(x))))",
        "trained",
    ),
    "flat": (flat, Dynamic, "x ← x + expand(attention(norm(collapse(x))))", "token"),
    "added as it is": (
        as_it_is,
        Dynamic,
        "x ← connect(x) + expand(attention(norm(collapse(x))))",
        "token",
    ),
}
NAMES = {
    "matrix product": "mhc",
    "einsum": "mhc",
    "static": "hyper-connections-static",
    "static, einsum": "hyper-connections-static",
    "flat": "independent-hyper-connections",
    "added as it is": "",
}


@pytest.mark.sampled(one_in=3)
@pytest.mark.parametrize("way", FORMULAS)
def test_streams_in_one_tensor_are_found_however_they_are_written(way):
    join, weights, formula, made = FORMULAS[way]
    (stack,) = find_stacks(SeveralStreams(join, weights), ids())
    assert (stack.blocks, stack.width, stack.streams, stack.final_norm) == (3, WIDTH, STREAMS, True)
    assert stack.streams_start_equal is True
    first = stack.sublayers[0]
    assert str(first.formula) == formula
    assert {s.placement for s in stack.sublayers} == {NAMES[way]}
    assert {s.connection.read.made for s in stack.sublayers} == {made}
    assert {s.connection.streams for s in stack.sublayers} == {STREAMS}
    assert (first.connection.mixing is None) == ("connect" not in formula)
    assert first.connection.write.made == ("constant" if join is as_it_is else made)


@pytest.mark.sampled(one_in=3)
@pytest.mark.parametrize("way", FORMULAS)
def test_the_formula_computes_what_the_model_computes(way):
    join, weights, _, _ = FORMULAS[way]
    model = SeveralStreams(join, weights)
    with torch.no_grad():
        for parameter in model.weights.parameters():
            parameter += 0.5 * torch.randn_like(parameter)
    graph, (stream,) = streams_in(model, ids())
    assert off_by(graph, stream) < 1e-5
    # Streams that are told apart wrongly would show: they are no copies of each other any more.
    for connection in graph.connections.made.values():
        weights = connection.weights
        weights.values_NOI.copy_(
            weights.values_NOI.flip(-1).flip(-2)
            if connection.kind == "connect"
            else weights.values_NOI.flip(-1)
        )
        weights.values_NOI.mul_(1.01)
    assert off_by(graph, stream) > 1e-3


def test_weights_are_those_that_the_model_makes():
    model = SeveralStreams(by_matmul)
    seen = {}
    model.weights[2].register_forward_hook(lambda module, args, out: seen.update(out=out))
    (stack,) = find_stacks(model, ids())
    pre, mixing, post = seen["out"]
    found = stack.sublayers[2].connection
    assert found.read.total == pytest.approx(float(pre.sum(-1).mean()), rel=1e-5)
    assert found.write.total == pytest.approx(float(post.mean()), rel=1e-5)
    off = max(float((mixing.sum(dim) - 1).abs().max()) for dim in (-1, -2))
    assert found.from_doubly_stochastic == pytest.approx(off, abs=1e-6)
    assert found.from_doubly_stochastic < 1e-4
    assert found.tokens_off == 0
    assert found.write.spread == pytest.approx(
        float(post.std(correction=0) / post.mean()), rel=1e-5
    )


def test_tokens_whose_mixing_has_sums_other_than_one_are_counted():
    class OneToken(Dynamic):
        def connecting(self, logits):
            mixing = super().connecting(logits)
            mixing[0, :2, 0] *= 1.01
            return mixing

    (stack,) = find_stacks(SeveralStreams(by_matmul, OneToken), ids())
    assert stack.sublayers[0].connection.tokens_off == pytest.approx(2 / 14)


def test_rows_alone_that_add_up_to_one_are_not_doubly_stochastic():
    class RowsAlone(Dynamic):
        def connecting(self, logits):
            return (5 * logits).softmax(-1)

    (stack,) = find_stacks(SeveralStreams(by_matmul, RowsAlone), ids())
    assert stack.sublayers[0].connection.from_doubly_stochastic > 0.01
    assert "mhc" not in {s.placement for s in stack.sublayers}
    matrix = sinkhorn(torch.randn(3, 4, 4))
    torch.testing.assert_close(matrix.sum(-1), torch.ones(3, 4))


def test_what_is_measured_is_each_stream_and_not_the_spread_between_them():
    """Streams that start as copies have the embedding's own mean square and similarity between
    tokens.
    """
    model = SeveralStreams(by_matmul)
    ((stack,), _) = examined(model, ids())
    first = stack.sublayers[0].measured
    x = model.embedding(*ids()).detach()
    unit = x / x.norm(dim=-1, keepdim=True)
    cosines = (unit @ unit.mT).flatten(1).sum(-1) - 7
    assert first.stream_square == pytest.approx(float(x.square().mean()), rel=1e-5)
    assert first.correlation == pytest.approx(float(cosines.mean()) / 42, rel=1e-4)
    assert 0 < first.share < 1
    assert first.gradient_norm > 0


def test_on_the_meta_device_the_wiring_is_found_without_numbers():
    model = SeveralStreams(by_matmul)
    real = find_stacks(model, ids())
    found = find_stacks(model.to("meta"), tuple(each.to("meta") for each in ids()))
    assert [str(s.formula) for s in found[0].sublayers] == [
        str(s.formula) for s in real[0].sublayers
    ]
    assert found[0].streams_start_equal is None
