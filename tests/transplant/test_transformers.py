"""Models of Hugging Face transformers under other placements: the same bits where nothing changes,
and whole in use.
"""

import copy
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import normscope
from transplant.hand_written import perturb

transformers = pytest.importorskip(
    "transformers", reason="needs Hugging Face transformers (the `bench` extra)"
)

SIZES = {
    "vocab_size": 96,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
}
HEADS = {"num_key_value_heads": 2, "head_dim": 8}
BART = {
    "vocab_size": 96,
    "d_model": 32,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_ffn_dim": 64,
} | {**{"decoder_ffn_dim": 64, "encoder_attention_heads": 4, "decoder_attention_heads": 4}}
IMAGES = {"image_size": 16, "patch_size": 4}


def ids() -> Tensor:
    return torch.randint(5, 90, (2, 9), generator=torch.Generator().manual_seed(1))


def made(name: str, **settings: Any) -> Callable[[], nn.Module]:
    """A model by its class's name, from its configuration's."""
    family = name.partition("For")[0].removesuffix("LMHeadModel")
    config = getattr(transformers, f"{family}Config", None) or getattr(
        transformers, f"{family}TextConfig"
    )
    return lambda: getattr(transformers, name)(config(**settings))


MODELS = {
    "llama": made("LlamaForCausalLM", **SIZES, **HEADS),
    "gpt2": made("GPT2LMHeadModel", vocab_size=96, n_embd=32, n_layer=2, n_head=4),
    "gemma2": made("Gemma2ForCausalLM", **SIZES, **HEADS),
    "opt": made("OPTForCausalLM", **SIZES, ffn_dim=64, word_embed_proj_dim=32),
    "bloom": made("BloomForCausalLM", vocab_size=96, hidden_size=32, n_layer=2, n_head=4),
    "bert": made("BertForMaskedLM", **SIZES),
    "deberta-v2": made("DebertaV2ForMaskedLM", **SIZES),
    "t5": made(
        "T5ForConditionalGeneration",
        vocab_size=96,
        d_model=32,
        d_kv=8,
        d_ff=64,
        num_layers=2,
        num_heads=4,
    ),
    "bart": made("BartForConditionalGeneration", **BART),
    "vit": made(
        "ViTForImageClassification",
        **{k: v for k, v in SIZES.items() if k != "vocab_size"},
        **IMAGES,
    ),
}


def opened(name: str) -> tuple[nn.Module, dict[str, Tensor]]:
    torch.manual_seed(0)
    model = MODELS[name]().eval()
    if name == "vit":
        return model, {"pixel_values": torch.randn(2, 3, 16, 16)}
    return model, {"input_ids": ids()} | (
        {"decoder_input_ids": ids()} if model.config.is_encoder_decoder else {}
    )


def gradients(model: nn.Module, batch: dict[str, Tensor]) -> dict[str, Tensor]:
    model.zero_grad()
    model(**batch).logits.square().mean().backward()
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


def unequal(ours: dict[str, Tensor], theirs: dict[str, Tensor]) -> list[str]:
    assert ours.keys() == theirs.keys()
    return [name for name in ours if not torch.equal(ours[name], theirs[name])]


@pytest.mark.parametrize("placement", ["doge", "admin"])
def test_gains_on_a_stream_that_comes_out_of_the_embedding_s_norm_are_no_gains_of_that_norm(
    placement: str,
) -> None:
    model, batch = opened("bert")
    normscope.transplant(model, placement, inputs=batch)
    (stack,) = normscope.diagnose(model, batch, advise=False).stacks
    assert stack.embedding_norm
    assert {one.placement for one in stack.sublayers} == {placement}


@pytest.mark.sampled(one_in=3)
@pytest.mark.parametrize("name", MODELS)
def test_the_placement_that_a_model_has_changes_no_bit_of_outputs_and_gradients(name: str) -> None:
    model, batch = opened(name)
    before = perturb(copy.deepcopy(model))
    (own,) = {stack.placement for stack in normscope.diagnose(model, batch, advise=False).stacks}
    normscope.transplant(perturb(model), own, inputs=batch, initialise="keep")
    assert torch.equal(model(**batch).logits, before(**batch).logits)
    assert unequal(gradients(model, batch), gradients(before, batch)) == []


