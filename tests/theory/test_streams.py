"""Placements with several residual streams: each is predicted, under the name that its formula
gives it.
"""

from dataclasses import replace

import numpy as np
import pytest
import torch

from normscope.model import Context, Layout, Stack, StackConfig
from normscope.model.initialisation import initialise
from normscope.placement import Placement, named, register
from normscope.theory.predict import ModelSetting, predict

MODEL = ModelSetting(blocks=4, width=256, ffn_width=256, tokens=12, vocabulary=1000)


class TwoStreams(Placement):
    """y holds what x was before the last block: (x, y) ← (x + F(LN(x)) / 2, x)."""

    name, title, citation, year = "two-streams", "Two streams", "tests", 2026
    streams = ("x", "y")

    def start(self, x, end):
        return x, x

    def block(self, state, sublayers):
        x = before = state[0]
        for sublayer in sublayers:
            x = x + sublayer(sublayer.norm(x)) / 2
        return x, before

    def finish(self, state, end):
        return end.norm(state[0] + state[1])


@torch.no_grad()
def drawn(name: str, draws: int = 8) -> dict[str, np.ndarray]:
    """Mean ‖·‖² / d of every stream after every block, from the embedding on, in models of the
    theory's setting.
    """
    placement = named(name)(MODEL.shape("encoder"))
    stack = Stack(placement, StackConfig())
    lengths = [MODEL.tokens] * 6
    found: dict[str, list[list[float]]] = {stream: [] for stream in placement.streams}

    def record(state: object) -> None:
        parts = state if isinstance(state, tuple) else (state,)
        for stream, part in zip(placement.streams, parts, strict=True):
            newest = part[-1] if isinstance(part, tuple) else part
            found[stream][-1].append(float(newest.square().mean()))

    stack.blocks[0].register_forward_pre_hook(lambda _, inputs: record(inputs[0]))
    for block in stack.blocks:
        block.register_forward_hook(lambda _, __, state: record(state))
    for seed in range(draws):
        torch.manual_seed(seed)
        initialise(stack, "theory", named(name))
        for curves in found.values():
            curves.append([])
        stack(torch.randn(sum(lengths), MODEL.width), Context(layout=Layout(torch.tensor(lengths))))
    return {stream: np.mean(curves, axis=0) for stream, curves in found.items()}


@pytest.mark.sampled(one_in=2)
@pytest.mark.parametrize(
    "name", ["residual", "attn-res", "attn-res-block", "two-streams", "pre-ln"]
)
def test_every_stream_is_as_drawn(registry, name):
    register(TwoStreams)
    found = predict(name, MODEL)["encoder"]
    expected = drawn(name)
    assert list(found.streams) == list(named(name).streams)
    for stream, curve in expected.items():
        np.testing.assert_allclose(found.streams[stream].q, curve, rtol=0.05, err_msg=stream)


def test_the_sum_of_residual_grows_while_its_normed_stream_stays():
    """r gains every branch: one token adds 1 by attention and ½ by the feed-forward, from inputs of
    q = 1.
    """
    streams = predict("residual", replace(MODEL, tokens=1))["encoder"].streams
    assert streams["x"].q == pytest.approx([1.0] * 5, rel=1e-4)
    assert streams["r"].q == pytest.approx([1.0, 2.5, 4.0, 5.5, 7.0], rel=1e-3)


def test_what_one_curve_showed_is_the_first_stream():
    for name in ("residual", "attn-res", "pre-ln"):
        found = predict(name, MODEL)["encoder"]
        first = named(name).streams[0]
        assert list(found.q) == list(found.streams[first].q)
        assert list(found.p) == list(found.streams[first].p)


def test_a_product_of_two_streams_is_refused_in_a_sentence(registry):
    @register
    class Product(TwoStreams):
        name = "product"

        def finish(self, state, end):
            return state[0] * state[1]

    with pytest.raises(ValueError, match="multiplies two values that depend on the token"):
        predict("product", MODEL)
