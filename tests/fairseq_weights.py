"""fairseq's weights from a fixture, in our model."""

from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from normscope.model import EncoderDecoder, ModelConfig

_ATTENTIONS = {"self_attn": "attention", "encoder_attn": "cross_attention"}
_PROJECTIONS = {"q_proj": "query", "k_proj": "key", "v_proj": "value", "out_proj": "output"}
_FEED_FORWARD = {"fc1": "ffn_in", "fc2": "ffn_out"}


def our_name(name: str) -> str:
    """fairseq's name of a parameter -> ours."""
    parts = name.split(".")
    if parts[1] == "embed_tokens":
        return {"encoder": "source", "decoder": "target"}[parts[0]] + "_embedding.weight"
    if parts[1] == "output_projection":
        return "target_embedding.weight"
    if parts[1] == "layer_norm":
        return f"{parts[0]}.finish.norm.main.{parts[2]}"
    block, module, last = f"{parts[0]}.blocks.{parts[2]}", parts[3], parts[-1]
    if module in _ATTENTIONS:
        return f"{block}.{_ATTENTIONS[module]}.f.{_PROJECTIONS[parts[4]]}.{last}"
    if module in _FEED_FORWARD:
        return f"{block}.feed_forward.f.{_FEED_FORWARD[module]}.{last}"
    sublayer = _ATTENTIONS.get(module.removesuffix("_layer_norm"), "feed_forward")
    return f"{block}.{sublayer}.norm.main.{last}"


def load(path: Path) -> tuple[EncoderDecoder, dict[str, NDArray[np.generic]]]:
    """The float64 model with the fixture's weights, and all arrays of the fixture."""
    with np.load(path) as archive:
        arrays = {name: archive[name] for name in archive.files}
    encoder_blocks, decoder_blocks = (int(n) for n in arrays["blocks"])
    config = ModelConfig(
        placement="pre-ln" if arrays["pre"] else "post-ln",
        width=int(arrays["d"]),
        ffn_width=int(arrays["ffn"]),
        heads=int(arrays["heads"]),
        encoder_blocks=encoder_blocks,
        decoder_blocks=decoder_blocks,
        dropout=0.0,
        embeddings="shared" if arrays["share_all_embeddings"] else "separate",
    )
    vocabulary = int(arrays["vocab"])
    default = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        model = EncoderDecoder(config, vocabulary, vocabulary)
    finally:
        torch.set_default_dtype(default)
    model.load_state_dict(
        renamed({n[2:]: torch.from_numpy(a) for n, a in arrays.items() if n.startswith("w:")})
    )
    return model, arrays


def renamed(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """The same tensors under our names, without the copies that fairseq's encoder keeps for torch's
    fused layer.
    """
    copies = tuple(
        f".{m}_{kind}" for m in ("in_proj", "out_proj", "fc1", "fc2") for kind in ("weight", "bias")
    )
    return {our_name(name): tensor for name, tensor in tensors.items() if not name.endswith(copies)}
