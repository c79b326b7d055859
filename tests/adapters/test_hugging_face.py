"""Hugging Face models from configurations and folders: what is built, what goes in, its loss, what
is refused.
"""

import inspect
import json
import os
import shutil
import socket
import sys
from pathlib import Path

import pytest
import torch
from torch.nn import functional

from doctor.corpus import CORPUS, FURTHER, GROUPED, hugging_face, sizes
from normscope.doctor import find_stacks
from normscope.errors import UserError, installation
from normscope.limits import memory
from normscope.targets import Target, opened

transformers = pytest.importorskip("transformers", reason="needs Hugging Face transformers")

TOKENS, SEQUENCES = 7, 3
SMALL = (
    "n_layer=2",
    "n_embd=32",
    "n_head=2",
    "vocab_size=50",
    "bos_token_id=48",
    "eos_token_id=49",
)


def open_small(text: object, *settings: str, tokens: int = TOKENS, seed: int = 0) -> Target:
    return opened(str(text), settings, tokens=tokens, sequences=SEQUENCES, seed=seed)


def said(text: object, *settings: str) -> str:
    with pytest.raises(UserError) as error:
        open_small(text, *settings)
    assert "\n" not in str(error.value)
    return str(error.value)


def saved(config: object, folder: Path) -> Path:
    config.save_pretrained(folder)
    return folder / "config.json"


def loss_by_hand(target: Target, output: object) -> torch.Tensor:
    """Mean cross-entropy of the logits, written out for every kind of head."""
    labels, logits = target.inputs["labels"], output.logits.float()
    kind = type(target.model).__name__
    if kind == "Wav2Vec2ForCTC":
        log_p_FBV = logits.log_softmax(-1).transpose(0, 1)
        frames, counts = torch.full((SEQUENCES,), TOKENS), torch.full((SEQUENCES,), labels.shape[1])
        blank = target.model.config.pad_token_id
        return (
            functional.ctc_loss(log_p_FBV, labels, frames, counts, blank=blank, reduction="sum")
            / frames.sum()
        )
    if kind.endswith("ForCausalLM") or kind == "GPT2LMHeadModel":
        logits, labels = logits[:, :-1], labels[:, 1:]
    return functional.cross_entropy(logits.flatten(0, -2), labels.flatten(), ignore_index=-100)


@pytest.mark.sampled(one_in=8)
@pytest.mark.parametrize("name", [*CORPUS, *FURTHER])
def test_every_family_runs_on_its_sample_inputs(name, tmp_path):
    config = (CORPUS | FURTHER)[name].build().config
    target = open_small(saved(config, tmp_path))
    model = target.model.eval()
    assert {key for key in target.inputs if key != "labels"} <= inspect.signature(
        model.forward
    ).parameters.keys()
    with torch.no_grad():
        output = model(**target.inputs)
    if name == "clip":  # the vision side alone has no head
        assert target.loss is None
    else:
        torch.testing.assert_close(
            target.loss(output), loss_by_hand(target, output), rtol=1e-5, atol=1e-6
        )
    ids = target.inputs.get("input_ids")
    if ids is not None:
        given = [
            v for k, v in vars(model.config).items() if k.endswith("_token_id") and v is not None
        ]
        special = {token for v in given for token in (v if isinstance(v, list) else [v])}
        assert not set(ids.flatten().tolist()) & special
        assert ids.shape == (SEQUENCES, TOKENS)
    if "input_values" in target.inputs:
        samples = torch.tensor(target.inputs["input_values"].shape[1])
        assert int(model._get_feat_extract_output_lengths(samples)) == TOKENS
    if "decoder_input_ids" in target.inputs:
        assert torch.equal(
            target.inputs["decoder_input_ids"][:, 1:], target.inputs["labels"][:, :-1]
        )
        assert set(target.inputs["decoder_input_ids"][:, 0].tolist()) <= special


@pytest.mark.parametrize("reduction", ["sum", "mean"])
def test_the_loss_of_ctc_is_per_frame_however_it_is_reduced(reduction, tmp_path):
    config = CORPUS["wav2vec2"].build().config
    target = open_small(saved(config, tmp_path), f"ctc_loss_reduction={reduction}")
    with torch.no_grad():
        output = target.model.eval()(**target.inputs)
    torch.testing.assert_close(
        target.loss(output), loss_by_hand(target, output), rtol=1e-5, atol=1e-6
    )
    # Labels leave one alignment, so the loss is the mean over frames of what each gives to its
    # label.
    by_frame = -output.logits.log_softmax(-1).gather(-1, target.inputs["labels"][..., None]).mean()
    torch.testing.assert_close(target.loss(output), by_frame, rtol=1e-5, atol=1e-6)


