"""A model that has been trained is not drawn over unasked, one that is fresh is, and the result
says which was done and why.
"""

import copy
import math
import re
import sys
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import normscope
from normscope.cli.main import main
from normscope.transplant.trained import _largest, _largest_by_chance, is_even
from transplant.hand_written import GPT, Block, PostBlock, ids
from transplant.test_transformers import MODELS, SIZES, made, opened


def trained(model: nn.Module, updates: int, rate: float = 1e-3) -> nn.Module:
    """By AdamW, on a language in which one token says the next."""
    generator = torch.Generator().manual_seed(4)
    optimizer = torch.optim.AdamW(model.parameters(), rate)
    follows = torch.randperm(17, generator=generator)
    for _ in range(updates):
        tokens = torch.randint(17, (8, 1), generator=generator)
        for _ in range(8):
            tokens = torch.cat([tokens, follows[tokens[:, -1:]]], 1)
        logits = model(tokens[:, :-1])
        functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten()).backward()
        optimizer.step()
        optimizer.zero_grad()
    return model


def decided(model: nn.Module, **asked: object) -> tuple[str, str]:
    """What was done with the weights, and why; after it has been seen that it was done."""
    before = copy.deepcopy(model)
    normscope.transplant(model, "post-ln", inputs=ids(), **asked)
    done = model.transplanted
    same = [
        torch.equal(model.get_parameter(name), one)
        for name, one in before.named_parameters()
        if one.ndim > 1 and "blocks." in name
    ]
    assert all(same) if done.initialise == "keep" else not any(same)
    assert done.reason in " ".join(done.lines())
    return done.initialise, done.reason


@pytest.mark.parametrize("style", [Block, PostBlock])
@pytest.mark.parametrize("seed", range(3))
def test_a_fresh_model_is_drawn(style: type[nn.Module], seed: int) -> None:
    torch.manual_seed(seed)
    assert decided(GPT(style)) == ("draw", "nothing shows that the model has been trained")


@pytest.mark.parametrize("style", [Block, PostBlock])
def test_one_update_shows(style: type[nn.Module]) -> None:
    torch.manual_seed(0)
    done, why = decided(trained(GPT(style), 1))
    assert done == "keep"
    assert why.startswith("the entries of blocks.0.ln_1.weight differ")
    assert why.endswith("; initialise='draw' (--initialise draw) re-initialises them")


def test_a_trained_model_is_drawn_over_where_that_is_asked() -> None:
    torch.manual_seed(0)
    model = trained(GPT(), 3)
    assert decided(model, initialise="draw") == ("draw", "as initialise='draw' asks")
    # Norms of trained gains start at 1 again.
    assert all(is_even(one.ln_1.weight) for one in model.blocks)


def test_an_optimizer_that_has_taken_a_step_shows() -> None:
    torch.manual_seed(0)
    model = GPT()
    optimizer = torch.optim.SGD(model.blocks[0].mlp.parameters(), 1e-9, momentum=0.9)
    model(ids()).square().mean().backward()
    optimizer.step()
    model.zero_grad()
    done, why = decided(model, optimizer=optimizer)
    assert (done, why.partition(";")[0]) == ("keep", "its optimizer has taken steps")
    assert optimizer.state


class Bare(nn.Module):
    """As those who speed GPT-2 up write it: norms without gains, no biases, projections of 0."""

    def __init__(self, width: int = 128) -> None:
        super().__init__()
        self.width = width
        self.qkv, self.out = (
            nn.Linear(width, 3 * width, bias=False),
            nn.Linear(width, width, bias=False),
        )
        self.into, self.back = (
            nn.Linear(width, 4 * width, bias=False),
            nn.Linear(4 * width, width, bias=False),
        )
        nn.init.zeros_(self.out.weight)

    def forward(self, x: Tensor) -> Tensor:
        normed = functional.layer_norm(x, (self.width,))
        q, k, v = (
            one.view(*x.shape[:2], 4, -1).transpose(1, 2) for one in self.qkv(normed).chunk(3, -1)
        )
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(x.shape))
        return x + self.back(self.into(functional.layer_norm(x, (self.width,))).relu().square())


