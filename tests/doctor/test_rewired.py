"""The loss under the other wiring is that of a model built with the other flag and given the same
weights.
"""

import pytest
import torch
from torch import nn

from normscope.doctor.observe.examine import examined

pytestmark = pytest.mark.sampled(one_in=6)

VOCABULARY, WIDTH, TOKENS = 11, 16, 6


class Translator(nn.Module):
    """torch's encoder and decoder with a norm at each end."""

    def __init__(self, *, pre: bool) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        sizes = {"dropout": 0.0, "batch_first": True, "norm_first": pre}
        self.encoder = nn.TransformerEncoder(
            nn.TransformerEncoderLayer(WIDTH, 2, 2 * WIDTH, **sizes),
            2,
            nn.LayerNorm(WIDTH),
            enable_nested_tensor=False,
        )
        self.decoder = nn.TransformerDecoder(
            nn.TransformerDecoderLayer(WIDTH, 2, 2 * WIDTH, **sizes), 2, nn.LayerNorm(WIDTH)
        )
        self.head = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, tokens):
        x = self.embedding(tokens)
        return {"logits": self.head(self.decoder(x, self.encoder(x)))}


class Scorer(nn.Module):
    """An encoder without a norm at its end whose output holds its own loss."""

    def __init__(self, *, pre: bool) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(
            WIDTH, 2, 2 * WIDTH, dropout=0.0, batch_first=True, norm_first=pre
        )
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.core = nn.TransformerEncoder(layer, 3, enable_nested_tensor=False)
        self.head = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, tokens):
        logits = self.head(self.core(self.embedding(tokens)))
        return {"loss": cross_entropy({"logits": logits}), "logits": logits}


def cross_entropy(output):
    logits = output["logits"]
    targets = torch.arange(logits[..., 0].numel()) % VOCABULARY
    return nn.functional.cross_entropy(logits.flatten(0, 1), targets)


def weighed(kind, pre):
    """With weights that no two wirings make the same of."""
    torch.manual_seed(3)
    model = kind(pre=pre)
    for parameter in model.parameters():
        parameter.data += 0.3 * torch.randn_like(parameter)
    return model


@pytest.mark.parametrize("pre", [True, False])
@pytest.mark.parametrize(("kind", "loss"), [(Translator, cross_entropy), (Scorer, None)])
def test_it_is_the_loss_of_a_model_with_the_other_flag(kind, loss, pre):
    model, tokens = weighed(kind, pre), torch.arange(2 * TOKENS).reshape(2, TOKENS) % VOCABULARY
    other = kind(pre=not pre)
    other.load_state_dict(model.state_dict())
    _, seen = examined(model, (tokens,), loss, rewire=True)
    with torch.no_grad():
        assert seen.loss_nats == pytest.approx(float(cross_entropy(model(tokens))), rel=1e-5)
        assert seen.rewired_loss_nats == pytest.approx(
            float(cross_entropy(other(tokens))), rel=1e-5
        )


def test_without_a_loss_of_the_users_there_is_none():
    tokens = torch.zeros(1, TOKENS, dtype=torch.long)
    assert examined(weighed(Translator, True), (tokens,), rewire=True)[1].rewired_loss_nats is None


def test_an_output_that_cannot_be_put_together_again_is_let_be():
    class Held:
        def __init__(self, logits):
            self.logits = logits

    tokens = torch.zeros(1, TOKENS, dtype=torch.long)
    model = weighed(Translator, False)
    _, seen = examined(
        model,
        lambda m: Held(m(tokens)["logits"]),
        lambda held: cross_entropy({"logits": held.logits}),
        rewire=True,
    )
    assert seen.loss_nats is not None
    assert seen.rewired_loss_nats is None
