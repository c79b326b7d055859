"""From parallel text files to a corpus folder: check, tokenise, filter, learn the vocabularies, write token ids.

The defaults follow fairseq's `examples/translation/prepare-iwslt14.sh`: 1 to 175 words a side, length ratio at most 1.5
(training pairs only), and every 23rd clean training pair for validation where no validation split is given.
"""

import hashlib
import json
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import TextIO

from ...errors import UserError
from ...files import disk_errors, recover, whole_folder
from ..lines import count_lines, file_sha256, read_lines
from ..manifest import check_replaceable, write_manifest
from . import corpus as corpus_files
from .codec import Codec, Side
from .corpus import SIDES, Corpus, TokenWriter
from .pool import CHUNK_PAIRS, RawPair, prepared_pairs
from .preparation import PrepareConfig, PrepareReport, drop_reason
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
    with disk_errors(f"writing {out}"):
        recover(out)
    check_replaceable(out)
    key = _key(config, progress)
    standing = _standing_report(out, key)
    if standing is not None:
        return standing
    pairs_read = _checked_counts(config, progress)
    with disk_errors(f"writing {out}"), whole_folder(out) as folder:
        tokenised = folder / "tokenised"
        tokenised.mkdir()
        dropped = _tokenise(config, pairs_read, folder, tokenised, progress)
        names = [*config.splits] if "valid" in config.splits else [*config.splits, "valid"]
        kept = {name: _kept(tokenised, name) for name in names}
        _check_kept(kept, pairs_read, dropped)
        codec = _learn(config, tokenised, kept["train"], progress)
        tokens = _encode(codec, tokenised, folder, kept, progress)
        shutil.rmtree(tokenised)
        codec.save(folder)
        report = PrepareReport(
            out=out,
            unchanged=False,
            fingerprint="",  # known when the manifest, which holds the rest of the report, is written
            read=pairs_read,
            kept=kept,
            dropped=dropped,
            held_out_every=None if "valid" in config.splits else HOLD_OUT_EVERY,
            vocabulary_sizes=(len(codec.source.vocabulary), len(codec.target.vocabulary)),
            tokens=tokens,
        )
        preparation = {"key": key, "options": config.options(), "report": report.state()}
        fingerprint = write_manifest(
            folder,
            format_name=corpus_files.FORMAT,
            version=corpus_files.VERSION,
            splits=names,
            preparation=preparation,
        )
    return replace(report, fingerprint=fingerprint)


def _key(config: PrepareConfig, progress: Progress) -> str:
    """SHA-256 over options, format version and input bytes: equal where preparing again would change nothing."""
    paths = [path for pair in config.splits.values() for path in pair]
    digests = []
    for done, path in enumerate(paths):
        progress("check", done, 2 * len(paths))
        digests.append(file_sha256(path))
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
        source_lines = count_lines(source)
        progress("check", files + 2 * done + 1, 2 * files)
        target_lines = count_lines(target)
        progress("check", files + 2 * done + 2, 2 * files)
        if source_lines != target_lines:
            raise UserError(
                f"{source} has {source_lines:,} lines, but {target} has {target_lines:,}; line n of one must belong "
                "to line n of the other"
            )
        counts[name] = source_lines
    return counts


def _tokenise(
    config: PrepareConfig, pairs_read: Mapping[str, int], folder: Path, tokenised: Path, progress: Progress
) -> dict[str, int]:
    """Write tokenised text of all splits into `tokenised`, raw text of all but train into `folder`.

    Returns the number of training pairs dropped for each reason.
    """
    dropped: Counter[str] = Counter()
    done, total = 0, sum(pairs_read.values())
    for name, (source, target) in config.splits.items():
        raw_pairs = _raw_pairs(source, target)
        clean = 0
        with ExitStack() as stack:
            files = {name: stack.enter_context(_PairFiles(folder, tokenised, name))}
            if name == "train" and "valid" not in config.splits:
                files["valid"] = stack.enter_context(_PairFiles(folder, tokenised, "valid"))
            for chunk in prepared_pairs(raw_pairs, *config.forms(), workers=config.workers):
                for raw, pair in chunk:
                    reason = drop_reason(*pair, config) if name == "train" else None
                    if reason:
                        dropped[reason] += 1
                        continue
                    clean += 1
                    held_out = len(files) == 2 and clean % HOLD_OUT_EVERY == 0
                    files["valid" if held_out else name].write(raw, pair)
                done += len(chunk)
                progress("tokenise", done, total)
    return dict(dropped)


