"""Designs of public models, each rebuilt small, that were warned of and are meant; beside each the
fault that looks like it and is still told.
"""

import importlib
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor, nn

from normscope import diagnose

WIDTH, TOKENS, ENTRIES = 16, 8, 24
IDS = torch.randint(ENTRIES, (4, TOKENS), generator=torch.Generator().manual_seed(0))
IMAGES = torch.randn(4, 3, 8, 8, generator=torch.Generator().manual_seed(0))
X = torch.randn(4, TOKENS, WIDTH, generator=torch.Generator().manual_seed(0))


def severities(rule: str, model: nn.Module, *inputs: Tensor, **more: object) -> list[str]:
    """Of one rule's findings."""
    found = diagnose(model.eval(), inputs, advise=False, **more)
    return [one.severity for one in found.findings if one.id == rule]


class Residual(nn.Module):
    """A block of a residual network; the gain of its last norm starts at `gain`."""

    def __init__(self, gain: float, bias: float) -> None:
        super().__init__()
        self.first = nn.Conv2d(WIDTH, WIDTH, 3, padding=1, bias=False)
        self.last = nn.Conv2d(WIDTH, WIDTH, 3, padding=1, bias=False)
        self.norms = nn.ModuleList(nn.BatchNorm2d(WIDTH) for _ in range(2))
        nn.init.constant_(self.norms[0].bias, bias)
        nn.init.constant_(self.norms[1].weight, gain)

    def forward(self, x: Tensor) -> Tensor:
        y = self.norms[0](self.first(x)).relu()
        return (x + self.norms[1](self.last(y))).relu()


def residual_network(gain: float, bias: float = 0.0) -> nn.Module:
    torch.manual_seed(0)
    blocks = [Residual(gain, bias) for _ in range(3)]
    ends = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(WIDTH, 5)]
    return nn.Sequential(nn.Conv2d(3, WIDTH, 3, padding=1), *blocks, *ends)


@pytest.mark.parametrize(
    ("gain", "bias", "told"), [(0.0, 0.0, ["info"]), (1.0, -1000.0, ["warning"]), (1.0, 0.0, [])]
)
def test_a_last_gain_of_zero_opens_and_an_activation_of_zeros_does_not(gain, bias, told):
    assert severities("dead-sublayer", residual_network(gain, bias), IMAGES, laws=False) == told


def tower(*end: nn.Module) -> nn.Module:
    torch.manual_seed(0)
    layers = [
        nn.TransformerEncoderLayer(WIDTH, 2, 32, batch_first=True, norm_first=True, dropout=0.0)
        for _ in range(3)
    ]
    return nn.Sequential(nn.Embedding(ENTRIES, WIDTH), *layers, *end)


@pytest.mark.parametrize(("begins", "told"), [("norm", []), ("curve", ["warning"])])
def test_weights_whose_product_is_normed_at_once_need_no_norm_before(begins, told):
    second = nn.LayerNorm(WIDTH) if begins == "norm" else nn.GELU()
    neck = [nn.Linear(WIDTH, WIDTH), second, nn.Linear(WIDTH, 5)]
    assert severities("missing-final-norm", tower(*neck), IDS, laws=False) == told


def test_a_tower_may_leave_its_norm_to_what_reads_it_and_a_head_needs_one():
    rule = "missing-final-norm"
    assert severities(rule, tower(), IDS, laws=False) == ["info"]
    assert severities(rule, tower(nn.Linear(WIDTH, 5)), IDS, laws=False) == ["warning"]
    squares = {"loss": lambda output: output.square().mean()}
    assert severities(rule, tower(), IDS, laws=False, **squares) == ["warning"]


class Attention(nn.Module):
    """Over places of a picture, with norms over the batch in the place of others."""

    def __init__(self, norm: bool, size: float) -> None:
        super().__init__()
        self.qkv = nn.Conv2d(WIDTH, 3 * WIDTH, 1)
        self.out = nn.Conv2d(WIDTH, WIDTH, 1)
        self.norm = nn.BatchNorm2d(WIDTH) if norm else nn.Identity()
        with torch.no_grad():
            self.qkv.weight.mul_(size)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(self.norm(x)).flatten(2).mT.chunk(3, -1)
        weighed = (q @ k.mT * WIDTH**-0.5).softmax(-1) @ v
        return x + self.out(weighed.mT.reshape(x.shape))


def over_batches(norm: bool, size: float = 1.0) -> nn.Module:
    torch.manual_seed(0)
    blocks = [Attention(norm, size) for _ in range(3)]
    ends = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(WIDTH, 5)]
    return nn.Sequential(nn.Conv2d(3, WIDTH, 1), *blocks, *ends)


def test_norms_over_a_batch_are_norms_though_evaluation_does_not_show_them():
    large = {"laws": False}
    assert set(severities("no-norm", over_batches(True, 6.0), IMAGES, **large)) == {"info"}
    assert set(severities("no-norm", over_batches(False, 6.0), IMAGES, **large)) == {"warning"}


