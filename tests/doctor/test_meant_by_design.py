"""Wirings of public models that look like a fault that has been made, and are none."""

import pytest
import torch
from torch import Tensor, nn

from doctor.test_laws_movement import IDS, VOCABULARY, WIDTH
from normscope import diagnose
from normscope_studies.families.small import small_model

SOURCE = IDS.roll(1, 0)
X = torch.randn(2, 16, WIDTH, generator=torch.Generator().manual_seed(0))


def rules(model: nn.Module, inputs: object, **more: object) -> set[str]:
    """Of errors and warnings."""
    found = diagnose(model, inputs, advise=False, **more)
    return {one.id for one in found.findings if one.severity != "info"}


def next_token(logits: Tensor) -> Tensor:
    return nn.functional.cross_entropy(logits[:, :-1].mT, IDS[:, 1:])


class Translator(nn.Module):
    """Its encoder looks at single tokens, so that no attention looks at later ones."""

    def __init__(self, leaks: bool) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embedding, self.head = nn.Embedding(VOCABULARY, WIDTH), nn.Linear(WIDTH, VOCABULARY)
        self.encoder = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.GELU())
        self.decoder = nn.TransformerDecoderLayer(
            WIDTH, 2, 32, batch_first=True, norm_first=True, dropout=0.0
        )
        self.leaks = leaks

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        y = self.embedding(target)
        hidden = nn.Transformer.generate_square_subsequent_mask(y.shape[1])
        y = self.decoder(y, self.encoder(self.embedding(source)), tgt_mask=hidden)
        return self.head(y + y.mean(1, keepdim=True) if self.leaks else y)


@pytest.mark.parametrize("leaks", [False, True])
def test_a_decoder_may_know_all_of_the_source_and_nothing_that_it_is_to_predict(leaks):
    found = rules(Translator(leaks), {"source": SOURCE, "target": IDS}, loss=next_token)
    assert ("reads-ahead" in found) == leaks


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.MultiheadAttention(WIDTH, 2, batch_first=True)

    def forward(self, x: Tensor, memory: Tensor) -> Tensor:
        return self.inner(x, memory, memory, need_weights=False)[0]


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention, self.first = Attention(), nn.LayerNorm(WIDTH)
        self.second = nn.LayerNorm(WIDTH)
        self.ffn = nn.Sequential(nn.Linear(WIDTH, 32), nn.GELU(), nn.Linear(32, WIDTH))

    def forward(self, x: Tensor, memory: Tensor) -> Tensor:
        x = self.first(x + self.attention(x, memory))
        return self.second(x + self.ffn(x))


class Pooled(nn.Module):
    """Every second token, which look at all of them in the first block, as in Funnel."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.before, self.blocks = nn.Linear(WIDTH, WIDTH), nn.ModuleList(Block() for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        every = self.before(x)
        x = every[:, ::2]
        for number, block in enumerate(self.blocks):
            x = block(x, x if number else every)
        return x


def test_a_first_block_may_look_at_what_stood_before_the_stack():
    assert "mixed-placements" not in rules(Pooled(), (X,))


def test_a_skip_around_a_convolution_in_a_branch_loses_no_sum():
    # Inkling's short convolutions add what they read to what they make of it.
    torch.manual_seed(0)
    ids = torch.randint(5, 90, (2, 12), generator=torch.Generator().manual_seed(0))
    model = small_model("inkling_mm_model")
    seen = diagnose(model, {"input_ids": ids}, advise=False, laws=False)
    assert any("feed_forward(a1) + a1" in str(one.formula) for one in seen.stacks[0].sublayers)
    assert not [one.message for one in seen.findings if one.id == "misplaced-step"]


class Grouping(nn.Module):
    """Sub-layers of a stage that hands on to the next one by a norm, as in GroupViT."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.blocks = nn.ModuleList(Attention() for _ in range(3))
        self.ffn = nn.Sequential(nn.Linear(WIDTH, 32), nn.GELU(), nn.Linear(32, WIDTH))
        self.norm, self.end = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.blocks[0](x, x)
        x = self.end(x + self.ffn(self.norm(x)))
        x = x + self.blocks[1](x, x)
        return x + self.blocks[2](x, x)


def test_one_layer_that_ends_in_a_norm_has_not_lost_it_from_the_skips():
    assert "misplaced-step" not in rules(Grouping(), (X,))


class Faint(nn.Module):
    """Two feed-forwards in every block, of which both in the first read less than their norms' ε,
    as Conformer's do behind a convolution that starts small.
    """

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.ModuleList(nn.ModuleList(self._made() for _ in range(2)) for _ in range(4))
        self.ends = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in range(4))

    def _made(self) -> nn.Module:
        made = nn.Sequential(nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 32), nn.GELU())
        return made.append(nn.Linear(32, WIDTH, bias=False)).requires_grad_()

    def forward(self, x: Tensor) -> Tensor:
        for pair, end in zip(self.layers, self.ends, strict=True):
            for one in pair:
                x = x + one(x)
            x = end(x)
        return x


def test_a_branch_behind_a_norm_that_its_epsilon_swamps_is_no_uneven_block():
    model = Faint()
    for pair in model.layers:
        for one in pair:
            nn.init.zeros_(one[1].bias)
            nn.init.normal_(one[1].weight, std=0.1)
            nn.init.normal_(one[3].weight, std=0.1)
    found = diagnose(model, (1e-6 * X,), advise=False).findings
    assert any(one.id == "norm-epsilon" for one in found)
    assert not [one.message for one in found if one.id == "uneven-blocks"]
