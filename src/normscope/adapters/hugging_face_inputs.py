"""Random inputs for a Hugging Face model, made from its configuration, with labels where its head
has a loss.
"""

# B = sequences, T = tokens, V = vocabulary
import inspect
import math
import re
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Generator, Tensor, nn

from ..errors import UserError, in_one_line
from .hugging_face import classes_for

_HEADS = (
    "SEQ_TO_SEQ_CAUSAL_LM",
    "SPEECH_SEQ_2_SEQ",
    "MASKED_LM",
    "CAUSAL_LM",
    "IMAGE_CLASSIFICATION",
    "SEQUENCE_CLASSIFICATION",
    "AUDIO_CLASSIFICATION",
    "TOKEN_CLASSIFICATION",
    "CTC",
)
_ASKS_AT_THE_PLACE = frozenset({"trocr", "xlnet"})
"""Families whose causal head compares each output with the label at its own place: given their
inputs as labels, they would be asked for what they read."""
_MASKED_SHARE = 0.15
"""The share of the tokens that a masked language model is asked for (Devlin et al. 2019, section
3.1).
"""
_IGNORED = -100
"""A label that Hugging Face's losses leave out."""
_FALLBACK_IMAGE = 224
_STANDS_FOR = re.compile(r"(image|video|audio|speech)_token_(id|index)")


def sample(
    model: Any, *, tokens: int, sequences: int, generator: Generator
) -> tuple[dict[str, Any], Callable[[Any], Tensor] | None]:
    """Returns inputs by keyword, on the model's device and in its precision, and its loss as
    `loss_with_labels` has it.

    Text is uniformly random ids without special ones, with no mask, as nothing is padded. Labels:
    the ids themselves for causal models, which shift them; random ones for the decoder's side and
    for classes; for masked language models the ids at a random 15 % of the places, where other ids
    are read; for CTC one a frame.
    tokens: as many as positions allow; frames, for sound. Raises UserError for a model that takes
    something else.
    """
    try:
        inputs = _Drawn(model, tokens, sequences, generator).all()
    except (AttributeError, KeyError, TypeError, ValueError, RuntimeError) as error:
        # Configurations of hundreds of families: some lack what the others have.
        raise UserError(
            f"no sample inputs can be made for {type(model).__name__} ({in_one_line(error)}): give "
            "them as diagnose(model, inputs) in Python, or a function that returns (model, inputs)"
        ) from error
    device, dtype = _place(model)
    inputs = {
        name: value.to(device, dtype if value.is_floating_point() else None)
        for name, value in inputs.items()
    }
    return inputs, loss_with_labels(model, inputs)


def loss_with_labels(model: Any, inputs: Mapping[str, Any]) -> Callable[[Any], Tensor] | None:
    """Output -> a model's own loss, the mean per label in nats, where `inputs` have labels for it.

    Of CTC: per frame, as each of them is asked for an entry; only so is it comparable with the
    vocabulary's size.
    """
    if "labels" not in inputs:
        return None
    if _head(model) != "CTC":
        return _own_loss
    # "mean" is over labels; they are equally many in every sequence of a sample.
    per_label = model.config.ctc_loss_reduction == "mean"
    labels = int((inputs["labels"] >= 0).sum()) if per_label else 1
    return lambda output: _own_loss(output) * labels / output.logits.shape[:2].numel()


def _own_loss(output: Any) -> Tensor:
    loss: Tensor = output.loss
    return loss