def test_masked_tokens_are_read_as_others():
    target = open_small("bert", *(f"{key}={value}" for key, value in sizes().items()), tokens=100)
    read, labels = target.inputs["input_ids"], target.inputs["labels"]
    asked = labels != -100
    assert int(asked.sum()) == 45  # 15 % of 300
    assert float((read == labels)[asked].float().mean()) < 0.3
    assert type(target.model).__name__ == "BertForMaskedLM"


@pytest.mark.parametrize(
    ("build", "wanted"),
    [
        *(
            (CORPUS[name].build, CORPUS[name].stacks[0].placement)
            for name in CORPUS
            if name.startswith(("opt", "wav2"))
        ),
        *(
            (
                hugging_face(
                    "Bloom",
                    vocab_size=40,
                    hidden_size=32,
                    n_layer=3,
                    n_head=4,
                    apply_residual_connection_post_layernorm=after,
                ),
                "post-ln" if after else "pre-ln",
            )
            for after in (False, True)
        ),
    ],
)
def test_the_placement_that_a_flag_asks_for_is_the_one_that_is_found(build, wanted, tmp_path):
    target = open_small(saved(build().config, tmp_path))
    assert target.wanted_placement == wanted
    assert find_stacks(target.model, target.inputs)[0].placement == wanted


def test_without_a_flag_nothing_is_wanted(tmp_path):
    assert open_small("gpt2", *SMALL).wanted_placement is None


@pytest.mark.parametrize(
    ("name", "built"),
    [("gpt2", "GPT2LMHeadModel"), ("GPT2Config", "GPT2LMHeadModel"), ("GPT2Model", "GPT2Model")],
)
def test_by_name_with_changes(name, built):
    target = open_small(name, *SMALL)
    assert type(target.model).__name__ == built
    assert [target.model.config.n_layer, target.model.config.n_embd] == [2, 32]
    assert (target.loss is None) == (built == "GPT2Model")
    assert target.loading is None
    assert name in target.title


def test_keys_have_the_names_of_other_families_too_and_lie_in_parts():
    assert open_small("gpt2", *SMALL, "num_hidden_layers=1").model.config.n_layer == 1
    changes = (
        "num_hidden_layers=2",
        "hidden_size=32",
        "num_attention_heads=2",
        "intermediate_size=32",
    )
    parts = [f"{part}_config.{change}" for part in ("text", "vision") for change in changes]
    target = open_small(
        "CLIPModel", *parts, "vision_config.image_size=8", "vision_config.patch_size=4"
    )
    assert target.model.config.text_config.num_hidden_layers == 2
    assert target.inputs["pixel_values"].shape == (SEQUENCES, 3, 8, 8)
    assert target.inputs["input_ids"].shape == (SEQUENCES, TOKENS)
    assert len(find_stacks(target.model, target.inputs)) == 2


def test_the_seed_decides_weights_and_inputs_and_leaves_random_numbers_alone():
    before = torch.get_rng_state()
    first, again, other = (open_small("gpt2", *SMALL, seed=seed) for seed in (1, 1, 2))
    assert torch.equal(torch.get_rng_state(), before)
    assert all(
        torch.equal(a, b)
        for a, b in zip(first.model.parameters(), again.model.parameters(), strict=True)
    )
    assert torch.equal(first.inputs["input_ids"], again.inputs["input_ids"])
    assert not torch.equal(first.model.lm_head.weight, other.model.lm_head.weight)
    assert not torch.equal(first.inputs["input_ids"], other.inputs["input_ids"])


def test_inputs_are_no_longer_than_the_positions():
    assert open_small("gpt2", *SMALL, "n_positions=5").inputs["input_ids"].shape == (SEQUENCES, 5)
    settings = [
        f"{key}={value}" for key, value in sizes(max_position_embeddings=9, pad_token_id=1).items()
    ]
    target = open_small("roberta", *settings, tokens=50)
    assert target.inputs["input_ids"].shape == (
        SEQUENCES,
        7,
    )  # two rows of its table are never reached
    target.model(**target.inputs)


def test_half_precision_runs_too(tmp_path):
    case = CORPUS["vit"]
    target = open_small(saved(case.build().config, tmp_path), "dtype=bfloat16")
    assert target.inputs["pixel_values"].dtype == torch.bfloat16
    assert target.model(**target.inputs).logits.dtype == torch.bfloat16


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory) -> Path:
    """A small GPT-2 with trained weights, as save_pretrained writes it."""
    folder = tmp_path_factory.mktemp("checkpoint")
    torch.manual_seed(5)
    config = transformers.GPT2Config(
        n_layer=2, n_embd=32, n_head=2, vocab_size=50, bos_token_id=1, eos_token_id=2
    )
    transformers.GPT2LMHeadModel(config).save_pretrained(folder)
    return folder


