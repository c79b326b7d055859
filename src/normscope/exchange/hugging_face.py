"""Folders that Hugging Face transformers opens: written without it, and compared with ours through it."""

# B = sentences, T = longest sentence, V = vocabulary
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import torch
from safetensors.torch import save_file
from torch import Tensor

from ..errors import UserError, installation
from ..model import EncoderDecoder, LanguageModel, Layout, MaskedEncoder
from ..tasks.words import SpecialIds, Words
from .forms import ExportContents

_LENGTHS = (9, 4, 12, 1)
"""Of the sentences on which outputs are compared: padding must play no part."""

_AnyModel = TypeVar("_AnyModel", EncoderDecoder, MaskedEncoder, LanguageModel)


def writer(
    convert: Callable[[_AnyModel, SpecialIds], ExportContents],
) -> Callable[[_AnyModel, Path, Words], tuple[str, ...]]:
    """What writes a folder from what `convert` gives."""

    def write(model: _AnyModel, folder: Path, words: Words) -> tuple[str, ...]:
        exported = convert(model, words.ids)
        text = json.dumps(exported.config, indent=2, ensure_ascii=False) + "\n"
        (folder / "config.json").write_text(text, encoding="utf-8", newline="\n")
        # Hugging Face refuses a file of tensors that does not say whose it is.
        save_file(exported.tensors, folder / "model.safetensors", metadata={"format": "pt"})
        for name, text in words.files.items():
            (folder / name).write_text(text, encoding="utf-8", newline="\n")
        return exported.left_out

    return write


def difference(model: _AnyModel, folder: Path, words: Words) -> float:
    """The largest difference of logits: of an encoder all but the pooler, which a model for masked tokens lacks."""
    opened = _opened(folder)
    with torch.inference_mode():
        if isinstance(model, EncoderDecoder):
            return _of_encoder_decoder(model, opened, words)
        lengths = [min(length, model.config.positions) for length in _LENGTHS]
        layout, tokens_BT = _batch(lengths, words.source, words.ids, words.ids["[PAD]"])
        given, tokens_N = {"input_ids": tokens_BT, "attention_mask": layout.keep_BT.long()}, layout.pack(tokens_BT)
        if isinstance(model, LanguageModel):
            theirs, ours = opened(**given, use_cache=False).logits, model(tokens_N, layout)
        else:
            output, ours = opened(**given), model(tokens_N, None, layout)
            theirs = output.prediction_logits if hasattr(output, "prediction_logits") else output.logits
        return _largest(model.logits(ours), layout.pack(theirs))


def _of_encoder_decoder(model: EncoderDecoder, opened: Any, words: Words) -> float:
    pad = words.ids["<pad>"]
    source_layout, source_BT = _batch(list(_LENGTHS), words.source, words.ids, pad)
    layout, target_BT = _batch(list(reversed(_LENGTHS)), words.target, words.ids, pad)
    logits = opened(
        input_ids=source_BT,
        attention_mask=source_layout.keep_BT.long(),
        decoder_input_ids=target_BT,
        decoder_attention_mask=layout.keep_BT.long(),
        use_cache=False,
    ).logits
    ours = model(source_layout.pack(source_BT), source_layout, layout.pack(target_BT), layout)
    return _largest(model.logits(ours), layout.pack(logits))


def _batch(lengths: list[int], tokens: list[str], ids: SpecialIds, pad: int) -> tuple[Layout, Tensor]:
    """Random regular tokens on a right-padded grid, the same ones every time."""
    special = set(ids.values())
    regular = torch.tensor([i for i in range(len(tokens)) if i not in special])
    generator = torch.Generator().manual_seed(1)
    layout = Layout(torch.tensor(lengths))
    drawn = torch.randint(len(regular), (layout.sentences, layout.longest), generator=generator)
    return layout, regular[drawn].masked_fill(~layout.keep_BT, pad)


def _largest(ours: Tensor, theirs: Tensor) -> float:
    return float((ours - theirs).abs().max())


def _opened(folder: Path) -> Any:
    """The model in a folder, of the class that its configuration names. Raises UserError without transformers."""
    try:
        import transformers
    except ModuleNotFoundError as error:
        raise UserError(
            f"comparing the outputs takes Hugging Face transformers: {installation('huggingface')}"
        ) from error
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    opened = getattr(transformers, config["architectures"][0])
    with _quiet(transformers.utils.logging):
        # Two ways of computing attention differ in the last bits; the plain one is everywhere.
        try:
            return opened.from_pretrained(folder, attn_implementation="eager", dtype=torch.float32).eval()
        except OSError as error:
            if error.errno is not None:
                raise
            # transformers' own, for a folder that it cannot read.
            raise UserError(
                f"transformers cannot open again what was written ({str(error).splitlines()[0]}); nothing of it is "
                "kept. Run the same command again when the disk is in order, or choose another one"
            ) from error


@contextmanager
def _quiet(logging: Any) -> Iterator[None]:
    """Without a bar for some milliseconds of loading, and a report of weights that another head of the model takes."""
    bars, level = logging.is_progress_bar_enabled(), logging.get_verbosity()
    logging.disable_progress_bar()
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()
