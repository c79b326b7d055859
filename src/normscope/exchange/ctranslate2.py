"""Encoder-decoders for CTranslate2, which translates fast: Post-LN and Pre-LN, from our weights without a detour."""

# N = tokens of a sentence, V = vocabulary, D = width
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..data.parallel.vocabulary import EOS
from ..errors import UserError, installation
from ..model import EncoderDecoder, Layout
from ..model.embedding import sinusoids
from ..tasks.words import Words
from .encoders import POSITIONS
from .forms import norm_epsilon, weights

_END = "</s>"
_PARTS = ("weight", "bias")


def write(model: EncoderDecoder, folder: Path, words: Words) -> tuple[str, ...]:
    """`model.bin`, `config.json` and the vocabularies of CTranslate2, beside the tokeniser's files.

    Weights are float32; CTranslate2 turns them into int8 or bfloat16 when it opens the folder (`compute_type`). Raises
    UserError where it is not installed.
    """
    specs = _ctranslate2().specs
    ours = model.config
    # A final norm is what tells the two wirings apart that this form has.
    pre_norm = any(name.startswith("encoder.finish.norm") for name, _ in model.named_parameters())
    spec = specs.TransformerSpec.from_config(
        (ours.encoder_blocks, ours.decoder_blocks), ours.heads, pre_norm=pre_norm, activation=specs.Activation.RELU
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
    for name, text in words.files.items():
        (folder / name).write_text(text, encoding="utf-8", newline="\n")
    return ()


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
            _packed(layer.self_attention, state, f"{at}.attention", (("query", "key", "value"), ("output",)))
            if hasattr(layer, "attention"):
                _packed(layer.attention, state, f"{at}.cross_attention", (("query",), ("key", "value"), ("output",)))
            _norm(layer.ffn.layer_norm, state, f"{at}.feed_forward")
            for linear, name in ((layer.ffn.linear_0, "ffn_in"), (layer.ffn.linear_1, "ffn_out")):
                linear.weight, linear.bias = (state[f"{at}.feed_forward.f.{name}.{part}"] for part in _PARTS)


def _packed(spec: Any, state: dict[str, NDArray[np.float32]], at: str, linears: tuple[tuple[str, ...], ...]) -> None:
    """Fill an attention's linear layers, each of them several of our matrices one below the other."""
    _norm(spec.layer_norm, state, at)
    for linear, names in zip(spec.linear, linears, strict=True):
        linear.weight, linear.bias = (
            np.concatenate([state[f"{at}.f.{name}.{part}"] for name in names]) for part in _PARTS
        )


def _norm(spec: Any, state: dict[str, NDArray[np.float32]], at: str) -> None:
    spec.gamma, spec.beta = (state[f"{at}.norm.main.{part}"] for part in _PARTS)


def difference(model: EncoderDecoder, folder: Path, words: Words) -> float:
    """The largest difference of log-probabilities of random target tokens, in nats."""
    translator = _ctranslate2().Translator(str(folder), device="cpu", compute_type="float32", intra_threads=1)
    generator = torch.Generator().manual_seed(1)
    pairs = [
        (_drawn(words.source, length, words, generator), _drawn(words.target, length + 2, words, generator))
        for length in (9, 4, 12, 1)
    ]
    scored = translator.score_batch(
        [[words.source[i] for i in source] for source, _ in pairs],
        [[words.target[i] for i in target] for _, target in pairs],
    )
    found = [
        (torch.tensor(theirs.log_probs) - _log_probs(model, source, target)).abs().max()
        for theirs, (source, target) in zip(scored, pairs, strict=True)
    ]
    return float(max(found))


def _drawn(tokens: list[str], length: int, words: Words, generator: torch.Generator) -> list[int]:
    regular = [i for i in range(len(tokens)) if i not in words.ids.values()]
    return [regular[i] for i in torch.randint(len(regular), (length,), generator=generator).tolist()]


@torch.inference_mode()
def _log_probs(model: EncoderDecoder, source: list[int], target: list[int]) -> Tensor:
    """Of every target token and the end, given the source and the target before it."""
    memory_layout, layout = Layout(torch.tensor([len(source) + 1])), Layout(torch.tensor([len(target) + 1]))
    hidden = model(torch.tensor([*source, EOS]), memory_layout, torch.tensor([EOS, *target]), layout)
    return model.logits(hidden).log_softmax(-1).gather(1, torch.tensor([*target, EOS])[:, None])[:, 0]


def _ctranslate2() -> Any:
    try:
        import ctranslate2
    except ModuleNotFoundError as error:
        raise UserError(f"this format takes CTranslate2: {installation('ctranslate2')}") from error
    return ctranslate2