class _Drawn:
    def __init__(self, model: Any, tokens: int, sequences: int, generator: Generator) -> None:
        self.model, self.config = model, model.config
        self.asked_tokens = tokens
        self.sequences = sequences
        self.generator = generator
        self.parameters = inspect.signature(model.forward).parameters

    def takes(self, name: str) -> bool:
        return name in self.parameters

    def all(self) -> dict[str, Tensor]:
        inputs = self.main()
        if self.takes("decoder_input_ids") and self.config.is_encoder_decoder:
            inputs["decoder_input_ids"] = self.ids(self.config.get_text_config(decoder=True))
        head = _head(self.model)
        if head is not None and self.takes("labels"):
            inputs |= self.labels(head, inputs)
        return inputs

    def main(self) -> dict[str, Tensor]:
        both = self.config.is_encoder_decoder
        makers: dict[str, Callable[[], Tensor]] = {
            "input_ids": lambda: self.ids(
                self.config.get_text_config(**({"encoder": True} if both else {}))
            ),
            "pixel_values": self.images,
            "input_values": self.sound,
            "input_features": self.spectra,
        }
        name = self.model.main_input_name
        if name not in makers:
            raise UserError(
                f"no sample inputs are known for {type(self.model).__name__}, which takes {name}: "
                "give them as diagnose(model, inputs) in Python, or a function that returns "
                "(model, inputs)"
            )
        # Where a token of the text stands for an image or a sound, text alone is enough.
        if self.takes("input_ids") and any(_STANDS_FOR.fullmatch(key) for key in vars(self.config)):
            return {"input_ids": makers["input_ids"]()}
        asked = {name}
        # Two encoders that are compared, such as CLIP's, need both.
        if {
            "text_config",
            "vision_config",
        } <= self.config.sub_configs.keys() and not self.model.can_generate():
            asked |= {"input_ids", "pixel_values"}
        return {name: make() for name, make in makers.items() if name in asked and self.takes(name)}

    def ids(self, text: Any) -> Tensor:
        """Returns random ids (B, T) of the configuration's vocabulary without its special ones."""
        tokens = min(self.asked_tokens, _most_tokens(self.model, text))
        special = set[int]()
        for config in (text, self.config):
            for name, value in vars(config).items():
                if name.endswith(("_token_id", "_token_ids")):
                    special |= {
                        int(i)
                        for i in (value if isinstance(value, list | tuple) else [value])
                        if i is not None
                    }
        allowed = torch.tensor(
            [i for i in range(text.vocab_size) if i not in special] or range(text.vocab_size)
        )
        places = torch.randint(len(allowed), (self.sequences, tokens), generator=self.generator)
        return allowed[places]

    def images(self) -> Tensor:
        """(B, C, height, width), or (B, frames, C, height, width) for video."""
        config = (
            getattr(self.config, "vision_config", None)
            or getattr(self.config, "encoder", None)
            or self.config
        )
        size = getattr(config, "image_size", _FALLBACK_IMAGE)
        height, width = size if isinstance(size, list | tuple) else (size, size)
        channels = getattr(config, "num_channels", 3)
        frames = getattr(config, "num_frames", None)
        shape = (self.sequences, *([frames] if frames else []), channels, height, width)
        return torch.randn(shape, generator=self.generator)

    def sound(self) -> Tensor:
        """(B, samples): as many as give the asked number of frames after the convolutions."""
        strides = getattr(self.config, "conv_stride", None) or [320]
        kernels = getattr(self.config, "conv_kernel", None) or [400]
        samples = self.asked_tokens
        for stride, kernel in zip(reversed(strides), reversed(kernels), strict=False):
            samples = (samples - 1) * stride + kernel
        return torch.randn((self.sequences, samples), generator=self.generator)

    def spectra(self) -> Tensor:
        """Whisper: (B, bands, frames), always the longest; others: (B, frames, bands)."""
        if hasattr(self.config, "num_mel_bins") and hasattr(self.config, "max_source_positions"):
            shape = (self.sequences, self.config.num_mel_bins, 2 * self.config.max_source_positions)
        else:
            names = ("input_feat_per_channel", "num_mel_bins")
            bands = next(
                (int(getattr(self.config, name)) for name in names if hasattr(self.config, name)),
                80,
            )
            shape = (self.sequences, 4 * self.asked_tokens, bands)
        return torch.randn(shape, generator=self.generator)

    def labels(self, head: str, inputs: dict[str, Tensor]) -> dict[str, Tensor]:
        """Returns labels, and what they change in the inputs."""
        if "decoder_input_ids" in inputs:
            ids = inputs["decoder_input_ids"]
            # What is read is what is asked for, one place later. T5 begins with padding where
            # nothing else is said.
            given = (
                getattr(self.config, f"{name}_token_id", None) for name in ("decoder_start", "pad")
            )
            start = next((int(token) for token in given if token is not None), 0)
            first = torch.full_like(ids[:, :1], start)
            return {"labels": ids, "decoder_input_ids": torch.cat([first, ids[:, :-1]], 1)}
        if head == "CAUSAL_LM" and self.config.model_type in _ASKS_AT_THE_PLACE:
            ids = inputs["input_ids"]
            drawn = torch.randint(self.config.vocab_size, ids.shape, generator=self.generator)
            return {"labels": drawn}
        if head == "CAUSAL_LM":
            return {"labels": inputs["input_ids"].clone()}
        if head == "MASKED_LM":
            return self._masked(inputs["input_ids"])
        if head == "CTC":
            return {"labels": self._one_a_frame(inputs)}
        shape = (
            (self.sequences, inputs["input_ids"].shape[1])
            if head == "TOKEN_CLASSIFICATION"
            else (self.sequences,)
        )
        if self.config.num_labels == 1:
            return {"labels": torch.randn(shape, generator=self.generator)}
        return {"labels": torch.randint(self.config.num_labels, shape, generator=self.generator)}

    def _one_a_frame(self, inputs: dict[str, Tensor]) -> Tensor:
        """Draws as many labels as frames, each different from the one before, and no blank: one
        alignment alone is possible.

        So chance is ln V a frame, as it is for other losses; every further alignment would lower
        it.
        """
        lengths = torch.tensor(inputs[self.model.main_input_name].shape[1])
        frames = int(self.model._get_feat_extract_output_lengths(lengths))
        others = torch.tensor(
            [i for i in range(self.config.vocab_size) if i != self.config.pad_token_id]
        )
        steps = torch.randint(1, len(others), (self.sequences, frames), generator=self.generator)
        return others[steps.cumsum(1) % len(others)]

    def _masked(self, ids_BT: Tensor) -> dict[str, Tensor]:
        count = max(1, math.ceil(_MASKED_SHARE * ids_BT.numel()))
        places = torch.randperm(ids_BT.numel(), generator=self.generator)[:count]
        read, labels = ids_BT.clone().flatten(), torch.full_like(ids_BT, _IGNORED).flatten()
        labels[places] = read[places]
        read[places] = read[places][torch.randperm(count, generator=self.generator)]
        return {"input_ids": read.view_as(ids_BT), "labels": labels.view_as(ids_BT)}


def _head(model: Any) -> str | None:
    names = [base.__name__ for base in type(model).__mro__]
    found = [head for head in _HEADS if classes_for(head) & set(names)]
    # Some classes stand in several lists; the first of ours decides, as a subclass has no list of
    # its own.
    return found[0] if found else None


def _most_tokens(model: nn.Module, text: Any) -> int:
    """Returns the longest sequence that the model has positions for."""
    limit = getattr(text, "max_position_embeddings", None)
    if not isinstance(limit, int) or limit < 1:
        return 2**31
    for module in model.modules():
        # RoBERTa's positions begin after the padding's own.
        if (
            isinstance(module, nn.Embedding)
            and module.num_embeddings == limit
            and module.padding_idx is not None
        ):
            return limit - module.padding_idx - 1
    return limit


def _place(model: nn.Module) -> tuple[torch.device, torch.dtype]:
    """Returns the device and precision of the first floating-point weight."""
    for weight in model.parameters():
        if weight.is_floating_point():
            return weight.device if not weight.is_meta else torch.device("cpu"), weight.dtype
    return torch.device("cpu"), torch.float32
