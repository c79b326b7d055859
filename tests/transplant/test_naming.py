"""What a model is before it is transplanted, by the doctor's name for all of it."""

import pytest
import torch
from torch import nn

from normscope.transplant.naming import placement_of

IDS = torch.arange(12).view(2, 6)


def blocks(*norm_first: bool) -> nn.Module:
    layers = [
        nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True, norm_first=first)
        for first in norm_first
    ]
    return nn.Sequential(nn.Embedding(12, 16), *layers, nn.LayerNorm(16), nn.Linear(16, 12))


@pytest.mark.parametrize(
    ("model", "wanted"),
    [
        (blocks(False, False, False), "post-ln"),
        (blocks(True, True, True), "pre-ln"),
        (blocks(True, False, False), ""),
        (nn.Sequential(nn.Embedding(12, 16), nn.Linear(16, 12)), ""),
    ],
    ids=["post-ln", "pre-ln", "both", "no stream"],
)
def test_a_model_has_the_name_that_all_of_its_sub_layers_have(
    model: nn.Module, wanted: str
) -> None:
    assert placement_of(model, IDS) == wanted
