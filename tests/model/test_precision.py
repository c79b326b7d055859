"""bfloat16 autocast: every placement runs in it, with each norm, and stays near float32."""

import pytest
import torch

from normscope.model import EncoderDecoder, Layout, ModelConfig
from normscope.placement import registered
from normscope.tasks.loss import smoothed_cross_entropy

LAYOUT = Layout(torch.tensor([5, 3]))


def gradient(model: EncoderDecoder, *, bf16: bool) -> tuple[float, torch.Tensor]:
    tokens = torch.arange(4, 12)
    model.zero_grad()
    with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
        loss, _ = smoothed_cross_entropy(
            model(tokens, LAYOUT, tokens, LAYOUT), model.output_rows(), tokens + 1, 0.1
        )
    loss.backward()
    return loss.item(), torch.cat(
        [p.grad.flatten() for p in model.parameters() if p.grad is not None]
    )


# Every placement with its own norm. In which dtype another norm answers does not depend on who
# asks, so that placements of each kind of place for a norm and of each kind of state are enough for
# it.
OWN = [(name, "as-placement") for name, p in registered().items() if "encoder-decoder" in p.models]
KINDS = ("post-ln", "pre-ln", "sandwich", "hybrid-norm", "normformer", "attn-res", "mhc")


@pytest.mark.parametrize(("placement", "norm"), [*OWN, *((name, "rms-norm") for name in KINDS)])
def test_bf16_stays_near_fp32(placement: str, norm: str) -> None:
    torch.manual_seed(0)
    sizes = {
        "width": 32,
        "ffn_width": 64,
        "heads": 4,
        "encoder_blocks": 2,
        "decoder_blocks": 2,
        "dropout": 0.0,
    }
    model = EncoderDecoder(ModelConfig(placement=placement, norm=norm, **sizes), 20, 20)
    loss, expected = gradient(model, bf16=False)
    loss_bf16, found = gradient(model, bf16=True)
    assert found.dtype == torch.float32
    assert loss_bf16 == pytest.approx(loss, rel=5e-3)
    # 8 bits of mantissa through 10 sub-layers; a norm in the wrong dtype or place would be off by
    # its own size.
    assert (found - expected).norm() < 0.15 * expected.norm()
