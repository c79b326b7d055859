"""Checkpoints of decoders as transformers saves them, opened as runs, changed, and given back byte for byte."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, decoders, pre_tokenizers
from tokenizers.models import BPE

from normscope.data.documents.tokeniser import TextTokeniser
from normscope.errors import UserError
from normscope.exchange.verbs import export_run, import_run
from normscope.model import LanguageModel, Layout
from normscope.runs.trained import load_run

pytestmark = pytest.mark.sampled(one_in=6)

transformers = pytest.importorskip("transformers", reason="needs Hugging Face transformers")

SPECIALS = ["<unk>", "<s>", "</s>"]
SMALL = {
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "num_hidden_layers": 3,
    "max_position_embeddings": 64,
    "head_dim": 8,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": None,
}
FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("LlamaForCausalLM", {"head_dim": 4}),
    "llama, tied": ("LlamaForCausalLM", {"tie_word_embeddings": True, "rms_norm_eps": 1e-4}),
    "olmo2": ("Olmo2ForCausalLM", {"head_dim": 4}),
    "qwen3": ("Qwen3ForCausalLM", {}),
    "gemma2": ("Gemma2ForCausalLM", {"query_pre_attn_scalar": 8, "sliding_window": 5}),
    "gemma2, no window or caps": (
        "Gemma2ForCausalLM",
        {
            "query_pre_attn_scalar": 8,
            "layer_types": ["full_attention"] * 3,
            "attn_logit_softcapping": None,
            "final_logit_softcapping": None,
        },
    ),
}


def tokenizer() -> Tokenizer:
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    made = Tokenizer(BPE(vocab={token: i for i, token in enumerate([*SPECIALS, *sorted(alphabet)])}, merges=[]))
    made.add_special_tokens(SPECIALS)
    made.pre_tokenizer, made.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    return made


def saved(folder: Path, family: str, **changes: Any) -> Path:
    """A folder as transformers writes it, every weight off its initial value."""
    torch.manual_seed(5)
    architecture, own = FAMILIES[family]
    kind = family.partition(",")[0]
    words = tokenizer()
    config = transformers.AutoConfig.for_model(kind, **(SMALL | {"vocab_size": words.get_vocab_size()} | own | changes))
    model = getattr(transformers, architecture)(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.2 * torch.randn_like(parameter)
    model.save_pretrained(folder)
    words.save(str(folder / "tokenizer.json"))
    return folder


def changed(folder: Path, **values: object) -> Path:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | values))
    return folder


@pytest.mark.parametrize("family", FAMILIES)
def test_the_outputs_are_theirs_and_what_goes_back_is_what_came(family: str, tmp_path: Path) -> None:
    folder = saved(tmp_path / "theirs", family)
    imported = import_run(folder, tmp_path / "run")
    assert (imported.task, imported.drawn, imported.unused) == ("language-model", (), ())
    run = load_run(tmp_path / "run")
    assert isinstance(run.model, LanguageModel)
    ids = torch.randint(3, 250, (1, 11), generator=torch.Generator().manual_seed(1))
    theirs = transformers.AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager").eval()
    with torch.no_grad():
        wanted = theirs(ids).logits[0]
        ours = run.model.logits(run.model(ids[0], Layout(torch.tensor([11]))))
    torch.testing.assert_close(ours, wanted, rtol=1e-4, atol=1e-4)

    export_run(tmp_path / "run", tmp_path / "back")
    before, after = (load_file(path / "model.safetensors") for path in (folder, tmp_path / "back"))
    assert before.keys() == after.keys()
    for name, tensor in before.items():
        # A gain of Gemma is stored less 1, which rounds twice on the way.
        tolerance = 1e-6 if family.startswith("gemma2") and "norm" in name else 0.0
        torch.testing.assert_close(after[name], tensor, rtol=0, atol=tolerance)
    import_run(tmp_path / "back", tmp_path / "again")
    assert (tmp_path / "again/config.toml").read_bytes() == (tmp_path / "run/config.toml").read_bytes()
    export_run(tmp_path / "again", tmp_path / "back again")
    for name in ("config.json", "model.safetensors", "tokenizer.json"):
        assert (tmp_path / "back again" / name).read_bytes() == (tmp_path / "back" / name).read_bytes()


def test_rows_that_no_token_has_are_kept(tmp_path: Path) -> None:
    folder = saved(tmp_path / "theirs", "qwen3", vocab_size=300, tie_word_embeddings=True)
    import_run(folder, tmp_path / "run")
    run = load_run(tmp_path / "run")
    assert len(run.codec) == 300
    assert run.codec.encode_many(["a cat"]) == TextTokeniser(tokenizer()).encode_many(["a cat"])
    torch.testing.assert_close(
        run.model.embedding.weight, load_file(folder / "model.safetensors")["model.embed_tokens.weight"]
    )


def test_a_tied_head_may_be_in_the_file_and_must_be_the_table(tmp_path: Path) -> None:
    folder = saved(tmp_path / "theirs", "llama, tied")
    tensors = load_file(folder / "model.safetensors")
    save_file(tensors | {"lm_head.weight": tensors["model.embed_tokens.weight"].clone()}, folder / "model.safetensors")
    assert import_run(folder, tmp_path / "run").unused == ()
    other = {"lm_head.weight": tensors["model.embed_tokens.weight"] + 1}
    save_file(tensors | other, folder / "model.safetensors")
    with pytest.raises(UserError, match=r"lm_head\.weight is not model\.embed_tokens\.weight"):
        import_run(folder, tmp_path / "second")


@pytest.mark.parametrize(
    ("family", "values", "message"),
    [
        ("llama", {"attention_bias": True}, "attention_bias is true, and format llama is read without it"),
        ("llama", {"hidden_act": "gelu"}, "hidden_act is 'gelu'; format llama has silu"),
        ("llama", {"hidden_size": "wide"}, "hidden_size is 'wide'; it must be of type int"),
        (
            "llama",
            {"rope_parameters": {"rope_type": "llama3", "rope_theta": 1.0}},
            "of type 'llama3', and ours are not stretched",
        ),
        ("llama", {"rope_parameters": {"rope_type": "default", "rope_theta": "x"}}, "rope_theta must be a number"),
        ("llama", {"num_key_value_heads": 3}, "heads=4 must be a multiple of attention.key_value_heads=3"),
        ("llama", {"num_hidden_layers": 4}, r"lacks model\.layers\.3\.self_attn"),
        ("llama", {"intermediate_size": 25}, r"is \(24, 16\), and config.json asks for \(25, 16\)"),
        ("qwen3", {"use_sliding_window": True}, "use_sliding_window is true"),
        ("gemma2", {"query_pre_attn_scalar": 256}, "query_pre_attn_scalar is 256"),
        (
            "gemma2",
            {"layer_types": ["full_attention", "sliding_attention", "full_attention"]},
            "layer_types is neither",
        ),
    ],
)
def test_what_ours_does_not_compute_is_refused(
    family: str, values: dict[str, Any], message: str, tmp_path: Path
) -> None:
    folder = changed(saved(tmp_path / "theirs", family), **values)
    with pytest.raises(UserError, match=message):
        import_run(folder, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_masked_model_needs_the_tokens_that_a_decoder_does_not(tmp_path: Path) -> None:
    made = TextTokeniser(tokenizer())
    assert made.lacks == ("[PAD]", "[MASK]")
    assert made.ids["[PAD]"] == made.ids["[SEP]"] == 2
    assert TextTokeniser(Tokenizer.from_str(made.to_json())).to_json() == made.to_json()
    assert made.grown(300).decode(made.encode_many(["ein Hund"])[0]) == "ein Hund"
