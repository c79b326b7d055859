"""Raw lines in, translations out, in order and window by window, so that an endless input can be piped through.

BLEU comes with the signature that says how it was counted (Post 2018, "A Call for Clarity").
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from sacrebleu.metrics.bleu import BLEU
from torch import Tensor

from ..model import EncoderDecoder
from .search import BeamConfig, Hypothesis, beam_search


class TranslationCodec(Protocol):
    """Text to ids and back for one pair of languages; `normscope.data.codec.Codec` is one."""

    def encode_source(self, raw_lines: Sequence[str]) -> Sequence[NDArray[np.int64]]:
        """Ids of raw source lines, each ending with EOS."""
        ...

    def decode_target_tokenised(self, ids: Iterable[int]) -> str:
        """The target sentence as tokenised words."""
        ...

    def decode_target(self, ids: Iterable[int]) -> str:
        """The target sentence as people write it."""
        ...


@dataclass(frozen=True, slots=True)
class LineTranslation:
    """The best hypothesis for one line."""

    detokenised: str
    tokenised: str
    score: float
    """As `BeamConfig.length_penalty` states it; 0 for an empty line."""
    cut: bool = False
    """True where the source was longer than `longest_source` and only its beginning was translated."""


def translate_lines(
    model: EncoderDecoder,
    codec: TranslationCodec,
    lines: Iterable[str],
    config: BeamConfig | None = None,
    *,
    max_tokens: int = 4096,
    window_lines: int = 1024,
    longest_source: int = 1024,
) -> Iterator[LineTranslation]:
    """One translation a line, in the order of the lines; an empty line gives an empty one without the model.

    max_tokens: padded source tokens times beam, at most, of what is decoded together (one sentence always is).
    window_lines: lines read before the first of them comes back; sentences of like length are gathered within.
    longest_source: tokens of a source, its end token counted, beyond which it is cut.
    """
    if min(max_tokens, window_lines) < 1 or longest_source < 2:
        raise ValueError(
            "max_tokens and window_lines must be at least 1 and longest_source at least 2, "
            f"got {max_tokens}, {window_lines} and {longest_source}"
        )
    config = config or BeamConfig()
    return _translate(model, codec, iter(lines), config, max_tokens // config.beam, window_lines, longest_source)


def _translate(
    model: EncoderDecoder,
    codec: TranslationCodec,
    lines: Iterator[str],
    config: BeamConfig,
    batch_tokens: int,
    window_lines: int,
    longest_source: int,
) -> Iterator[LineTranslation]:
    while window := list(islice(lines, window_lines)):
        spoken = [number for number, line in enumerate(window) if line.strip()]
        encoded = codec.encode_source([window[number] for number in spoken])
        # EOS alone is what a line of nothing but ignored characters becomes.
        sources = {n: torch.from_numpy(ids) for n, ids in zip(spoken, encoded, strict=True) if len(ids) > 1}
        cut = {n for n, source in sources.items() if source.numel() > longest_source}
        sources.update({n: torch.cat([sources[n][: longest_source - 1], sources[n][-1:]]) for n in cut})
        best: dict[int, Hypothesis] = {}
        for batch in batches_by_length(sources, batch_tokens):
            found = beam_search(model, [sources[n] for n in batch], config)
            best.update(zip(batch, (hypotheses[0] for hypotheses in found), strict=True))
        for number in range(len(window)):
            if number not in best:
                yield LineTranslation("", "", 0.0)
                continue
            ids = best[number].tokens
            yield LineTranslation(
                codec.decode_target(ids), codec.decode_target_tokenised(ids), best[number].score, number in cut
            )


def batches_by_length(sources: dict[int, Tensor], batch_tokens: int) -> Iterator[list[int]]:
    """Keys of `sources`, the longest first, in groups of at most batch_tokens padded tokens or of one."""
    batch: list[int] = []
    for number in sorted(sources, key=lambda n: (-sources[n].numel(), n)):
        if batch and sources[batch[0]].numel() * (len(batch) + 1) > batch_tokens:
            yield batch
            batch = []
        batch.append(number)
    if batch:
        yield batch


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
