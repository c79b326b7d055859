"""The doctor and what it measures on a CUDA device, beside the CPU's of the same weights."""

from typing import Any

import pytest
import torch
from torch import nn

import normscope
from normscope.measure import depth_points, gradient_norms, recording


def numbers(value: Any) -> list[float]:
    if isinstance(value, dict | list | tuple):
        return [
            n
            for one in (value.values() if isinstance(value, dict) else value)
            for n in numbers(one)
        ]
    return [value] if isinstance(value, float) else []


def model(*, norm_first: bool) -> nn.TransformerEncoder:
    torch.manual_seed(5)
    layer = nn.TransformerEncoderLayer(
        32, 4, 64, dropout=0.0, batch_first=True, norm_first=norm_first
    )
    # Blocks of their own: torch's copies of one block would be a finding.
    found = nn.TransformerEncoder(layer, 4, enable_nested_tensor=False)
    for parameter in found.parameters():
        if parameter.ndim > 1:
            nn.init.xavier_uniform_(parameter)
    return found


@pytest.mark.parametrize("norm_first", [False, True])
def test_a_diagnosis_is_the_cpus(device: torch.device, norm_first: bool) -> None:
    x = torch.randn(2, 12, 32, generator=torch.Generator().manual_seed(0))
    cpu, there = (
        normscope.diagnose(
            model(norm_first=norm_first).to(place), {"src": x.to(place)}, wanted_rate=1e-3
        ).to_json()
        for place in (torch.device("cpu"), device)
    )
    assert [finding["id"] for finding in there["findings"]] == [
        finding["id"] for finding in cpu["findings"]
    ]
    assert [stack["placement"] for stack in there["stacks"]] == [
        stack["placement"] for stack in cpu["stacks"]
    ]
    assert [stack["placement"] for stack in there["stacks"]] == [
        "pre-ln" if norm_first else "post-ln"
    ]
    measured = [
        [one["measured"] for stack in found["stacks"] for one in stack["sublayers"]]
        for found in (there, cpu)
    ]
    assert numbers(measured[0]) == pytest.approx(numbers(measured[1]), rel=1e-3, abs=1e-6)
    rates = [found["advice"]["best_rate"] for found in (there, cpu)]
    assert rates[0] == pytest.approx(rates[1], rel=0.05)


@pytest.mark.parametrize("placement", ["post-ln", "pre-ln", "deepnorm"])
def test_scales_over_depth_are_the_cpus(device: torch.device, placement: str) -> None:
    """What `predict` is compared with: the stream's size over depth and the gradients, of the same
    weights.
    """
    torch.manual_seed(7)
    encoder = normscope.Encoder(placement, width=32, blocks=4, heads=4, ffn_width=64)
    x, target = torch.randn(2, 12, 32), torch.randn(2, 12, 32)
    found = []
    for place in (torch.device("cpu"), device):
        encoder = encoder.to(place)
        encoder.zero_grad()
        there = x.to(place)
        with recording(
            depth_points(encoder.stack.blocks), lambda x: float(x.double().square().mean())
        ) as stream:
            output = encoder(there)
        (output - target.to(place)).square().mean().backward()
        found.append(([one for (one,) in stream.values()], gradient_norms(encoder)))
    (stream_cpu, gradients_cpu), (stream_there, gradients_there) = found
    assert stream_there == pytest.approx(stream_cpu, rel=1e-4)
    assert gradients_there == pytest.approx(gradients_cpu, rel=1e-3, abs=1e-7)
