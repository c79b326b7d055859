"""Norms on queries and keys of a model that exists: beside stock models that have them, beside a
forward written by hand, saved and read again, and refused.
"""

import copy
import pickle
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import normscope
from normscope.cli.main import main
from normscope.errors import UserError
from transplant.hand_written import GPT, HEADS, WIDTH, Attention, Block, ids, perturb

SIZES = {
    "vocab_size": 96,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
}
GROUPED = {"num_key_value_heads": 2, "head_dim": 8}


def transformers() -> Any:
    return pytest.importorskip(
        "transformers", reason="needs Hugging Face transformers (the `bench` extra)"
    )


def stock(name: str, *, gained: bool = True, **settings: Any) -> nn.Module:
    """A model of transformers; gained: with weights and gains that no training began with."""
    library = transformers()
    family = name.partition("For")[0]
    config = getattr(library, f"{family}TextConfig", None) or getattr(library, f"{family}Config")
    torch.manual_seed(0)
    model = getattr(library, name)(config(**{**SIZES, **settings})).eval()
    if gained:
        perturb(model)
    return model


def tokens() -> Tensor:
    return torch.randint(5, 90, (2, 9), generator=torch.Generator().manual_seed(1))


def as_added(name: str) -> str:
    """Where a weight of a stock model stands after the transplant."""
    for there, here in (
        ("q_norm", "q_proj.placed.norms.query"),
        ("k_norm", "k_proj.placed.norms.key"),
    ):
        name = name.replace(there, here)
    return name


@torch.no_grad()
def give_weights(model: nn.Module, of: nn.Module, name_here: Callable[[str], str]) -> set[str]:
    """Copies every weight of a model; returns the names of those here that got none."""
    own = dict(model.named_parameters())
    for name, value in of.named_parameters():
        own.pop(name_here(name)).copy_(value)
    return {*own}


def test_llama_with_them_is_qwen_3_to_the_last_bit() -> None:
    llama, qwen = stock("LlamaForCausalLM", **GROUPED), stock("Qwen3ForCausalLM", **GROUPED)
    normscope.transplant(llama, "own", qk_norm="head", inputs={"input_ids": tokens()})
    assert not give_weights(llama, qwen, as_added)
    assert torch.equal(llama(tokens()).logits, qwen(tokens()).logits)
    longer = [
        model.generate(tokens(), max_new_tokens=3, do_sample=False) for model in (llama, qwen)
    ]
    assert torch.equal(*longer)
    losses = [model(tokens(), labels=tokens()).loss for model in (llama, qwen)]
    for loss in losses:
        loss.backward()
    gradients = dict(llama.named_parameters())
    for name, parameter in qwen.named_parameters():
        # Gains' gradients are sums, which another layout in memory adds up in another order.
        assert torch.allclose(gradients[as_added(name)].grad, parameter.grad, 1e-5, 1e-7)


def test_llama_reordered_with_them_over_the_whole_width_is_olmo_2() -> None:
    llama = stock("LlamaForCausalLM", **GROUPED)
    olmo = stock("Olmo2ForCausalLM", num_key_value_heads=2, pad_token_id=0, rms_norm_eps=1e-6)
    normscope.transplant(
        llama, "reordered+qk-norm-whole", initialise="keep", inputs={"input_ids": tokens()}
    )

    def here(name: str) -> str:
        name = name.replace("post_attention_layernorm", "placed.attention.norms.main")
        return as_added(
            name.replace("post_feedforward_layernorm", "placed.feed_forward.norms.main")
        )

    left = give_weights(llama, olmo, here)
    assert {name.split(".")[-2] for name in left} == {
        "input_layernorm",
        "post_attention_layernorm",
    }  # Llama's own, which nothing reads any more
    assert torch.equal(llama(tokens()).logits, olmo(tokens()).logits)


def test_gemma_2_with_its_own_kind_of_norm_is_gemma_3() -> None:
    alike = {**GROUPED, "query_pre_attn_scalar": 8, "attn_implementation": "eager"}
    alike["layer_types"] = ["full_attention"] * 2
    turns = {"rope_type": "default", "rope_theta": 10_000.0}
    gemma_2 = stock(
        "Gemma2ForCausalLM", **alike, attn_logit_softcapping=None, final_logit_softcapping=None
    )
    gemma_3 = stock(
        "Gemma3ForCausalLM",
        **alike,
        rope_parameters={"full_attention": turns, "sliding_attention": turns},
    )
    normscope.transplant(gemma_2, "own", qk_norm="head", inputs={"input_ids": tokens()})
    norm = gemma_2.model.layers[0].self_attn.q_proj.placed.norms["query"]
    assert torch.equal(norm.weight, torch.zeros(8))  # Gemma adds 1
    assert not give_weights(gemma_2, gemma_3, as_added)
    assert torch.equal(gemma_2(tokens()).logits, gemma_3(tokens()).logits)


