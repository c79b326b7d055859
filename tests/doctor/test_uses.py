"""What a sub-layer's matrices are for is told by where their products go, whatever they are called
and however they are packed.
"""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from normscope.doctor.observe.examine import examined_for_drawing
from transplant.hand_written import GPT, Attention, Block, ids
from transplant.test_transformers import HEADS, SIZES, made

pytest.importorskip("transformers", reason="needs Hugging Face transformers")


def uses_in(model: nn.Module, batch: Any, block: int = 1) -> dict[str, set[tuple[str, str]]]:
    """Of one block of every stack: by the parameter's last names, the parts and their rows."""
    found: dict[str, set[tuple[str, str]]] = {}
    for stack in examined_for_drawing(model.eval(), batch):
        for one in stack.sublayers:
            for use in one.measured.uses if one.block == block else ():
                name = ".".join(use.parameter.removesuffix(".weight").split(".")[-2:])
                rows = f"{use.rows[0]} {len(use.rows)}" if use.rows else ""
                found.setdefault(name, set()).add((use.part, rows))
    return found


def parts(found: dict[str, set[tuple[str, str]]]) -> dict[str, str]:
    """The one part of each."""
    return {name.partition(".")[2]: part for name, ((part, _),) in found.items()}


MOE = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 24}
QKVO = {"q_proj": "query", "k_proj": "key", "v_proj": "value", "o_proj": "output"}
GATED = {"gate_proj": "ffn_in", "up_proj": "ffn_in", "down_proj": "ffn_out"}
EXPERTS = {"gate_up_proj": "ffn_in"}
MODELS: dict[str, tuple[Any, dict[str, str]]] = {
    "llama": (made("LlamaForCausalLM", **SIZES, **HEADS), QKVO | GATED),
    "mixtral": (
        made("MixtralForCausalLM", **SIZES, num_key_value_heads=2, num_local_experts=4),
        QKVO | EXPERTS | {"gate": "", "down_proj": "ffn_out"},
    ),
    "qwen 2 moe": (
        made(
            "Qwen2MoeForCausalLM",
            **SIZES,
            **MOE,
            num_key_value_heads=2,
            shared_expert_intermediate_size=40,
        ),
        QKVO | GATED | EXPERTS | {"gate": "", "shared_expert_gate": ""},
    ),
    "ctrl": (
        made("CTRLLMHeadModel", vocab_size=96, n_embd=32, n_layer=2, n_head=4, dff=64),
        {"Wq": "query", "Wk": "key", "Wv": "value", "dense": "output"}
        | {"0": "ffn_in", "2": "ffn_out"},
    ),
}


@pytest.mark.parametrize("name", MODELS)
def test_parts_are_told_and_routers_and_gates_are_none(name: str) -> None:
    torch.manual_seed(0)
    make, expected = MODELS[name]
    assert parts(uses_in(make(), {"input_ids": ids()})) == expected


def test_t5s_are_told_in_encoder_and_decoder() -> None:
    sizes = {"vocab_size": 96, "d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2}
    model = made("T5ForConditionalGeneration", **sizes, num_heads=4)()
    found = uses_in(model, {"input_ids": ids(), "decoder_input_ids": ids()})
    told = {"q": "query", "k": "key", "v": "value", "o": "output"}
    attention = {f"SelfAttention.{name}": part for name, part in told.items()}
    attention |= {f"EncDecAttention.{name}": part for name, part in told.items()}
    feed_forward = {"DenseReluDense.wi": "ffn_in", "DenseReluDense.wo": "ffn_out"}
    assert {name: {part for part, _ in some} for name, some in found.items()} == {
        name: {part} for name, part in (attention | feed_forward).items()
    }


def test_rows_of_packed_matrices_are_told() -> None:
    """One after the other in GPT-2, of fewer heads in Phi-3, and head by head in BLOOM."""
    batch = {"input_ids": ids()}
    gpt2 = made("GPT2LMHeadModel", vocab_size=96, n_embd=32, n_layer=2, n_head=4)()
    assert uses_in(gpt2, batch)["attn.c_attn"] == {
        ("query", "0 32"),
        ("key", "32 32"),
        ("value", "64 32"),
    }
    phi = made("Phi3ForCausalLM", **SIZES, num_key_value_heads=2, pad_token_id=0)()
    assert uses_in(phi, batch)["self_attn.qkv_proj"] == {
        ("query", "0 32"),
        ("key", "32 16"),
        ("value", "48 16"),
    }
    bloom = made("BloomForCausalLM", vocab_size=96, hidden_size=32, n_layer=2, n_head=4)()
    assert uses_in(bloom, batch)["self_attention.query_key_value"] == {
        ("query", "0 32"),
        ("key", "8 32"),
        ("value", "16 32"),
    }


def test_of_attention_over_compressed_keys_the_matrices_that_make_them_last_count() -> None:
    """DeepSeek's: four rows of the first matrix are keys as they are."""
    sizes = {"kv_lora_rank": 16, "q_lora_rank": 12, "qk_rope_head_dim": 4, "qk_nope_head_dim": 8}
    model = made(
        "DeepseekV3ForCausalLM",
        **SIZES,
        **sizes,
        num_key_value_heads=4,
        v_head_dim=8,
        first_k_dense_replace=2,
    )()
    found = uses_in(model, {"input_ids": ids()})
    assert found["self_attn.q_a_proj"] == {("", "")}
    assert found["self_attn.q_b_proj"] == {("query", "")}
    assert found["self_attn.kv_a_proj_with_mqa"] == {("key", "16 4")}
    assert found["self_attn.kv_b_proj"] == {("key", "0 32"), ("value", "8 32")}


class Named(Attention):
    """With names that say nothing, a weight beside a product of low rank, and one that is made of
    two parameters.
    """

    def __init__(self) -> None:
        super().__init__()
        del self.qkv, self.out
        self.one, self.two, self.three, self.four = (nn.Linear(32, 32) for _ in range(4))
        self.into, self.back = nn.Linear(32, 4, bias=False), nn.Linear(4, 32, bias=False)
        torch.nn.utils.parametrizations.weight_norm(self.three)

    def forward(self, x: Tensor) -> Tensor:
        v, q = self.one(x), self.two(x) + self.back(self.into(x))
        k = self.three(x)
        q, k, v = (part.view(*x.shape[:2], 4, -1).transpose(1, 2) for part in (q, k, v))
        mixed = (q @ k.mT * 8**-0.5).softmax(-1) @ v
        return self.four(mixed.transpose(1, 2).reshape(x.shape))


def test_names_say_nothing_and_a_product_of_low_rank_is_beside_the_weight() -> None:
    class Own(Block):
        def __init__(self) -> None:
            super().__init__()
            self.attn = Named()

    torch.manual_seed(0)
    found = parts(uses_in(GPT(Own), ids()))
    expected = {"one": "value", "two": "query", "four": "output", "into": "", "back": ""}
    # A weight that is computed from a length and a direction is no plain matrix.
    assert found == expected | {"0": "ffn_in", "2": "ffn_out"}
