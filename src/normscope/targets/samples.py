"""Sample inputs for models of known families, and the placement that their settings name."""

# B = sequences, T = tokens, D = width, V = vocabulary
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from ..adapters import hugging_face, hugging_face_inputs, x_transformers
from ..doctor.trace.forward import Inputs
from ..errors import UserError
from ..model import EncoderDecoder, Layout
from ..tasks.translation.samples import logits_of, smoothed_loss
from .target import Drawing, Loss

_TORCH = (
    nn.Transformer,
    nn.TransformerEncoder,
    nn.TransformerDecoder,
    nn.TransformerEncoderLayer,
    nn.TransformerDecoderLayer,
)


def sampled(model: nn.Module, drawing: Drawing) -> tuple[Inputs, Loss | None]:
    """Random inputs and, where there is one, the loss. Raises UserError for a model of no known family."""
    generator = drawing.generator()
    sizes = {"tokens": drawing.tokens, "sequences": drawing.sequences}
    if hugging_face.is_model(model):
        # Drawn where the generator is, and then put where the model is, which may be without weights.
        with torch.device("cpu"):
            sample = hugging_face_inputs.sample(model, generator=generator, **sizes)
        return sample.inputs, sample.loss
    if x_transformers.is_model(model):
        return x_transformers.sample(model, generator=generator, **sizes)
    if isinstance(model, EncoderDecoder):
        return _of_ours(model, drawing, generator)
    if isinstance(model, _TORCH):
        return _of_torch(model, drawing, generator), None
    raise UserError(
        f"no sample inputs are known for {type(model).__name__}: let the function return (model, inputs), the inputs "
        "as a tensor, by position (a tuple) or by keyword (a dict)"
    )


def wanted_placement(model: nn.Module) -> str | None:
    """What the model's settings say its placement is; None where they do not."""
    if hugging_face.is_model(model):
        return hugging_face.wanted_placement(model.config)
    if isinstance(model, EncoderDecoder):
        return model.config.placement
    norm_first = {
        module.norm_first
        for module in model.modules()
        if isinstance(module, nn.TransformerEncoderLayer | nn.TransformerDecoderLayer)
    }
    return ("pre-ln" if norm_first == {True} else "post-ln") if len(norm_first) == 1 else None


def own_loss(model: nn.Module, inputs: Inputs) -> Loss | None:
    """What the model computes itself from `inputs` that have labels; None for others."""
    if hugging_face.is_model(model) and isinstance(inputs, Mapping):
        return hugging_face_inputs.loss_with_labels(model, inputs)
    return None


def _of_ours(model: EncoderDecoder, drawing: Drawing, generator: torch.Generator) -> tuple[Inputs, Loss]:
    layout = Layout(torch.full((drawing.sequences,), drawing.tokens), model.target_embedding.weight.device)
    tables = model.source_embedding.weight, model.target_embedding.weight
    source_N, target_N = (
        torch.randint(len(table), (layout.tokens,), generator=generator).to(table.device) for table in tables
    )
    # What is read is what is asked for, one place later; the sequence's last token is read first.
    read_N = layout.pack(layout.unpack(target_N).roll(1, 1))
    return logits_of(source_N, layout, read_N, layout), smoothed_loss(target_N, 0.0)


def _of_torch(model: nn.Module, drawing: Drawing, generator: torch.Generator) -> tuple[Tensor, ...]:
    attention = next((module for module in model.modules() if isinstance(module, nn.MultiheadAttention)), None)
    if attention is None:
        raise UserError(f"{type(model).__name__} has no layers")
    weight = next(model.parameters())
    device = torch.device("cpu") if weight.is_meta else weight.device
    shape = (drawing.sequences, drawing.tokens) if attention.batch_first else (drawing.tokens, drawing.sequences)
    count = 1 if isinstance(model, nn.TransformerEncoder | nn.TransformerEncoderLayer) else 2
    return tuple(
        torch.randn((*shape, attention.embed_dim), generator=generator).to(device, weight.dtype) for _ in range(count)
    )