@pytest.fixture
def copy(checkpoint, tmp_path) -> Path:
    return Path(shutil.copytree(checkpoint, tmp_path / "copy"))


def weights_of(folder: Path) -> dict[str, torch.Tensor]:
    from safetensors.torch import load_file

    return load_file(folder / "model.safetensors")


def test_a_checkpoint_is_loaded_without_the_network(checkpoint, monkeypatch):
    def refuse(*_: object) -> None:
        raise AssertionError("a connection was opened")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    target = open_small(checkpoint)
    assert torch.equal(
        target.model.transformer.wte.weight, weights_of(checkpoint)["transformer.wte.weight"]
    )
    assert (target.loading.missing, target.loading.unexpected) == ((), ())
    assert os.environ["HF_HUB_OFFLINE"] == "1"


def test_what_a_checkpoint_lacks_and_has_too_much_is_told(copy):
    from safetensors.torch import save_file

    weights = weights_of(copy)
    del weights["transformer.h.1.mlp.c_fc.weight"]
    save_file(
        weights | {"transformer.extra": torch.zeros(2)},
        copy / "model.safetensors",
        {"format": "pt"},
    )
    loading = open_small(copy).loading
    assert loading.missing == ("transformer.h.1.mlp.c_fc.weight",)
    assert loading.unexpected == ("transformer.extra",)


def test_pickled_weights_are_loaded_where_they_are_weights_alone(copy, tmp_path):
    weights = weights_of(copy)
    (copy / "model.safetensors").unlink()
    torch.save(weights, copy / "pytorch_model.bin")
    target = open_small(copy)
    assert torch.equal(target.model.transformer.wte.weight, weights["transformer.wte.weight"])

    torch.save({"transformer.wte.weight": _Running(tmp_path / "ran")}, copy / "pytorch_model.bin")
    assert "cannot load the checkpoint" in said(copy)
    assert not (tmp_path / "ran").exists()


