"""A model with all that is needed to look at it, and sample inputs for one of a known family that
brings none.
"""

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim.lr_scheduler import LRScheduler

from ..adapters import hugging_face, hugging_face_inputs, x_transformers
from ..doctor.lint.patient import Loading
from ..doctor.trace.code_places import NO_PLACES, CodePlaces
from ..doctor.trace.forward import Inputs
from ..errors import UserError
from ..measure.unchanged import restored
from ..model import EncoderDecoder, Layout
from ..placement import AsBuilt, named, parted
from ..transplant.done import Transplanted
from .frequencies import Counting

Loss = Callable[..., Tensor]
"""The output of forward, and where it has a second argument the batch -> the mean loss per token in
nats, a scalar.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The target that the user named, opened."""

    title: str
    """The name of the target in a report."""
    model: nn.Module
    inputs: Inputs
    loss: Loss | None = None
    """The loss; None where no loss can be taken: a model that gives hidden states, or a factory
    that named none.
    """
    optimizer: torch.optim.Optimizer | str | None = None
    """The optimiser: the target's own, at its peak rate, or the name of one without a rate; None
    where it brings none.
    """
    warmup_updates: int | None = None
    """The warm-up of its training, up to the peak rate; None where that is not known."""
    batch_tokens: float | None = None
    """The tokens of one update of its training; None where that is not known."""
    loading: Loading | None = None
    """The loading of its checkpoint; None for a model with initial weights."""
    wanted_placement: str | None = None
    """A registered name, where the model's configuration says what its placement is meant to be."""
    scheduler: LRScheduler | None = None
    """The scheduler of its training, over `optimizer`; None where it brings none."""
    logged_warmup_updates: int | None = None
    """The updates over which the rate of its training's log rises; None where that is not known."""
    clip_norm: float | None = None
    """The number that its training clips the gradient's norm to; inf for no clipping, None where
    that is not known.
    """
    compared: str = ""
    """The argument with which `normscope compare` trains the same model; "" where no file describes
    it as it is.
    """
    built: CodePlaces = NO_PLACES
    """The places in the user's code where its modules were built."""
    counting: Counting | None = None
    """Counts how frequent its targets are; None where it brings no batches."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleSettings:
    """The settings of sample inputs for a target that brings none."""

    tokens: int
    """The length of a sequence, where positions allow."""
    sequences: int
    seed: int

    def __post_init__(self) -> None:
        if self.tokens < 2 or self.sequences < 1:
            raise ValueError(
                f"--tokens must be at least 2 and --sequences at least 1, got {self.tokens} and "
                f"{self.sequences}"
            )
        if self.seed < 0:
            raise ValueError(f"--seed must be 0 or more, got {self.seed}")

    def seed_everything(self) -> None:
        """torch, numpy and `random`, which a factory may draw its weights with."""
        torch.manual_seed(self.seed)
        np.random.seed(self.seed % 2**32)
        random.seed(self.seed)

    def generator(self) -> torch.Generator:
        return torch.Generator().manual_seed(self.seed)


# B = sequences, T = tokens, D = width, V = vocabulary


_LEAST_POSITIONS = 16
"""A table with fewer rows is not of positions: it may be of segments."""
_TORCH = (
    nn.Transformer,
    nn.TransformerEncoder,
    nn.TransformerDecoder,
    nn.TransformerEncoderLayer,
    nn.TransformerDecoderLayer,
)


def sampled(model: nn.Module, drawing: SampleSettings) -> tuple[Inputs, Loss | None]:
    """Random inputs and, where there is one, the loss. Raises UserError for a model of no known
    family.
    """
    generator = drawing.generator()
    sizes = {"tokens": drawing.tokens, "sequences": drawing.sequences}
    if hugging_face.is_model(model):
        # Drawn where the generator is, and then put where the model is, which may be without
        # weights.
        with torch.device("cpu"):
            return hugging_face_inputs.sample(model, generator=generator, **sizes)
    if x_transformers.is_model(model):
        return x_transformers.sample(model, generator=generator, **sizes)
    if isinstance(model, EncoderDecoder):
        return _sample_of_ours(model, drawing, generator)
    if isinstance(model, _TORCH):
        return _sample_of_torch(model, drawing, generator), None
    found = _sample_of_others(model, drawing, generator)
    if found is not None:
        return found, None
    raise UserError(
        f"no sample inputs are known for {type(model).__name__}: give them, a tensor, a tuple (by "
        "position) or a dict (by keyword), as diagnose(model, inputs) in Python, let the function "
        "return (model, inputs), or write batches() beside it"
    )


def wanted_placement(model: nn.Module) -> str | None:
    """Returns the placement that the model's settings, or a transplant, name; None where they name
    none.
    """
    if isinstance(done := getattr(model, "transplanted", None), Transplanted):
        return read_placement(done.placement)
    if hugging_face.is_model(model):
        return hugging_face.wanted_placement(model.config)
    if isinstance(model, EncoderDecoder):
        return read_placement(model.config.placement)
    norm_first = {
        module.norm_first
        for module in model.modules()
        if isinstance(module, nn.TransformerEncoderLayer | nn.TransformerDecoderLayer)
        # One that is derived from it, with a forward function of its own, need not mean the flag's
        # default, False.
        and (
            module.norm_first
            or type(module).forward
            in (nn.TransformerEncoderLayer.forward, nn.TransformerDecoderLayer.forward)
        )
    }
    return ("pre-ln" if norm_first == {True} else "post-ln") if len(norm_first) == 1 else None


def read_placement(name: str) -> str | None:
    """Returns the placement that the doctor is to read where a model has been given that one:
    without norms on queries and keys, which formulas of placements leave open; None of `own`.

    Raises ValueError for an unknown one.
    """
    plain, _ = parted(named(name))
    return None if issubclass(plain, AsBuilt) else plain.name


def own_loss(model: nn.Module, inputs: Inputs) -> Loss | None:
    """Returns the loss that the model computes itself from `inputs` that have labels; None for
    others.
    """
    if hugging_face.is_model(model) and isinstance(inputs, Mapping):
        return hugging_face_inputs.loss_with_labels(model, inputs)
    return None


def _sample_of_ours(
    model: EncoderDecoder, drawing: SampleSettings, generator: torch.Generator
) -> tuple[Inputs, Loss]:
    from ..tasks.translation import logits_of, smoothed_loss

    layout = Layout(
        torch.full((drawing.sequences,), drawing.tokens), model.target_embedding.weight.device
    )
    tables = model.source_embedding.weight, model.target_embedding.weight
    source_N, target_N = (
        torch.randint(len(table), (layout.tokens,), generator=generator).to(table.device)
        for table in tables
    )
    # What is read is what is asked for, one place later; the sequence's last token is read first.
    read_N = layout.pack(layout.unpack(target_N).roll(1, 1))
    return logits_of(source_N, layout, read_N, layout), smoothed_loss(target_N, 0.0)


def _sample_of_torch(
    model: nn.Module, drawing: SampleSettings, generator: torch.Generator
) -> tuple[Tensor, ...]:
    attention = next(
        (module for module in model.modules() if isinstance(module, nn.MultiheadAttention)), None
    )
    if attention is None:
        raise UserError(f"{type(model).__name__} has no layers")
    weight = next(model.parameters())
    device = torch.device("cpu") if weight.is_meta else weight.device
    shape = (
        (drawing.sequences, drawing.tokens)
        if attention.batch_first
        else (drawing.tokens, drawing.sequences)
    )
    count = 1 if isinstance(model, nn.TransformerEncoder | nn.TransformerEncoderLayer) else 2
    return tuple(
        torch.randn((*shape, attention.embed_dim), generator=generator).to(device, weight.dtype)
        for _ in range(count)
    )


def _sample_of_others(
    model: nn.Module, drawing: SampleSettings, generator: torch.Generator
) -> Tensor | None:
    """Ids for a model that embeds some, as many as its tables of positions allow; images of the
    size that one of timm names. None where the model has neither, or does not run on them alone.
    """
    weight = next(model.parameters(), None)
    tables = [
        module.num_embeddings for module in model.modules() if isinstance(module, nn.Embedding)
    ]
    vocabulary = getattr(getattr(model, "config", None), "vocab_size", None) or (
        tables[0] if tables else 0
    )
    image = getattr(model, "default_cfg", {}).get("input_size")
    if weight is None or weight.is_meta or not (image or vocabulary):
        return None
    if image:
        drawn = torch.randn((drawing.sequences, *image), generator=generator).to(
            weight.device, weight.dtype
        )
    else:
        longest = min([drawing.tokens, *(size for size in tables[1:] if size >= _LEAST_POSITIONS)])
        drawn = torch.randint(vocabulary, (drawing.sequences, longest), generator=generator).to(
            weight.device
        )
    with restored(model), torch.no_grad():
        try:
            model(drawn)
        except Exception:  # whatever a stranger's model says to inputs that were guessed
            return None
    return drawn