class BareGPT(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table, self.head = nn.Embedding(17, 128), nn.Linear(128, 17, bias=False)
        self.blocks = nn.ModuleList(Bare() for _ in range(2))

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.table(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(functional.layer_norm(x, (128,)))


def test_without_any_gain_or_bias_a_training_shows_in_the_largest_singular_value() -> None:
    torch.manual_seed(0)
    fresh = BareGPT()
    model = trained(copy.deepcopy(fresh), 60)
    normscope.transplant(fresh, "pre-ln", inputs=ids())
    assert fresh.transplanted.initialise == "draw"
    assert fresh.transplanted.resized.startswith("output from 0, query ")
    normscope.transplant(model, "pre-ln", inputs=ids())
    assert model.transplanted.initialise == "keep"
    assert "the largest singular value of blocks." in model.transplanted.reason


@pytest.mark.parametrize("shape", [(16, 16), (32, 96), (128, 32), (256, 64)])
def test_independent_entries_of_any_law_do_not_reach_it(shape: tuple[int, int]) -> None:
    generator = torch.Generator().manual_seed(0)
    for number in range(40):
        matrix = torch.empty(shape)
        even = partial(nn.init.uniform_, a=-1.0)
        laws = (nn.init.normal_, even, nn.init.trunc_normal_, nn.init.orthogonal_)
        laws[number % 4](matrix, generator=generator)
        matrix[: shape[0] // 3] *= 8.0  # parts of a packed one, in another size
        assert _largest(matrix) < _largest_by_chance(*shape)
        # The power iteration finds what the whole decomposition does.
        same = matrix / matrix.square().mean(1, keepdim=True).sqrt()
        same = same / same.square().mean(0, keepdim=True).sqrt()
        assert _largest(matrix) == pytest.approx(
            float(torch.linalg.svdvals(same.double())[0]), rel=0.05
        )


def test_a_model_that_draws_some_weights_after_its_own_init_weights_is_fresh() -> None:
    """As nanoGPT does."""

    class Nano(GPT):
        def __init__(self) -> None:
            super().__init__()
            self.apply(self._init_weights)
            for block in self.blocks:
                nn.init.normal_(block.attn.out.weight, std=0.02 / math.sqrt(6))

        def _init_weights(self, module: nn.Module) -> None:
            if isinstance(module, nn.Linear):
                nn.init.normal_(module.weight, std=0.02)
                nn.init.zeros_(module.bias) if module.bias is not None else None

    torch.manual_seed(0)
    assert decided(Nano())[0] == "draw"


transformers = pytest.importorskip("transformers", reason="needs Hugging Face transformers")


def of_library(model: nn.Module, batch: dict[str, Tensor]) -> str:
    (own, *_) = normscope.diagnose(model, batch, advise=False).stacks
    normscope.transplant(model, own.placement, inputs=batch)
    return model.transplanted.reason


@pytest.mark.sampled(one_in=3)
@pytest.mark.parametrize("name", MODELS)
def test_fresh_models_of_transformers_are_drawn(name: str) -> None:
    model, batch = opened(name)
    assert of_library(model, batch) == "nothing shows that the model has been trained"


def test_what_transformers_loads_from_a_folder_with_weights_is_kept(tmp_path: Path) -> None:
    model, batch = opened("llama")
    model.save_pretrained(tmp_path)
    loaded = transformers.LlamaForCausalLM.from_pretrained(tmp_path)
    assert "transformers loaded model.layers.0." in of_library(loaded, batch)
    known = transformers.LlamaConfig.from_pretrained(tmp_path)
    built = transformers.LlamaForCausalLM(known)
    assert of_library(built, batch) == "nothing shows that the model has been trained"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("bias", "the entries of model.decoder.layers.1.fc1.bias differ, and the model's own init"),
        (
            "size",
            r"entries of model.decoder.layers.0.fc2.weight are of size 0.029\d*, and .* 0.0196",
        ),
    ],
)
def test_weights_unlike_those_of_the_models_own_initialisation_are_kept(
    change: str, said: str
) -> None:
    torch.manual_seed(0)
    model = made("OPTForCausalLM", **SIZES, ffn_dim=64, word_embed_proj_dim=32)().eval()
    layers = model.model.decoder.layers
    with torch.no_grad():
        if change == "bias":
            layers[1].fc1.bias[3] = 1e-6
        else:
            layers[0].fc2.weight *= 1.45
    assert re.search(said, of_library(model, {"input_ids": ids()}))


def test_norms_without_parameters_leave_it_to_the_sizes() -> None:
    """OLMo's have none, and it has no biases."""
    torch.manual_seed(0)
    model = made("OlmoForCausalLM", **SIZES, pad_token_id=0)().eval()
    with torch.no_grad():
        model.model.layers[1].mlp.down_proj.weight *= 1.5
    normscope.transplant(model, "pre-ln", inputs={"input_ids": ids()})
    assert "layers.1.mlp.down_proj.weight are of size" in model.transplanted.reason


def ended(monkeypatch: pytest.MonkeyPatch, words: list[str]) -> object:
    """The exit code of a command."""
    monkeypatch.setattr(sys, "argv", ["normscope", *words])
    try:
        main()
    except SystemExit as end:
        return end.code
    return 0


FACTORY = """
import torch
from torch import nn

def build(trained=False):
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True)
    model, x = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), torch.randn(2, 7, 32)
    if trained:
        optimizer = torch.optim.Adam(model.parameters())
        model(x).square().mean().backward()
        optimizer.step()
    return model, x
"""


def test_the_verb_says_which_it_did_and_takes_the_other_on_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own_model.py").write_text(FACTORY)

    def said(out: str, *more: str) -> tuple[object, str]:
        words = ["transplant", "own_model.py:build", "--to", "pre-ln", "--out", out, *more]
        code = ended(monkeypatch, words)
        found = capsys.readouterr()
        return code, " ".join((found.out + found.err).split())

    assert "are drawn as the placement wants them: nothing shows" in said("one")[1]
    kept = said("two", "--set", "trained=true")[1]
    assert "weights are kept: the entries of layers.0.norm1.weight differ" in kept
    assert "initialise='draw' (--initialise draw) re-initialises them" in kept
    drawn = said("three", "--set", "trained=true", "--initialise", "draw")[1]
    assert "are drawn as the placement wants them: as initialise='draw' asks" in drawn
    assert "weights are kept: as initialise='keep' asks" in said("four", "--keep")[1]
    code, wrong = said("five", "--keep", "--initialise", "draw")
    assert code == 2
    assert "--keep and --initialise draw: give one of them" in wrong


def test_a_checkpoint_that_the_verb_loads_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    model, _ = opened("llama")
    model.save_pretrained(tmp_path / "given")
    words = ["transplant", str(tmp_path / "given"), "--to", "peri-ln", "--out", str(tmp_path / "o")]
    assert not ended(monkeypatch, words)
    told = " ".join(capsys.readouterr().out.split())
    assert "given holds a checkpoint, which was loaded; initialise='draw'" in told
