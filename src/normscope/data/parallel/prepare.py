"""From parallel texts to a corpus folder: check, tokenise, filter, learn the vocabularies, write token ids.

The defaults follow fairseq's `examples/translation/prepare-iwslt14.sh`: 1 to 175 words a side, length ratio at most 1.5
(training pairs only), and every 23rd clean training pair for validation where no validation split is given. Texts of
any length are prepared in the memory of some parts, by any number of processes, and a killed preparation goes on where
it was (`data/parts.py`).
"""

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO

from ...errors import UserError
from ...files import disk_errors, recover, resumable_folder, whole_folder
from ..counting import WordCounts, counted_every
from ..manifest import check_replaceable, write_manifest
from ..parts import Work
from ..sources.opening import source_sha256, texts_in
from . import corpus as corpus_files
from .codec import Codec, Side
from .corpus import SIDES, Corpus, TokenWriter
from .encoding import Asked, Encoded, asked_of, counted, encode_parts, encoded_of
from .preparation import PrepareConfig, PrepareReport
from .tokenising import Part, tokenised_parts
from .vocabulary import Vocabulary

__all__ = ["HOLD_OUT_EVERY", "PrepareConfig", "PrepareReport", "Progress", "prepare"]

HOLD_OUT_EVERY = 23

Progress = Callable[[str, int, int], None]
"""Called with a stage ("check", "tokenise", "learn", "encode"), how much of it is done, and its total."""


def prepare(config: PrepareConfig, progress: Progress = lambda stage, done, total: None) -> PrepareReport:
    """Make the corpus at `config.out`, whole or not at all; does nothing where it stands there already.

    A corpus made otherwise is replaced in the end, and valid until then. Raises UserError for input that cannot be
    used, for an `out` that holds something else, and for a disk that is full or cannot be written.
    """
    out = config.out.expanduser().resolve()
    # Before the files are read: what another command left of replacing a corpus is in its place again.
    with disk_errors(f"writing {out}"):
        recover(out, lambda left: True)
    check_replaceable(out)
    work = Work(_key(config, progress))
    standing = _standing_report(out, work.key)
    with disk_errors(f"writing {out}"):
        recover(out, work.of_use if standing is None else lambda left: False)
    if standing is not None:
        return standing
    pairs_read = _checked_counts(config, progress)
    with disk_errors(f"writing {out}"), resumable_folder(out, work.of_use) as unfinished:
        folder = work.begin(unfinished)
        total = sum(pairs_read.values())
        parts = tokenised_parts(config, folder, lambda done: progress("tokenise", done, total))
        held_out_every = None if "valid" in config.splits else HOLD_OUT_EVERY
        kept, dropped = _kept(parts, held_out_every), _dropped(parts)
        _check_kept(kept, pairs_read, dropped)
        asked = asked_of(parts, folder, held_out_every)
        codec_folder = folder / "codec"
        if not codec_folder.exists():
            codec = _learn(config, [one for one in asked if one.split == "train"], parts, progress)
            with whole_folder(codec_folder) as made:
                codec.save(made)
        codec = Codec.load(codec_folder)
        steps = 2 * len(asked)  # encoded, and put together
        encode_parts(asked, codec_folder, config.workers, lambda done: progress("encode", done, steps))
        report = PrepareReport(
            out=out,
            unchanged=False,
            fingerprint="",  # known when the manifest, which holds the rest of the report, is written
            read=pairs_read,
            kept=kept,
            dropped=dropped,
            held_out_every=held_out_every,
            vocabulary_sizes=(len(codec.source.vocabulary), len(codec.target.vocabulary)),
            tokens={},
        )
        told = lambda done: progress("encode", len(asked) + done, steps)  # noqa: E731
        return _written(config, report, unfinished / out.name, asked, codec, work.key, told)


def _written(
    config: PrepareConfig,
    report: PrepareReport,
    whole: Path,
    asked: Sequence[Asked],
    codec: Codec,
    key: str,
    told: Callable[[int], None],
) -> PrepareReport:
    """Put the parts together. whole: where the corpus is until it takes its place."""
    with whole_folder(whole) as folder:
        with ExitStack() as stack:
            writers = {name: _SplitWriter(folder, name, codec, stack) for name in report.kept}
            for done, one in enumerate(asked, 1):
                for split, found in encoded_of(one).items():
                    writers[split].append(found)
                told(done)
        codec.save(folder)
        report = replace(report, tokens={name: writer.tokens for name, writer in writers.items()})
        fingerprint = write_manifest(
            folder,
            format_name=corpus_files.FORMAT,
            version=corpus_files.VERSION,
            splits=report.kept,
            preparation={"key": key, "options": config.options(), "report": report.state()},
        )
    return replace(report, fingerprint=fingerprint)


