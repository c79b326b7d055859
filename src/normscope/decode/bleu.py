"""BLEU, always with the signature that says how it was counted (Post 2018, "A Call for Clarity")."""

from collections.abc import Sequence
from dataclasses import dataclass

from sacrebleu.metrics.bleu import BLEU


@dataclass(frozen=True, slots=True)
class BleuReport:
    """One corpus score."""

    score: float
    """In points, from 0 to 100."""
    signature: str
    """sacreBLEU's: references, case, tokenisation, smoothing, version."""

    def __str__(self) -> str:
        return f"BLEU {self.score:.2f} ({self.signature})"


def corpus_bleu(hypotheses: Sequence[str], references: Sequence[str], *, lowercase: bool) -> BleuReport:
    """sacreBLEU with 13a tokenisation, on detokenised text, one reference a sentence.

    Text of a corpus that came tokenised is scored as it is.
    """
    # `force` leaves the score alone: it keeps sacreBLEU from logging its guess that the text is tokenised.
    return _report(hypotheses, references, BLEU(lowercase=lowercase, tokenize="13a", force=True))


def tokenised_bleu4(hypotheses: Sequence[str], references: Sequence[str], *, lowercase: bool) -> BleuReport:
    """BLEU-4 on text as it is tokenised already: what the papers on IWSLT-14 report.

    Comparable only between texts of the same tokenisation. Like fairseq's and multi-bleu.perl's but for a smoothed
    zero: where no 4-gram matches, this is small and not 0.
    """
    return _report(hypotheses, references, BLEU(lowercase=lowercase, tokenize="none", force=True))


def _report(hypotheses: Sequence[str], references: Sequence[str], metric: BLEU) -> BleuReport:
    if len(hypotheses) != len(references):
        raise ValueError(f"{len(hypotheses)} hypotheses but {len(references)} references; give one for each")
    if not hypotheses:
        raise ValueError("BLEU of no sentences is undefined; give at least one")
    score = metric.corpus_score(list(hypotheses), [list(references)]).score
    return BleuReport(float(score), str(metric.get_signature()))
