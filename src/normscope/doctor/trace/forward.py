"""The inputs and outputs of a model's forward pass: weights, whether they are finite or trained,
tokens, masks, and logits.
"""

import inspect
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from ...measure.autocast import as_asked_around
from ...measure.passes import has_arithmetic

Inputs = Mapping[str, Any] | Sequence[Any] | Tensor | Callable[[nn.Module], Any]
"""The inputs of a model's forward, by keyword (a mapping), by position (a sequence, or one tensor),
or a function that runs the model and returns its output.
"""


def call_with(model: nn.Module, inputs: Inputs) -> Any:
    """Returns the model's output for these inputs."""
    with as_asked_around():
        if callable(inputs):
            return inputs(model)
        if isinstance(inputs, Mapping):
            return model(**inputs)
        return model(inputs) if isinstance(inputs, Tensor) else model(*inputs)


_NO_INPUT = re.compile("mask|cache|past|position")
"""The names of arguments that describe other inputs, and bring none of their own."""


def takes_more(model: nn.Module, inputs: Inputs) -> bool:
    """Tells whether a forward takes inputs beside these, such as images of which a batch has none;
    True also where that is not known.
    """
    if callable(inputs):
        return True
    try:
        parameters = inspect.signature(model.forward).parameters
    except (TypeError, ValueError):
        return True
    if any(one.kind in (one.VAR_POSITIONAL, one.VAR_KEYWORD) for one in parameters.values()):
        return True
    if isinstance(inputs, Mapping):
        given = [*inputs]
    else:
        given = [*parameters][: 1 if isinstance(inputs, Tensor) else len(inputs)]
    return any(
        name not in given
        and not isinstance(one.default, bool | int | float | str)
        and not _NO_INPUT.search(name)
        for name, one in parameters.items()
    )


def loss_of_output(
    loss: Callable[..., Tensor] | None, inputs: Inputs
) -> Callable[[Any], Tensor] | None:
    """Returns the loss as a function of the output alone; one with two arguments is given these
    inputs as well.
    """
    if loss is None or not takes_both(loss):
        return loss
    of_both = loss
    return lambda output: of_both(output, inputs)


def takes_both(loss: Callable[..., Tensor]) -> bool:
    """Returns whether a loss is given the inputs beside the output."""
    return _positional(loss) >= 2


