"""A model on the meta device is the model with weights, as far as its structure goes."""

import pytest
import torch
import transformers

from normscope.doctor.identify.stacks import find_stacks
from normscope.doctor.record import Stack

SMALL = {
    "gpt2": (
        "GPT2LMHeadModel",
        {"n_layer": 2, "n_embd": 16, "n_head": 2, "vocab_size": 40, "eos_token_id": 1},
    ),
    "llama": (
        "LlamaForCausalLM",
        {
            "num_hidden_layers": 2,
            "hidden_size": 16,
            "intermediate_size": 24,
            "num_attention_heads": 2,
        },
    ),
    "bert": (
        "BertModel",
        {
            "num_hidden_layers": 2,
            "hidden_size": 16,
            "intermediate_size": 24,
            "num_attention_heads": 2,
        },
    ),
    "gemma2": (
        "Gemma2ForCausalLM",
        {
            "num_hidden_layers": 2,
            "hidden_size": 16,
            "intermediate_size": 24,
            "num_attention_heads": 2,
            "head_dim": 8,
        }
        | {"num_key_value_heads": 1},
    ),
    "t5": ("T5Model", {"num_layers": 2, "d_model": 16, "d_ff": 24, "num_heads": 2, "d_kv": 8}),
}


def built(name: str) -> torch.nn.Module:
    kind, changes = SMALL[name]
    model_class = getattr(transformers, kind)
    return model_class(
        model_class.config_class(
            **{"vocab_size": 40, "bos_token_id": 0, "eos_token_id": 1} | changes
        )
    )


def looked(name: str, device: str) -> list[Stack]:
    torch.manual_seed(0)
    with torch.device(device):
        model, ids = built(name), torch.zeros(1, 6, dtype=torch.long)
    return find_stacks(
        model, {"input_ids": ids} | ({"decoder_input_ids": ids} if name == "t5" else {})
    )


@pytest.mark.sampled(one_in=3)
@pytest.mark.parametrize("name", SMALL)
def test_the_structure_is_that_of_the_model_with_weights(name: str) -> None:
    found = looked(name, "meta")
    assert found == looked(name, "cpu")
    assert all(stack.placement for stack in found)


@pytest.mark.thorough
def test_seventy_billion_parameters_need_no_memory() -> None:
    """In wide layers: what eighty of them take longer for is going through them one by one."""
    config = transformers.LlamaConfig(
        num_hidden_layers=10,
        hidden_size=24576,
        intermediate_size=73728,
        num_attention_heads=192,
        num_key_value_heads=8,
    )
    with torch.device("meta"):
        model, ids = transformers.LlamaForCausalLM(config), torch.zeros(1, 2, dtype=torch.long)
    (stack,) = find_stacks(model, {"input_ids": ids})
    assert sum(weight.numel() for weight in model.parameters()) > 65e9
    assert (stack.placement, stack.blocks, stack.width, stack.final_norm) == (
        "pre-ln",
        10,
        24576,
        True,
    )
    assert (stack.norm, stack.norm_epsilon) == ("rms-norm", 1e-6)
