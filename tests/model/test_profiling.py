"""Admin's scales from one batch, beside variances measured without the profiler."""

from itertools import pairwise

import pytest
import torch

from normscope.model import EncoderDecoder, Layout, ModelConfig, Stack, profile
from stacks import SOURCE_LENGTHS, TARGET_LENGTHS, random_tokens

SIZES = {"width": 32, "ffn_width": 48, "heads": 4, "encoder_blocks": 3, "decoder_blocks": 2}


def build(placement: str, dropout: float = 0.0) -> EncoderDecoder:
    torch.manual_seed(0)
    return EncoderDecoder(ModelConfig(placement=placement, dropout=dropout, **SIZES), 20, 20)


def forward(model: EncoderDecoder) -> torch.Tensor:
    layouts = [Layout(torch.tensor(lengths)) for lengths in (SOURCE_LENGTHS, TARGET_LENGTHS)]
    packed = [
        layout.pack(random_tokens(lengths, seed))
        for seed, (layout, lengths) in enumerate(
            zip(layouts, (SOURCE_LENGTHS, TARGET_LENGTHS), strict=True)
        )
    ]
    return model(packed[0], layouts[0], packed[1], layouts[1])


def scales(stack: Stack) -> list[torch.Tensor]:
    return [sublayer.placed["skip_scale"] for sublayer in stack.sublayers()]


@torch.no_grad()
def measured_variances(
    model: EncoderDecoder, kind: str, *, training: bool = False
) -> tuple[float, list[float]]:
    """Of the embedding after dropout and of every branch, with the model as it now stands."""
    stack = getattr(model, kind)
    found, inputs, hooks = [], [], []
    hooks.append(stack.dropout.register_forward_hook(lambda _, args, out: inputs.append(out)))
    hooks += [
        s.register_forward_hook(lambda _, args, out: found.append(out)) for s in stack.sublayers()
    ]
    model.train(training)
    with torch.random.fork_rng():
        forward(model)
    for hook in hooks:
        hook.remove()
    return inputs[0].double().var(correction=0).item(), [
        x.double().var(correction=0).item() for x in found
    ]


@pytest.mark.parametrize("kind", ["encoder", "decoder"])
def test_squared_scales_are_the_sum_of_the_branches_before(kind):
    """Liu et al. 2020, section 4: ω_i² = Σ_{j<i} Var F_j, measured while every ω is 1; ω_1 stays
    1.
    """
    model = build("admin")
    _, variances = measured_variances(model, kind)
    assert len(variances) == 6
    profile(model, lambda: forward(model))
    expected = [1.0, *(sum(variances[:before]) for before in range(1, len(variances)))]
    found = scales(getattr(model, kind))
    assert all((scale == scale[0]).all() for scale in found), "one value for all features at first"
    assert [scale[0].item() ** 2 for scale in found] == pytest.approx(expected, rel=1e-5)
    # The branches add up, so that no scale is that of another sub-layer; and the paper's sum has no
    # 1 in it.
    assert all(later > earlier + 0.01 for earlier, later in pairwise(expected[1:]))
    assert found[1][0].item() == pytest.approx(variances[0] ** 0.5, rel=1e-5)


@pytest.mark.parametrize("dropout", [0.0, 0.3])
@pytest.mark.parametrize("kind", ["encoder", "decoder"])
def test_the_codes_reading_counts_the_embedding_and_measures_with_dropout_on(kind, dropout):
    """Transformer-Clinic: ω_i² = Var x_0 + Σ_{j<i} Var F_j, with the scales before F_i in place, in
    training mode.
    """
    model = build("admin-clinic", dropout)
    profile(model, lambda: forward(model))
    embedding, variances = measured_variances(model, kind, training=True)
    expected = [1.0] + [embedding + sum(variances[:before]) for before in range(1, len(variances))]
    assert [scale[0].item() ** 2 for scale in scales(getattr(model, kind))] == pytest.approx(
        expected, rel=1e-5
    )
    assert embedding != pytest.approx(1, abs=0.05)


def test_the_two_readings_measure_different_streams():
    """With all scales at 1 or with those before in place, a branch reads another mixture of the
    branches below.
    """
    paper, code = build("admin"), build("admin-clinic")
    for model in (paper, code):
        profile(model, lambda model=model: forward(model))
    added = []
    for model in (paper, code):
        squares = [scale[0].item() ** 2 for scale in scales(model.encoder)]
        added.append([later - earlier for earlier, later in pairwise(squares[1:])])
    assert added[0] != pytest.approx(added[1], rel=1e-3)


@pytest.mark.parametrize(("placement", "counted"), [("admin", False), ("admin-clinic", True)])
def test_whether_dropout_is_counted_and_that_modes_and_generators_come_back(placement, counted):
    plain, dropped = build(placement), build(placement, dropout=0.3)
    dropped.train()
    dropped.decoder.eval()
    before = torch.get_rng_state()
    for model in (plain, dropped):
        profile(model, lambda model=model: forward(model))
    assert torch.equal(torch.get_rng_state(), before)
    same = [
        torch.equal(a, b) for a, b in zip(plain.parameters(), dropped.parameters(), strict=True)
    ]
    assert all(same) != counted
    assert dropped.encoder.training
    assert not dropped.decoder.training
    assert not any(
        module._forward_hooks or module._forward_pre_hooks for module in dropped.modules()
    )


@pytest.mark.parametrize("placement", ["admin", "admin-clinic"])
def test_again_on_the_same_batch_changes_nothing(placement):
    model = build(placement)
    for _ in range(2):
        profile(model, lambda: forward(model))
        now = [scale.clone() for scale in scales(model.encoder)]
    profile(model, lambda: forward(model))
    assert all(torch.equal(a, b) for a, b in zip(now, scales(model.encoder), strict=True))


def test_a_placement_that_needs_no_batch_is_not_run():
    model = build("post-ln")

    def never() -> None:
        raise AssertionError("the model was run")

    profile(model, never)


def test_a_forward_that_fails_leaves_modes_and_hooks_as_they_were():
    model = build("admin").train()

    def fails() -> None:
        forward(model)
        raise RuntimeError("no memory")

    with pytest.raises(RuntimeError, match="no memory"):
        profile(model, fails)
    assert model.encoder.training
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())
