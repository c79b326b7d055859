"""BERT checkpoints of Hugging Face transformers as our encoder: configuration, weights, and what they lack."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from ..errors import UserError
from ..limits.reading import read_json, shown, tensor_shapes
from ..model import EncoderConfig, MaskedEncoder
from ..model.encoder import SEGMENTS
from .export.bert import ACTIVATIONS, bert_names
from .forms import tensor_names

WEIGHTS = "model.safetensors"
_PREFIX = "bert."
_TIED = ("cls.predictions.decoder.weight", "cls.predictions.decoder.bias")
_BUFFERS = ("bert.embeddings.position_ids", "bert.embeddings.token_type_ids")
_OLD_NORM = {"gamma": "weight", "beta": "bias"}
"""As the first BERT checkpoints call a norm's parameters."""


_TYPES: dict[str, tuple[type, ...]] = {
    **dict.fromkeys(("hidden_size", "intermediate_size", "num_attention_heads", "num_hidden_layers"), (int,)),
    **dict.fromkeys(("max_position_embeddings", "type_vocab_size"), (int,)),
    **dict.fromkeys(("hidden_dropout_prob", "attention_probs_dropout_prob", "layer_norm_eps"), (float, int)),
    **dict.fromkeys(("hidden_act", "position_embedding_type"), (str,)),
    "is_decoder": (bool,),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Lacking:
    """Where a checkpoint and our model differ, in our names and in theirs."""

    drawn: tuple[str, ...]
    """Weights of ours that the checkpoint lacks, left as they were drawn."""
    unused: tuple[str, ...]
    """Weights of the checkpoint that our model has no place for."""


def read_config(folder: Path) -> EncoderConfig:
    """Our configuration of the BERT in a folder of transformers.

    Raises UserError for a folder without `config.json`, for another model than BERT, and for what ours does not
    compute.
    """
    path = folder / "config.json"
    try:
        theirs = read_json(path)
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror}); give a folder that transformers saved") from error
    except ValueError as error:
        raise UserError(f"{path}: no JSON ({error})") from error
    if not isinstance(theirs, dict) or theirs.get("model_type") != "bert":
        kind = theirs.get("model_type") if isinstance(theirs, dict) else None
        raise UserError(f"{path}: model_type is {kind!r}; only BERT's layout, 'bert', can be imported")
    _refuse_other_types(path, theirs)
    # What a configuration does not say is as in BERT-base, the library's defaults.
    given: dict[str, Any] = {
        "hidden_size": 768,
        "intermediate_size": 3072,
        "num_attention_heads": 12,
        "num_hidden_layers": 12,
        "max_position_embeddings": 512,
        "hidden_dropout_prob": 0.1,
        "attention_probs_dropout_prob": 0.1,
        "hidden_act": "gelu",
        "layer_norm_eps": 1e-12,
        "type_vocab_size": SEGMENTS,
        "position_embedding_type": "absolute",
        "is_decoder": False,
    } | theirs
    for key, wanted in (("type_vocab_size", SEGMENTS), ("position_embedding_type", "absolute"), ("is_decoder", False)):
        if given[key] != wanted:
            raise UserError(f"{path}: {key} is {given[key]!r}, and our encoder has {wanted!r} alone")
    ours = {their: our for our, their in ACTIVATIONS.items()} | {"gelu_new": "gelu-tanh"}
    if given["hidden_act"] not in ours:
        raise UserError(f"{path}: hidden_act is {given['hidden_act']!r}; ours are {', '.join(ours)}")
    try:
        return EncoderConfig(
            placement="post-ln",
            width=given["hidden_size"],
            ffn_width=given["intermediate_size"],
            heads=given["num_attention_heads"],
            blocks=given["num_hidden_layers"],
            positions=given["max_position_embeddings"],
            dropout=float(given["hidden_dropout_prob"]),
            attention_dropout=float(given["attention_probs_dropout_prob"]),
            activation=ours[given["hidden_act"]],
            norm_epsilon=float(given["layer_norm_eps"]),
        )
    except (TypeError, ValueError) as error:
        raise UserError(f"{path}: {error}") from error


def _refuse_other_types(path: Path, theirs: Mapping[str, Any]) -> None:
    """Raise UserError where a value that is read is of another type; True is no number."""
    for key, kinds in _TYPES.items():
        if key in theirs and type(theirs[key]) not in kinds:
            allowed = " or ".join(kind.__name__ for kind in kinds)
            raise UserError(f"{path}: {key} is {shown(theirs[key])}; it must be of type {allowed}")


