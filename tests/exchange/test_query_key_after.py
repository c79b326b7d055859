"""A decoder with norms on queries and keys after rotary positions against transformers' Hunyuan,
which has them there: logits, every gradient, and single steps.
"""

from typing import Any

import pytest
import torch
from torch import nn

from exchange.test_export_llama import IDS, VOCABULARY, batch, in_float64, model_config
from normscope.exchange.decoders import LLAMA, RotaryLayout
from normscope.model import Cache, LanguageModel, Layout
from stacks import perturbed

transformers = pytest.importorskip("transformers", reason="needs Hugging Face transformers")

__all__ = ["in_float64"]

HUNYUAN = RotaryLayout(
    model_type="hunyuan_v1_dense",
    architecture="HunYuanDenseV1ForCausalLM",
    norms=LLAMA.norms
    | {
        "attention.norm.queries.each": "self_attn.query_layernorm",
        "attention.norm.keys.each": "self_attn.key_layernorm",
    },
)


def ours(norms: str) -> LanguageModel:
    changes = [f'placement="pre-ln{norms}"', "attention.key_value_heads=2"]
    return perturbed(LanguageModel(model_config("llama", changes), VOCABULARY), 1).double().eval()


def theirs(model: LanguageModel) -> nn.Module:
    written, tensors = HUNYUAN(model, IDS)
    config = transformers.AutoConfig.for_model(**written)
    made: Any = transformers.HunYuanDenseV1ForCausalLM
    found = made._from_config(config, attn_implementation="eager").double()
    missing, unexpected = found.load_state_dict(tensors, strict=False)
    assert not unexpected
    assert set(missing) <= {"lm_head.weight"}
    return found.eval()


@pytest.mark.usefixtures("in_float64")
def test_it_computes_what_hunyuan_computes_and_norms_before_do_not() -> None:
    after, before = ours("+qk-norm-after"), ours("+qk-norm")
    before.load_state_dict(after.state_dict())
    hunyuan = theirs(after)
    cells, ids_BT = batch(2)
    tokens = cells.pack(ids_BT)
    wanted = cells.pack(
        hunyuan(input_ids=ids_BT, attention_mask=cells.keep_BT.long(), use_cache=False).logits
    )
    logits = after.logits(after(tokens, cells))
    torch.testing.assert_close(logits, wanted, rtol=1e-10, atol=1e-10)
    other = before.logits(before(tokens, cells))
    assert (other - wanted).abs().max() > 0.01
    logits.square().sum().backward()
    wanted.square().sum().backward()
    gradients = {name: parameter.grad for name, parameter in hunyuan.named_parameters()}
    for name, parameter in after.named_parameters():
        torch.testing.assert_close(
            parameter.grad, gradients[HUNYUAN.names(after)[name]], rtol=1e-9, atol=1e-9
        )


@torch.no_grad()
def test_steps_from_a_cache_give_what_the_whole_text_gives() -> None:
    model = ours("+qk-norm-after")
    ids_BT = torch.randint(5, VOCABULARY, (2, 7), generator=torch.Generator().manual_seed(3))
    whole = model.logits(model(ids_BT.flatten(), Layout(torch.tensor([7, 7])))).view(2, 7, -1)
    cache = Cache(None, Layout(torch.tensor([1, 1])))
    first = torch.zeros(2, 1, dtype=torch.int64)
    steps = [model.logits(model.step(ids_BT[:, t : t + 1], first, cache)) for t in range(7)]
    torch.testing.assert_close(torch.stack(steps, 1), whole, rtol=1e-9, atol=1e-9)
