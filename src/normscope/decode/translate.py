"""Raw lines in, translations out, in order and window by window, so that an endless input can be
piped through.

BLEU comes with the signature that says how it was counted (Post 2018, "A Call for Clarity").
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import torch
from sacrebleu.metrics.bleu import BLEU
from torch import Tensor

from ..data.parallel.codec import Codec
from ..model import EncoderDecoder
from .search import BeamConfig, beam_search

MAX_TOKENS, WINDOW_LINES = 4096, 1024
"""Padded source tokens times beam, at most, of what is decoded together (one sentence always is);
and lines that are read before the first of them comes back, among which sentences of like length
are gathered."""
LONGEST_SOURCE = 1024
"""Tokens of a source, its end token counted, beyond which it is cut."""


@dataclass(frozen=True, slots=True)
class LineTranslation:
    """The best hypothesis for one line."""

    detokenised: str
    tokenised: str
    cut: bool = False
    """True where the source was longer than `LONGEST_SOURCE` and only its beginning was
    translated.
    """


def translate_lines(
    model: EncoderDecoder, codec: Codec, lines: Iterable[str], config: BeamConfig | None = None
) -> Iterator[LineTranslation]:
    """One translation a line, in the order of the lines; an empty line gives an empty one without
    the model.
    """
    config, waiting = config or BeamConfig(), iter(lines)
    while window := list(islice(waiting, WINDOW_LINES)):
        spoken = [number for number, line in enumerate(window) if line.strip()]
        encoded = codec.source.encode([window[number] for number in spoken])
        # EOS alone is what a line of nothing but ignored characters becomes.
        sources = {
            n: torch.from_numpy(ids) for n, ids in zip(spoken, encoded, strict=True) if len(ids) > 1
        }
        cut = {n for n, source in sources.items() if source.numel() > LONGEST_SOURCE}
        sources.update(
            {n: torch.cat([sources[n][: LONGEST_SOURCE - 1], sources[n][-1:]]) for n in cut}
        )
        best: dict[int, list[int]] = {}
        for batch in batches_by_length(sources, MAX_TOKENS // config.beam):
            found = beam_search(model, [sources[n] for n in batch], config)
            best.update(zip(batch, (hypotheses[0].tokens for hypotheses in found), strict=True))
        for number in range(len(window)):
            if number not in best:
                yield LineTranslation("", "")
                continue
            ids = best[number]
            yield LineTranslation(
                codec.decode_target(ids), codec.decode_target_tokenised(ids), number in cut
            )


def batches_by_length(sources: dict[int, Tensor], batch_tokens: int) -> Iterator[list[int]]:
    """Keys of `sources`, the longest first, in groups of at most batch_tokens padded tokens or of
    one.
    """
    batch: list[int] = []
    for number in sorted(sources, key=lambda n: (-sources[n].numel(), n)):
        if batch and sources[batch[0]].numel() * (len(batch) + 1) > batch_tokens:
            yield batch
            batch = []
        batch.append(number)
    if batch:
        yield batch


@dataclass(frozen=True, slots=True)
class _BleuReport:
    """One corpus score."""

    score: float
    """The score in points, from 0 to 100."""
    signature: str
    """sacreBLEU's: references, case, tokenisation, smoothing, version."""


def corpus_bleu(
    hypotheses: Sequence[str], references: Sequence[str], *, lowercase: bool
) -> _BleuReport:
    """sacreBLEU with 13a tokenisation, on detokenised text, one reference a sentence.

    Text of a corpus that came tokenised is scored as it is.
    """
    # `force` leaves the score alone: it keeps sacreBLEU from logging its guess that the text is
    # tokenised.
    return _report(hypotheses, references, BLEU(lowercase=lowercase, tokenize="13a", force=True))


def tokenised_bleu4(
    hypotheses: Sequence[str], references: Sequence[str], *, lowercase: bool
) -> _BleuReport:
    """BLEU-4 on text as it is tokenised already: what the papers on IWSLT-14 report.

    Comparable only between texts of the same tokenisation. Like fairseq's and multi-bleu.perl's but
    for a smoothed
    zero: where no 4-gram matches, this is small and not 0.
    """
    return _report(hypotheses, references, BLEU(lowercase=lowercase, tokenize="none", force=True))


def _report(hypotheses: Sequence[str], references: Sequence[str], metric: BLEU) -> _BleuReport:
    if len(hypotheses) != len(references):
        raise ValueError(
            f"{len(hypotheses)} hypotheses but {len(references)} references; give one for each"
        )
    if not hypotheses:
        raise ValueError("BLEU of no sentences is undefined; give at least one")
    score = metric.corpus_score(list(hypotheses), [list(references)]).score
    return _BleuReport(float(score), str(metric.get_signature()))
