"""Norms on queries and keys where they meet, after rotary positions: beside a stock model that has
them there, beside forwards written by hand, saved and read again, and refused.
"""

import copy
import math
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import normscope
from normscope.errors import UserError
from transplant.hand_written import GPT, HEADS, WIDTH, Attention, Block, ids, perturb
from transplant.test_query_key import GROUPED, give_weights, layer, rms, stock, tokens, unit

HEAD = WIDTH // HEADS


def as_added(name: str) -> str:
    """Where a weight of Hunyuan stands after the transplant."""
    name = name.replace("query_layernorm", "placed_scores.norms.query")
    return name.replace("key_layernorm", "placed_scores.norms.key")


@pytest.mark.parametrize("kernel", ["sdpa", "eager"])
def test_llama_with_them_is_hunyuan_to_the_last_bit(kernel: str) -> None:
    alike = {**GROUPED, "attn_implementation": kernel}
    llama = stock("LlamaForCausalLM", **alike).double()
    hunyuan = stock("HunYuanDenseV1ForCausalLM", rms_norm_eps=1e-6, **alike).double()
    normscope.transplant(llama, "own", qk_norm="head-after", inputs={"input_ids": tokens()})
    assert llama.transplanted.placement == "own+qk-norm-after"
    assert not give_weights(llama, hunyuan, as_added)
    assert torch.equal(llama(tokens()).logits, hunyuan(tokens()).logits)
    mask = torch.ones_like(tokens())
    longer = [
        model.generate(tokens(), attention_mask=mask, max_new_tokens=4, do_sample=False)
        for model in (llama, hunyuan)
    ]
    assert torch.equal(*longer)
    for model in (llama, hunyuan):
        model(tokens(), labels=tokens()).loss.backward()
    gradients = dict(llama.named_parameters())
    for name, parameter in hunyuan.named_parameters():
        # Its eager attention takes the softmax in float32.
        close = {"rtol": 1e-10, "atol": 1e-14} if kernel == "sdpa" else {"rtol": 1e-4, "atol": 1e-6}
        torch.testing.assert_close(gradients[as_added(name)].grad, parameter.grad, **close)


def test_gains_before_and_after_rotation_are_two_models() -> None:
    outputs = []
    for words in ("head", "head-before", "head-after"):
        llama = stock("LlamaForCausalLM", **GROUPED)
        normscope.transplant(llama, "own", qk_norm=words, inputs={"input_ids": tokens()})
        bare = llama(tokens()).logits
        with torch.no_grad():
            for name, parameter in llama.named_parameters():
                if ".norms." in name:
                    parameter.copy_(torch.linspace(0.5, 2.0, len(parameter)))
        outputs.append((bare, llama(tokens()).logits))
    before, named_before, after = outputs
    assert torch.equal(before[1], named_before[1])
    # A rotation keeps the length that an RMSNorm divides by: with gains of 1 both are one model.
    torch.testing.assert_close(after[0], before[0], rtol=1e-4, atol=1e-5)
    assert (after[1] - before[1]).abs().max() > 0.01


def turned(x: Tensor) -> Tensor:
    """(B, H, T, K) with neighbours turned together, as Su et al. 2021 write it."""
    angle = torch.arange(x.shape[2])[:, None] / 100.0 ** (torch.arange(0, HEAD, 2) / HEAD)
    pairs = torch.view_as_complex(x.unflatten(-1, (-1, 2)).contiguous())
    return torch.view_as_real(pairs * torch.polar(torch.ones_like(angle), angle)).flatten(-2)


