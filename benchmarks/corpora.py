"""Preparing a corpus of documents beside Hugging Face `datasets` and `tokenizers` doing the same.

Run: python benchmarks/corpora.py [--megabytes 64] [--processes 1] [--systems normscope datasets]
[--folder FOLDER]. A text of so many megabytes is made: documents of sentences, words by Zipf's law.
Each system splits it into sentences, learns a byte-level BPE of 30,000 entries, encodes every
sentence and saves the ids; the token counts must agree. Prints for each the seconds of the
processor, the rate, and the peak memory of all its processes together (proportional set
size: what several share is counted once). `--folder` keeps the text for another call. Without
`datasets`, which is in the extra `bench`, NormScope is measured alone.
"""

import argparse
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

ENTRIES = 30_000
_WORDS = 2_000_000
"""Different ones; the text of people has as many in some thousand million."""
_SYLLABLES = [
    first + second
    for first in "bdfghjklmnprstvwz"
    for second in ("a", "e", "i", "o", "u", "ai", "on", "er")
]


def write_text(path: Path, megabytes: float) -> None:
    """Documents of 1 to 12 paragraphs of 2 to 9 sentences of 5 to 30 words; the same text for the
    same size.
    """
    random = np.random.default_rng(0)
    words = [_word(number) for number in range(_WORDS)]
    # As steep as makes new words as rare as in Wikipedia: 40,000 different ones in 600,000.
    chances = np.cumsum((np.arange(_WORDS) + 2.7) ** -1.3)
    left = int(megabytes * 1e6)
    with path.open("w", encoding="utf-8") as file:
        while left > 0:
            lengths = random.integers(5, 31, size=4000)
            chosen = np.searchsorted(chances, random.random(lengths.sum()) * chances[-1])
            spelt = iter([words[place] for place in chosen.tolist()])
            sentences = [
                " ".join([next(spelt) for _ in range(length)]) for length in lengths.tolist()
            ]
            text = _documents((f"{one[:1].upper()}{one[1:]}." for one in sentences), random)
            file.write(text[:left])
            left -= len(text)
        file.write("\n")


def _word(number: int) -> str:
    """Frequent words are short: the digits of the number by syllables."""
    spelt = ""
    while True:
        number, digit = divmod(number, len(_SYLLABLES))
        spelt += _SYLLABLES[digit]
        if not number:
            return spelt
        number -= 1


def _documents(sentences: Iterator[str], random: np.random.Generator) -> str:
    text: list[str] = []
    while True:
        for _ in range(int(random.integers(1, 13))):
            paragraph = [
                one for one, _ in zip(sentences, range(int(random.integers(2, 10))), strict=False)
            ]
            if not paragraph:
                return "".join(text)
            text.append(" ".join(paragraph) + "\n")
        text.append("\n")


def by_normscope(text: Path, out: Path, processes: int) -> int:
    """Returns the number of tokens of all documents."""
    from normscope.data.documents.prepare import DocumentsConfig, prepare_documents

    # A validation file, so that all of the text is learned from.
    valid = out.with_name("valid.txt")
    valid.write_text("A document.\n\nAnother one.\n")
    splits = {"train": (text,), "valid": (valid,)}
    config = DocumentsConfig(
        out=out, splits=splits, tokeniser="bpe", vocabulary_size=ENTRIES, processes=processes
    )
    return int(prepare_documents(config).counts["tokens"]["train"])


