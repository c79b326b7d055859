"""`normscope.diagnose` on inputs that it draws itself, as the command line draws them."""

import pytest
import torch
from torch import Tensor, nn

import normscope
from normscope.targets import opened

WIDTH, ENTRIES, POSITIONS = 16, 30, 20


class Language(nn.Module):
    """Ids in and logits out, with a table of positions that longer sequences would leave."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(ENTRIES, WIDTH), nn.Embedding(POSITIONS, WIDTH)
        self.layers = nn.TransformerEncoder(
            nn.TransformerEncoderLayer(WIDTH, 2, 32, batch_first=True), 2
        )
        self.head = nn.Linear(WIDTH, ENTRIES)

    def forward(self, ids: Tensor, scale: float = 1.0) -> Tensor:
        return self.head(
            self.layers(self.tokens(ids) * scale + self.positions(torch.arange(ids.shape[1])))
        )


class Image(nn.Module):
    """As timm's are: the size of their images stands in `default_cfg`."""

    def __init__(self) -> None:
        super().__init__()
        self.default_cfg = {"input_size": (3, 8, 8)}
        self.patches = nn.Conv2d(3, WIDTH, 4, 4)
        self.layers = nn.TransformerEncoder(
            nn.TransformerEncoderLayer(WIDTH, 2, 32, batch_first=True), 2
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(self.patches(x).flatten(2).mT)


class TwoInputs(Language):
    def forward(self, ids: Tensor, others: Tensor) -> Tensor:
        return super().forward(ids) + others


def encoder() -> nn.Module:
    return nn.TransformerEncoder(nn.TransformerEncoderLayer(WIDTH, 2, 32, batch_first=True), 2)


@pytest.mark.parametrize("model", [encoder, Language, Image])
def test_a_model_alone_is_diagnosed(model: type[nn.Module]) -> None:
    torch.manual_seed(0)
    made = model()
    before, state = (
        {name: value.clone() for name, value in made.state_dict().items()},
        torch.get_rng_state(),
    )
    found = normscope.diagnose(made, advise=False)
    assert [stack.placement for stack in found.stacks] == ["post-ln"]
    assert torch.equal(state, torch.get_rng_state())
    assert all(torch.equal(value, before[name]) for name, value in made.state_dict().items())


def test_it_finds_what_the_command_line_finds(tmp_path, monkeypatch) -> None:
    transformers = pytest.importorskip("transformers")
    config = transformers.GPT2Config(n_embd=16, n_layer=2, n_head=2, vocab_size=50, n_positions=24)
    torch.manual_seed(0)
    model = transformers.GPT2LMHeadModel(config)
    model.save_pretrained(tmp_path)
    target = opened(str(tmp_path), [], tokens=12, sequences=3, seed=5)
    there = normscope.diagnose(target.model, target.inputs, loss=target.loss, advise=False)
    here = normscope.diagnose(model, tokens=12, sequences=3, seed=5, advise=False)
    assert here.measured == there.measured
    assert here.stacks == there.stacks


def test_the_models_own_settings_say_what_it_is_meant_to_be() -> None:
    class Deceived(nn.TransformerEncoderLayer):
        """Says that it is Pre-LN, and is Post-LN."""

        def __init__(self) -> None:
            super().__init__(WIDTH, 2, 32, batch_first=True)
            self.norm_first = True

        def forward(self, x: Tensor) -> Tensor:
            x = self.norm1(x + self._sa_block(x, None, None))
            return self.norm2(x + self._ff_block(x))

    found = normscope.diagnose(Deceived(), torch.randn(2, 5, WIDTH), advise=False)
    assert "placement-flag-contradicts" in {finding.id for finding in found.findings}


def test_where_inputs_cannot_be_drawn_one_sentence_says_what_to_pass() -> None:
    with pytest.raises(ValueError, match=r"TwoInputs.*diagnose\(model, inputs\)") as refused:
        normscope.diagnose(TwoInputs(), advise=False)
    assert "\n" not in str(refused.value)
    assert len(str(refused.value)) <= 240


class Failing(Language):
    def forward(self, ids: Tensor) -> Tensor:
        raise TypeError(f"{self} does not run")


def test_a_failing_forward_pass_is_told_in_one_line() -> None:
    with pytest.raises(ValueError, match="the forward pass raised TypeError: Failing") as refused:
        normscope.diagnose(Failing(), torch.ones(2, 5, dtype=torch.int64), advise=False)
    assert "\n" not in str(refused.value)
    assert len(str(refused.value)) <= 340
