"""What every scheme draws: distributions, bounds and biases, and the same weights from the same
seed.
"""

import functools
import math

import pytest
import torch

from normscope.model import SCHEMES, EncoderDecoder, ModelConfig, renormalise, unit_vectors
from normscope.placement import Placement, register, registered
from normscope.placement.registry import _REGISTRY
from placement.expectations import Gain
from placement.expected import expected

D, F, VOCABULARY = 96, 160, 400
XAVIER_FFN = 2 / (D + F)
MATRICES = ("query", "key", "value", "output", "ffn_in", "ffn_out")

# Matrix -> (distribution, variance), by scheme; constants are written out, not computed as the code
# does.
UNIFORM, NORMAL = "uniform", "normal"
ATTENTION, FEED_FORWARD = ("query", "key", "value", "output"), ("ffn_in", "ffn_out")
PACKED = (UNIFORM, 2 / (D + 3 * D))  # xavier on the packed (3d, d) matrix of query, key and value
EXPECTED = {
    "paper": {"query": PACKED, "key": PACKED, "value": PACKED, "output": (UNIFORM, 1 / D)}
    | {"ffn_in": (UNIFORM, XAVIER_FFN), "ffn_out": (UNIFORM, XAVIER_FFN)},
    "fairseq-0.10": {"query": PACKED, "key": PACKED, "value": PACKED, "output": (UNIFORM, 1 / D)}
    | {"ffn_in": (UNIFORM, 1 / (3 * D)), "ffn_out": (UNIFORM, 1 / (3 * F))},
    "xavier-normal": dict.fromkeys(ATTENTION, (NORMAL, 1 / D))
    | dict.fromkeys(FEED_FORWARD, (NORMAL, XAVIER_FFN)),
    "xavier-uniform": dict.fromkeys(ATTENTION, (UNIFORM, 1 / D))
    | dict.fromkeys(FEED_FORWARD, (UNIFORM, XAVIER_FFN)),
    "rezero": dict.fromkeys(ATTENTION, (UNIFORM, 1 / D))
    | dict.fromkeys(FEED_FORWARD, (UNIFORM, XAVIER_FFN)),
    "normal-0.02": dict.fromkeys(MATRICES, (NORMAL, 0.0004)),
    "megatron": dict.fromkeys(MATRICES, (NORMAL, 0.4 / D)),
    "small-attention": dict.fromkeys(ATTENTION, (NORMAL, 0.4 / D))
    | dict.fromkeys(FEED_FORWARD, (NORMAL, XAVIER_FFN)),
    "normal-by-width": dict.fromkeys(MATRICES, (NORMAL, 1 / D)),
    "theory": {"query": ("zero", 0), "key": ("zero", 0), "output": ("identity", 0)}
    | dict.fromkeys(("value", "ffn_in", "ffn_out"), (NORMAL, 1 / D)),
}
# On (-1/D, 1/D) and (-0.01, 0.01); N(0, 1/D) in all others.
EMBEDDING = {"rezero": (UNIFORM, 1 / (3 * D**2)), "small-attention": (UNIFORM, 0.0001 / 3)}
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


# Models that no test changes.
built = functools.cache(build)


def linears(model: EncoderDecoder, matrix: str, stack: str = "") -> list[torch.nn.Linear]:
    at = f".f.{matrix}"
    found = [
        module
        for name, module in model.named_modules()
        if name.endswith(at) and name.startswith(stack)
    ]
    assert found
    return found


def assert_distribution(sample: torch.Tensor, distribution: str, variance: float) -> None:
    """Mean and spread within 4 standard errors, and the shape: bounds of the uniform, kurtosis of
    the normal.
    """
    sample = sample.detach().double().flatten()
    n, std = len(sample), math.sqrt(variance)
    excess = {UNIFORM: -1.2, NORMAL: 0.0}[distribution]
    assert abs(sample.mean()) < 4 * std / math.sqrt(n)
    # Standard error of a sample's standard deviation: σ √((κ + 2) / 4n), with κ the excess
    # kurtosis.
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
    found = linears(built(scheme), matrix)
    if distribution == "zero":
        assert not any(linear.weight.any() for linear in found)
    elif distribution == "identity":
        assert all(torch.equal(linear.weight, torch.eye(D)) for linear in found)
    else:
        assert_distribution(
            torch.cat([linear.weight.flatten() for linear in found]), distribution, variance
        )
        assert not torch.equal(found[0].weight, found[1].weight), (
            "every block has weights of its own"
        )
    for linear in found:
        if matrix in DRAWN_BIASES.get(scheme, ()):
            bound = linear.in_features**-0.5
            assert 0.9 * bound < linear.bias.abs().max() <= bound
        else:
            assert not linear.bias.any()


@pytest.mark.parametrize("scheme", EXPECTED)
def test_embeddings_and_norms(scheme):
    model = built(scheme)
    table = model.target_embedding.weight
    assert not table[1].any(), "the padding row is 0"
    assert_distribution(torch.cat([table[:1], table[2:]]), *EMBEDDING.get(scheme, (NORMAL, 1 / D)))
    norms = [module for module in model.modules() if isinstance(module, torch.nn.LayerNorm)]
    assert len(norms) == 10
    assert all((norm.weight == 1).all() and not norm.bias.any() for norm in norms)


@pytest.mark.parametrize(
    "placement", [name for name, p in registered().items() if not p.unit_vectors]
)
def test_gains_of_every_placement_on_its_own_scheme(placement):
    model, known = built("as-placement", placement), expected(placement)
    distribution, variance = EMBEDDING.get(known.scheme, (NORMAL, 1 / D))
    assert_distribution(
        model.target_embedding.weight[2:], distribution, known.embedding_gain**2 * variance
    )
    matrices = [
        (n, module) for n, module in model.named_modules() if isinstance(module, torch.nn.Linear)
    ]
    assert len(matrices) == 2 * 6 + 2 * 10
    for name, linear in matrices:
        stack, _, block, kind, _, matrix = name.split(".")
        distribution, variance = EXPECTED[known.scheme][matrix]
        scale = known.gain(Gain(stack=stack, kind=kind, matrix=matrix, block=int(block) + 1))
        assert_distribution(linear.weight, distribution, scale**2 * variance)