def by_datasets(text: Path, out: Path, processes: int) -> int:
    """As their own documentation does it: `load_dataset`, `map` in batches, `train_from_iterator`,
    `save_to_disk`.
    """
    import datasets
    import sentencex
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

    datasets.disable_progress_bars()
    several = processes if processes > 1 else None
    documents = datasets.load_dataset(
        "text",
        data_files=str(text),
        sample_by="paragraph",
        split="train",
        cache_dir=str(out / "cache"),
    )

    def split(batch: dict[str, list[str]]) -> dict[str, list[list[str]]]:
        pieces = (
            [
                " ".join(one.split())
                for line in document.split("\n")
                for one in sentencex.segment("en", line)
            ]
            for document in batch["text"]
        )
        return {"sentences": [[one for one in document if one] for document in pieces]}

    sentences = documents.map(split, batched=True, num_proc=several, remove_columns=["text"])
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=ENTRIES,
        min_frequency=2,
        special_tokens=["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    batches = (
        [one for document in batch["sentences"] for one in document]
        for batch in sentences.iter(batch_size=1000)
    )
    tokenizer.train_from_iterator(batches, trainer)

    def encode(batch: dict[str, list[list[str]]]) -> dict[str, list[list[list[int]]]]:
        flat = [one for document in batch["sentences"] for one in document]
        ids = iter(tokenizer.encode_batch_fast(flat, add_special_tokens=False))
        return {"ids": [[next(ids).ids for _ in document] for document in batch["sentences"]]}

    encoded = sentences.map(encode, batched=True, num_proc=several, remove_columns=["sentences"])
    encoded.save_to_disk(str(out / "saved"))
    return sum(
        len(ids)
        for batch in encoded.iter(batch_size=1000)
        for document in batch["ids"]
        for ids in document
    )


SYSTEMS: dict[str, Callable[[Path, Path, int], int]] = {
    "normscope": by_normscope,
    "datasets": by_datasets,
}


def measured(system: str, text: Path, processes: int) -> dict[str, float]:
    """Run one system in a process of its own."""
    with tempfile.TemporaryDirectory(dir=text.parent) as folder:
        words = [sys.executable, __file__, "--alone", system, str(text), folder, str(processes)]
        environment = {
            **os.environ,
            "TOKENIZERS_PARALLELISM": "false",
            "HF_HUB_OFFLINE": "1",
            "HF_HOME": folder,
        }
        before, began = os.times(), time.perf_counter()
        child = subprocess.Popen(words, stdout=subprocess.PIPE, env=environment, text=True)
        peak = _Peak(child.pid)
        said, _ = child.communicate()
        after = os.times()
        if child.returncode:
            raise SystemExit(f"{system} failed; what it said stands above")
        seconds = (
            after.children_user
            + after.children_system
            - before.children_user
            - before.children_system
        )
        return {
            "tokens": int(said.splitlines()[-1]),
            "cpu_seconds": seconds,
            "seconds": time.perf_counter() - began,
            "megabytes_a_second": text.stat().st_size / 1e6 / seconds,
            "peak_megabytes": peak.end() / 1e6,
        }


class _Peak:
    """The most memory that a process and its children have at once, asked for ten times a
    second.
    """

    def __init__(self, pid: int) -> None:
        self._most, self._pid, self._over = 0, pid, threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()

    def _watch(self) -> None:
        while not self._over.wait(0.1):
            self._most = max(self._most, _bytes_of(self._pid))

    def end(self) -> int:
        """In bytes."""
        self._over.set()
        self._thread.join()
        return self._most


def _bytes_of(pid: int) -> int:
    try:
        rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return 0
    own = next(
        (int(line.split()[1]) * 1024 for line in rollup.splitlines() if line.startswith("Pss:")), 0
    )
    return own + sum(_bytes_of(int(child)) for child in children)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--megabytes", type=float, default=64)
    parser.add_argument("--processes", type=int, default=1)
    installed = [system for system in SYSTEMS if importlib.util.find_spec(system)]
    parser.add_argument("--systems", nargs="+", default=installed, choices=list(SYSTEMS))
    parser.add_argument("--folder", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        text = folder / f"text-{options.megabytes:g}.txt"
        if not text.exists():
            write_text(text, options.megabytes)
        found = {system: measured(system, text, options.processes) for system in options.systems}
    for system, numbers in found.items():
        print(system, json.dumps({name: round(number, 2) for name, number in numbers.items()}))
    if len(found) == 2:
        ours, theirs = (found[system]["megabytes_a_second"] for system in SYSTEMS)
        print(f"ratio {ours / theirs:.2f}")
        if len({numbers["tokens"] for numbers in found.values()}) != 1:
            raise SystemExit("the systems made different tokens of the same text")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--alone"]:
        name, text_file, out_folder, number = sys.argv[2:]
        print(SYSTEMS[name](Path(text_file), Path(out_folder) / "out", int(number)))
    else:
        main()