def check_sizes(folder: Path, config: EncoderConfig) -> None:
    """Raise UserError where `config.json` asks for other tables or blocks than `model.safetensors` holds.

    From the header of the file, before anything is read or built.
    """
    path = _weights_file(folder)
    try:
        shapes = {_full_name(name): shape for name, shape in tensor_shapes(path).items()}
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror})") from error
    except ValueError as error:
        raise UserError(f"{path} is not a file of tensors: {error}") from error
    wanted = {
        "embeddings.word_embeddings.weight": (None, config.width),
        "embeddings.position_embeddings.weight": (config.positions, config.width),
        f"encoder.layer.{config.blocks - 1}.attention.self.query.weight": (config.width, config.width),
        f"encoder.layer.{config.blocks - 1}.intermediate.dense.weight": (config.ffn_width, config.width),
    }
    for name, sizes in wanted.items():
        found = shapes.get(_PREFIX + name)
        if found is None:
            raise UserError(f"{path} lacks {_PREFIX + name}, which {folder / 'config.json'} asks for")
        if len(found) != 2 or any(size not in (None, there) for size, there in zip(sizes, found, strict=True)):
            asked = tuple("any" if size is None else size for size in sizes)
            raise UserError(f"{path}: {_PREFIX + name} is {found}, and config.json asks for {asked}")


def read_weights(folder: Path) -> dict[str, Tensor]:
    """Tensors of the checkpoint under the names of `BertForPreTraining`, float32.

    Raises UserError without `model.safetensors`, or where it is damaged.
    """
    path = _weights_file(folder)
    try:
        tensors = load_file(path)
    except SafetensorError as error:
        raise UserError(f"{path} is not a file of tensors: {error}") from error
    return {_full_name(name): tensor.float() for name, tensor in tensors.items()}


def _weights_file(folder: Path) -> Path:
    path = folder / WEIGHTS
    if not path.is_file():
        raise UserError(
            f"{path} is missing; weights in another format become one with "
            "transformers.AutoModelForPreTraining.from_pretrained(FOLDER).save_pretrained(NEW_FOLDER)"
        )
    return path


def _full_name(name: str) -> str:
    """A `BertModel` alone is saved without the prefix that it has inside the others."""
    head, _, last = name.rpartition(".")
    name = f"{head}.{_OLD_NORM[last]}" if last in _OLD_NORM else name
    return _PREFIX + name if name.startswith(("embeddings.", "encoder.", "pooler.")) else name


@torch.no_grad()
def fill(model: MaskedEncoder, tensors: Mapping[str, Tensor]) -> Lacking:
    """Copy a checkpoint's weights into `model`; heads and pooler may be missing.

    Raises UserError where the encoder itself lacks a weight, a shape differs, or the output table is not the
    embedding, which ours is.
    """
    parameters = dict(model.named_parameters())
    pairs = tensor_names(bert_names(model), parameters)
    lacking = {ours for ours, theirs in pairs.items() if theirs not in tensors}
    needed = sorted(name for name in lacking if name.startswith(("embedding.", "encoder.")))
    if needed:
        raise UserError(
            f"the checkpoint lacks {pairs[needed[0]]}" + (f" and {len(needed) - 1} more" * (len(needed) > 1))
        )
    _refuse_untied(tensors)
    for ours, theirs in pairs.items():
        if ours in lacking:
            continue
        there, here = tensors[theirs], parameters[ours]
        if there.shape != here.shape:
            raise UserError(f"{theirs} is {tuple(there.shape)} in the checkpoint, and {tuple(here.shape)} here")
        here.copy_(there)
    known = {*pairs.values(), *_TIED, *_BUFFERS}
    return Lacking(drawn=tuple(sorted(lacking)), unused=tuple(sorted(set(tensors) - known)))


def _refuse_untied(tensors: Mapping[str, Tensor]) -> None:
    for head, table in zip(_TIED, ("bert.embeddings.word_embeddings.weight", "cls.predictions.bias"), strict=True):
        if head in tensors and table in tensors and not torch.equal(tensors[head], tensors[table]):
            raise UserError(f"{head} is not {table}: its output projection is not tied to the embedding, and ours is")


def vocabulary_size(tensors: Mapping[str, Any]) -> int:
    """Rows of the table of tokens. Raises UserError without one."""
    name = "bert.embeddings.word_embeddings.weight"
    if name not in tensors:
        raise UserError(f"the checkpoint lacks {name}: it is not of BERT's layout")
    return len(tensors[name])
