"""What is measured on the models that train against what the theory predicts for them before any
training.
"""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor

from normscope.measure import Estimate, Point, Summary, depth_points, recording, t_quantile
from normscope.model import Context, EncoderDecoder, Layout, ModelConfig
from normscope.theory.predict import ModelSetting, predict
from normscope_studies.figure_3.gradients import expected_gradient_norms
from normscope_studies.theory import corrected

BLOCKS, TOKENS, SENTENCES, SEEDS = 6, 12, 3, 16
SETTINGS = {
    "theory": {"width": 128, "ffn_width": 128, "heads": 1},
    "paper": {"width": 128, "ffn_width": 256, "heads": 4},
}


def model(placement: str, setting: str, seed: int) -> EncoderDecoder:
    torch.manual_seed(seed)
    sizes = {
        "encoder_blocks": BLOCKS,
        "decoder_blocks": BLOCKS,
        "dropout": 0.0,
        **SETTINGS[setting],
    }
    return EncoderDecoder(
        ModelConfig(placement=placement, initialisation=setting, **sizes), 400, 400
    )


def prediction(placement: str, setting: str):
    sizes = ModelSetting(
        stack="encoder-decoder", blocks=BLOCKS, tokens=TOKENS, setting=setting, **SETTINGS[setting]
    )
    return predict(placement, sizes)["encoder"]


def tokens_and_layout() -> tuple[Tensor, Layout]:
    """Sentences of tokens that are all different, as the prediction has them."""
    ids = 4 + torch.randperm(396)[: SENTENCES * TOKENS]
    return ids, Layout(torch.full((SENTENCES,), TOKENS))


def encode(m: EncoderDecoder, setting: str) -> tuple[Callable[[], Tensor], Layout]:
    """One forward pass of the encoder; section 3.3 has embeddings without positions, drawn from
    N(0, 1).
    """
    ids, layout = tokens_and_layout()
    if setting == "theory":
        x_ND = torch.randn(layout.tokens, m.config.width)
        return lambda: m.encoder(x_ND, Context(layout=layout)), layout
    return lambda: m.encode(ids, layout), layout


def moments(x_ND: Tensor) -> tuple[float, float]:
    """q and p of sentences of one length: mean squares, and mean products of two different tokens
    of a sentence.
    """
    x_STD = x_ND.double().view(SENTENCES, TOKENS, -1)
    products_STT = x_STD @ x_STD.mT / x_STD.shape[-1]
    squares = products_STT.diagonal(dim1=1, dim2=2).sum()
    pairs = SENTENCES * TOKENS * (TOKENS - 1)
    return float(squares) / (SENTENCES * TOKENS), float(products_STT.sum() - squares) / pairs


def measured(placement: str, setting: str) -> dict[str, Estimate]:
    """q and p by depth and the branches' shares of the last stream, over seeds."""
    summary = Summary()
    for seed in range(SEEDS):
        m = model(placement, setting, seed)
        run, _ = encode(m, setting)
        blocks, hidden = m.encoder.blocks, m.encoder.placement.hidden
        parts = {f"{s.site.kind} {s.site.block}": Point(s) for s in m.encoder.sublayers()}
        parts["embedding"] = Point(blocks[0], "input", hidden)
        curve = depth_points(blocks, pick=hidden)
        with torch.no_grad(), recording(curve | parts, moments) as found:
            run()
        over_depth = [found[name][0] for name in curve]
        summary.add({"q": [q for q, _ in over_depth], "p": [p for _, p in over_depth]})
        summary.add({f"share of {name}": found[name][0][0] / over_depth[-1][0] for name in parts})
    return summary.estimates()


def assert_within_the_interval(found: Estimate, expected: list[float] | float) -> None:
    """Inside the 99.9 % interval, widened by 1 % for what the theory leaves out at a finite width.

    The branches of alike tokens are about one draw of d/2 live units a seed: √(5/d) = 20 % of
    scatter at d = 128.
    """
    factor = t_quantile(0.999, SEEDS - 1) / t_quantile(0.95, SEEDS - 1)
    assert np.all(found.half_width < 0.15 * found.mean)
    assert np.all(np.abs(found.mean - expected) < factor * found.half_width + 0.01 * found.mean)


@pytest.mark.sampled(one_in=2)
@pytest.mark.parametrize("setting", SETTINGS)
def test_pre_ln_stream_and_dilution(setting):
    found, expected = measured("pre-ln", setting), prediction("pre-ln", setting)
    np.testing.assert_allclose(found["q"].mean, expected.q, rtol=0.04)
    # p of a few random directions is small at first: its error is a part of q.
    assert np.all(np.abs(found["p"].mean - expected.p) < 0.04 * np.array(expected.q))
    assert found["q"].mean[-1] > 2 * found["q"].mean[0]
    for kind in ("attention", "feed_forward"):
        for block, share in enumerate(expected.shares[kind], 1):
            assert_within_the_interval(found[f"share of {kind} {block}"], share)
    assert_within_the_interval(found["share of embedding"], expected.shares["embedding"][0])
    total = sum(
        float(estimate.mean) for name, estimate in found.items() if name.startswith("share")
    )
    assert total == pytest.approx(1, abs=0.03)


