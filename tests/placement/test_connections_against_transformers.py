"""How streams are read and written, against the modules of transformers that do so, with the same
weights.
"""

from types import SimpleNamespace

import pytest
import torch
from torch import Tensor

from normscope.placement import StackShape, named
from normscope.placement.symbol import Symbol, SymbolEnd, SymbolSublayer

transformers = pytest.importorskip("transformers")
from transformers.models.deepseek_v4 import modeling_deepseek_v4 as deepseek  # noqa: E402
from transformers.models.hy_v4 import modeling_hy_v4 as hy  # noqa: E402
from transformers.models.inkling2 import modeling_inkling2 as inkling  # noqa: E402
from transformers.models.muse_spark import modeling_muse_spark as muse  # noqa: E402
from transformers.models.qwen4_exp import modeling_qwen4_exp as qwen  # noqa: E402

pytestmark = pytest.mark.sampled(one_in=3)

N, D = 4, 24
SHAPE = StackShape(kind="decoder", width=D, decoder_blocks=6)
CONFIG = SimpleNamespace(
    hc_mult=N,
    hc_sinkhorn_iters=20,
    hc_eps=1e-6,
    hidden_size=D,
    rms_norm_eps=1e-6,
    hc_magnitude=2.0,
    residual_gate_temperature=0.3,
)
SINGLE = {"rtol": 1e-5, "atol": 1e-5}


class Given:
    """F and ends whose parameters are these; F is any function, and its norms are the identity."""

    site = SimpleNamespace(number=3, block=2, kind="attention", stack=SHAPE)

    def __init__(self, parameters: dict[str, Tensor]) -> None:
        self.parameters = parameters

    def parameter(self, name: str, **asked: object) -> Tensor:
        return self.parameters[name]

    @staticmethod
    def norm(x: Tensor) -> Tensor:
        return x

    def __call__(self, x: Tensor) -> Tensor:
        return torch.sin(3 * x)


def drawn(module: torch.nn.Module) -> torch.nn.Module:
    torch.manual_seed(1)
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    return module


def streams() -> Tensor:
    """(1, T, 4, D)"""
    return torch.randn(1, 5, N, D, generator=torch.Generator().manual_seed(2))


def parts(module: torch.nn.Module, names: dict[str, int]) -> dict[str, Tensor]:
    """Their packed weight, bias and scale under our names."""
    found = {}
    sizes = list(names.values())
    for k, (name, weight, bias) in enumerate(
        zip(names, module.fn.split(sizes), module.base.split(sizes), strict=True)
    ):
        found |= {f"{name}_weight": weight, f"{name}_bias": bias, f"{name}_scale": module.scale[k]}
    return found


def head(module: torch.nn.Module) -> dict[str, Tensor]:
    return {
        "head_weight": module.hc_fn,
        "head_bias": module.hc_base,
        "head_scale": module.hc_scale[0],
    }


def test_mhc_is_deepseek_v4s_hyper_connection():
    """Without the ε that it adds where the paper adds none."""
    config = SimpleNamespace(**{**vars(CONFIG), "hc_eps": 0.0})
    module, x = drawn(deepseek.DeepseekV4HyperConnection(config)), streams()
    f = Given(parts(module, {"pre": N, "post": N, "C": N * N}))
    found = torch.stack(named("mhc")(SHAPE).join(x.unbind(2), f, f.norm), 2)
    post, comb, collapsed = module(x)
    expected = post[..., None] * f(collapsed)[..., None, :] + comb.transpose(-1, -2) @ x
    torch.testing.assert_close(found, expected, **SINGLE)
    last = drawn(deepseek.DeepseekV4HyperHead(config))
    torch.testing.assert_close(
        named("mhc")(SHAPE).finish(x.unbind(2), Given(head(last))), last(x), **SINGLE
    )


def test_with_deepseek_v4s_own_epsilon():
    module, x = drawn(deepseek.DeepseekV4HyperConnection(CONFIG)).double(), streams().double()
    f = Given(parts(module, {"pre": N, "post": N, "C": N * N}))
    found = torch.stack(named("mhc-deepseek-v4")(SHAPE).join(x.unbind(2), f, f.norm), 2)
    post, comb, collapsed = module(x)
    expected = post[..., None] * f(collapsed)[..., None, :] + comb.transpose(-1, -2) @ x
    torch.testing.assert_close(found, expected, **SINGLE)


