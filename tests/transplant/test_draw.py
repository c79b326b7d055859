"""What a transplant draws and what it leaves: logits vary as the scheme means them to, whatever
attention multiplies them with, and what has a start of its own keeps it.
"""

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import normscope
from transplant.hand_written import BLOCKS, GPT, HEADS, WIDTH, Attention, Block, feed_forward, ids
from transplant.test_transformers import SIZES, made

KEYS = 64


def transformer(name: str, **settings: Any) -> nn.Module:
    torch.manual_seed(0)
    return made(name, **settings)().eval()


def long_ids() -> Tensor:
    return torch.randint(5, 90, (2, KEYS), generator=torch.Generator().manual_seed(1))


T5 = {"vocab_size": 96, "d_model": 256, "d_kv": 64, "d_ff": 512, "num_layers": 2, "num_heads": 4}


def entropies(model: nn.Module, tokens: Tensor) -> Tensor:
    """Of the first block's attention of T5's encoder in nats, from its matrices and what they are
    given.
    """
    seen: dict[str, Tensor] = {}
    attention = model.encoder.block[0].layer[0].SelfAttention
    handles = [
        getattr(attention, name).register_forward_hook(
            lambda module, args, output, name=name: seen.update({name: output})
        )
        for name in ("q", "k")
    ]
    with torch.no_grad():
        model(input_ids=tokens, decoder_input_ids=tokens)
    for handle in handles:
        handle.remove()
    q, k = (seen[name].unflatten(-1, (4, 64)).transpose(1, 2) for name in ("q", "k"))
    weights = (q @ k.mT).softmax(-1)  # T5 divides by nothing
    return -(weights * weights.log()).sum(-1)


@pytest.mark.parametrize(
    ("placement", "deviation"),
    # Queries and keys of DeepNorm are of Glorot's size, those of fairseq's packed matrices 1/√2 of
    # it: logits vary by 1 and by 1/2.
    [("pre-ln", 0.5), ("post-ln", 0.5), ("deepnorm", 1.0)],
)
def test_t5s_attention_which_divides_by_nothing_starts_as_even_as_others(
    placement: str, deviation: float
) -> None:
    tokens = long_ids()
    batch = {"input_ids": tokens, "decoder_input_ids": tokens}
    model = transformer("T5ForConditionalGeneration", **T5)
    normscope.transplant(model, placement, inputs=batch)
    # Of independent Gaussian logits of that deviation, ln n minus half of their variance.
    expected = math.log(KEYS) - deviation**2 / 2
    assert float(entropies(model, tokens).mean()) == pytest.approx(expected, abs=0.12)
    for module in (
        "encoder.block.1.layer.0.SelfAttention",
        "decoder.block.0.layer.1.EncDecAttention",
    ):
        q, k = (model.get_parameter(f"{module}.{name}.weight").detach() for name in ("q", "k"))
        assert float(q.std() / k.std()) == pytest.approx(1 / math.sqrt(64), rel=0.05)


class Scaled(Attention):
    """With a scale of its own, and norms on queries and keys where they are asked for."""

    scale = 1.0
    normed = ""

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (
            part.view(*x.shape[:2], HEADS, -1).transpose(1, 2)
            for part in self.qkv(x).split(WIDTH, dim=-1)
        )
        q = functional.rms_norm(q, q.shape[-1:]) if "q" in self.normed else q
        k = functional.rms_norm(k, k.shape[-1:]) if "k" in self.normed else k
        mixed = (q @ k.mT * self.scale).softmax(-1) @ v
        return self.out(mixed.transpose(1, 2).reshape(x.shape))


def scaled(scale: float, normed: str = "") -> GPT:
    class Own(Block):
        def __init__(self) -> None:
            super().__init__()
            self.attn = Scaled()
            self.attn.scale, self.attn.normed = scale, normed

    torch.manual_seed(0)
    return GPT(Own)


def drawn_logits(model: GPT) -> Tensor:
    torch.manual_seed(1)
    return normscope.transplant(model, "deepnorm", inputs=ids())(ids())


@pytest.mark.parametrize("normed", ["", "q", "k"])
@pytest.mark.parametrize("scale", [1.0, 1 / 8, 0.02])
def test_any_scale_of_attention_is_made_up_for_in_queries_or_keys(
    scale: float, normed: str
) -> None:
    """From the same random numbers the whole model gives the same as with 1/√d."""
    usual = drawn_logits(scaled(8**-0.5, normed))
    torch.testing.assert_close(drawn_logits(scaled(scale, normed)), usual, rtol=1e-4, atol=1e-5)


def test_where_norms_make_the_size_of_both_nothing_is_made_up_for() -> None:
    usual, other = scaled(8**-0.5, "qk"), scaled(1.0, "qk")
    drawn_logits(usual)
    drawn_logits(other)
    ours, theirs = (model.blocks[0].attn.qkv.weight for model in (usual, other))
    assert torch.equal(ours, theirs)


