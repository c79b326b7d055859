"""Families of Hugging Face whose skip path is newer than x + F(norm(x)), as their configurations draw them."""

import pytest
import torch

pytest.importorskip("transformers", reason="needs Hugging Face transformers (the `huggingface` extra)")

import normscope
from normscope.adapters.hugging_face_inputs import sample
from normscope.adapters.hugging_face_small import small_model

ABOVE_INFO = {
    # Its keys have one head, so that a norm over all of them is one of each head as well.
    "deepseek_v4": {"query-key-norms"},
    "glm5_next_text": set(),
    "hy_v4": set(),
    "qwen4_exp_text": set(),
    "inkling2_text": set(),
    "muse_spark_text": set(),
    "beam": set(),
    "zaya": set(),
    "minimax": set(),
}
"""Rules that speak of each, above info; none may be an error."""


@pytest.mark.parametrize("family", ABOVE_INFO)
def test_nothing_is_wrong_with_them(family):
    torch.manual_seed(0)
    model = small_model(family)
    drawn = sample(model, tokens=8, sequences=2, generator=torch.Generator().manual_seed(0))
    diagnosis = normscope.diagnose(model, drawn.inputs, loss=drawn.loss, advise=False)
    assert {finding.id for finding in diagnosis.findings if finding.severity != "info"} == ABOVE_INFO[family]
    assert all(finding.severity != "error" for finding in diagnosis.findings)
    assert diagnosis.to_json()["stacks"]