def test_deepseek_v4s_initial_values():
    """As its model draws them: our variant asks for the same numbers."""
    asked = SymbolSublayer(site=Given.site, inner_widths={})
    placement = named("mhc-deepseek-v4")(SHAPE)
    placement.join(placement.start(Symbol("x", (), D), SymbolEnd()), asked, asked.norm)
    for part, of in {"weight": (0.0, 0.02), "bias": (0.0, 0.0), "scale": (1.0, 0.0)}.items():
        specs = [asked.parameters[f"{name}_{part}"] for name in ("pre", "post", "C")]
        assert [(spec.initial, spec.std) for spec in specs] == [of] * 3
    module = deepseek.DeepseekV4HyperConnection(CONFIG)
    model = deepseek.DeepseekV4PreTrainedModel.__new__(deepseek.DeepseekV4PreTrainedModel)
    vars(model)["config"] = SimpleNamespace(initializer_range=0.02)
    model._init_weights(module)
    assert (module.base == 0).all()
    assert (module.scale == 1).all()
    assert float(module.fn.detach().std()) == pytest.approx(0.02, rel=0.1)


def test_gated_multi_stream_is_qwen4s():
    config = SimpleNamespace(hc_count=N, hidden_size=D, hc_lowrank=3, rms_norm_eps=1e-6)
    module, x = drawn(qwen.Qwen4ExpTextGatedResidual(config)), streams()
    f = Given(
        {
            "down_weight": module.input_mix_weight_down.weight[None],
            "up_weight": module.input_mix_weight_up.weight.unflatten(0, (N, D)),
            "write_weight": module.block_inject_weight.weight,
        }
    )
    gains = (1 + module.hc_norm.weight).chunk(N)
    norm = SimpleNamespace(
        **{
            f"x{i}": lambda x, gain=gain: gain * torch.rms_norm(x, (D,), eps=1e-6)
            for i, gain in enumerate(gains, 1)
        }
    )
    placement = named("gated-multi-stream")(SHAPE)
    found = torch.stack(placement.join(x.unbind(2), f, norm), 2)
    mixed, _, written = module(x.flatten(2))
    torch.testing.assert_close(found, x + written[..., None] * f(mixed)[..., None, :], **SINGLE)
    last = drawn(qwen.Qwen4ExpTextGatedResidual(config, use_combine=False))
    f.norm = norm
    torch.testing.assert_close(placement.finish(x.unbind(2), f), last(x.flatten(2)), **SINGLE)


def test_independent_hyper_connections_are_hy_v4s():
    module, x = drawn(hy.HYV4HyperConnection(CONFIG)), streams()
    f, placement = (
        Given(parts(module, {"pre": N, "post": N})),
        named("independent-hyper-connections")(SHAPE),
    )
    found = torch.stack(placement.join(x.unbind(2), f, f.norm), 2)
    post, collapsed = module(x)
    torch.testing.assert_close(found, x + post[..., None] * f(collapsed)[..., None, :], **SINGLE)
    last = drawn(hy.HYV4HyperHead(CONFIG))
    torch.testing.assert_close(placement.finish(x.unbind(2), Given(head(last))), last(x), **SINGLE)


def test_the_variance_gate_is_muse_sparks():
    module = drawn(muse.MuseSparkResidualGate(CONFIG)).double()
    x = streams()[:, :, 0].double()
    f = Given({"gate": module.gate})
    f.norm.__dict__.update(before=f.norm, after=f.norm)
    found = named("variance-gate")(SHAPE).join(x, f, f.norm)
    torch.testing.assert_close(found, module(x, f(x)), rtol=1e-10, atol=1e-10)


def test_inklings_mean_over_depth():
    module, x = drawn(inkling.Inkling2BlockAttentionResidual(CONFIG)), streams()
    found = named("attn-res-inkling")(SHAPE).mean(Given({"query": module.query}), x.unbind(2))
    (expected,) = module(x[:, :, :-1], x[:, :, -1])
    torch.testing.assert_close(found, expected, **SINGLE)
