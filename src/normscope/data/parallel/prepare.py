"""The preparation of a corpus folder from parallel texts: check, tokenise, filter, learn the
vocabularies, write token ids.

The defaults follow fairseq's `examples/translation/prepare-iwslt14.sh`: 1 to 175 words a side,
length ratio at most 1.5 (training pairs only), and every 23rd clean training pair for validation
where no validation split is given.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

from ...errors import UserError
from ...files import whole_folder
from ..folder import TokenWriter
from ..preparation import (
    CorpusReport,
    Preparation,
    Progress,
    TextPart,
    numbered,
    prepared,
    read_parts,
)
from ..sources import source_sha256, texts_in
from ..words import added, most_frequent
from . import corpus as stored
from .codec import Codec, CodecSide
from .preparation import PrepareConfig, count_part, encode_part, pairs_in, reasons, tokenise_pairs
from .vocabulary import Vocabulary

HOLD_OUT_EVERY = 23
_SHARE = 16
"""Parts are so much shorter than those of other work, as Moses' tokeniser is slower: some seconds
for each.
"""
_WORDS_A_PAIR = 50
"""About as many, of both sides, by which very many pairs are known to be."""


def prepare(
    config: PrepareConfig, progress: Progress = lambda stage, done, total: None
) -> CorpusReport:
    """Make the corpus at `config.out`, as `prepared` does. Stages: "check", "tokenise", "learn",
    "encode".
    """
    return prepared(_Pairs(config), progress)


class _Pairs(Preparation):
    corpus = stored.Corpus
    format_name = stored.FORMAT
    version = stored.VERSION
    learned = "codec"
    count, encode = staticmethod(count_part), staticmethod(encode_part)

    def __init__(self, config: PrepareConfig) -> None:
        self.config = config
        self.out = config.out
        self.processes = config.workers
        self.options = config.options()
        self.sources = [file for pair in config.splits.values() for file in pair]
        self.held_out_every = None if "valid" in config.splits else HOLD_OUT_EVERY

    def inputs(self, progress: Progress) -> dict[str, Any]:
        digests = []
        for done, path in enumerate(self.sources):
            progress("check", done, 2 * len(self.sources))
            digests.append(source_sha256(path))
        names = [f"{name}.{side}" for name in self.config.splits for side in stored.SIDES]
        return {"inputs": dict(zip(names, digests, strict=True))}

    def check(self, progress: Progress) -> None:
        self.pairs_read = _checked_counts(self.config, progress)

    def read(self, folder: Path, progress: Progress) -> list[TextPart]:
        config = self.config
        total = sum(self.pairs_read.values())
        done = 0

        def pairs_done(known: Mapping[str, Any]) -> None:
            nonlocal done
            done += known["read"]
            progress("tokenise", done, total)

        parts = read_parts(
            folder,
            {
                split: pairs_in(source, target, config)
                for split, (source, target) in config.splits.items()
            },
            partial(tokenise_pairs, config),
            characters=lambda pair: len(pair[0]) + len(pair[1]),
            share=_SHARE,
            processes=config.workers,
            progress=pairs_done,
        )
        kept = Counter[str]()
        self.dropped = Counter[str]()
        for _, split, known in parts:
            kept[split] += known["kept"]
            self.dropped.update(known["dropped"])
        self.words = _WORDS_A_PAIR * kept["train"]
        held_out = {}
        if every := self.held_out_every:
            held_out["train"] = range(every - 1, kept["train"], every)
            kept["valid"] = len(held_out["train"])
            kept["train"] -= kept["valid"]
        self.kept = dict(kept)
        _check_kept(self.kept, self.pairs_read, self.dropped)
        return numbered(parts, "kept", held_out)

    def learn(self, counts: Sequence[Counter[str]], path: Path) -> None:
        config = self.config
        if config.joint:
            both = added(added(Counter(), counts[0]), counts[1])
            source = target = Vocabulary.of_counts(most_frequent(both), config.vocabulary_size)
        else:
            source, target = (
                _learn_side(side, config, name)
                for side, name in zip(counts, stored.SIDES, strict=True)
            )
        source_form, target_form = config.forms()
        codec = Codec(
            CodecSide(source_form, source), CodecSide(target_form, target), joint=config.joint
        )
        with whole_folder(path) as made:
            codec.save(made)

    def writers(self, folder: Path, learned: Path, stack: ExitStack) -> dict[str, TokenWriter]:
        codec = Codec.load(learned)
        codec.save(folder)
        self.vocabulary_sizes = [len(codec.source.vocabulary), len(codec.target.vocabulary)]
        return {
            f"{name}.{side}": stack.enter_context(
                TokenWriter(folder, f"{name}.{side}", size, raw=name != "train")
            )
            for name in self.kept
            for side, size in zip(stored.SIDES, self.vocabulary_sizes, strict=True)
        }

    def counts(self, writers: Mapping[str, TokenWriter]) -> dict[str, Any]:
        tokens = {}
        for name in self.kept:
            tokens[name] = [writers[f"{name}.{side}"].tokens for side in stored.SIDES]
        return {
            "read": self.pairs_read,
            "kept": self.kept,
            "dropped": dict(self.dropped),
            "held_out_every": self.held_out_every,
            "vocabulary_sizes": self.vocabulary_sizes,
            "tokens": tokens,
        }


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
                f"{source} has {source_lines:,} lines, but {target} has {target_lines:,}; line n "
                "of one must belong to line n of the other"
            )
        counts[name] = source_lines
    return counts


def _check_kept(
    kept: Mapping[str, int], pairs_read: Mapping[str, int], dropped: Mapping[str, int]
) -> None:
    if not kept["train"]:
        why = reasons(dropped)
        raise UserError(
            f"none of the {pairs_read['train']:,} training pairs can be kept ({why}); check the "
            "files"
        )
    if not kept["valid"]:
        raise UserError(
            f"{kept['train']:,} clean training pairs are too few to take every {HOLD_OUT_EVERY}rd "
            "for validation; "
            'give files for the split "valid"'
        )


def _learn_side(counts: Mapping[str, int], config: PrepareConfig, side: str) -> Vocabulary:
    try:
        return Vocabulary.of_counts(counts, config.vocabulary_size)
    except UserError as error:
        raise UserError(f"{side} side ({getattr(config, f'{side}_language')}): {error}") from error