class _SplitWriter:
    """The files of one split: token ids of both sides, and raw text where the split is one to score on."""

    def __init__(self, folder: Path, name: str, codec: Codec, stack: ExitStack) -> None:
        sizes = len(codec.source.vocabulary), len(codec.target.vocabulary)
        self._tokens = {
            side: stack.enter_context(TokenWriter(folder, name, side, size))
            for side, size in zip(SIDES, sizes, strict=True)
        }
        self._raw: dict[str, BinaryIO] = {
            side: stack.enter_context((folder / f"{name}.{side}.txt").open("wb")) for side in SIDES if name != "train"
        }

    @property
    def tokens(self) -> tuple[int, int]:
        """Of source and target, so far."""
        return self._tokens["source"].tokens, self._tokens["target"].tokens

    def append(self, found: Encoded) -> None:
        """Add what a part holds."""
        for side, writer in self._tokens.items():
            writer.append(found.tokens[side], found.lengths[side])
        for side, stream in self._raw.items():
            stream.write(found.raw[side])


def _key(config: PrepareConfig, progress: Progress) -> str:
    """SHA-256 over options, format version and input bytes: equal where preparing again would change nothing."""
    paths = [path for pair in config.splits.values() for path in pair]
    digests = []
    for done, path in enumerate(paths):
        progress("check", done, 2 * len(paths))
        digests.append(source_sha256(path))
    names = [f"{name}.{side}" for name in config.splits for side in SIDES]
    state = {
        "version": corpus_files.VERSION,
        "options": config.options(),
        "inputs": dict(zip(names, digests, strict=True)),
    }
    return hashlib.sha256(json.dumps(state, sort_keys=True).encode()).hexdigest()


def _standing_report(out: Path, key: str) -> PrepareReport | None:
    """The report of the corpus at `out` if it is sound and of this key."""
    try:
        corpus = Corpus.open(out)
    except UserError:
        return None  # none there, or a damaged one, which is made anew
    if corpus.preparation.get("key") != key:
        return None
    try:
        return PrepareReport.of_unchanged(corpus.preparation["report"], out=out, fingerprint=corpus.fingerprint)
    except (KeyError, TypeError):
        return None


def _checked_counts(config: PrepareConfig, progress: Progress) -> dict[str, int]:
    """Pairs of each split, every file checked to its end before any work is put into them."""
    counts = {}
    for done, (name, (source, target)) in enumerate(config.splits.items()):
        files = 2 * len(config.splits)
        source_lines = sum(1 for _ in texts_in(source, config.named[0]))
        progress("check", files + 2 * done + 1, 2 * files)
        target_lines = sum(1 for _ in texts_in(target, config.named[1]))
        progress("check", files + 2 * done + 2, 2 * files)
        if source_lines != target_lines:
            raise UserError(
                f"{source} has {source_lines:,} lines, but {target} has {target_lines:,}; line n of one must belong "
                "to line n of the other"
            )
        counts[name] = source_lines
    return counts


_WORDS_A_PAIR = 50
"""About as many, of both sides, by which very many pairs are known to be."""


def _kept(parts: Sequence[Part], held_out_every: int | None) -> dict[str, int]:
    """Split -> pairs of it."""
    kept: Counter[str] = Counter()
    for part in parts:
        kept[part.split] += part.kept
    if held_out_every:
        kept["valid"] = kept["train"] // held_out_every
        kept["train"] -= kept["valid"]
    return dict(kept)


def _dropped(parts: Sequence[Part]) -> dict[str, int]:
    """Reason -> training pairs, as they were met."""
    dropped: Counter[str] = Counter()
    for part in parts:
        dropped.update(part.dropped)
    return dict(dropped)


def _check_kept(kept: Mapping[str, int], pairs_read: Mapping[str, int], dropped: Mapping[str, int]) -> None:
    if not kept["train"]:
        reasons = ", ".join(f"{reason} {pairs:,}" for reason, pairs in dropped.items())
        raise UserError(f"none of the {pairs_read['train']:,} training pairs can be kept ({reasons}); check the files")
    if not kept["valid"]:
        raise UserError(
            f"{kept['train']:,} clean training pairs are too few to take every {HOLD_OUT_EVERY}rd for validation; "
            'give files for the split "valid"'
        )


def _learn(config: PrepareConfig, asked: Sequence[Asked], parts: Sequence[Part], progress: Progress) -> Codec:
    """The codec, its vocabularies learned on the training split."""
    chosen = asked[:: counted_every(_WORDS_A_PAIR * sum(part.kept for part in parts if part.split == "train"))]
    total = len(chosen) + 1
    progress("learn", 0, total)
    counts = counted(chosen, config.workers, lambda done: progress("learn", done, total))
    if config.joint:
        both = WordCounts()
        for side in SIDES:
            both.add(counts[side])
        source = target = Vocabulary.of_counts(both.most(), config.vocabulary_size)
    else:
        source, target = (_learn_side(counts[side], config, side) for side in SIDES)
    progress("learn", total, total)
    source_form, target_form = config.forms()
    return Codec(Side(source_form, source), Side(target_form, target), joint=config.joint)


def _learn_side(counts: Mapping[str, int], config: PrepareConfig, side: str) -> Vocabulary:
    try:
        return Vocabulary.of_counts(counts, config.vocabulary_size)
    except UserError as error:
        raise UserError(f"{side} side ({getattr(config, f'{side}_language')}): {error}") from error