def test_rows_of_a_packed_matrix_are_told_by_what_they_make() -> None:
    """BLOOM keeps a head's queries, keys and values beside each other: DeepNorm's gain is on the
    values' rows.
    """
    torch.manual_seed(0)
    sizes = {"vocab_size": 96, "hidden_size": 64, "n_layer": 2, "n_head": 2}
    model = transformer("BloomForCausalLM", **sizes)
    normscope.transplant(model, "deepnorm", inputs={"input_ids": ids()})
    weight = model.transformer.h[0].self_attention.query_key_value.weight.detach()
    query, key, value = weight.view(2, 3, 32, 64).unbind(1)
    glorot, gain = math.sqrt(2 / 128), (8 * 2) ** -0.25
    for rows, std in ((query, glorot), (key, glorot), (value, gain * glorot)):
        assert float(rows.std()) == pytest.approx(std, rel=0.05)


class Gated(nn.Module):
    """Experts with a router, beside one whose output a gate multiplies that starts shut."""

    def __init__(self) -> None:
        super().__init__()
        self.router = nn.Linear(WIDTH, 3)
        self.experts = nn.ModuleList(feed_forward() for _ in range(3))
        self.shared, self.gate = feed_forward(), nn.Linear(WIDTH, WIDTH)
        nn.init.constant_(self.router.bias, 0.3)
        nn.init.zeros_(self.gate.weight)
        nn.init.constant_(self.gate.bias, -2.0)

    def forward(self, x: Tensor) -> Tensor:
        shares = self.router(x).softmax(-1)
        mixed = sum(shares[..., n, None] * one(x) for n, one in enumerate(self.experts))
        return mixed + torch.sigmoid(self.gate(x)) * self.shared(x)


class WithConvolution(Attention):
    """Whose values go through a short convolution, and whose heads have a temperature each."""

    def __init__(self) -> None:
        super().__init__()
        self.short = nn.Conv1d(WIDTH, WIDTH, 3, padding=1, groups=WIDTH)
        self.temperature = nn.Parameter(torch.linspace(0.5, 1.5, HEADS)[:, None, None])
        self.out_gate = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x).split(WIDTH, dim=-1)
        v = self.short(v.mT).mT
        q, k, v = (one.view(*x.shape[:2], HEADS, -1).transpose(1, 2) for one in (q, k, v))
        mixed = (q @ k.mT * self.temperature * 8**-0.5).softmax(-1) @ v
        mixed = mixed.transpose(1, 2).reshape(x.shape) * self.out_gate(x).sigmoid()
        return self.out(mixed)


class Special(Block):
    def __init__(self) -> None:
        super().__init__()
        self.attn, self.mlp = WithConvolution(), Gated()


def changed_by(model: nn.Module, placement: str, inputs: Any, **asked: Any) -> set[str]:
    """Names of the parameters that a transplant that draws has changed."""
    before = {name: one.clone() for name, one in model.state_dict().items()}
    normscope.transplant(model, placement, inputs=inputs, **asked)
    after = model.state_dict()
    return {name for name, one in before.items() if not torch.equal(after[name], one)}


def test_gates_routers_convolutions_and_temperatures_keep_their_start() -> None:
    torch.manual_seed(0)
    model = GPT(Special, blocks=2)
    changed = changed_by(model, "post-ln", ids())
    parts = {name.partition(".attn.")[2] or name.partition(".mlp.")[2] for name in changed}
    inner = {f"{n}.{kind}" for n in (0, 2) for kind in ("weight", "bias")}
    experts = {f"experts.{n}.{one}" for n in range(3) for one in inner}
    plain = {"qkv.weight", "qkv.bias", "out.weight", "out.bias"}
    assert parts == plain | experts | {f"shared.{one}" for one in inner}
    kept = "\n".join(model.transplanted.lines())
    for name in ("mlp.router.weight", "mlp.gate.bias", "attn.short.weight", "attn.temperature"):
        assert f"blocks.*.{name}" in kept
    assert {"blocks.0.mlp.router.bias", "blocks.1.attn.out_gate.weight"} <= {
        *model.transplanted.kept
    }


def test_a_state_space_mixer_keeps_all_of_its_start() -> None:
    """Jamba's, whose steps, decays and convolution a drawn matrix would throw off."""
    model = transformer(
        "JambaForCausalLM",
        **{**SIZES, "num_hidden_layers": 4},
        num_key_value_heads=2,
        attn_layer_period=2,
        attn_layer_offset=1,
        expert_layer_period=2,
        expert_layer_offset=1,
        num_experts=4,
        mamba_d_state=8,
        mamba_dt_rank=4,
    )
    with torch.no_grad():  # as Mamba's own code starts it
        for name, one in model.named_parameters():
            if name.endswith("dt_proj.bias"):
                one.uniform_(-6.9, -2.2)
    changed = changed_by(model, "post-ln", {"input_ids": ids()}, initialise="draw")
    assert changed
    assert not [name for name in changed if ".mamba." in name or "router" in name]
    kept = {name.rpartition("mamba.")[2] for name in model.transplanted.kept}
    assert {
        "A_log",
        "D",
        "dt_proj.bias",
        "conv1d.weight",
        "x_proj.weight",
        "in_proj.weight",
    } <= kept
    drawn = {one.parameter for one in model.transplanted.drawn}
    assert {f"model.layers.1.self_attn.{n}_proj.weight" for n in "qkvo"} <= drawn
    assert "model.layers.1.feed_forward.experts.down_proj" in drawn