def test_sizes_are_notes_until_norms_over_a_batch_have_seen_one():
    model = over_batches(True, 20.0)
    assert severities("attention-saturated", model, IMAGES, laws=False) == ["info"]
    model.train()(IMAGES)
    assert severities("attention-saturated", model, IMAGES, laws=False) == ["warning"]


class Masked(nn.Module):
    """Draws in every pass, in evaluation too, which pieces it is shown."""

    def __init__(self, mixes: bool) -> None:
        super().__init__()
        self.inner, self.mixes = tower(nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 5))[1:], mixes

    def forward(self, x: Tensor) -> Tensor:
        shown = torch.rand(x.shape[:2]) < 0.5
        y = self.inner(x * shown[..., None])
        return y + y.mean(0) if self.mixes else y


@pytest.mark.parametrize("mixes", [False, True])
def test_a_mask_that_every_pass_draws_mixes_no_rows(mixes):
    assert ("warning" in severities("rows-mixed", Masked(mixes), X)) == mixes


class Durations(nn.Module):
    """Repeats each vector as often as a predictor says, rounded, and returns these numbers."""

    def __init__(self, returns: bool) -> None:
        super().__init__()
        self.inner = tower(nn.LayerNorm(WIDTH))
        self.predictor, self.head = nn.Linear(WIDTH, 1), nn.Linear(WIDTH, 5)
        self.returns = returns

    def forward(self, ids: Tensor) -> object:
        x = self.inner(ids)
        times = (3 * self.predictor(x)[..., 0].abs()).round().long()
        y = self.head(x * times[..., None])
        return (y, times) if self.returns else y


@pytest.mark.parametrize("returns", [True, False])
def test_what_makes_whole_numbers_that_are_returned_is_trained_by_a_loss_of_its_own(returns):
    told = severities("cut-off-weights", Durations(returns), IDS)
    assert told == ([] if returns else ["warning"])


class Routed(nn.Module):
    """Sends all tokens to the expert that a trained number chooses; the first update turns it."""

    def __init__(self, detached: bool) -> None:
        super().__init__()
        self.inner, self.head = tower(nn.LayerNorm(WIDTH)), nn.Linear(WIDTH, 5)
        self.experts = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(2))
        self.router, self.detached = nn.Parameter(torch.tensor(5e-4)), detached

    def forward(self, ids: Tensor) -> Tensor:
        x = self.inner(ids)
        number = int(self.router < 0)
        y = self.experts[number](x)
        y = y.detach() if self.detached and number else y
        return self.head(x + y) + 10 * self.router


@pytest.mark.parametrize("detached", [False, True])
def test_an_expert_that_the_last_update_chose_is_not_cut_off(detached):
    def loss(logits: Tensor) -> Tensor:
        # Falls with the router, so that each update of Adam lowers it by its rate.
        return nn.functional.cross_entropy(logits.mT, IDS % 5) + logits.mean()

    told = severities("cut-off-weights", Routed(detached), IDS, loss=loss)
    assert told == (["warning"] if detached else [])


class Turning(nn.Module):
    """Causal attention by rotations; sink: whether what it gives is closed by a sum over keys."""

    def __init__(self, sink: bool) -> None:
        super().__init__()
        self.queries, self.keys, self.values, self.out = (nn.Linear(WIDTH, WIDTH) for _ in range(4))
        self.sink = nn.Parameter(torch.zeros(())) if sink else None

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.queries(x), self.keys(x), self.values(x)
        turns = torch.arange(x.shape[1])[:, None] * 100.0 ** -torch.linspace(0, 1, WIDTH // 2)
        cos, sin = turns.cos(), turns.sin()

        def turned(y: Tensor) -> Tensor:
            some, others = y.chunk(2, -1)
            return torch.cat([some * cos - others * sin, some * sin + others * cos], -1)

        logits = turned(q) @ turned(k).mT * WIDTH**-0.5
        logits = logits + torch.full(logits.shape[1:], -torch.inf).triu(1)
        y = logits.softmax(-1) @ v
        if self.sink is not None:
            y = y * (logits.logsumexp(-1, keepdim=True) - self.sink).sigmoid()
        return self.out(y)


class Multiplied(nn.Module):
    """Attention of normed queries and keys, which a factor multiplies beside 1/√d."""

    def __init__(self, factor: float) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.RMSNorm(WIDTH) for _ in range(3))
        self.queries, self.keys, self.values, self.out = (nn.Linear(WIDTH, WIDTH) for _ in range(4))
        self.factor = factor

    def forward(self, x: Tensor) -> Tensor:
        y = self.norms[0](x)
        q, k = self.norms[1](self.queries(y)), self.norms[2](self.keys(y))
        logits = q @ k.mT * (self.factor * WIDTH**-0.5)
        return x + self.out(logits.softmax(-1) @ self.values(y))


