"""Models that nothing is wrong with, right after initialisation: the linter has nothing to say
above info.
"""

import pytest
import torch
from torch import nn

from doctor.corpus import CORPUS, FURTHER
from doctor.corpus_newer import NEWER
from normscope.doctor.lint.linter import lint
from normscope.doctor.lint.patient import Patient
from normscope.doctor.observe.examine import examined
from normscope.doctor.result import Finding
from normscope.model import EncoderDecoder, Layout, ModelConfig
from normscope.placement import registered
from placement.expected import described, expected

pytestmark = pytest.mark.sampled(one_in=12)

VOCABULARY = 20


def found(model: nn.Module, inputs: object) -> list[Finding]:
    stacks, observed = examined(model, inputs)
    return list(lint(Patient(model=model, stacks=stacks, observed=observed, dtype=torch.float32)))


def above_info(model: nn.Module, inputs: object) -> list[Finding]:
    return [finding for finding in found(model, inputs) if finding.severity != "info"]


# LLaVA does leave out its last block for images: it reads the last state but one.
@pytest.mark.parametrize("name", [*CORPUS, *FURTHER, *(name for name in NEWER if name != "llava")])
def test_hugging_face_models(name):
    case = (CORPUS | FURTHER | NEWER)[name]
    assert above_info(case.build(), case.inputs()) == []


@pytest.mark.filterwarnings("ignore:enable_nested_tensor is True")
@pytest.mark.parametrize("norm_first", [False, True])
def test_torch_transformers(norm_first):
    torch.manual_seed(0)
    model = nn.Transformer(16, 2, 3, 3, 24, norm_first=norm_first, batch_first=True)
    inputs = torch.randn(2, 5, 16), torch.randn(2, 4, 16)
    assert above_info(model, inputs) == []
    fixes = {
        one.fix.partition("; ")[2] for one in found(model, inputs) if one.id == "double-final-norm"
    }
    assert fixes == (
        set()
        if norm_first
        else {"nothing, where a library put it there: its checkpoints have learnt with both"}
    )


STREAMLESS = {
    n for n in described() if not expected(n).has_stream or not expected(n).found_by_doctor
}
"""Where the doctor finds no stream that it could judge."""


@pytest.mark.sampled(one_in=24)
@pytest.mark.parametrize("placement", [name for name in registered() if name not in STREAMLESS])
def test_our_own_models(placement):
    torch.manual_seed(0)
    sizes = {"width": 32, "ffn_width": 48, "heads": 2, "encoder_blocks": 4, "decoder_blocks": 2}
    model = EncoderDecoder(ModelConfig(placement=placement, **sizes), VOCABULARY, VOCABULARY)
    layouts = [Layout(torch.tensor(lengths)) for lengths in ([4, 7, 2], [5, 3, 6])]
    tokens = [torch.randint(4, VOCABULARY, (layout.tokens,)) for layout in layouts]
    assert above_info(model, (tokens[0], layouts[0], tokens[1], layouts[1])) == []