class Normed(Attention):
    """The same attention, its norms written by hand."""

    norm: Callable[[Tensor], Tensor]
    over: str

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x).split(WIDTH, dim=-1)
        if self.over == "whole":
            q, k = self.norm(q), self.norm(k)
        q, k, v = (part.view(*x.shape[:2], HEADS, -1).transpose(1, 2) for part in (q, k, v))
        if self.over == "head":
            q, k = self.norm(q), self.norm(k)
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(mixed.transpose(1, 2).reshape(x.shape))


def layer(x: Tensor) -> Tensor:
    return functional.layer_norm(x, x.shape[-1:], eps=1e-5)


def rms(x: Tensor) -> Tensor:
    return x / (x.square().mean(-1, keepdim=True) + 1e-5).sqrt()


def unit(x: Tensor) -> Tensor:
    return x / x.norm(dim=-1, keepdim=True) * x.shape[-1] ** 0.5


@pytest.mark.parametrize(
    ("words", "norm", "over"),
    [
        ("head", layer, "head"),
        ("whole", layer, "whole"),
        ("head-rms", rms, "head"),
        ("whole-rms", rms, "whole"),
        ("unit", unit, "head"),
    ],
)
def test_a_packed_matrix_of_ones_own_gives_what_the_hand_writes(
    words: str, norm: Callable[[Tensor], Tensor], over: str
) -> None:
    torch.manual_seed(0)
    model = GPT(Block)
    perturb(model)
    by_hand = copy.deepcopy(model)
    for module in by_hand.modules():
        if type(module) is Attention:
            module.__class__, module.norm, module.over = Normed, norm, over
    before = {name: value.clone() for name, value in model.state_dict().items()}
    normscope.transplant(model, "own", qk_norm=words, inputs=ids())
    assert (model(ids()) - by_hand(ids())).abs().max() < 1e-5
    assert all(torch.equal(model.state_dict()[name], value) for name, value in before.items())
    formulas = {
        str(one.formula)
        for one in normscope.diagnose(model, ids(), advise=False).stacks[0].sublayers
        if one.kind == "attention"
    }
    score = "norm(score by head)" if over == "head" else "norm(score)"
    assert formulas == {f"x ← x + attention(norm(x), {score}, {score})"}
    for again in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert torch.equal(again(ids()), model(ids()))
    output = model(ids())
    normscope.untransplant(model)
    assert {*model.state_dict()} == {*before}
    assert not torch.equal(model(ids()), output)


class Interleaved(Attention):
    """Features of a head lie apart among the outputs, one of each head after the other."""

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (
            part.view(*x.shape[:2], -1, HEADS).permute(0, 3, 1, 2)
            for part in self.qkv(x).split(WIDTH, dim=-1)
        )
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(mixed.permute(0, 2, 3, 1).reshape(x.shape))


class InterleavedBlock(Block):
    def __init__(self) -> None:
        super().__init__()
        self.attn = Interleaved()