@pytest.mark.parametrize("placement", registered())
def test_as_placement_is_the_scheme_of_its_source(placement):
    ours, named = built("as-placement", placement), build(expected(placement).scheme, placement)
    assert all(
        torch.equal(a, b) for a, b in zip(ours.parameters(), named.parameters(), strict=True)
    )


@pytest.mark.parametrize("placement", registered())
def test_norms_and_numbers_of_every_placement_start_where_its_source_says(placement):
    known = expected(placement)
    gain = D**0.5 if known.norm == "scale-norm" else 1
    drawn: list[torch.Tensor] = []
    for name, parameter in built("as-placement", placement).named_parameters():
        if ".norm." in name:
            first = 0 if name.endswith(".bias") else gain
        elif "placed." in name:
            own = name.rpartition(".")[2]
            if own in known.drawn:
                drawn.append(parameter.flatten() / known.drawn[own])
                continue
            (first,) = (value for end, value in known.first.items() if name.endswith(f".{end}"))
            first = first(name) if callable(first) else first
        else:
            continue
        start = torch.tensor(first, dtype=parameter.dtype).expand_as(parameter)
        torch.testing.assert_close(parameter, start, rtol=1e-7, atol=0)
    if drawn:
        assert_distribution(torch.cat(drawn), NORMAL, 1.0)


def test_t_fixup_shrinks_each_embedding_with_the_depth_of_its_stack():
    torch.manual_seed(0)
    sizes = {
        "width": D,
        "ffn_width": F,
        "encoder_blocks": 3,
        "decoder_blocks": 1,
        "embeddings": "separate",
    }
    model = EncoderDecoder(ModelConfig(placement="t-fixup", **sizes), VOCABULARY, VOCABULARY)
    for embedding, blocks in ((model.source_embedding, 3), (model.target_embedding, 1)):
        assert_distribution(embedding.weight[2:], NORMAL, (9 * blocks) ** -0.5 / D)


class TestUnitVectors:
    """nGPT: whatever has the stream's width is a unit vector, at first and whenever it is put
    back.
    """

    def assert_on_the_sphere(self, model: EncoderDecoder, *, padding: float) -> None:
        for name, linear in (
            (n, m) for n, m in model.named_modules() if isinstance(m, torch.nn.Linear)
        ):
            columns = name.endswith(("output", "ffn_out"))
            lengths = linear.weight.norm(dim=0 if columns else 1)
            assert len(lengths) == (F if "ffn" in name else D)
            torch.testing.assert_close(lengths, torch.ones_like(lengths))
        lengths = model.target_embedding.weight.norm(dim=1)
        expected = torch.ones(VOCABULARY).index_fill(0, torch.tensor([1]), padding)
        torch.testing.assert_close(lengths, expected)

    def test_at_first(self):
        self.assert_on_the_sphere(build("as-placement", "ngpt"), padding=0)

    def test_put_back(self):
        model = build("as-placement", "ngpt")
        with torch.no_grad():
            for parameter in model.parameters():
                parameter += 0.1 * torch.randn(parameter.shape)
        moved = {name: value.clone() for name, value in model.state_dict().items()}
        renormalise(unit_vectors(model))
        self.assert_on_the_sphere(model, padding=1)
        for name, value in model.state_dict().items():
            matrix = name.endswith(".weight")
            assert torch.equal(value, moved[name]) != matrix, (
                "biases and scales stay as the update left them"
            )
            if matrix:
                # The direction is the update's.
                dimension = 0 if name.endswith(("output.weight", "ffn_out.weight")) else 1
                torch.testing.assert_close(
                    value * moved[name].norm(dim=dimension, keepdim=True), moved[name]
                )

    @pytest.mark.parametrize("placement", ["post-ln", "scale-norm"])
    def test_others_are_left_alone(self, placement):
        model = build("as-placement", placement)
        before = {name: value.clone() for name, value in model.state_dict().items()}
        renormalise(unit_vectors(model))
        assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


@pytest.mark.parametrize("scheme", sorted(EXPECTED.keys() - {"theory"}))
def test_a_gain_scales_the_same_draw(scheme, monkeypatch):
    class Halved(Placement):
        name, title, citation, year = "halved", "Halved", "tests", 2026

        def join(self, x, sublayer, norm):
            return norm(x + sublayer(x))

        def gain(self, weight, site):
            return (
                0.5
                if weight == "ffn_out" and site.block == 2 and site.stack.kind == "decoder"
                else 1.0
            )

    monkeypatch.setitem(_REGISTRY, "halved", Halved)
    assert register(Halved) is Halved
    plain, halved = build(scheme).state_dict(), build(scheme, "halved").state_dict()
    for name, value in plain.items():
        one = name == "decoder.blocks.1.feed_forward.f.ffn_out.weight"
        torch.testing.assert_close(halved[name], value * 0.5 if one else value, rtol=1e-6, atol=0)


@pytest.mark.sampled(one_in=4)
@pytest.mark.parametrize("scheme", EXPECTED)
def test_same_seed_same_weights(scheme):
    one, same, other = (list(build(scheme, seed=seed).parameters()) for seed in (3, 3, 4))
    assert all(torch.equal(a, b) for a, b in zip(one, same, strict=True))
    assert any(not torch.equal(a, b) for a, b in zip(one, other, strict=True))
