"""Models of x-transformers with its options for norms, residuals and sub-layers, and what its
source makes of them.
"""

from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch
from torch import nn

from doctor.corpus import (
    BLOCKS,
    DECODER,
    HEADS,
    VOCABULARY,
    WIDTH,
    Case,
    Known,
    both_tokens,
    image,
    post,
    pre,
    tokens,
)

SIZES = {"depth": BLOCKS, "heads": HEADS, "attn_dim_head": WIDTH // HEADS, "verbose": False}
DEEPNORM_SKIP = (2 * BLOCKS) ** 0.25
"""Wang et al. 2022, table of section 3: (2N)^(1/4) for an encoder or a decoder alone."""
KEEL_SKIP = 2.0 * BLOCKS
"""KEEL's skip is the number of sub-layers."""


def library() -> Any:
    return pytest.importorskip("x_transformers", reason="needs x-transformers")


def stack(
    kind: str = "Decoder", wrapper: Mapping[str, Any] | None = None, **options: Any
) -> Callable[[], nn.Module]:
    """A language model; `options` go to the layers, `wrapper` to what stands around them."""

    def build() -> nn.Module:
        torch.manual_seed(0)
        layers = getattr(library(), kind)(dim=WIDTH, **{**SIZES, **options})
        return library().TransformerWrapper(
            num_tokens=VOCABULARY, max_seq_len=16, attn_layers=layers, **(wrapper or {})
        )

    return build


def both(**options: Any) -> Callable[[], nn.Module]:
    """An encoder-decoder, both sides with the same options."""

    def build() -> nn.Module:
        torch.manual_seed(0)
        settings = {"num_tokens": VOCABULARY, "max_seq_len": 16, **SIZES, **options}
        sides = {
            f"{side}_{name}": value for side in ("enc", "dec") for name, value in settings.items()
        }
        return library().XTransformer(dim=WIDTH, **sides)

    return build


def vision() -> nn.Module:
    torch.manual_seed(0)
    layers = library().Encoder(dim=WIDTH, **SIZES)
    return library().ViTransformerWrapper(image_size=8, patch_size=4, attn_layers=layers)


def ids() -> dict[str, torch.Tensor]:
    return {"x": tokens()["input_ids"]}


def source_and_target() -> dict[str, torch.Tensor]:
    made = both_tokens()
    return {"src": made["input_ids"], "tgt": made["decoder_input_ids"]}


def with_context() -> dict[str, torch.Tensor]:
    return {
        **ids(),
        "context": torch.randn(2, 6, WIDTH, generator=torch.Generator().manual_seed(3)),
    }


def with_condition() -> dict[str, torch.Tensor]:
    return {**ids(), "condition": torch.randn(2, 8, generator=torch.Generator().manual_seed(3))}


def model(*known: Known, inputs: Callable[[], Mapping[str, Any]] = ids, **options: Any) -> Case:
    return Case(build=stack(**options), inputs=inputs, stacks=known)


def pixels() -> dict[str, torch.Tensor]:
    return {"img": image(8)()["pixel_values"]}


# F.normalize(x) · √d · gain: nothing is added to the mean square.
RMS = {"norm": "rms-norm", "epsilon": 0.0}
SIMPLE = {"norm": "sphere-norm", "epsilon": 0.0}
SCALE = {"norm": "scale-norm", "epsilon": 0.0}
TWO_MATRICES = ("feed_forward", "attention", "feed_forward")

X_TRANSFORMERS: dict[str, Case] = {
    "default": model(pre()),
    "encoder": model(pre(), kind="Encoder"),
    "vision": Case(build=vision, inputs=pixels, stacks=(pre(),)),
    "encoder-decoder": Case(
        build=both(), inputs=source_and_target, stacks=(pre(), pre(kinds=DECODER))
    ),
    "encoder-decoder, post": Case(
        build=both(pre_norm=False), inputs=source_and_target, stacks=(post(), post(kinds=DECODER))
    ),
    "encoder-decoder, sandwich": Case(
        build=both(sandwich_norm=True, use_rmsnorm=True),
        inputs=source_and_target,
        stacks=(
            Known(placement="sandwich", **RMS),
            Known(placement="sandwich", kinds=DECODER, **RMS),
        ),
    ),
    "cross_attend": model(pre(kinds=DECODER), inputs=with_context, cross_attend=True),
    "only_cross": model(
        pre(kinds=("cross_attention", "feed_forward")),
        inputs=with_context,
        cross_attend=True,
        only_cross=True,
    ),
    "only_attn": model(pre(kinds=("attention",)), only_attn=True),
    "post": model(post(), pre_norm=False),
    "post, rms": model(post(**RMS), pre_norm=False, use_rmsnorm=True),
    "no final norm": model(pre(final_norm=False), pre_norm_has_final_norm=False),
    "use_rmsnorm": model(pre(**RMS), use_rmsnorm=True),
    "use_simple_rmsnorm": model(pre(**SIMPLE), use_simple_rmsnorm=True),
    "gains without offset": model(pre(**RMS), use_rmsnorm=True, norm_add_unit_offset=False),
    # With embeddings of fixed length it is all of Nguyen & Salazar's; these are not looked at.
    "use_scalenorm, l2norm_embed": model(
        Known(placement="scale-norm", confidence="unsure", **SCALE),
        use_scalenorm=True,
        wrapper={"l2norm_embed": True},
    ),
    "use_scalenorm": model(
        Known(placement="pre-ln", named="scale-norm", confidence="unsure", **SCALE),
        use_scalenorm=True,
    ),
    "use_adaptive_layernorm": model(
        pre(), inputs=with_condition, use_adaptive_layernorm=True, dim_condition=8
    ),
    "sandwich_norm": model(Known(placement="sandwich"), sandwich_norm=True),
    "sandwich_norm, post_emb_norm": model(
        Known(placement="peri-ln"), sandwich_norm=True, wrapper={"post_emb_norm": True}
    ),
    "post_emb_norm": model(pre(), wrapper={"post_emb_norm": True}),
    "num_memory_tokens": model(pre(), wrapper={"num_memory_tokens": 2}),
    "emb_dim": model(pre(), wrapper={"emb_dim": 16}),
    "l2norm_embed": model(pre(), wrapper={"l2norm_embed": True}),
    "deepnorm": model(
        Known(placement="deepnorm", final_norm=False, skip=DEEPNORM_SKIP),
        pre_norm=False,
        scale_residual_constant=DEEPNORM_SKIP,
    ),
    "keel": model(
        Known(placement="keel", final_norm=False, skip=KEEL_SKIP),
        pre_and_post_norm=True,
        scale_residual_constant=KEEL_SKIP,
    ),
    "macaron": model(
        Known(
            placement="pre-ln",
            each=("", "pre-ln", ""),
            kinds=TWO_MATRICES,
            branches=(0.5, 1.0, 0.5),
            scaled="pre-ln",
        ),
        macaron=True,
    ),
    # A norm takes the half away again.
    "macaron, sandwich_norm": model(
        Known(placement="sandwich", kinds=TWO_MATRICES), macaron=True, sandwich_norm=True
    ),
    "unet_skips": model(pre(blocks=2, final_norm=False), pre(blocks=1), unet_skips=True),
    "weight_tie_layers": model(pre(), weight_tie_layers=True),
    "residual_attn": model(pre(), residual_attn=True),
    "add_value_residual": model(pre(), add_value_residual=True),
    "zero_init_branch_output": model(pre(), zero_init_branch_output=True),
    "layer_dropout": model(pre(), layer_dropout=0.3),
    "rotary_pos_emb": model(pre(), rotary_pos_emb=True),
    "alibi_pos_bias": model(pre(), alibi_pos_bias=True),
    "rel_pos_bias": model(pre(), rel_pos_bias=True),
    "attn_qk_norm": model(pre(), attn_qk_norm=True),
    "attn_qk_rmsnorm": model(pre(), attn_qk_rmsnorm=True),
    "attn_softclamp_logits": model(pre(), attn_softclamp_logits=True),
    "attn_talking_heads": model(pre(), attn_pre_talking_heads=True, attn_post_talking_heads=True),
    "attn_gate_values": model(pre(), attn_gate_values=True),
    "attn_one_kv_head": model(pre(), attn_one_kv_head=True),
    "attn_on_attn": model(pre(), attn_on_attn=True),
    "attn_flash": model(pre(), attn_flash=True),
    "ff_glu": model(pre(), ff_glu=True),
    "shift_tokens": model(pre(kinds=("attention", "convolution")), shift_tokens=1),
    # Attention is as in no registered placement that has this feed-forward.
    "ff_post_act_ln": model(
        Known(placement="pre-ln", each=("pre-ln", "normformer"), confidences=("sure", "unsure")),
        ff_post_act_ln=True,
    ),
    "norms as HybridNorm's, in attention alone": model(
        Known(
            placement="hybrid-norm",
            each=("hybrid-norm", "post-ln"),
            confidences=("unsure", "sure"),
            final_norm=False,
        ),
        pre_norm=False,
        attn_qk_rmsnorm=True,
        attn_value_rmsnorm=True,
    ),
    "use_dynamic_tanh": model(
        Known(placement="pre-ln", norm="dyt", epsilon=None), use_dynamic_tanh=True
    ),
    "use_derf": model(Known(placement="pre-ln", norm="derf", epsilon=None), use_derf=True),
    # What nobody registered.
    "pre_and_post_norm": model(Known(placement="", final_norm=False), pre_and_post_norm=True),
    "scale_residual": model(Known(placement="doge"), scale_residual=True),
    "scale_residual_constant": model(Known(placement="", skip=2.0), scale_residual_constant=2.0),
    "depth_scale_residual": model(
        Known(placement="", scaled="pre-ln", branches=(0.5, 0.5)), depth_scale_residual=0.5
    ),
    "use_layerscale": model(
        Known(placement="layer-scale", branches=(0.0, 0.0)), use_layerscale=True
    ),
    "orthog_residual": model(Known(placement=""), orthog_residual=True),
    "attn_aggregated_residuals": model(
        Known(placement=""),
        attn_aggregated_residuals=True,
        attn_aggregated_residual_kwargs={"lora_rank": 4},
    ),
}

ODD: dict[str, Case] = {
    "attn_value_rmsnorm": model(Known(placement="", each=("", "pre-ln")), attn_value_rmsnorm=True),
    "reinject_input": model(Known(placement=""), reinject_input=True),
    "mv_split_residual": model(Known(placement=""), mv_split_residual=True),
    "integrate_layers": model(Known(placement=""), integrate_layers=True),
    "gated_multi_residual": model(
        Known(placement=""),
        num_residual_streams=2,
        gated_multi_residual=True,
        residual_fn_kwargs={"read_gate_rank": 4},
    ),
    "gate_residual": model(Known(placement=""), gate_residual=True),
}
"""Parts of a placement, and what is no single residual sum: only which placements are claimed is of
interest.
"""

WITHOUT_SUMS = {
    "hyper-connections": model(num_residual_streams=2),
}
"""Products with data in place of sums: nothing of the form x + F(x)."""