def _positional(function: Callable[..., Any]) -> int:
    """Returns how many positional arguments must be given."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except ValueError:
        return 1  # some that are written in C do not say
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return sum(one.kind in kinds and one.default is one.empty for one in parameters)


def tensors_in(output: Any, *, inside_objects: bool = True) -> Iterator[Tensor]:
    """Yields every tensor of an output, in order.

    inside_objects: whether to look into objects that are parts of it too, such as caches; not only
    into the output itself, and into what mappings, lists and tuples hold.
    """
    if isinstance(output, Tensor):
        yield output
    else:
        for part in _parts(output):
            if isinstance(part, Tensor | Mapping | list | tuple) or inside_objects:
                yield from tensors_in(part, inside_objects=inside_objects)


_OF_TOKENS = (torch.int64, torch.int32)


def amiss_with(model: nn.Module, inputs: Inputs) -> str:
    """Returns what is wrong with the inputs themselves, in words that say what to give; "" where
    nothing shows.
    """
    given = () if callable(inputs) else [*tensors_in(inputs, inside_objects=False)]
    empty = [one for one in given if not one.numel()]
    if empty:
        return (
            f"the batch is empty, of shape {tuple(empty[0].shape)}; give one with a sequence of "
            "two tokens at least"
        )
    tables = [one.num_embeddings for one in model.modules() if isinstance(one, nn.Embedding)]
    # A device of another kind can be asked nothing once it has failed.
    numbers = [one for one in given if one.dtype in _OF_TOKENS and one.device.type == "cpu"]
    largest = max([int(one.max()) for one in numbers], default=0)
    if not tables or largest < max(tables):
        return ""
    return (
        f"token {largest:,} is out of range: the largest embedding has {max(tables):,} entries, 0 "
        f"to {max(tables) - 1:,}; give other tokens, or build the model with a larger vocabulary"
    )


def main_tensor(output: Any) -> Tensor | None:
    """Returns the logits where the output names some, else its first floating-point tensor with two
    dimensions or more.

    None where there is no such tensor with any entries.
    """
    logits = named_in(output, "logits")
    if isinstance(logits, Tensor) and logits.numel():
        return logits
    found = (tensor for tensor in tensors_in(output, inside_objects=False) if tensor.numel())
    return next(
        (tensor for tensor in found if tensor.is_floating_point() and tensor.ndim >= 2), None
    )


def named_in(output: Any, name: str) -> Any:
    """Returns the part of an output that has a name, as a key or as an attribute; None where it has
    no such name.
    """
    return output.get(name) if isinstance(output, Mapping) else getattr(output, name, None)


def _parts(output: Any) -> list[Any]:
    if isinstance(output, Mapping):
        return list(output.values())
    if isinstance(output, list | tuple):
        return list(output)
    return list(vars(output).values()) if hasattr(output, "__dict__") else []


def floating(model: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """The parameters and buffers of a usual precision, by name; not the masks, which are kept in
    buffers with -inf.
    """
    masks = {
        name
        for name, buffer in model.named_buffers()
        if has_arithmetic(buffer) and _is_mask(buffer)
    }
    for name, parameter in [*model.named_parameters(), *model.named_buffers()]:
        is_plain = not parameter.is_meta and parameter.layout == torch.strided and parameter.numel()
        if has_arithmetic(parameter) and is_plain and name not in masks:
            yield name, parameter.data  # not `detach()`, whose version autograd would see change


def _is_mask(buffer: torch.Tensor) -> bool:
    """Tells whether infinite entries are the only ones of a buffer that are not finite; NaN is no
    mask.
    """
    if buffer.is_meta or buffer.layout != torch.strided or not buffer.numel():
        return False
    return bool(torch.isinf(buffer).any()) and not bool(torch.isnan(buffer).any())


def is_finite(weight: torch.Tensor) -> bool:
    """Tells whether no entry is infinite or NaN."""
    # One pass without a copy, where isfinite takes three.
    return all(math.isfinite(bound) for bound in torch.aminmax(weight))


def tokens_in(inputs: Inputs) -> list[Tensor]:
    """Returns the tensors of an input that hold whole numbers for the tokens of several
    sequences.
    """
    leaves = (
        []
        if callable(inputs)
        else tree_leaves(dict(inputs) if isinstance(inputs, Mapping) else inputs)
    )
    return [
        leaf
        for leaf in leaves
        if isinstance(leaf, Tensor) and leaf.dtype == torch.long and leaf.ndim == 2
    ]


_ASKED_FOR = re.compile(r"label|wanted|answer", re.IGNORECASE)
"""Names of arguments that a loss inside the model compares with, and no embedding looks up."""


def read_tokens_in(model: nn.Module, inputs: Inputs) -> list[Tensor]:
    """Those of `tokens_in` whose argument's name does not say that they are what is asked for."""
    if callable(inputs) or isinstance(inputs, Tensor):
        return tokens_in(inputs)
    given = dict(inputs) if isinstance(inputs, Mapping) else _named_by_place(model, inputs)
    return tokens_in({name: x for name, x in given.items() if not _ASKED_FOR.search(name)})


def _named_by_place(model: nn.Module, inputs: Sequence[Any]) -> dict[str, Any]:
    """Inputs by the names of the forward function's arguments, or by their place where it has fewer
    or cannot be asked.
    """
    try:
        names = list(inspect.signature(model.forward).parameters)
    except (TypeError, ValueError):
        names = []
    names += [f"argument {place}" for place in range(len(names), len(inputs))]
    return dict(zip(names, inputs, strict=False))


def batch_tokens_in(inputs: Inputs) -> int | None:
    """Returns how many tokens a batch has, of its largest tensor of them; None where none tells."""
    return max((tensor.numel() for tensor in tokens_in(inputs)), default=None)


_REAL = ("attention_mask", "decoder_attention_mask", "encoder_attention_mask")
"""Masks that are 1 at tokens."""
_PADDED = (
    "src_key_padding_mask",
    "tgt_key_padding_mask",
    "memory_key_padding_mask",
    "key_padding_mask",
)
"""Masks that are True at what is none, as torch's."""


