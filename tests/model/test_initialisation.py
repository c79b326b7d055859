"""What every scheme draws: distributions, bounds and biases, and the same weights from the same seed."""

import math

import pytest
import torch

from normscope.model import SCHEMES, EncoderDecoder, ModelConfig
from normscope.placement import Placement, register
from normscope.placement.base import _REGISTRY

D, F, VOCABULARY = 96, 160, 400
XAVIER_FFN = 2 / (D + F)
MATRICES = ("query", "key", "value", "output", "ffn_in", "ffn_out")

# Matrix -> (distribution, variance), by scheme; constants are written out, not computed as the code does.
UNIFORM, NORMAL = "uniform", "normal"
PACKED = (UNIFORM, 2 / (D + 3 * D))  # xavier on the packed (3d, d) matrix of query, key and value
EXPECTED = {
    "paper": {"query": PACKED, "key": PACKED, "value": PACKED, "output": (UNIFORM, 1 / D)}
    | {"ffn_in": (UNIFORM, XAVIER_FFN), "ffn_out": (UNIFORM, XAVIER_FFN)},
    "fairseq-0.10": {"query": PACKED, "key": PACKED, "value": PACKED, "output": (UNIFORM, 1 / D)}
    | {"ffn_in": (UNIFORM, 1 / (3 * D)), "ffn_out": (UNIFORM, 1 / (3 * F))},
    "xavier-normal": dict.fromkeys(("query", "key", "value", "output"), (NORMAL, 1 / D))
    | dict.fromkeys(("ffn_in", "ffn_out"), (NORMAL, XAVIER_FFN)),
    "theory": {"query": ("zero", 0), "key": ("zero", 0), "output": ("identity", 0)}
    | dict.fromkeys(("value", "ffn_in", "ffn_out"), (NORMAL, 1 / D)),
}
DRAWN_BIASES = {"fairseq-0.10": ("query", "key", "value", "ffn_in", "ffn_out")}


def build(scheme: str, placement: str = "post-ln", seed: int = 0) -> EncoderDecoder:
    torch.manual_seed(seed)
    theory = scheme == "theory"
    config = ModelConfig(
        placement=placement,
        width=D,
        ffn_width=D if theory else F,
        heads=1 if theory else 4,
        encoder_blocks=2,
        decoder_blocks=2,
        initialisation=scheme,
    )
    return EncoderDecoder(config, VOCABULARY, VOCABULARY)


def linears(model: EncoderDecoder, matrix: str, stack: str = "") -> list[torch.nn.Linear]:
    at = f".f.{matrix}"
    found = [module for name, module in model.named_modules() if name.endswith(at) and name.startswith(stack)]
    assert found
    return found


def assert_distribution(sample: torch.Tensor, distribution: str, variance: float) -> None:
    """Mean and spread within 4 standard errors, and the shape: bounds of the uniform, kurtosis of the normal."""
    sample = sample.detach().double().flatten()
    n, std = len(sample), math.sqrt(variance)
    excess = {UNIFORM: -1.2, NORMAL: 0.0}[distribution]
    assert abs(sample.mean()) < 4 * std / math.sqrt(n)
    # Standard error of a sample's standard deviation: σ √((κ + 2) / 4n), with κ the excess kurtosis.
    assert abs(sample.std() - std) < 4 * std * math.sqrt((excess + 2) / (4 * n))
    if distribution == UNIFORM:
        bound = math.sqrt(3) * std
        assert 0.999 * bound < sample.abs().max() <= bound * (1 + 1e-6)
    else:
        assert (sample / std).pow(4).mean() == pytest.approx(3, abs=4 * math.sqrt(96 / n))
        assert sample.abs().max() > 3 * std


def test_the_table_is_complete():
    assert EXPECTED.keys() == SCHEMES.keys()
    assert all(set(scheme.draws) == set(MATRICES) and scheme.source for scheme in SCHEMES.values())


