"""From texts to a corpus of documents: split into sentences, learn the tokeniser, write token ids.

Where no validation files are given, every 200th document at random is held out: 199 to 1, as Xiong et al. 2020,
section 4.1, split Wikipedia. Texts of any length are prepared in the memory of some parts, by any number of processes,
and a killed preparation goes on where it was (`data/parts.py`).
"""

import hashlib
import json
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ...errors import UserError
from ...files import disk_errors, recover, resumable_folder, whole_folder, write_atomically
from ..counting import counted_every
from ..lines import file_sha256
from ..manifest import check_replaceable, write_manifest
from ..order import order
from ..parts import Work
from ..sources.opening import source_sha256
from .corpus import FORMAT, TOKENISER, VERSION, DocumentCorpus
from .encoding import Asked, asked_of, counted, encode_parts, encoded_of
from .preparation import HOLD_OUT_EVERY, DocumentsConfig, DocumentsReport
from .reading import Part, documents_in_all, read_parts
from .tokeniser import TextTokeniser
from .writing import SplitWriter

__all__ = ["HOLD_OUT_EVERY", "DocumentsConfig", "DocumentsReport", "Progress", "prepare_documents"]

Progress = Callable[[str, int, int], None]
"""Called with a stage ("read", "learn", "encode"), how much of it is done, and its total."""


def prepare_documents(config: DocumentsConfig, progress: Progress = lambda stage, done, total: None) -> DocumentsReport:
    """Make the corpus at `config.out`, whole or not at all; does nothing where it stands there already.

    Raises UserError for input that cannot be used, for an `out` that holds something else, and for a disk that is full
    or cannot be written.
    """
    out = config.out.expanduser().resolve()
    # Before the files are read: what another command left of replacing a corpus is in its place again.
    with disk_errors(f"writing {out}"):
        recover(out, lambda left: True)
    check_replaceable(out)
    work = Work(_key(config))
    standing = _standing(out, work.key)
    with disk_errors(f"writing {out}"):
        recover(out, work.of_use if standing is None else lambda left: False)
    if standing is not None:
        return standing
    with disk_errors(f"writing {out}"), resumable_folder(out, work.of_use) as unfinished:
        folder = work.begin(unfinished)
        parts = read_parts(config, folder, partial(progress, "read"))
        held_out = _held_out(config, documents_in_all(parts)["train"])
        nothing = np.empty(0, dtype=np.int64)
        asked = {
            split: asked_of(parts, split, folder, held_out if split == "train" else nothing) for split in config.splits
        }
        tokeniser = folder / TOKENISER
        if not tokeniser.exists():
            write_atomically(tokeniser, _tokeniser(config, parts, asked["train"], progress).to_json())
        every = [one for several in asked.values() for one in several]
        # Encoded, and put together.
        total = 2 * len(every)
        encode_parts(every, tokeniser, config.processes, lambda done: progress("encode", done, total))
        told = lambda done: progress("encode", len(every) + done, total)  # noqa: E731
        return _written(config, out, unfinished / out.name, asked, tokeniser, work.key, told)


def _written(
    config: DocumentsConfig,
    out: Path,
    whole: Path,
    asked: dict[str, list[Asked]],
    tokeniser_file: Path,
    key: str,
    told: Callable[[int], None],
) -> DocumentsReport:
    """Put the parts together. whole: where the corpus is until it takes its place at `out`."""
    tokeniser = TextTokeniser.load(tokeniser_file)
    names = [*asked] if "valid" in asked else [*asked, "valid"]
    done = 0
    with ExitStack() as stack:
        folder = stack.enter_context(whole_folder(whole))
        tokeniser.save(folder / TOKENISER)
        with ExitStack() as files:
            writers = {name: files.enter_context(SplitWriter(folder, name, len(tokeniser))) for name in names}
            for split, parts in asked.items():
                for one in parts:
                    kept, held_out = encoded_of(one)
                    writers[split].append(kept)
                    if split == "train":
                        writers["valid"].append(held_out)
                    done += 1
                    told(done)
            for writer in writers.values():
                writer.end()
        report = DocumentsReport(
            out=out,
            unchanged=False,
            fingerprint="",  # known when the manifest, which holds the rest of the report, is written
            vocabulary_size=len(tokeniser),
            held_out="valid" not in config.splits,
            documents={name: writer.documents for name, writer in writers.items()},
            sentences={name: writer.sentences for name, writer in writers.items()},
            words={name: writer.words for name, writer in writers.items()},
            tokens={name: writer.tokens for name, writer in writers.items()},
        )
        preparation = {"key": key, "options": config.options(), "report": report.state()}
        noted = write_manifest(folder, format_name=FORMAT, version=VERSION, splits=names, preparation=preparation)
    return replace(report, fingerprint=noted)


def _key(config: DocumentsConfig) -> str:
    """SHA-256 over options, format version and input bytes: equal where preparing again would change nothing."""
    state = {
        "version": VERSION,
        "options": config.options(),
        "inputs": {name: [source_sha256(file) for file in files] for name, files in config.splits.items()},
        "tokeniser": file_sha256(config.tokeniser) if isinstance(config.tokeniser, Path) else "",
    }
    return hashlib.sha256(json.dumps(state, sort_keys=True).encode()).hexdigest()


def _standing(out: Path, key: str) -> DocumentsReport | None:
    """The report of the corpus at `out` if it is sound and of this key."""
    try:
        corpus = DocumentCorpus.open(out)
        if corpus.preparation.get("key") != key:
            return None
        return DocumentsReport(out=out, unchanged=True, fingerprint=corpus.fingerprint, **corpus.preparation["report"])
    except (UserError, KeyError, TypeError):
        return None  # none there, or a damaged one, which is made anew


def _held_out(config: DocumentsConfig, documents: int) -> NDArray[np.int64]:
    """The numbers of the training documents that become validation text, in ascending order."""
    if "valid" in config.splits:
        return np.empty(0, dtype=np.int64)
    # Two of a small corpus, where two are left to train on: a random next sentence comes from another document.
    count = max(documents // HOLD_OUT_EVERY, min(2, documents // 2))
    return np.sort(order(documents, 0)[:count])


def _tokeniser(
    config: DocumentsConfig, parts: Sequence[Part], asked: Sequence[Asked], progress: Progress
) -> TextTokeniser:
    if isinstance(config.tokeniser, Path):
        return TextTokeniser.load(config.tokeniser)
    kind, lowercase = config.tokeniser, config.lowercase
    chosen = asked[:: counted_every(sum(part.words for part in parts if part.split == "train"))]
    total = len(chosen) + 1
    progress("learn", 0, total)
    counts = counted(chosen, kind, lowercase, config.processes, lambda done: progress("learn", done, total))
    learned = TextTokeniser.of_counts(counts, config.entries, kind=kind, lowercase=lowercase)
    progress("learn", total, total)
    return learned