def fused(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return functional.scaled_dot_product_attention(query=q, key=k, value=v, is_causal=True)


def hidden_future(scores: Tensor) -> Tensor:
    future = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
    return scores.masked_fill(future, -math.inf).softmax(-1)


def by_matmul(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return hidden_future(q @ k.transpose(-2, -1) / math.sqrt(HEAD)) @ v


def scaled_before(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return hidden_future(torch.matmul(q * HEAD**-0.5, k.mT)) @ v


def by_einsum(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    scores = torch.einsum("bhqd, bhkd -> bhqk", q, k) / math.sqrt(HEAD)
    return torch.einsum("bhqk, bhkd -> bhqd", hidden_future(scores), v)


def by_bmm(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    shape = q.shape
    q, k, v = q.flatten(0, 1), k.flatten(0, 1), v.flatten(0, 1)
    return torch.bmm(hidden_future(torch.bmm(q, k.mT) / math.sqrt(HEAD)), v).view(shape)


class Turning(Attention):
    """The same attention with rotary positions, and norms behind them that are written by hand."""

    meet: Callable[[Tensor, Tensor, Tensor], Tensor]
    norm: Callable[[Tensor], Tensor] | None = None

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (
            part.view(*x.shape[:2], HEADS, -1).transpose(1, 2)
            for part in self.qkv(x).split(WIDTH, dim=-1)
        )
        q, k = turned(q), turned(k)
        if self.norm is not None:
            q, k = self.norm(q), self.norm(k)
        return self.out(self.meet(q, k, v).transpose(1, 2).reshape(x.shape))


def turning(meet: Callable[[Tensor, Tensor, Tensor], Tensor]) -> GPT:
    torch.manual_seed(0)
    model = GPT(Block)
    perturb(model)
    for module in model.modules():
        if type(module) is Attention:
            module.__class__ = Turning
            module.meet = meet
    return model


def with_norms(model: GPT, norm: Callable[[Tensor], Tensor], meet: Any) -> GPT:
    """The same by hand; meet: with the scale behind the norms, where the model's is before."""
    by_hand = copy.deepcopy(model)
    for module in by_hand.modules():
        if type(module) is Turning:
            module.norm, module.meet = norm, meet
    return by_hand


@pytest.mark.parametrize("meet", [fused, by_matmul, scaled_before, by_einsum, by_bmm])
@pytest.mark.parametrize(
    ("words", "norm"), [("head-after", layer), ("after-rms", rms), ("unit-after", unit)]
)
def test_attention_of_ones_own_gives_what_the_hand_writes(
    meet: Callable[[Tensor, Tensor, Tensor], Tensor],
    words: str,
    norm: Callable[[Tensor], Tensor],
) -> None:
    model = turning(meet)
    by_hand = with_norms(model, norm, by_matmul)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    normscope.transplant(model, "own", qk_norm=words, inputs=ids())
    # Beside queries that are scaled first, the norm's ε is eight times as large.
    most = 2e-3 if meet is scaled_before else 1e-5
    assert (model(ids()) - by_hand(ids())).abs().max() < most
    assert all(torch.equal(model.state_dict()[name], value) for name, value in before.items())
    formulas = {
        str(one.formula)
        for one in normscope.diagnose(model, ids(), advise=False).stacks[0].sublayers
        if one.kind == "attention"
    }
    score = "norm(score by head)"
    assert formulas == {f"x ← x + attention(norm(x), {score}, {score})"}
    for again in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert torch.equal(again(ids()), model(ids()))
    output = model(ids())
    normscope.untransplant(model)
    assert {*model.state_dict()} == {*before}
    assert not torch.equal(model(ids()), output)


def test_beside_another_placement_and_saved_they_come_again(tmp_path: Any) -> None:
    llama = stock("LlamaForCausalLM", **GROUPED)
    normscope.transplant(llama, "peri-ln+qk-norm-after", inputs={"input_ids": tokens()})
    first = normscope.diagnose(llama, {"input_ids": tokens()}, advise=False).stacks[0].sublayers[0]
    score = "norm(score by head)"
    assert str(first.formula) == f"x ← x + norm(attention(norm(x), {score}, {score}))"
    perturb(llama)
    llama.save_pretrained(tmp_path / "moved")
    again = stock("LlamaForCausalLM", **GROUPED)
    normscope.transplant(again, tmp_path / "moved", inputs={"input_ids": tokens()})
    assert again.transplanted.placement == "peri-ln+qk-norm-after"
    assert torch.equal(again(tokens()).logits, llama(tokens()).logits)
    assert "after rotary positions" in " ".join(again.transplanted.lines())


def two_products(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Scores of contents and of places, as Transformer-XL adds them."""
    places = torch.ones_like(k)
    return hidden_future(q @ k.mT + q @ places.mT) @ v


class Hidden(torch.autograd.Function):
    """A product with a backward pass of its own."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor) -> Tensor:
        ctx.save_for_backward(q, k)
        return q @ k.mT

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor]:
        q, k = ctx.saved_tensors
        return gradient @ k, gradient.mT @ q


class InBlock(nn.Module):
    """Attention written into its block."""

    def __init__(self) -> None:
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.query, self.key = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.value, self.out = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        normed = self.ln_1(x)
        q, k, v = (
            part(normed).view(*x.shape[:2], HEADS, -1).transpose(1, 2)
            for part in (self.query, self.key, self.value)
        )
        x = x + self.out(fused(turned(q), turned(k), v).transpose(1, 2).reshape(x.shape))
        return x + self.down(self.up(self.ln_2(x)).relu())


@pytest.mark.parametrize("placement", ["own", "peri-ln"])
def test_attention_within_its_block_can_have_them(placement: str) -> None:
    torch.manual_seed(0)
    model = GPT(InBlock)
    normscope.transplant(model, f"{placement}+qk-norm-after", inputs=ids())
    assert model.transplanted.normed == ("blocks.0", "blocks.1", "blocks.2")
    formula = str(normscope.diagnose(model, ids(), advise=False).stacks[0].sublayers[0].formula)
    assert formula.count("norm(score by head)") == 2
    output = model(ids())
    assert torch.equal(pickle.loads(pickle.dumps(model))(ids()), output)
    normscope.untransplant(model)
    assert not [name for name in model.state_dict() if "placed" in name]


def refusal(model: nn.Module, inputs: Any) -> str:
    before = copy.deepcopy(model.state_dict())
    kinds = [type(module) for module in model.modules()]
    with pytest.raises(UserError) as refused:
        normscope.transplant(model, "own+qk-norm-after", inputs=inputs)
    assert [type(module) for module in model.modules()] == kinds
    assert not hasattr(model, "transplanted")
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    return str(refused.value)


def test_scores_that_are_a_sum_of_products_are_refused() -> None:
    assert "a sum of several products" in refusal(turning(two_products), ids())


def test_a_backward_pass_that_would_not_know_of_norms_is_refused() -> None:
    def hidden(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return hidden_future(Hidden.apply(q, k) / math.sqrt(HEAD)) @ v

    assert "in an autograd function of its own" in refusal(turning(hidden), ids())


def test_a_kernel_that_is_changed_later_is_an_error_and_not_a_model_without_norms() -> None:
    model = turning(fused)
    normscope.transplant(model, "own+qk-norm-after", inputs=ids())
    for module in model.modules():
        if isinstance(module, Turning):
            module.meet = lambda q, k, v: v
    with pytest.raises(UserError, match="met in no operation that torch shows"):
        model(ids())
