"""Families of Hugging Face with several streams: every sub-layer is shown as a formula that the
output obeys.
"""

import re

import pytest
import torch

pytest.importorskip(
    "transformers", reason="needs Hugging Face transformers (the `huggingface` extra)"
)

from doctor.evaluated import off_by
from normscope.adapters.hugging_face_inputs import sample
from normscope.doctor.identify.stacks import as_stacks, streams_in
from normscope_studies.families.small import BLOCKS, WIDTH, small_model

pytestmark = pytest.mark.sampled(one_in=12)

FAMILIES = {
    "deepseek_v4": ("mhc", "x ← expand(F(norm(collapse(x)))) + connect(x)"),
    "glm5_next_text": ("mhc", "x ← expand(F(norm(collapse(x)))) + connect(x)"),
    "hy_v4": ("independent-hyper-connections", "x ← expand(F(norm(collapse(x)))) + x"),
    "qwen4_exp_text": ("", "x ← x + expand(F(collapse(norm(x))))"),
}
"""Placement and formula."""


@pytest.mark.parametrize("family", FAMILIES)
def test_every_sub_layer_is_shown_as_it_is_computed(family):
    torch.manual_seed(0)
    model = small_model(family)
    # As they are drawn, the streams stay copies of each other, and any weights of the same sum
    # would do.
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "hc" in name or "hyper" in name:
                parameter += 0.1 * torch.randn_like(parameter)
    inputs, _ = sample(model, tokens=12, sequences=2, generator=torch.Generator().manual_seed(0))
    graph, (stream,) = streams_in(model, inputs)
    (stack,) = as_stacks([stream])
    assert (stack.blocks, stack.streams, stack.width, stack.streams_start_equal) == (
        BLOCKS,
        4,
        WIDTH,
        True,
    )
    assert len(stack.sublayers) == 2 * BLOCKS
    shown = [str(s.formula.outlined(numbers=True)) for s in stack.sublayers]
    assert {re.sub(r", norm\([a-z ]+\)", "", text) for text in shown} == {FAMILIES[family][1]}
    assert stack.placement == FAMILIES[family][0]
    assert all(
        s.connection.read.made == s.connection.write.made == "token" for s in stack.sublayers
    )
    assert off_by(graph, stream) < 1e-4
