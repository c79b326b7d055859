"""Small models of whole families, and a sample of those that `normscope study families` looks at:
none has an error.
"""

import pytest
import torch

pytest.importorskip(
    "transformers", reason="needs Hugging Face transformers (the `huggingface` extra)"
)

from normscope.adapters.hugging_face_inputs import sample
from normscope.doctor.diagnose import diagnose
from normscope.errors import UserError
from normscope_studies.families.small import BLOCKS, VOCABULARY, WIDTH, families, small_model

SAMPLED = (
    "deepseek_v3",  # shared experts beside routed ones
    "glm4_moe",
    "ernie4_5_moe",
    "axk1",
    "mllama",  # blocks that wait for images
    "siglip",  # a pooling head that no loss asks for
    "modernbert",  # a first block without a norm
    "olmo_hybrid",  # every fourth block wired otherwise
    "gemma3_text",
    "bart",
    "t5",
    "gpt2",
)


@pytest.mark.sampled(one_in=6)
@pytest.mark.parametrize("family", SAMPLED)
def test_a_family_as_its_authors_meant_it_has_no_error(family):
    torch.manual_seed(0)
    model = small_model(family)
    inputs, loss = sample(model, tokens=12, sequences=2, generator=torch.Generator().manual_seed(0))
    found = diagnose(model, inputs, loss=loss, advise=False)
    assert [finding for finding in found.findings if finding.severity == "error"] == []


def test_sizes_are_small_and_everything_else_is_as_it_was():
    config = small_model("llama").config
    whole = type(config)()
    assert (config.hidden_size, config.num_hidden_layers, config.vocab_size) == (
        WIDTH,
        BLOCKS,
        VOCABULARY,
    )
    assert (config.hidden_act, config.rms_norm_eps) == (whole.hidden_act, whole.rms_norm_eps)


def test_inner_configurations_are_made_small_too():
    config = small_model("clip").config
    assert (config.text_config.hidden_size, config.vision_config.hidden_size) == (WIDTH, WIDTH)


def test_what_has_no_model_by_itself_is_refused():
    assert len(families()) > 300
    with pytest.raises(UserError, match="no model for EdgeTamPromptEncoderConfig by itself"):
        small_model("edgetam_prompt_encoder")
