"""Every parameter has one role, in our models under every placement and in those of other
libraries.
"""

import pytest
import torch
from torch import nn

import normscope.model as models
from normscope.errors import UserError
from normscope.model import DecoderConfig, EncoderConfig, LanguageModel, MaskedEncoder, ModelConfig
from normscope.model.placed import NORMS
from normscope.optim import ROLES, GroupConfig, GroupsConfig, OptimizerConfig, make_optimizer, roles
from normscope.placement import registered
from normscope.settings.validation import validated

DECODERS = [name for name, placement in registered().items() if "decoder-only" in placement.models]
_SIZE = {"width": 16, "ffn_width": 16, "heads": 2}


def decoder(placement: str) -> LanguageModel:
    return LanguageModel(
        DecoderConfig(placement=placement, blocks=2, positions=8, **_SIZE), vocabulary=11
    )


@pytest.mark.parametrize("placement", DECODERS)
def test_groups_hold_every_parameter_once_under_every_placement(placement: str) -> None:
    model = decoder(placement)
    optimizer = make_optimizer(model, OptimizerConfig(name="muon"))
    held = [id(p) for group in optimizer.param_groups for p in group["params"]]
    assert sorted(held) == sorted(id(p) for p in model.parameters())
    of = roles(model)
    assert all(p.ndim == 2 for name, p in model.named_parameters() if of[name] == "matrix")
    assert {name for name, role in of.items() if role == "embedding"} == {
        "embedding.weight",
        "embedding.positions",
    }
    assert not any(role == "matrix" for name, role in of.items() if ".placed." in name)


def test_roles_of_a_masked_encoder() -> None:
    model = MaskedEncoder(EncoderConfig(blocks=1, positions=8, **_SIZE), vocabulary=11)
    of = roles(model)
    block = "encoder.blocks.0"
    assert of["embedding.segments"] == "embedding"
    assert of["embedding.norm.weight"] == of[f"{block}.attention.norm.main.bias"] == "norm"
    assert of[f"{block}.feed_forward.f.ffn_in.weight"] == "matrix"
    assert (
        of[f"{block}.feed_forward.f.ffn_in.bias"]
        == of["output_bias"]
        == of["pooler.bias"]
        == "bias"
    )
    assert of["pooler.weight"] == of["next_sentence.weight"] == "head"
    assert set(of.values()) == set(ROLES) - {"gate"}


def test_a_shared_table_is_an_embedding_once() -> None:
    model = models.EncoderDecoder(ModelConfig(encoder_blocks=1, decoder_blocks=1, **_SIZE), 11, 11)
    of = roles(model)
    assert [name for name in of if of[name] == "embedding"] == [
        name for name in of if "embedding" in name
    ]
    assert "head" not in of.values()


def test_roles_of_another_library_s_model() -> None:
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    size = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "vocab_size": 11}
    config = transformers.LlamaConfig(**size, num_attention_heads=2, tie_word_embeddings=False)
    of = roles(transformers.LlamaForCausalLM(config))
    assert of.pop("model.embed_tokens.weight") == "embedding"
    assert of.pop("lm_head.weight") == "head"
    assert {of.pop(name) for name in list(of) if "norm" in name} == {"norm"}
    assert set(of.values()) == {"matrix"}


@pytest.mark.parametrize("norm", list(NORMS))
def test_what_a_norm_has_of_its_own_is_the_norm_s(norm: str) -> None:
    model = LanguageModel(DecoderConfig(blocks=1, positions=8, norm=norm, **_SIZE), vocabulary=11)
    of = roles(model)
    assert {role for name, role in of.items() if ".norm." in name} <= {"norm"}
    assert "gate" not in of.values()


def test_numbers_of_their_own_are_gates() -> None:
    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale, self.linear = nn.Parameter(torch.ones(3)), nn.Linear(3, 3)

    assert roles(Scaled()) == {"scale": "gate", "linear.weight": "matrix", "linear.bias": "bias"}


@pytest.mark.parametrize("role", ROLES)
def test_a_module_s_own_word_goes_for_its_shifts_too_but_for_those_of_matrices(role: str) -> None:
    class Declared(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.role = role
            self.weight, self.bias = nn.Parameter(torch.ones(3, 3)), nn.Parameter(torch.ones(3))

    shift = role if role in ("embedding", "norm", "gate") else "bias"
    assert roles(nn.Sequential(Declared())) == {"0.weight": role, "0.bias": shift}


def test_decay_is_off_norms_gates_and_biases_unless_asked_for() -> None:
    model = MaskedEncoder(
        EncoderConfig(blocks=1, positions=8, placement="rezero", **_SIZE), vocabulary=11
    )
    by_role = {group["role"]: group for group in _groups(model)}
    decays = {role: group["weight_decay"] for role, group in by_role.items()}
    assert decays == {
        "embedding": 0.1,
        "matrix": 0.1,
        "head": 0.1,
        "norm": 0.0,
        "bias": 0.0,
        "gate": 0.0,
    }
    asked = _groups(
        model,
        GroupsConfig(norm=GroupConfig(weight_decay="shared"), matrix=GroupConfig(weight_decay=0.3)),
    )
    decays = {group["role"]: group["weight_decay"] for group in asked}
    assert decays == {
        "embedding": 0.1,
        "matrix": 0.3,
        "head": 0.1,
        "norm": 0.1,
        "bias": 0.0,
        "gate": 0.0,
    }


def test_a_group_has_its_share_of_the_rate() -> None:
    groups = _groups(
        decoder("pre-ln"),
        GroupsConfig(embedding=GroupConfig(lr_factor=0.1), norm=GroupConfig(lr_factor=0.0)),
    )
    assert {group["role"]: group["lr"] for group in groups} == {
        "embedding": pytest.approx(2e-4),
        "matrix": 2e-3,
        "norm": 0.0,
        "bias": 2e-3,
    }


@pytest.mark.parametrize(
    "wrong", [{"lr_factor": -1.0}, {"weight_decay": -0.1}, {"weight_decay": "none"}]
)
def test_what_cannot_be_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(UserError, match=r"groups.norm: .*(lr_factor|'shared')|weight_decay"):
        validated(OptimizerConfig, {"groups": {"norm": wrong}})


def _groups(model: nn.Module, groups: GroupsConfig | None = None) -> list[dict]:
    config = OptimizerConfig(
        name="adamw", peak_lr=2e-3, weight_decay=0.1, groups=groups or GroupsConfig()
    )
    return make_optimizer(model, config).param_groups
