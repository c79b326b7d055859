"""Folders that other libraries open, written, and their outputs compared with ours.

Hugging Face transformers opens what is written without it; CTranslate2, which translates fast,
takes encoder-decoders (Post-LN and Pre-LN) from our weights without a detour.
"""

# B = sentences, T = longest sentence, V = vocabulary, N = tokens of a sentence, D = width
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import save_file
from torch import Tensor

from ..data.parallel.vocabulary import EOS
from ..errors import UserError, installation
from ..model import EncoderDecoder, LanguageModel, Layout
from ..model.embedding import sinusoids
from ..tasks.words import Words
from .encoders import POSITIONS
from .forms import AnyModel, norm_epsilon, weights

_LENGTHS = (9, 4, 12, 1)
"""The lengths of the sentences on which outputs are compared: padding must play no part."""


def writer(
    convert: Callable[[Any, Mapping[str, int]], tuple[dict[str, Any], dict[str, Tensor]]],
) -> Callable[[Any, Path, Words], None]:
    """Returns a function that writes a folder of transformers. convert: model and special ids ->
    its `config.json`, and its tensors.
    """

    def write(model: Any, folder: Path, words: Words) -> None:
        config, tensors = convert(model, words.ids)
        text = json.dumps(config, indent=2, ensure_ascii=False) + "\n"
        (folder / "config.json").write_text(text, encoding="utf-8", newline="\n")
        # Hugging Face refuses a file of tensors that does not say whose it is.
        save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
        _write_files(folder, words)

    return write


def _write_files(folder: Path, words: Words) -> None:
    for name, text in words.files.items():
        (folder / name).write_text(text, encoding="utf-8", newline="\n")


def difference(model: AnyModel, folder: Path, words: Words) -> float:
    """Returns the largest difference of logits: of an encoder all but the pooler, which a model for
    masked tokens lacks.
    """
    opened = _opened(folder)
    with torch.inference_mode():
        if isinstance(model, EncoderDecoder):
            return _of_encoder_decoder(model, opened, words)
        lengths = [min(length, model.config.positions) for length in _LENGTHS]
        layout, tokens_BT = _batch(lengths, words.source, words.ids, words.ids["[PAD]"])
        given, tokens_N = (
            {"input_ids": tokens_BT, "attention_mask": layout.keep_BT.long()},
            layout.pack(tokens_BT),
        )
        if isinstance(model, LanguageModel):
            theirs, ours = opened(**given, use_cache=False).logits, model(tokens_N, layout)
        else:
            output, ours = opened(**given), model(tokens_N, None, layout)
            theirs = (
                output.prediction_logits if hasattr(output, "prediction_logits") else output.logits
            )
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


def _batch(
    lengths: list[int], tokens: list[str], ids: Mapping[str, int], pad: int
) -> tuple[Layout, Tensor]:
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
    """Returns the model in a folder, of the class that its configuration names. Raises UserError
    without transformers.
    """
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
            return opened.from_pretrained(
                folder, attn_implementation="eager", dtype=torch.float32
            ).eval()
        except OSError as error:
            if error.errno is not None:
                raise
            # transformers' own, for a folder that it cannot read.
            raise UserError(
                f"transformers cannot open again what was written ({str(error).splitlines()[0]}); "
                "nothing of it is kept. Run the same command again when the disk is in order, or "
                "choose another one"
            ) from error


@contextmanager
def _quiet(logging: Any) -> Iterator[None]:
    """Silences the bar for some milliseconds of loading, and the report of weights that another
    head of the model takes.
    """
    bars, level = logging.is_progress_bar_enabled(), logging.get_verbosity()
    logging.disable_progress_bar()
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()


_END = "</s>"
_PARTS = ("weight", "bias")


def write_ctranslate2(model: EncoderDecoder, folder: Path, words: Words) -> None:
    """`model.bin`, `config.json` and the vocabularies of CTranslate2, beside the tokeniser's files.

    Weights are float32; CTranslate2 turns them into int8 or bfloat16 when it opens the folder
    (`compute_type`). Raises UserError where it is not installed.
    """
    specs = _ctranslate2().specs
    ours = model.config
    # A final norm is what tells the two wirings apart that this form has.
    pre_norm = any(name.startswith("encoder.finish.norm") for name, _ in model.named_parameters())
    spec = specs.TransformerSpec.from_config(
        (ours.encoder_blocks, ours.decoder_blocks),
        ours.heads,
        pre_norm=pre_norm,
        activation=specs.Activation.RELU,
    )
    state = {name: tensor.numpy() for name, tensor in weights(model).items()}
    _fill(spec, state, model)
    spec.register_source_vocabulary(words.source)
    spec.register_target_vocabulary(words.target)
    # Sentences end with </s>, and as in fairseq a decoder begins with it.
    spec.config.decoder_start_token = spec.config.eos_token = _END
    spec.config.unk_token, spec.config.bos_token = "<unk>", "<s>"
    spec.config.add_source_eos = True
    spec.config.layer_norm_epsilon = norm_epsilon(model)
    spec.validate()
    spec.optimize(quantization=None)
    spec.save(str(folder))
    _write_files(folder, words)


