"""A compiled model beside the same model uncompiled; to be called in a process of its own, see
`forked.call`.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch._inductor import config

from normscope.model import Context, EncoderDecoder, Layout, ModelConfig

SIZES = {
    "width": 16,
    "ffn_width": 24,
    "heads": 2,
    "encoder_blocks": 1,
    "decoder_blocks": 1,
    "dropout": 0.0,
}


class Encoder(nn.Module):
    """The encoder's stack alone."""

    def __init__(self, model: EncoderDecoder) -> None:
        super().__init__()
        self.stack = model.encoder

    def forward(self, x_ND: Tensor, layout: Layout) -> Tensor:
        return self.stack(x_ND, Context(layout=layout))


def small_model() -> tuple[EncoderDecoder, Layout]:
    torch.manual_seed(0)
    return EncoderDecoder(ModelConfig(**SIZES), 20, 20), Layout(torch.tensor([5, 3]))


@torch.no_grad()
def stack_by_inductor() -> None:
    """What the code generator makes of a stack computes what the stack computes."""
    config.compile_threads = (
        1  # the workers that compile side by side would each import torch first
    )
    model, layout = small_model()
    encoder, x_ND = Encoder(model), torch.randn(8, 16)
    compiled = torch.compile(encoder, fullgraph=True)
    torch.testing.assert_close(compiled(x_ND, layout), encoder(x_ND, layout), rtol=1e-5, atol=1e-5)


def model_by_aot_eager() -> None:
    """The whole model is one graph, and so are its gradients."""
    model, layout = small_model()

    def gradients(run: Callable[..., Tensor]) -> list[Tensor]:
        model.zero_grad()
        tokens = torch.arange(4, 12)
        hidden = run(tokens, layout, tokens, layout)
        model.logits(hidden).square().sum().backward()
        return [hidden.detach(), *(p.grad.clone() for p in model.parameters())]

    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    for a, b in zip(gradients(model), gradients(compiled), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-5 * max(1.0, a.abs().max().item()))