class LowRank(nn.Module):
    """A frozen layer with a trained product of low rank beside it, as LoRA has it."""

    def __init__(self, base: nn.Linear) -> None:
        super().__init__()
        self.base = base.requires_grad_(False)
        self.into = nn.Linear(base.in_features, 4, bias=False)
        self.back = nn.Linear(4, base.out_features, bias=False)
        nn.init.zeros_(self.back.weight)

    def forward(self, x: Tensor) -> Tensor:
        return self.base(x) + 2.0 * self.back(self.into(x))


def adapted(model: GPT) -> GPT:
    for block in model.blocks:
        for name, one in block.named_parameters():
            one.requires_grad_("mlp.0" in name)
        block.attn.qkv, block.attn.out = LowRank(block.attn.qkv), LowRank(block.attn.out)
    return model


@pytest.mark.parametrize("placement", ["post-ln", "peri-ln"])
def test_what_is_frozen_stays_frozen_and_as_it_was(placement: str) -> None:
    torch.manual_seed(0)
    model = adapted(GPT(blocks=2))
    frozen = {name: one.clone() for name, one in model.named_parameters() if not one.requires_grad}
    assert "blocks.0.ln_1.weight" in frozen
    normscope.transplant(model, placement, inputs=ids(), initialise="draw")
    after = dict(model.named_parameters())
    assert [name for name in frozen if after[name].requires_grad] == []
    assert [name for name in frozen if not torch.equal(after[name], frozen[name])] == []
    assert not after["blocks.0.attn.qkv.back.weight"].any()
    assert {one.parameter for one in model.transplanted.drawn} == {
        f"blocks.{n}.mlp.0.weight" for n in range(2)
    }
    added = {name: one for name, one in after.items() if ".placed." in name}
    assert set(added) == set(model.transplanted.added)
    assert all(one.requires_grad for one in added.values())
    assert f"added, and trained: {len(added)} parameters" in "\n".join(model.transplanted.lines())


def test_a_model_that_is_frozen_in_part_keeps_its_weights_unless_it_is_asked_to_draw() -> None:
    model = adapted(GPT(blocks=2))
    before = {name: one.clone() for name, one in model.named_parameters()}
    normscope.transplant(model, "post-ln", inputs=ids())
    assert model.transplanted.initialise == "keep"
    assert "of the 32 parameters of its blocks are frozen" in model.transplanted.reason
    after = dict(model.named_parameters())
    assert all(torch.equal(after[name], one) for name, one in before.items())


def test_nothing_but_frozen_matrices_cannot_be_drawn() -> None:
    model = GPT(blocks=2).requires_grad_(False)
    with pytest.raises(normscope.UserError, match="no weight matrix is found to draw that is not"):
        normscope.transplant(model, "post-ln", inputs=ids(), initialise="draw")


def test_a_norm_that_starts_shut_stays_shut_where_it_keeps_its_part() -> None:
    """As Swin V2's after its sub-layers; where a norm takes another part, it starts at 1."""

    class Shut(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.attn, self.mlp = Attention(), feed_forward()
            self.ln_1, self.ln_2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
            nn.init.constant_(self.ln_1.weight, 0.01)

        def forward(self, x: Tensor) -> Tensor:
            x = x + self.ln_1(self.attn(x))
            return x + self.ln_2(self.mlp(x))

    def gains(placement: str) -> Tensor:
        model = GPT(Shut, blocks=2)
        return normscope.transplant(model, placement, inputs=ids()).blocks[0].ln_1.weight

    assert (gains("peri-ln") == 0.01).all()
    assert (gains("post-ln") == 1.0).all()


def test_every_initial_weight_of_other_models_is_drawn_from_the_same_numbers_as_before() -> None:
    """By the schemes of `normscope.model`, matrix by matrix in the order of use."""
    from normscope.model.initialisation import fill
    from normscope.placement import named
    from normscope.placement.schemes import SCHEMES

    torch.manual_seed(0)
    model = GPT()
    torch.manual_seed(3)
    normscope.transplant(model, "pre-ln", inputs=ids())
    torch.manual_seed(3)
    draws = SCHEMES[named("pre-ln").initialisation].draws
    for block in model.blocks[:BLOCKS]:
        for weight, parts in (
            (block.attn.qkv.weight, ("query", "key", "value")),
            (block.attn.out.weight, ("output",)),
            (block.mlp[0].weight, ("ffn_in",)),
            (block.mlp[2].weight, ("ffn_out",)),
        ):
            for part, matrix in zip(parts, weight.chunk(len(parts)), strict=True):
                expected = torch.empty(matrix.shape)
                fill(expected, draws[part])
                assert torch.equal(matrix, expected)
    assert not any(one.any() for name, one in model.named_parameters() if name.endswith("0.bias"))
