"""Translations of a split, and their BLEU."""

from typing import Any

from ...data.parallel.codec import Codec
from ...data.parallel.corpus import Split
from ...decode.beam import BeamConfig
from ...decode.bleu import corpus_bleu, tokenised_bleu4
from ...decode.translate import Translation, translate_lines
from ...model import EncoderDecoder
from ...train import ALONE, Share

_LINES = 256
"""Translated together; the same for any number of processes, so that the translations are."""


def evaluate_split(
    model: EncoderDecoder,
    codec: Codec,
    split: Split,
    beam: BeamConfig,
    *,
    limit: int | None = None,
    share: Share = ALONE.share,
) -> dict[str, Any]:
    """Translate a split and score it: sacreBLEU and tokenised BLEU4 with their signatures, and the translations."""
    sources, references = split.source_text[:limit], split.target_text[:limit]

    def translated(lines: list[str]) -> list[Translation]:
        return list(translate_lines(model, codec, lines, beam))

    parts = [sources[start : start + _LINES] for start in range(0, len(sources), _LINES)]
    translations = [translation for part in share(parts, translated) for translation in part]
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