def padding_in(inputs: Inputs, crosses: bool) -> dict[str, Tensor]:
    """Returns the masks of a stack, True at real tokens, by the kind of attention whose keys are
    tokens; only masks that hide any.
    """
    if callable(inputs):
        return {}
    if not isinstance(inputs, Mapping):
        unnamed = _marks_one_id(inputs)
        return {"attention": unnamed} if unnamed is not None and not crosses else {}
    # Beside a mask of a known name, others are of something else, such as of places for images.
    is_named = any(isinstance(inputs.get(name), Tensor) for name in (*_REAL, *_PADDED))
    unnamed = None if is_named else _marks_one_id(inputs)
    masks = {}
    for name in (*_REAL, *_PADDED):
        given = inputs.get(name)
        if isinstance(given, Tensor) and given.ndim == 2:
            real = given != 0 if name in _REAL else given == 0
            if not bool(real.all()) and bool(real.any()):
                masks[name] = real
    whole = [
        masks.get(name) for name in ("attention_mask", "src_key_padding_mask", "key_padding_mask")
    ]
    own = next((mask for mask in whole if mask is not None), None)
    if crosses:
        asked = ("encoder_attention_mask", "memory_key_padding_mask")
        memory = next((masks[name] for name in asked if name in masks), own)
        of_own = next(
            (masks[n] for n in ("decoder_attention_mask", "tgt_key_padding_mask") if n in masks),
            None,
        )
        found = {"attention": of_own, "cross_attention": memory}
    else:
        found = {"attention": unnamed if own is None else own}
    return {kind: mask for kind, mask in found.items() if mask is not None}


def _marks_one_id(inputs: Inputs) -> Tensor | None:
    """Returns where a mask of no known name has real tokens: it marks one index, and all other
    tokens are different.
    """
    leaves = tree_leaves(dict(inputs) if isinstance(inputs, Mapping) else inputs)
    given = [
        leaf
        for leaf in leaves
        if isinstance(leaf, Tensor) and leaf.ndim == 2 and not leaf.is_floating_point()
    ]
    masks = [
        one for one in given if one.dtype == torch.bool or bool(((one == 0) | (one == 1)).all())
    ]
    are_masks = {id(mask) for mask in masks}
    ids = next((one for one in given if id(one) not in are_masks), None)
    for mask in masks:
        for real in (mask != 0, mask == 0):
            if ids is not None and mask.shape == ids.shape and real.any() and not real.all():
                padding = ids[~real]
                if bool((padding == padding[0]).all()) and not bool(
                    (ids[real] == padding[0]).any()
                ):
                    return real
    return None


def norm_parameters(model: nn.Module) -> dict[str, nn.Parameter]:
    """Returns the gains and shifts of norms, gates, and other vectors that stand alone, by name.

    They are the parameters of modules none of whose own parameters is a matrix: every norm is such
    a module, whatever its class is called. Biases of linear layers stand beside a matrix and are
    not among them.
    """
    found: dict[str, nn.Parameter] = {}
    for path, module in model.named_modules():
        own = dict(module.named_parameters(recurse=False))
        if own and all(parameter.ndim <= 1 or parameter.numel() == 1 for parameter in own.values()):
            found |= {joined(path, name): p for name, p in own.items() if has_arithmetic(p)}
    return found


def are_trained(model: nn.Module) -> bool:
    """Tells whether weights are not as they were drawn, as far as it shows.

    They are not where most gains and shifts of norms, which every initialisation makes constant,
    differ from feature to
    feature: one update of any optimiser but plain sign descent does that.
    """
    vectors = [
        p.detach()
        for p in norm_parameters(model).values()
        if p.numel() > 1 and p.requires_grad and not p.is_meta
    ]
    varied = sum(not bool((vector == vector.flatten()[0]).all()) for vector in vectors)
    return 2 * varied > len(vectors)


def joined(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


@dataclass(frozen=True, slots=True, kw_only=True)
class NonfiniteWeight:
    """A parameter or a buffer with entries that are infinite or NaN."""

    name: str
    entries: int
    """The number of such entries."""
    of: int
    only_minus_infinity: bool
    """True where all of them are -inf, as in a mask that is added to scores, or in the bias of a
    class that is never wanted.
    """


def nonfinite_weights(model: nn.Module) -> tuple[NonfiniteWeight, ...]:
    """Lists weights that are not finite in the model's order, parameters before buffers; a buffer
    counts where it holds NaN, for masks hold -inf.
    """
    return tuple(
        NonfiniteWeight(
            name=name,
            entries=int((~torch.isfinite(weight)).sum()),
            of=weight.numel(),
            only_minus_infinity=not bool(torch.isnan(weight).any() or torch.isposinf(weight).any()),
        )
        for name, weight in floating(model)
        if not is_finite(weight)
    )


@contextmanager
def read_as_zero(model: nn.Module, nonfinite: Sequence[NonfiniteWeight]) -> Iterator[None]:
    """Puts 0 in the place of entries that are not finite; at the end, after an error too, every bit
    is as it was.
    """
    names = {one.name for one in nonfinite}
    kept = [(weight, weight.clone()) for name, weight in floating(model) if name in names]
    try:
        for weight, _ in kept:
            weight.nan_to_num_(0.0, 0.0, 0.0)
        yield
    finally:
        for weight, value in kept:
            weight.copy_(value)
