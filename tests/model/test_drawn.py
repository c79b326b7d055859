"""The standard deviations that are shown, against those of weights that were drawn."""

import math

import pytest
import torch

from normscope.model import Stack, StackConfig
from normscope.model.embedding import Embedding
from normscope.model.initialisation import initialise
from normscope.placement import StackShape, registered
from normscope.placement.schemes import embedding_std, weight_std

SIZE = {"width": 64, "ffn_width": 128, "heads": 2, "encoder_blocks": 3, "decoder_blocks": 2}


@pytest.mark.parametrize("kind", ["encoder", "decoder"])
@pytest.mark.parametrize("name", registered())
def test_as_drawn(name, kind):
    placement = registered()[name](StackShape(kind=kind, **SIZE))
    torch.manual_seed(1)
    model = torch.nn.ModuleList(
        [Stack(placement, StackConfig()), Embedding(500, SIZE["width"], placement)]
    )
    initialise(model, "as-placement", type(placement))
    for sublayer in model[0].sublayers():
        for weight, linear in sublayer.f.matrices():
            _near(linear.weight, weight_std(placement, weight, sublayer.site))
    _near(model[1].weight[2:], embedding_std(placement))


def _near(weight: torch.Tensor, std: float) -> None:
    # The sample's standard deviation varies by 1/√(2n) of itself, for normal numbers; five times
    # that, 1 in a million.
    assert float(weight.detach().std(correction=0)) == pytest.approx(
        std, rel=5 / math.sqrt(2 * weight.numel())
    )


def test_a_scheme_without_random_numbers():
    post_ln = registered()["post-ln"]
    theory = type("Theory", (post_ln,), {"initialisation": "theory"})(
        StackShape(kind="encoder", **SIZE)
    )
    torch.manual_seed(1)
    site = Stack(theory, StackConfig()).blocks[0].attention.site
    assert weight_std(theory, "query", site) == 0
    assert weight_std(theory, "value", site) == 1 / 8
    # The identity: entries 1 with frequency 1/64, whose root mean square it is.
    assert weight_std(theory, "output", site) == 1 / 8