def test_bert_made_pre_ln_is_roberta_prelayernorm() -> None:
    """transformers has the same model under both: an oracle that none of us wrote."""
    model, batch = opened("bert")
    normscope.transplant(model, "pre-ln", inputs=batch)
    torch.manual_seed(0)
    config = transformers.RobertaPreLayerNormConfig(**SIZES, layer_norm_eps=1e-12, pad_token_id=0)
    twin = transformers.RobertaPreLayerNormModel(config).eval()
    perturb(model)
    renamed = {
        "attention.LayerNorm": "attention.output.LayerNorm",
        "intermediate.LayerNorm": "output.LayerNorm",
    }
    with torch.no_grad():
        for theirs, ours in zip(twin.encoder.layer, model.bert.encoder.layer, strict=True):
            known = ours.state_dict()
            for name, parameter in theirs.named_parameters():
                module, _, last = name.rpartition(".")
                parameter.copy_(known[f"{renamed.get(module, module)}.{last}"])
        twin.LayerNorm.load_state_dict(
            model.bert.encoder.layer[-1].placed.finish.norms.main.state_dict()
        )
    hidden = model.bert.embeddings(input_ids=batch["input_ids"])
    ours = model.bert.encoder(hidden).last_hidden_state
    assert torch.equal(ours, twin.LayerNorm(twin.encoder(hidden).last_hidden_state))


@pytest.mark.sampled(one_in=3)
@pytest.mark.filterwarnings("ignore:`gradient_checkpointing:FutureWarning")
@pytest.mark.parametrize(
    ("name", "placement"), [("llama", "deepnorm"), ("gpt2", "peri-ln"), ("llama", "mhc")]
)
def test_generation_checkpointing_and_cache_are_the_models_own(name: str, placement: str) -> None:
    model, batch = opened(name)
    perturb(normscope.transplant(model, placement, inputs=batch))
    asked = {"max_new_tokens": 4, "do_sample": False, "pad_token_id": 0, "eos_token_id": None}
    without = model.generate(ids(), use_cache=False, **asked)
    assert torch.equal(model.generate(ids(), use_cache=True, **asked), without)
    assert torch.equal(
        model.generate(ids(), cache_implementation="static", disable_compile=True, **asked), without
    )
    model.config.use_cache = False
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
    plain = gradients(model.train(), batch)
    for reentrant in (False, True):
        model.gradient_checkpointing_enable({"use_reentrant": reentrant})
        assert unequal(gradients(model, batch), plain) == []
        model.gradient_checkpointing_disable()


def test_a_first_block_without_a_norm_of_its_own_is_not_pre_ln_to_the_last_bit() -> None:
    """ModernBERT's first block leaves its norm to the embedding: Pre-LN would add one, which `keep`
    must not do.
    """
    torch.manual_seed(0)
    model = made("ModernBertForMaskedLM", **SIZES, pad_token_id=0)().eval()
    with pytest.raises(
        normscope.UserError, match="is pre-ln already, and would give other outputs"
    ):
        normscope.transplant(model, "pre-ln", inputs={"input_ids": ids()}, initialise="keep")
    assert not hasattr(model, "transplanted")


def test_the_manual_begins_with_the_wiring_that_a_llama_is_found_to_have() -> None:
    page = (Path(__file__).parents[2] / "docs/own-models.md").read_text(encoding="utf-8")
    cells = [re.findall(r"`(x ← [^`]*)`", line) for line in page.splitlines()[:7]]
    told = list(zip(*filter(None, cells), strict=True))
    found = []
    for placement in ("pre-ln", "post-ln", "peri-ln"):
        model, batch = opened("llama")
        if placement != "pre-ln":
            normscope.transplant(model, placement, inputs=batch)
        (stack,) = normscope.diagnose(model, batch, advise=False).stacks
        found.append(tuple(str(one.formula) for one in stack.sublayers[:2]))
    assert told == found


@pytest.mark.thorough
@pytest.mark.filterwarnings(
    "ignore:.*should not be instantiated:DeprecationWarning"
)  # torch's own, of BLOOM's GELU
@pytest.mark.parametrize(
    ("name", "placement"), [*((name, "peri-ln") for name in MODELS), ("gpt2", "mhc")]
)
def test_a_transplant_adds_no_graph_break(name: str, placement: str) -> None:
    """Models of transformers are compiled whole before and afterwards; what a break would name is
    its reason.
    """
    model, batch = opened(name)
    normscope.transplant(model, placement, inputs=batch)
    torch._dynamo.reset()
    found = torch._dynamo.explain(model)(**batch)
    assert [reason.reason for reason in found.break_reasons] == []
    assert found.graph_count == 1
