"""A translation model on sentences: those of a batch, and a split to score by BLEU."""

# N = packed source tokens, M = packed target tokens, D = width, V = vocabulary

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn
from torch.nn import functional

from ..data.parallel.batches import TranslationBatch
from ..data.parallel.codec import Codec
from ..data.parallel.corpus import Split
from ..decode.search import BeamConfig
from ..decode.translate import corpus_bleu, tokenised_bleu4, translate_lines
from ..model import EncoderDecoder, Layout
from .protocol import TrainingBatch


def training_batch(batch: TranslationBatch, smoothing: float) -> TrainingBatch:
    """The logits of a batch, and its training loss."""
    source, target = Layout(batch.source_lengths_B), Layout(batch.target_lengths_B)
    return TrainingBatch(
        run=logits_of(source.pack(batch.source_BS), source, target.pack(batch.target_in_BT), target),
        loss=smoothed_loss(target.pack(batch.target_out_BT), smoothing),
    )


def logits_of(source_N: Tensor, source: Layout, target_M: Tensor, target: Layout) -> Callable[[nn.Module], Tensor]:
    """Run an `EncoderDecoder` up to its logits (M, V); forward alone gives hidden states."""

    def run(model: nn.Module) -> Tensor:
        assert isinstance(model, EncoderDecoder)
        return model.logits(model(source_N, source, target_M, target))

    return run


def smoothed_loss(asked_M: Tensor, smoothing: float) -> Callable[[Any], Tensor]:
    """Mean over target tokens of the loss in `tasks.loss`, of logits (M, V).

    torch shares ε among all V entries, the target included, where training shares it among the V - 1 others.
    """

    def loss(logits_MV: Any) -> Tensor:
        entries = logits_MV.shape[1]
        return functional.cross_entropy(logits_MV, asked_M, label_smoothing=smoothing * entries / max(entries - 1, 1))

    return loss


_LINES = 256
"""Translated together, in batches of like lengths. Another number gives other batches, which round otherwise."""


def evaluate_split(
    model: EncoderDecoder,
    codec: Codec,
    split: Split,
    beam: BeamConfig,
    *,
    limit: int | None = None,
) -> dict[str, Any]:
    """Translate a split and score it: sacreBLEU and tokenised BLEU4 with their signatures, and the translations."""
    sources, references = split.source_text[:limit], split.target_text[:limit]
    parts = (sources[start : start + _LINES] for start in range(0, len(sources), _LINES))
    translations = [one for part in parts for one in translate_lines(model, codec, part, beam)]
    form = codec.target.form
    bleu = corpus_bleu([t.detokenised for t in translations], references, lowercase=form.lowercase)
    tokenised = tokenised_bleu4(
        [t.tokenised for t in translations], [form.prepare(line) for line in references], lowercase=form.lowercase
    )
    return {
        "bleu": bleu.score,
        "bleu_signature": bleu.signature,
        "bleu_tokenised": tokenised.score,
        "bleu_tokenised_signature": tokenised.signature,
        "translations": [t.detokenised for t in translations],
    }