class HiddenBlock(Block):
    def __init__(self) -> None:
        super().__init__()
        self.attn = nn.MultiheadAttention(WIDTH, HEADS, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        normed = self.ln_1(x)
        x = x + self.attn(normed, normed, normed, need_weights=False)[0]
        return x + self.mlp(self.ln_2(x))


@pytest.mark.parametrize(
    ("block", "said"),
    [
        (HiddenBlock, "MultiheadAttention makes its queries and keys in one call.*nn.Linear"),
        (InterleavedBlock, "its heads may lie otherwise among the outputs"),
    ],
)
def test_what_hides_queries_and_keys_is_refused_and_stays(block: type[Block], said: str) -> None:
    torch.manual_seed(0)
    model = GPT(block)
    before, output = copy.deepcopy(model.state_dict()), model(ids())
    kinds = [type(module) for module in model.modules()]
    for name in ("own+qk-norm", "peri-ln+qk-norm"):
        with pytest.raises(UserError, match=said):
            normscope.transplant(model, name, inputs=ids())
        assert [type(module) for module in model.modules()] == kinds
        assert not hasattr(model, "transplanted")
        assert {*model.state_dict()} == {*before}
        assert torch.equal(model(ids()), output)


def test_over_the_whole_width_it_does_not_matter_where_heads_lie() -> None:
    torch.manual_seed(0)
    model = GPT(InterleavedBlock)
    normscope.transplant(model, "own+qk-norm-whole", inputs=ids())
    assert len(model.transplanted.normed) == 3


@pytest.mark.parametrize(
    ("name", "settings", "said"),
    [
        ("Qwen3ForCausalLM", GROUPED, "queries and keys are normalised already"),
        ("BloomForCausalLM", {}, "where its queries and keys meet is not understood"),
    ],
)
def test_models_that_cannot_get_them_are_told_why(
    name: str, settings: dict[str, Any], said: str
) -> None:
    with pytest.raises(UserError, match=said):
        normscope.transplant(stock(name, **settings), "own+qk-norm", inputs={"input_ids": tokens()})


def test_own_without_norms_is_nothing_to_do() -> None:
    with pytest.raises(UserError, match=r"own is the placement that the model has.*own\+qk-norm"):
        normscope.transplant(GPT(Block), "own", inputs=ids())


def test_beside_another_placement_both_are_there_and_weights_are_those_of_it_alone() -> None:
    outputs = []
    for name in ("peri-ln", "peri-ln+qk-norm"):
        torch.manual_seed(0)
        model = GPT(Block)
        normscope.transplant(model, name, initialise="draw", inputs=ids())
        outputs.append(model)
    plain, normed = (dict(model.named_parameters()) for model in outputs)
    assert all(torch.equal(normed[name], value) for name, value in plain.items())
    added = {*normed} - {*plain}
    assert {name.split("qkv.")[-1] for name in added} == {
        f"placed.norms.{side}.{part}" for side in ("query", "key") for part in ("weight", "bias")
    }
    assert added <= {*outputs[1].transplanted.added}
    first = normscope.diagnose(outputs[1], ids(), advise=False).stacks[0].sublayers[0]
    score = "norm(score by head)"
    assert str(first.formula) == f"x ← x + norm(attention(norm(x), {score}, {score}))"


@pytest.mark.parametrize("name", ["mhc+qk-norm", "residual+qk-norm", "deepnorm+qk-norm-whole"])
def test_placements_of_several_streams_can_have_them_too(name: str) -> None:
    torch.manual_seed(0)
    model = GPT(Block)
    normscope.transplant(model, name, initialise="draw", inputs=ids())
    assert len(model.transplanted.normed) == 3
    assert model.transplanted.placement == name


def test_logits_start_at_one_size_whatever_attention_multiplies_them_with() -> None:
    library = transformers()
    config = library.T5Config(vocab_size=96, d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4)
    t5 = library.T5ForConditionalGeneration(config)
    both = {"input_ids": tokens(), "decoder_input_ids": tokens()}
    normscope.transplant(t5, "own+qk-norm", inputs=both)
    attention = t5.decoder.block[0].layer[1].EncDecAttention
    assert torch.allclose(attention.q.placed.norms["query"].weight, torch.tensor(8**-0.5))
    assert torch.equal(attention.k.placed.norms["key"].weight, torch.ones(8))


def test_readers_of_the_stream_keep_both_classes_in_a_pickle() -> None:
    bert = stock("BertForMaskedLM")
    normscope.transplant(bert, "pre-ln+qk-norm", inputs={"input_ids": tokens()})
    again = pickle.loads(pickle.dumps(bert))
    assert torch.equal(again(tokens()).logits, bert(tokens()).logits)
    normscope.untransplant(again)
    assert not [one for one in again.modules() if hasattr(type(one), "swapped_kind")]


def test_the_verb_writes_them_and_the_doctor_reads_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    llama = stock("LlamaForCausalLM", gained=False, **GROUPED)
    llama.save_pretrained("llama")

    def says(*words: str) -> int | str | None:
        monkeypatch.setattr(sys, "argv", ["normscope", *words])
        with pytest.raises(SystemExit) as ended:
            main()
        return ended.value.code

    normed = ("--to", "own", "--qk-norm", "whole", "--out", "normed")
    assert says("transplant", "llama", *normed) in (0, None)
    told = " ".join(capsys.readouterr().out.split())
    assert "norms on the queries and keys of every attention (qk-norm-whole)" in told
    assert "self_attn.q_proj" in told
    assert says("doctor", "normed", "--no-advice") in (0, None)
    assert "queries and keys are normalised over all heads together" in " ".join(
        capsys.readouterr().out.split()
    )
    again = stock("LlamaForCausalLM", gained=False, **GROUPED)
    normscope.transplant(again, "normed", inputs={"input_ids": tokens()})
    assert again.transplanted.placement == "own+qk-norm-whole"
    normscope.transplant(llama, "own+qk-norm-whole", inputs={"input_ids": tokens()})
    assert torch.equal(again(tokens()).logits, llama(tokens()).logits)
    assert says("transplant", "llama", "--to", "own", "--qk-norm", "heads", "--out", "none") == 2
    assert "say head (each head on its own" in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "none").exists()