class _Running:
    """Runs code when it is unpickled."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def __reduce__(self) -> tuple[object, ...]:
        return os.mkdir, (str(self.file),)


def test_damaged_checkpoints(copy):
    content = (copy / "model.safetensors").read_bytes()
    (copy / "model.safetensors").write_bytes(content[: len(content) // 2])
    assert "cannot load the checkpoint" in said(copy)
    (copy / "model.safetensors").write_bytes(content)
    config = json.loads((copy / "config.json").read_text())
    (copy / "config.json").write_text(json.dumps(config | {"n_embd": 64}))
    assert "cannot load the checkpoint" in said(copy)
    assert "n_layer" in said(copy, "n_layer=1")
    (copy / "model.safetensors").rename(copy / "weights.safetensors")
    assert "holds weights.safetensors" in said(copy)
    (copy / "weights.safetensors").unlink()
    assert open_small(copy).loading is None  # a configuration alone: initial weights


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("{", "is not JSON"),
        ("[]", "no configuration of a Hugging Face model"),
        ('{"n_layer": 2}', 'has no "model_type"'),
        ('{"model_type": "gpt2x"}', "no model type 'gpt2x' (did you mean 'gpt2'?)"),
        ('{"model_type": "my_gpt", "auto_map": {}}', "its own code, which is not run"),
        ('{"model_type": "gpt2", "n_layer": "many"}', "n_layer"),
        ('{"model_type": "gpt2", "n_head": 5}', "GPT2LMHeadModel cannot be built"),
    ],
)
def test_configurations_that_are_none(content, expected, tmp_path):
    (tmp_path / "config.json").write_text(content)
    assert expected in said(tmp_path / "config.json")
    assert expected in said(tmp_path)


@pytest.mark.parametrize(
    ("name", "settings", "expected"),
    [
        ("gpt2", ["n_layers=2"], "GPT2Config has no 'n_layers' (did you mean 'n_layer'?)"),
        ("gpt2", ["n_layer.x=2"], "n_layer of GPT2Config is a value"),
        ("gpt2", ["n_layer"], "--set takes KEY=VALUE"),
        ("GPT2Confg", [], "did you mean 'GPT2Config'?"),
        (
            "gpt2-medium",
            [],
            "fetch a model of the hub first (hf download NAME --local-dir FOLDER) and give the "
            "folder",
        ),
        ("bert-base-uncased", [], "NormScope downloads nothing"),
        ("openai/gpt2", [], "NormScope downloads nothing"),
        ("PreTrainedModel", [], "neither a model type"),
        ("AutoModel", [], "neither a model type"),
    ],
)
def test_names_and_keys_that_nobody_has(name, settings, expected):
    assert expected in said(name, *settings)


def test_a_model_that_does_not_fit_into_memory_is_not_built(monkeypatch):
    monkeypatch.setattr(memory, "available_bytes", lambda: 20 * 10**9)
    message = said("LlamaConfig")
    # Llama 7B has 6,738,415,616 parameters; in float32 three times over that is 81 GB.
    assert "6.74 billion parameters and would need 81 GB, of which 20 are free" in message
    settings = [f"{key}={value}" for key, value in sizes(**GROUPED).items()]
    assert open_small("LlamaConfig", *settings).model.config.num_hidden_layers == 3


@pytest.mark.parametrize(
    ("name", "setting"),
    [
        ("gpt2", "n_layer=4611686018427387904"),
        # Its configuration makes a list of so many entries before there is a model.
        ("Qwen2Config", "num_hidden_layers=1000000000"),
        ("Gemma3Config", "text_config.num_hidden_layers=1000000000"),
        ("swin", "depths=[2, 1000000000]"),
        ("SwitchTransformersConfig", "num_experts=1000000000"),
    ],
)
def test_counts_without_end_are_refused_before_anything_is_built(name, setting):
    key, number = setting.partition("=")[0], setting.strip("]").replace("=", " ").split()[-1]
    assert f"{key} is {number}, and 100,000 is the most that is built" in said(name, setting)


def test_widths_without_end_are_refused_before_anything_is_drawn():
    # Its model draws a vector of that width in memory, even where it is built without weights.
    assert "hidden_size is 1000000000, and 100,000,000 is the most" in said(
        "Wav2Vec2Config", "hidden_size=1000000000"
    )


def test_labels_without_end_are_refused_before_each_has_a_name(tmp_path):
    (tmp_path / "config.json").write_text('{"model_type": "bert", "num_labels": 1000000000}')
    assert "num_labels is 1000000000, and 100,000 is the most that is built" in said(tmp_path)


def test_what_takes_too_long_to_build_is_refused_with_what_may_be_the_reason(monkeypatch):
    monkeypatch.setattr(memory, "MOST_SECONDS", 0.0)
    message = said("gpt2", "n_layer=60000")
    assert (
        "takes more than 0 s of the processor to build even without weights, and had 1 modules by "
        "then" in message
    )
    assert message.endswith(
        "its largest numbers are n_layer = 60000, vocab_size = 50257, bos_token_id = 50256"
    )


@pytest.mark.parametrize(
    ("name", "settings", "billions"),
    [
        # Llama 3.1 405B, with the vocabulary of 32,000 that is the default.
        (
            "LlamaConfig",
            "hidden_size=16384 intermediate_size=53248 num_attention_heads=128 "
            "num_key_value_heads=8 num_hidden_layers=126",
            403,
        ),
        ("Qwen3MoeConfig", "num_hidden_layers=94 hidden_size=4096 num_attention_heads=64", 118),
        # Each of the 12 times 2 layers with experts has 64, which are modules of their own.
        (
            "SwitchTransformersConfig",
            "num_layers=24 num_decoder_layers=24 num_experts=64 num_sparse_encoder_layers=12 "
            "num_sparse_decoder_layers=12",
            5.1,
        ),
    ],
)
def test_large_models_that_were_published_lack_memory_alone(name, settings, billions, monkeypatch):
    monkeypatch.setattr(memory, "available_bytes", lambda: 20 * 10**9)
    assert f"has {billions:.3g} billion parameters and would need" in said(name, *settings.split())


def test_without_transformers_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    assert installation("huggingface") in said("gpt2")


def test_a_configuration_does_not_say_by_which_code_it_is_computed(tmp_path: Path) -> None:
    """What is no name of transformers' own is one of a kernel on the hub, which its loader fetches
    and runs.
    """
    file = tmp_path / "config.json"
    table = {"model_type": "gpt2", "n_layer": 1, "n_embd": 8, "n_head": 2, "vocab_size": 11}
    for key in ("_attn_implementation", "attn_implementation", "_attn_implementation_internal"):
        file.write_text(json.dumps(table | {key: "org/kernel"}))
        config = opened(str(file), [], tokens=8, sequences=1, seed=0).model.config
        assert "kernel" not in str(vars(config)), key
