"""Weights and embeddings of the settings beside those that models draw."""

import math
from itertools import cycle, product

import numpy as np
import pytest
import torch

from normscope.model import Stack, StackConfig
from normscope.model.embedding import Embedding, sinusoids
from normscope.model.initialisation import initialise
from normscope.placement import StackShape, named, registered
from normscope.placement.schemes import SCHEMES
from normscope.theory.settings import InitialState, RepeatedTokens

# A scheme's deviation and a placement's gain are multiplied with each other, or its unit vectors
# take their place, so that not every pair says more: every placement under its source's scheme and
# under one more, the schemes in turn, and every scheme under a placement without gains, one with
# gains, and one on the sphere.
DRAWN = list(
    dict.fromkeys(
        [(name, placement.initialisation) for name, placement in registered().items()]
        + list(zip(registered(), cycle(SCHEMES), strict=False))
        + list(product(("pre-ln", "deepnorm", "ngpt"), SCHEMES))
    )
)


class TestSettings:
    def test_as_placement(self):
        for name in registered():
            placement = named(name)(
                StackShape(kind="decoder", width=64, encoder_blocks=2, decoder_blocks=2)
            )
            assert InitialState("as-placement", placement).scheme == placement.initialisation

    @pytest.mark.parametrize(("name", "setting"), DRAWN)
    def test_weights_as_drawn(self, name, setting):
        """The root mean square of what is drawn under the scheme of that name: the identity has
        that of N(0, 1/d).
        """
        torch.manual_seed(1)
        for kind in ("encoder", "decoder"):
            ffn_width = 64 if setting == "theory" else 160
            placement = named(name)(
                StackShape(
                    kind=kind, width=64, ffn_width=ffn_width, encoder_blocks=3, decoder_blocks=2
                )
            )
            stack = Stack(placement, StackConfig())
            initialise(stack, setting, named(name))
            std = InitialState(setting, placement).weight_std
            for sublayer in stack.sublayers():
                for weight, linear in sublayer.f.matrices():
                    entries = linear.weight.detach()
                    drawn = float(entries.square().mean().sqrt())
                    # Five times the spread of a sample's own standard deviation.
                    tolerance = 5 / math.sqrt(2 * entries.numel())
                    assert drawn == pytest.approx(std(weight, sublayer.site), rel=tolerance), (
                        kind,
                        weight,
                    )

    def test_rows_that_are_unit_vectors(self):
        placement = named("ngpt")(
            StackShape(kind="decoder", width=8, ffn_width=8, decoder_blocks=2)
        )
        assert InitialState("paper", placement).row == pytest.approx(1.0, rel=1e-12)

    @pytest.mark.parametrize(
        ("name", "setting"),
        [
            *((name, "paper") for name in registered()),
            *((name, "as-placement") for name in registered()),
            *(("pre-ln", setting) for setting in SCHEMES if setting != "theory"),
        ],
    )
    def test_embedding_as_drawn(self, name, setting):
        """q and p over many sequences of tokens that are all different, and the length of rows."""
        width, tokens, sequences = 128, 8, 100
        placement = named(name)(
            StackShape(
                kind="decoder", width=width, ffn_width=width, encoder_blocks=2, decoder_blocks=2
            )
        )
        torch.manual_seed(1)
        embedding = Embedding(tokens * sequences + 2, width, placement)
        initialise(embedding, setting, named(name))
        positions = torch.arange(tokens).repeat(sequences)
        x = embedding(torch.arange(2, tokens * sequences + 2), positions, tokens).detach().double()
        x = x.view(sequences, tokens, width)
        products = (x @ x.mT).mean(0) / width
        initial = InitialState(setting, placement)
        parts = [pair for pair, *_ in initial.parts(tokens, RepeatedTokens())]
        assert initial.row == pytest.approx(
            float(embedding.weight.detach()[2:].square().sum(-1).mean()), rel=0.02
        )
        assert sum(pair.one for pair in parts) == pytest.approx(
            float(products.trace()) / tokens, rel=0.01
        )
        rest = float(products.sum() - products.trace()) / tokens / (tokens - 1)
        assert sum(pair.two for pair in parts) == pytest.approx(rest, abs=0.01)

    def test_positions_exactly(self):
        placement = named("pre-ln")(StackShape(kind="encoder", width=64, encoder_blocks=1))
        _, (differing, *_), (shared, is_centred, _) = InitialState("paper", placement).parts(
            9, RepeatedTokens()
        )
        table = sinusoids(9, 64).double().numpy()
        mean = table.mean(1, keepdims=True)
        for part, pair in ((table - mean, differing), (np.repeat(mean, 64, 1), shared)):
            products = part @ part.T / 64
            assert pair.one == pytest.approx(np.trace(products) / 9, rel=1e-5)
            assert pair.two == pytest.approx((products.sum() - np.trace(products)) / 72, rel=1e-5)
        assert not is_centred
        # sin² + cos² = 1: half of the square of a row of √d N(0, 1/d).
        assert differing.one + shared.one == pytest.approx(0.5, rel=1e-12)

    def test_rows_of_the_theory(self):
        placement = named("t-fixup")(
            StackShape(kind="decoder", width=64, encoder_blocks=4, decoder_blocks=4)
        )
        assert [
            pair.one for pair, *_ in InitialState("theory", placement).parts(5, RepeatedTokens())
        ] == [1.0]
        assert InitialState("paper", placement).parts(5, RepeatedTokens())[0][
            0
        ].one == pytest.approx(1 / 6, rel=1e-12)