def _fill(spec: Any, state: dict[str, NDArray[np.float32]], model: EncoderDecoder) -> None:
    table = sinusoids(POSITIONS, model.config.width).float().numpy()
    target = state["target_embedding.weight"]
    spec.encoder.embeddings[0].weight = state.get("source_embedding.weight", target)
    spec.decoder.embeddings.weight = spec.decoder.projection.weight = target
    for side in ("encoder", "decoder"):
        stack = getattr(spec, side)
        stack.scale_embeddings = True
        stack.position_encodings.encodings = table
        if hasattr(stack, "layer_norm"):
            _norm(stack.layer_norm, state, f"{side}.finish")
        for block, layer in enumerate(stack.layer):
            at = f"{side}.blocks.{block}"
            _packed(
                layer.self_attention,
                state,
                f"{at}.attention",
                (("query", "key", "value"), ("output",)),
            )
            if hasattr(layer, "attention"):
                _packed(
                    layer.attention,
                    state,
                    f"{at}.cross_attention",
                    (("query",), ("key", "value"), ("output",)),
                )
            _norm(layer.ffn.layer_norm, state, f"{at}.feed_forward")
            for linear, name in ((layer.ffn.linear_0, "ffn_in"), (layer.ffn.linear_1, "ffn_out")):
                linear.weight, linear.bias = (
                    state[f"{at}.feed_forward.f.{name}.{part}"] for part in _PARTS
                )


def _packed(
    spec: Any, state: dict[str, NDArray[np.float32]], at: str, linears: tuple[tuple[str, ...], ...]
) -> None:
    """Fill an attention's linear layers, each of them several of our matrices one below the
    other.
    """
    _norm(spec.layer_norm, state, at)
    for linear, names in zip(spec.linear, linears, strict=True):
        for part in _PARTS:
            parts = [state[f"{at}.f.{name}.{part}"] for name in names]
            setattr(linear, part, np.concatenate(parts))


def _norm(spec: Any, state: dict[str, NDArray[np.float32]], at: str) -> None:
    spec.gamma, spec.beta = (state[f"{at}.norm.main.{part}"] for part in _PARTS)


def translator_difference(model: EncoderDecoder, folder: Path, words: Words) -> float:
    """Returns the largest difference of log-probabilities of random target tokens, in nats."""
    translator = _ctranslate2().Translator(
        str(folder), device="cpu", compute_type="float32", intra_threads=1
    )
    generator = torch.Generator().manual_seed(1)
    pairs = [
        (
            _drawn(words.source, length, words, generator),
            _drawn(words.target, length + 2, words, generator),
        )
        for length in _LENGTHS
    ]
    sources = []
    targets = []
    for source, target in pairs:
        sources.append([words.source[i] for i in source])
        targets.append([words.target[i] for i in target])
    scored = translator.score_batch(sources, targets)
    found = [
        (torch.tensor(theirs.log_probs) - _log_probs(model, source, target)).abs().max()
        for theirs, (source, target) in zip(scored, pairs, strict=True)
    ]
    return float(max(found))


def _drawn(tokens: list[str], length: int, words: Words, generator: torch.Generator) -> list[int]:
    regular = [i for i in range(len(tokens)) if i not in words.ids.values()]
    return [
        regular[i] for i in torch.randint(len(regular), (length,), generator=generator).tolist()
    ]


@torch.inference_mode()
def _log_probs(model: EncoderDecoder, source: list[int], target: list[int]) -> Tensor:
    """Returns the log-probability of every target token and the end, given the source and the
    target before it.
    """
    memory_layout, layout = (
        Layout(torch.tensor([len(source) + 1])),
        Layout(torch.tensor([len(target) + 1])),
    )
    hidden = model(
        torch.tensor([*source, EOS]), memory_layout, torch.tensor([EOS, *target]), layout
    )
    return (
        model.logits(hidden).log_softmax(-1).gather(1, torch.tensor([*target, EOS])[:, None])[:, 0]
    )


def _ctranslate2() -> Any:
    try:
        import ctranslate2
    except ModuleNotFoundError as error:
        raise UserError(f"this format takes CTranslate2: {installation('ctranslate2')}") from error
    return ctranslate2
