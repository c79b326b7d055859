"""Families of Hugging Face whose skip path is newer than x + F(norm(x)), as their configurations
draw them.
"""

import pytest
import torch

pytest.importorskip(
    "transformers", reason="needs Hugging Face transformers (the `huggingface` extra)"
)

import normscope
from normscope.adapters.hugging_face_inputs import sample
from normscope_studies.families.small import small_model

pytestmark = pytest.mark.sampled(one_in=12)

FAMILIES = (
    "deepseek_v4",
    "glm5_next_text",
    "hy_v4",
    "qwen4_exp_text",
    "inkling2_text",
    "muse_spark_text",
    "beam",
    "zaya",
    "minimax",
)

BY_SOURCE = {
    # Without a checkpoint its tables send every token to expert 0 twice, at weights over their own
    # sum.
    "deepseek_v4": ["rounded-gradient"],
    # Its indexer's gate begins with ones in every entry.
    "glm5_next_text": ["constant-weights"],
    # Queries and keys are normed, and their product is multiplied by 5.5 times what the width of a
    # head asks for.
    "muse_spark_text": ["attention-saturated"],
}
"""What a warning is right about, as their code and configuration have it."""


@pytest.mark.parametrize("family", FAMILIES)
def test_nothing_else_is_wrong_with_them(family):
    torch.manual_seed(0)
    model = small_model(family)
    inputs, loss = sample(model, tokens=8, sequences=2, generator=torch.Generator().manual_seed(0))
    diagnosis = normscope.diagnose(model, inputs, loss=loss, advise=False)
    assert [
        finding.id for finding in diagnosis.findings if finding.severity != "info"
    ] == BY_SOURCE.get(family, [])
    assert diagnosis.to_json()["stacks"]