@pytest.mark.sampled(one_in=2)
@pytest.mark.parametrize("setting", SETTINGS)
def test_post_ln_stream(setting):
    found, expected = measured("post-ln", setting), prediction("post-ln", setting)
    np.testing.assert_allclose(found["q"].mean, expected.q, rtol=0.03)
    np.testing.assert_allclose(found["q"].mean[1:], 1, rtol=1e-4)
    assert np.all(np.abs(found["p"].mean - expected.p) < 0.04)


@pytest.mark.thorough
def test_post_ln_sums_and_the_jacobian_of_their_norms():
    """Lemma 2 and Lemma 3: 3d/2 before a block's last norm, so √(2/3) is what that norm does to a
    gradient.
    """
    summary = Summary()
    for seed in range(SEEDS):
        m = model("post-ln", "theory", seed)
        run, _ = encode(m, "theory")
        norms = [block.feed_forward.norm.main for block in m.encoder.blocks]
        places = {str(i): Point(norm, "input") for i, norm in enumerate(norms)}
        with (
            torch.no_grad(),
            recording(
                places, lambda x: (moments(x)[0], x.std(-1, correction=0).reciprocal())
            ) as found,
        ):
            run()
        summary.add({"q": [q for ((q, _),) in found.values()]})
        summary.add({"jacobian": [float(of_norm.mean()) for ((_, of_norm),) in found.values()]})
    estimates = summary.estimates()
    d = SETTINGS["theory"]["width"]
    assert_within_the_interval(estimates["q"], corrected.post_ln_squared_norm(width=d) / d)
    np.testing.assert_allclose(estimates["jacobian"].mean, (2 / 3) ** 0.5, rtol=0.03)


def test_pre_ln_squared_norms_concentrate_about_the_predicted_mean():
    """Counted while they pass, with the theory's mean: every token of the last stream lies within
    half of it.
    """
    expected = prediction("pre-ln", "theory")
    d = SETTINGS["theory"]["width"]
    seen = []
    for seed in range(SEEDS):
        m = model("pre-ln", "theory", seed)
        run, _ = encode(m, "theory")
        last = Point(m.encoder.blocks[-1], pick=m.encoder.placement.hidden)
        with (
            torch.no_grad(),
            recording({"last": last}, lambda x: x.double().square().sum(-1)) as found,
        ):
            run()
        seen += found["last"]
    over_N = torch.cat(seen) / (expected.q[-1] * d)
    assert float(over_N.mean()) == pytest.approx(1, rel=0.04)
    off_N = (over_N - 1).abs()
    assert float(off_N.max()) < 0.5
    assert 0.2 < float((off_N > 0.05).double().mean()) < 0.8


@pytest.mark.sampled(one_in=2)
@pytest.mark.parametrize(
    ("placement", "least", "most"), [("post-ln", 0.75, 1.05), ("pre-ln", 1.3, 2.0)]
)
def test_gradients_of_the_encoder_over_depth(placement, least, most):
    """Both streams of one pass, each with its own lengths; then ‖∂L/∂W‖ of every ffn_out, first
    block over last.

    Root mean squares over batches, as the prediction has them. Post-LN's are about flat, Pre-LN's
    fall with depth: "independent of l" in the paper.
    """
    expected = prediction(placement, "paper").gradient_norm["ffn_out"]
    summary = Summary()
    for seed in range(4):
        m = model(placement, "paper", seed)
        ids, layout = tokens_and_layout()
        target_layout = Layout(torch.tensor([TOKENS, TOKENS // 2, 3]))
        inputs = ids[: target_layout.tokens]
        hidden = m.encoder.placement.hidden
        with (
            torch.no_grad(),
            recording(depth_points(m.encoder.blocks, pick=hidden), len) as source,
            recording(depth_points(m.decoder.blocks, pick=hidden), len) as target,
        ):
            m(ids, layout, inputs, target_layout)
        assert set(map(tuple, source.values())) == {(layout.tokens,)}
        assert set(map(tuple, target.values())) == {(target_layout.tokens,)}

        def loss(batch: Tensor, m: EncoderDecoder = m) -> Tensor:
            one = Layout(torch.tensor([TOKENS]))
            source, inputs, targets = batch
            return torch.nn.functional.cross_entropy(m.logits(m(source, one, inputs, one)), targets)

        batches = (4 + torch.randperm(396)[: 3 * TOKENS].view(3, TOKENS) for _ in range(4))
        norms = expected_gradient_norms(m, batches, loss)
        names = [f"encoder.blocks.{block}.feed_forward.f.ffn_out.weight" for block in range(BLOCKS)]
        squares = [norms[name].mean_of_squares for name in names]
        summary.add({"squares": squares})
    profile = np.sqrt(summary.estimates()["squares"].mean)
    assert least < profile[0] / profile[-1] < most
    np.testing.assert_allclose(profile / profile[-1], np.array(expected) / expected[-1], rtol=0.12)
