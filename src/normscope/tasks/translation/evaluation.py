"""Translations of a split, and their BLEU."""

from typing import Any

from ...data.parallel.codec import Codec
from ...data.parallel.corpus import Split
from ...decode.beam import BeamConfig
from ...decode.bleu import corpus_bleu, tokenised_bleu4
from ...decode.translate import translate_lines
from ...model import EncoderDecoder


def evaluate_split(
    model: EncoderDecoder, codec: Codec, split: Split, beam: BeamConfig, *, limit: int | None = None
) -> dict[str, Any]:
    """Translate a split and score it: sacreBLEU and tokenised BLEU4 with their signatures, and the translations."""
    sources, references = split.source_text[:limit], split.target_text[:limit]
    translations = list(translate_lines(model, codec, sources, beam))
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
