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
        for seed, (layout, lengths) in enumerate(zip(layouts, (SOURCE_LENGTHS, TARGET_LENGTHS), strict=True))
    ]
    return model(packed[0], layouts[0], packed[1], layouts[1])


def scales(stack: Stack) -> list[torch.Tensor]:
    return [sublayer.placed["skip_scale"] for sublayer in stack.sublayers()]


@torch.no_grad()
def measured_variances(model: EncoderDecoder, stack: Stack) -> tuple[float, list[float]]:
    """Of the embedding after dropout and of every branch, with the model as it now stands."""
    found, inputs, hooks = [], [], []
    hooks.append(stack.register_forward_pre_hook(lambda _, args: inputs.append(args[0])))
    hooks += [s.register_forward_hook(lambda _, args, out: found.append(out)) for s in stack.sublayers()]
    model.eval()
    forward(model)
    for hook in hooks:
        hook.remove()
    return inputs[0].double().var(correction=0).item(), [x.double().var(correction=0).item() for x in found]


@pytest.mark.parametrize("kind", ["encoder", "decoder"])
def test_squared_scales_are_1_and_the_branches_before(kind):
    model = build("admin")
    profile(model, lambda: forward(model))
    stack = getattr(model, kind)
    _, variances = measured_variances(model, stack)
    assert len(variances) == {"encoder": 6, "decoder": 6}[kind]
    expected = [1 + sum(variances[:before]) for before in range(len(variances))]
    found = scales(stack)
    assert all((scale == scale[0]).all() for scale in found), "one value for all features at first"
    assert [scale[0].item() ** 2 for scale in found] == pytest.approx(expected, rel=1e-5)
    # The branches add up: no scale is that of another sub-layer.
    assert all(later > earlier + 0.01 for earlier, later in pairwise(expected))


def test_the_codes_reading_counts_the_embedding():
    model = build("admin-clinic")
    profile(model, lambda: forward(model))
    for stack in (model.encoder, model.decoder):
        embedding, variances = measured_variances(model, stack)
        expected = [1.0] + [embedding + sum(variances[:before]) for before in range(1, len(variances))]
        assert [scale[0].item() ** 2 for scale in scales(stack)] == pytest.approx(expected, rel=1e-5)
        assert embedding != pytest.approx(1, abs=0.05)


def test_dropout_is_not_counted_and_the_modes_come_back():
    plain, dropped = build("admin"), build("admin", dropout=0.3)
    dropped.train()
    dropped.decoder.eval()
    before = torch.get_rng_state()
    for model in (plain, dropped):
        profile(model, lambda model=model: forward(model))
    assert torch.equal(torch.get_rng_state(), before)
    for ours, theirs in zip(plain.parameters(), dropped.parameters(), strict=True):
        assert torch.equal(ours, theirs)
    assert dropped.encoder.training
    assert not dropped.decoder.training
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in dropped.modules())


def test_again_on_the_same_batch_changes_nothing():
    model = build("admin")
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
