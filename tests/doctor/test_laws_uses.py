"""The law of uses: the output knows what it is meant to know of the inputs, and nothing else."""

import pytest
import torch
from torch import Tensor, nn

from doctor.test_laws_movement import IDS, VOCABULARY, WIDTH, Decoder, next_token
from normscope import diagnose
from normscope.doctor.result import Finding

SOURCE = torch.randint(1, VOCABULARY, (4, 7), generator=torch.Generator().manual_seed(1))


def told(rule: str, model: nn.Module, inputs: object = (IDS,), **more: object) -> list[Finding]:
    found = diagnose(model, inputs, advise=False, **more)
    return [one for one in found.findings if one.id == rule]


class Translator(nn.Module):
    """read: what the decoder is given for its memory; gate: what the memory's sum begins with."""

    def __init__(self, read: str, gate: float = 1.0) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embedding, self.head = nn.Embedding(VOCABULARY, WIDTH), nn.Linear(WIDTH, VOCABULARY)
        layers = {"batch_first": True, "norm_first": True, "dropout": 0.0}
        self.encoder = nn.TransformerEncoderLayer(WIDTH, 2, 32, **layers)
        self.decoder = nn.TransformerDecoderLayer(WIDTH, 2, 32, **layers)
        self.gate = nn.Parameter(torch.tensor(gate))
        self.read = read

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        memory = self.encoder(self.embedding(source))
        y = self.embedding(target)
        memory = self.gate * (memory if self.read == "source" else y)
        return self.head(self.decoder(y, memory))


def test_an_input_that_nothing_reads_is_named():
    (warning,) = told("input-unread", Translator("target"), (SOURCE, IDS))
    assert (warning.severity, warning.where) == ("warning", "source")
    assert told("input-unread", Translator("source"), (SOURCE, IDS)) == []


def test_an_input_behind_a_gate_that_starts_at_0_is_read_once_it_has_opened():
    assert told("input-unread", Translator("source", gate=0.0), (SOURCE, IDS)) == []


class WithLoss(Decoder):
    """Takes targets under a name of its own, for a loss beside the logits."""

    def forward(self, ids: Tensor, wanted: Tensor) -> tuple[Tensor, Tensor]:
        logits = super().forward(ids)
        return logits, nn.functional.cross_entropy(logits.mT, wanted)


def test_targets_that_a_loss_beside_the_logits_reads_are_read():
    given = {"loss": lambda output: output[1]}
    assert told("input-unread", WithLoss(), (IDS, IDS.roll(-1, 1)), **given) == []


class Everywhere(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(WIDTH, 2, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.attention(x, x, x, need_weights=False)[0]


class Around(Decoder):
    """change: of what the decoder's blocks make, (B, T, V)."""

    def __init__(self, change: object, *, hides: bool = True) -> None:
        super().__init__()
        self.change = change
        if not hides:
            for block in self.blocks:
                block.attention = Everywhere()

    def forward(self, ids: Tensor) -> Tensor:
        return self.change(super().forward(ids))


def over_the_sequence(logits: Tensor) -> Tensor:
    return logits - logits.mean(1, keepdim=True)


def over_the_batch(logits: Tensor) -> Tensor:
    return logits - logits.mean(0, keepdim=True)


def test_a_norm_over_the_sequence_outside_of_blocks_knows_what_comes():
    (error,) = told("reads-ahead", Around(over_the_sequence), loss=next_token)
    assert error.severity == "error"
    assert "the loss's targets are the inputs one place later" in error.message
    assert told("reads-ahead", Decoder(), loss=next_token) == []
    # Whatever the loss: a model whose attention hides later tokens is not to know them.
    (warning,) = told("reads-ahead", Around(over_the_sequence))
    assert warning.severity == "warning"
    assert "though every attention hides later tokens" in warning.message
    assert told("reads-ahead", Decoder()) == []
    assert told("reads-ahead", Around(over_the_sequence, hides=False)) == []


def test_a_mean_over_the_batch_lets_sequences_know_each_other():
    (warning,) = told("rows-mixed", Around(over_the_batch))
    assert warning.severity == "warning"
    assert told("rows-mixed", Decoder()) == told("rows-mixed", Around(over_the_sequence)) == []


class Classifier(nn.Module):
    def __init__(self, *, masked: bool, counted: bool) -> None:
        super().__init__()
        torch.manual_seed(0)
        layers = {"batch_first": True, "norm_first": True, "dropout": 0.0}
        self.embedding = nn.Embedding(VOCABULARY, WIDTH, padding_idx=0)
        self.positions = nn.Embedding(9, WIDTH)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(WIDTH, 2, 32, **layers) for _ in range(2)
        )
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 5)
        self.masked, self.counted = masked, counted

    def forward(self, ids: Tensor) -> Tensor:
        x, is_padding = self.embedding(ids) + self.positions.weight[: ids.shape[1]], ids == 0
        for layer in self.layers:
            x = layer(x, src_key_padding_mask=is_padding if self.masked else None)
        x = self.norm(x)
        if self.counted:
            return self.head(x.mean(1))
        real = (~is_padding)[..., None]
        return self.head((x * real).sum(1) / real.sum(1))


PADDED = IDS.masked_fill(torch.arange(IDS.shape[1]) > 5, 0)


@pytest.mark.parametrize(("masked", "counted"), [(False, True), (True, True), (False, False)])
def test_padding_that_a_mean_counts_is_read(masked, counted):
    (warning,) = told("padding-read", Classifier(masked=masked, counted=counted), (PADDED,))
    assert warning.severity == "warning"
    assert "row for padding" in warning.message


def test_padding_that_is_masked_and_left_out_of_the_mean_is_not_read():
    assert told("padding-read", Classifier(masked=True, counted=False), (PADDED,)) == []
    # Without any padding in the batch nothing is asked.
    assert told("padding-read", Classifier(masked=False, counted=True), (IDS,)) == []


def test_tokens_that_happen_to_have_paddings_index_are_no_padding():
    ids = IDS.clone()
    ids[0, 3] = 0
    assert told("padding-read", Classifier(masked=False, counted=False), (ids,)) == []


class Placed(nn.Module):
    """An encoder whose positions are looked up at `places`, of all or of pooled tokens."""

    def __init__(self, places: Tensor, *, pooled: bool) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embedding, self.positions = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(9, WIDTH)
        layers = {"batch_first": True, "norm_first": True, "dropout": 0.0}
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(WIDTH, 2, 32, **layers) for _ in range(2)
        )
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 5)
        self.places, self.pooled = places, pooled

    def forward(self, ids: Tensor) -> Tensor:
        x = self.embedding(ids) + self.positions(self.places)
        for layer in self.layers:
            x = layer(x)
        x = self.norm(x)
        return self.head(x.mean(1) if self.pooled else x)


@pytest.mark.parametrize("pooled", [False, True])
def test_positions_that_are_the_same_for_every_token_are_told(pooled):
    length = IDS.shape[1]
    alike, apart = torch.zeros(length, dtype=torch.long), torch.arange(length)
    (warning,) = told("order-unread", Placed(alike, pooled=pooled))
    assert warning.severity == "warning"
    assert told("order-unread", Placed(apart, pooled=pooled)) == []


def test_a_model_without_positions_may_read_a_set():
    layers = nn.TransformerEncoderLayer(WIDTH, 2, 32, 0.0, batch_first=True)
    model = nn.Sequential(nn.Embedding(VOCABULARY, WIDTH), layers, nn.Linear(WIDTH, 5))
    assert told("order-unread", model) == []
