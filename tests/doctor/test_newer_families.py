"""Families of Hugging Face whose skip path is newer than x + F(norm(x)): what is said of them, and
that it is so.
"""

import pytest
import torch

pytest.importorskip(
    "transformers", reason="needs Hugging Face transformers (the `huggingface` extra)"
)

from doctor.evaluated import off_by
from normscope.adapters.hugging_face_inputs import sample
from normscope.doctor.identify.stacks import as_stacks, streams_in
from normscope_studies.families.small import BLOCKS, small_model

pytestmark = pytest.mark.sampled(one_in=12)

SURE = {
    "inkling2_text": set(),
    "muse_spark_text": set(),
    "beam": {"depth-scaled"},
    "zaya": {"zaya"},
    # With the factors of its configuration at 1, as they are by default, DeepNorm's form is
    # Post-LN.
    "minimax": {"post-ln"},
}
"""The placements that are named for sure; those of several streams in one tensor are in
test_connected_families.py.
"""


@pytest.mark.parametrize("family", SURE)
def test_every_sub_layer_is_named_or_shown_as_it_is_computed(family):
    torch.manual_seed(0)
    model = small_model(family)
    inputs, _ = sample(model, tokens=12, sequences=2, generator=torch.Generator().manual_seed(0))
    graph, streams = streams_in(model, inputs)
    stacks = as_stacks(streams)
    (main,) = [stack for stack in stacks if stack.blocks == BLOCKS]
    assert len(main.sublayers) == 2 * BLOCKS
    named = {s.placement for stack in stacks for s in stack.sublayers if s.confidence == "sure"}
    assert named == SURE[family]
    assert all(off_by(graph, stream) < 1e-4 for stream in streams)


def test_convolutions_and_means_of_normed_values_are_part_of_inkling_2():
    """Its keys, values and outputs pass short convolutions with a skip of their own, which are no
    sub-layers.
    """
    torch.manual_seed(0)
    model = small_model("inkling2_text")
    inputs, _ = sample(model, tokens=12, sequences=2, generator=torch.Generator().manual_seed(0))
    _, streams = streams_in(model, inputs)
    (stack,) = as_stacks(streams)
    second = str(stack.sublayers[1].formula)
    assert second.startswith("v2 = ")
    assert "mix(norm(x), norm(v1))" in second
    assert {s.block for s in stack.sublayers} == set(range(1, BLOCKS + 1))