@pytest.mark.parametrize("configured", [True, False])
def test_a_factor_that_a_configuration_gives_to_normed_queries_is_a_choice(configured):
    torch.manual_seed(0)
    blocks = [Multiplied(6.0) for _ in range(3)]
    ends = [nn.LayerNorm(WIDTH), nn.Linear(WIDTH, ENTRIES)]
    model = nn.Sequential(nn.Embedding(ENTRIES, WIDTH), *blocks, *ends)
    model.config = SimpleNamespace(qk_scale_factor=6.0 if configured else 5.0)
    told = severities("attention-saturated", model, IDS, laws=False)
    assert told == ["info" if configured else "warning"]


class TurningBlock(nn.Module):
    def __init__(self, sink: bool) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in range(2))
        self.attention = Turning(sink)
        self.feed_forward = nn.Sequential(nn.Linear(WIDTH, 32), nn.GELU(), nn.Linear(32, WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norms[0](x))
        return x + self.feed_forward(self.norms[1](x))


def test_a_sink_behind_attention_counts_keys_and_is_no_absolute_place():
    torch.manual_seed(0)
    blocks = [TurningBlock(sink=True) for _ in range(3)]
    ends = [nn.LayerNorm(WIDTH), nn.Linear(WIDTH, ENTRIES)]
    model = nn.Sequential(nn.Embedding(ENTRIES, WIDTH), *blocks, *ends)
    ids = IDS.repeat(1, 3)
    loss = {"loss": lambda logits: nn.functional.cross_entropy(logits[:, :-1].mT, ids[:, 1:])}
    assert severities("places-read", model, ids, **loss) == []


class Asked(nn.Module):
    """Causal, with a loss of its own on labels that stand at their places."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embedding, self.head = nn.Embedding(ENTRIES, WIDTH), nn.Linear(WIDTH, ENTRIES)
        self.layer = nn.TransformerEncoderLayer(
            WIDTH, 2, 32, batch_first=True, norm_first=True, dropout=0.0
        )

    def forward(self, ids: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        hidden = nn.Transformer.generate_square_subsequent_mask(ids.shape[1])
        logits = self.head(self.layer(self.embedding(ids), hidden))
        return logits, nn.functional.cross_entropy(logits.mT, labels)


@pytest.mark.parametrize("named", [False, True])
@pytest.mark.parametrize(("labels", "told"), [(IDS.flip(0).flip(1), []), (IDS, ["warning"])])
def test_labels_that_are_given_beside_tokens_are_no_tokens(named, labels, told):
    given = {"ids": IDS, "labels": labels} if named else (IDS, labels)
    found = diagnose(Asked().eval(), given, loss=lambda both: both[1], advise=False, laws=False)
    assert [one.severity for one in found.findings if one.id == "targets-misplaced"] == told


LIBRARY = '''
from torch import nn


class Scales(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(2))

    def forward(self, x):
        return self.layers[1](self.layers[0](x).relu())


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm, self.inner = nn.LayerNorm(width), nn.Linear(width, width)

    def forward(self, x, scales=None):
        y = self.inner(self.norm(x)).relu()
        return x + (y if scales is None else y * scales(x))


class Stacked(nn.Module):
    """One block fewer than the configuration says; `order`: which is called when."""

    def __init__(self, config):
        super().__init__()
        self.config = config
        width = config.width
        self.scales = Scales(width) if config.scales else None
        self.layers = nn.ModuleList(Block(width) for _ in range(config.num_hidden_layers - 1))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 5)

    def forward(self, x):
        for number in self.config.order:
            x = self.layers[number](x, self.scales)
        return self.head(self.norm(x))
'''


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> object:
    """A package as pip installs one."""
    folder = tmp_path / "site-packages"
    folder.mkdir()
    (folder / "of_a_library.py").write_text(LIBRARY)
    monkeypatch.syspath_prepend(folder)
    yield importlib.import_module("of_a_library")
    del sys.modules["of_a_library"]


def stacked(library: object, **config: object) -> nn.Module:
    torch.manual_seed(0)
    given = {"width": WIDTH, "num_hidden_layers": 5, "scales": False, "order": (0, 1, 2, 3)}
    return library.Stacked(SimpleNamespace(**given | config))


def test_what_a_library_shares_between_its_blocks_or_calls_again_is_its_design(library):
    shared = severities("shared-blocks", stacked(library, scales=True), X, laws=False)
    assert shared != []
    assert set(shared) == {"info"}
    again = stacked(library, order=(0, 1, 0, 1, 2, 3))
    assert set(severities("shared-blocks", again, X, laws=False)) == {"info"}
    listed = stacked(library)
    listed.layers[2] = listed.layers[1]
    assert set(severities("shared-blocks", listed, X, laws=False)) == {"warning"}


def test_a_class_of_a_library_knows_how_many_blocks_its_configuration_means(library):
    rule = "depth-unlike-configuration"
    assert severities(rule, stacked(library), X, laws=False) == []
    shorter = stacked(library, order=(0, 1, 2))
    del shorter.layers[3]
    assert severities(rule, shorter, X, laws=False) == ["warning"]