def _raw_pairs(source: Path, target: Path) -> Iterator[RawPair]:
    for (_, source_line), (_, target_line) in zip(read_lines(source), read_lines(target), strict=True):
        yield source_line, target_line


class _PairFiles(ExitStack):
    """The text files of one split: tokenised, and raw where the split is one to score on."""

    def __init__(self, folder: Path, tokenised: Path, name: str) -> None:
        super().__init__()
        self._tokenised = [self._open(tokenised / f"{name}.{side}") for side in SIDES]
        keeps_raw = name != "train"
        self._raw = [self._open(folder / f"{name}.{side}.txt") for side in SIDES] if keeps_raw else []

    def write(self, raw: RawPair, pair: tuple[str, str]) -> None:
        for stream, line in zip([*self._tokenised, *self._raw], [*pair, *(raw if self._raw else ())], strict=True):
            stream.write(line + "\n")

    def _open(self, path: Path) -> TextIO:
        return self.enter_context(path.open("w", encoding="utf-8", newline="\n"))


def _tokenised_lines(path: Path) -> Iterator[str]:
    with path.open(encoding="utf-8", newline="\n") as stream:
        for line in stream:
            yield line.removesuffix("\n")


def _kept(tokenised: Path, name: str) -> int:
    return sum(1 for _ in _tokenised_lines(tokenised / f"{name}.source"))


def _check_kept(kept: Mapping[str, int], pairs_read: Mapping[str, int], dropped: Mapping[str, int]) -> None:
    if not kept["train"]:
        reasons = ", ".join(f"{reason} {pairs:,}" for reason, pairs in dropped.items())
        raise UserError(f"none of the {pairs_read['train']:,} training pairs can be kept ({reasons}); check the files")
    if not kept["valid"]:
        raise UserError(
            f"{kept['train']:,} clean training pairs are too few to take every {HOLD_OUT_EVERY}rd for validation; "
            'give files for the split "valid"'
        )


def _learn(config: PrepareConfig, tokenised: Path, pairs: int, progress: Progress) -> Codec:
    """The codec, its vocabularies learned on the training split."""
    total = 2 * pairs

    def lines(*sides: str) -> Iterator[str]:
        for side in sides:
            for number, line in enumerate(_tokenised_lines(tokenised / f"train.{side}"), 1):
                if number % CHUNK_PAIRS == 0:
                    progress("learn", pairs * SIDES.index(side) + number, total)
                yield line

    if config.joint:
        source = target = Vocabulary.learn(lines(*SIDES), config.vocabulary_size)
    else:
        source, target = (_learn_side(lines(side), config, side) for side in SIDES)
    progress("learn", total, total)
    source_form, target_form = config.forms()
    return Codec(Side(source_form, source), Side(target_form, target), joint=config.joint)


def _learn_side(lines: Iterable[str], config: PrepareConfig, side: str) -> Vocabulary:
    try:
        return Vocabulary.learn(lines, config.vocabulary_size)
    except UserError as error:
        raise UserError(f"{side} side ({getattr(config, f'{side}_language')}): {error}") from error


def _encode(
    codec: Codec, tokenised: Path, folder: Path, kept: Mapping[str, int], progress: Progress
) -> dict[str, tuple[int, int]]:
    """Write the token ids of all splits; returns their numbers of source and target tokens."""
    tokens: dict[str, tuple[int, int]] = {}
    done, total = 0, 2 * sum(kept.values())
    for name in kept:
        counts = []
        for side, vocabulary in zip(SIDES, (codec.source.vocabulary, codec.target.vocabulary), strict=True):
            lines = _tokenised_lines(tokenised / f"{name}.{side}")
            with TokenWriter(folder, name, side, len(vocabulary)) as writer:
                while chunk := list(islice(lines, CHUNK_PAIRS)):
                    for ids in vocabulary.encode_many(chunk):
                        writer.append(ids)
                    done += len(chunk)
                    progress("encode", done, total)
                counts.append(writer.tokens)
        tokens[name] = counts[0], counts[1]
    return tokens
