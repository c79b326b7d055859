"""Decoding one token at a time gives what one pass over the whole target gives, whatever the
placement.
"""

import pytest
import torch

from normscope.model import Cache, EncoderDecoder, Layout
from normscope.placement import registered
from stacks import random_tokens, small_model

STEPS = 4


@pytest.mark.parametrize(
    "placement", [n for n, p in registered().items() if "encoder-decoder" in p.models]
)
def test_steps_equal_the_whole(placement: str) -> None:
    assert_steps_are_the_whole(small_model(placement))


def test_every_pass_of_looped_blocks_remembers_its_own_keys() -> None:
    assert_steps_are_the_whole(small_model("looped", loops=3))


def assert_steps_are_the_whole(model: EncoderDecoder) -> None:
    model.eval()
    source, target = random_tokens([5, 3], 1), random_tokens([STEPS, STEPS], 2)
    source_layout, target_layout = (
        Layout(torch.tensor([5, 3])),
        Layout(torch.tensor([STEPS, STEPS])),
    )
    with torch.no_grad():
        memory = model.encode(source_layout.pack(source), source_layout)
        whole = model.decode(target_layout.pack(target), target_layout, memory, source_layout)
        cache, parents = Cache(memory, source_layout), torch.zeros(2, 1, dtype=torch.int64)
        steps = [model.step(target[:, step, None], parents, cache) for step in range(STEPS)]
    torch.testing.assert_close(torch.stack(steps, 1).flatten(0, 1), whole, rtol=1e-12, atol=1e-12)