@pytest.mark.parametrize("matrix", MATRICES)
@pytest.mark.parametrize("scheme", EXPECTED)
def test_every_matrix_of_every_scheme(scheme, matrix):
    distribution, variance = EXPECTED[scheme][matrix]
    found = linears(build(scheme), matrix)
    if distribution == "zero":
        assert not any(linear.weight.any() for linear in found)
    elif distribution == "identity":
        assert all(torch.equal(linear.weight, torch.eye(D)) for linear in found)
    else:
        assert_distribution(torch.cat([linear.weight.flatten() for linear in found]), distribution, variance)
        assert not torch.equal(found[0].weight, found[1].weight), "every block has weights of its own"
    for linear in found:
        if matrix in DRAWN_BIASES.get(scheme, ()):
            bound = linear.in_features**-0.5
            assert 0.9 * bound < linear.bias.abs().max() <= bound
        else:
            assert not linear.bias.any()


@pytest.mark.parametrize("scheme", EXPECTED)
def test_embeddings_and_norms(scheme):
    model = build(scheme)
    table = model.target_embedding.weight
    assert not table[1].any(), "the padding row is 0"
    assert_distribution(torch.cat([table[:1], table[2:]]), NORMAL, 1 / D)
    norms = [module for module in model.modules() if isinstance(module, torch.nn.LayerNorm)]
    assert len(norms) == 10
    assert all((norm.weight == 1).all() and not norm.bias.any() for norm in norms)


@pytest.mark.parametrize("stack", ["encoder", "decoder"])
@pytest.mark.parametrize("matrix", MATRICES)
def test_deepnorm_draws_branches_smaller_and_queries_and_keys_not(matrix, stack):
    # 2 encoder and 2 decoder blocks: 0.87 (2^4 2)^-1/16 and (12 · 2)^-1/4.
    gain = {"encoder": 0.87 * 32 ** (-1 / 16), "decoder": 24**-0.25}[stack]
    gain = 1.0 if matrix in ("query", "key") else gain
    variance = XAVIER_FFN if matrix.startswith("ffn") else 1 / D
    weights = torch.cat(
        [linear.weight.flatten() for linear in linears(build("as-placement", "deepnorm"), matrix, stack)]
    )
    assert_distribution(weights, NORMAL, gain**2 * variance)


def test_as_placement_is_the_scheme_that_the_placement_names():
    for placement, scheme in (("post-ln", "paper"), ("pre-ln", "paper"), ("deepnorm", "xavier-normal")):
        ours, named = build("as-placement", placement), build(scheme, placement)
        assert all(torch.equal(a, b) for a, b in zip(ours.parameters(), named.parameters(), strict=True))


@pytest.mark.parametrize("scheme", ["paper", "fairseq-0.10", "xavier-normal"])
def test_a_gain_scales_the_same_draw(scheme, monkeypatch):
    class Halved(Placement):
        name, title, citation, year = "halved", "Halved", "tests", 2026

        def join(self, x, sublayer, norm):
            return norm(x + sublayer(x))

        def gain(self, weight, site):
            return 0.5 if weight == "ffn_out" and site.block == 2 and site.stack.kind == "decoder" else 1.0

    monkeypatch.setitem(_REGISTRY, "halved", Halved)
    assert register(Halved) is Halved
    plain, halved = build(scheme).state_dict(), build(scheme, "halved").state_dict()
    for name, value in plain.items():
        one = name == "decoder.blocks.1.feed_forward.f.ffn_out.weight"
        torch.testing.assert_close(halved[name], value * 0.5 if one else value, rtol=1e-6, atol=0)


@pytest.mark.parametrize("scheme", EXPECTED)
def test_same_seed_same_weights(scheme):
    one, same, other = (list(build(scheme, seed=seed).parameters()) for seed in (3, 3, 4))
    assert all(torch.equal(a, b) for a, b in zip(one, same, strict=True))
    assert any(not torch.equal(a, b) for a, b in zip(one, other, strict=True))
