"""Every reader of a file: seeds made by our own writers, which of their files are changed and how, and what is read.

`read` returns what a file means, for comparison. A guarded reader must refuse whatever means something else than what
was written; the others read what people write, where any meaning is allowed.
"""

import gzip
import lzma
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
import transformers

import fuzz.mutations as to
from normscope.data.documents.corpus import DocumentCorpus
from normscope.data.documents.opening import toy_documents
from normscope.data.documents.text import documents_in
from normscope.data.documents.tokeniser import TextTokeniser
from normscope.data.labelled.pairs import Columns, read_pairs
from normscope.data.lines import read_lines
from normscope.data.manifest import write_manifest
from normscope.data.parallel import corpus as parallel
from normscope.data.parallel import opening
from normscope.data.parallel.codec import Codec
from normscope.doctor.lint.silencing import silenced_in
from normscope.errors import UserError
from normscope.exchange.verbs import import_run
from normscope.runs.config import load
from normscope.runs.loading import load_run
from normscope.runs.run import train_run
from normscope.settings.tables import read_override, to_toml
from normscope.targets import opened
from normscope.train import RunFolder
from tiny import SETTINGS

Change = Callable[[bytes, random.Random], bytes]

WORDS = [
    "the",
    "a",
    "cat",
    "dog",
    "sleeps",
    "runs",
    "and",
    "or",
    "in",
    "on",
    "under",
    "house",
    "tree",
    ".",
    ",",
    "!",
    "?",
]


@dataclass(frozen=True)
class Reader:
    """One kind of file or folder."""

    make: Callable[[Path], None]
    """Fill an empty folder with a whole one."""
    changes: Mapping[str, Change]
    """How files are changed, by pattern of their names."""
    read: Callable[[Path, Path], Any]
    """The folder, and which of its files was changed -> what it means. Raises UserError where it is refused."""
    guarded: bool = False
    share: int = 1
    """How often it is tried, beside the others."""


def _lines(count: int, seed: int) -> list[str]:
    draw = random.Random(seed)
    return [" ".join(draw.choices(WORDS, k=draw.randint(3, 9))) + f" {i}" for i in range(count)]


# Configurations


def _make_toml(folder: Path) -> None:
    small = list(SETTINGS)
    text = ["data.batch_sequences=4", "data.sequence_length=16", "model.width=16", "model.ffn_width=16"]
    text += ["model.heads=2", "model.blocks=1", "model.positions=32", "train.threads=1", 'train.device="cpu"']
    (folder / "translation.toml").write_text(to_toml(load(None, small)))
    for task in ("masked-lm", "language-model"):
        (folder / f"{task}.toml").write_text(to_toml(load(None, [f"task={task}", *text])))
    (folder / "short.toml").write_text(
        "seed = 3\n[model]\nwidth = 16\nheads = 2\nffn_width = 16\n[data]\ntoy_pairs = 50\n"
    )


def _read_toml(folder: Path, changed: Path) -> Any:
    return opened(str(changed), [], tokens=4, sequences=1, seed=0).title


def _make_overrides(folder: Path) -> None:
    (folder / "sets.txt").write_text(
        "model.width=64\nimports=['a.py']\ntrain.clip_norm=inf\nseed=7\nschedule.decay=a\n"
    )


def _read_overrides(folder: Path, changed: Path) -> Any:
    settings = (folder / "sets.txt").read_text(errors="replace").splitlines()
    return [read_override(line) for line in settings], load(None, settings)


def _make_pyproject(folder: Path) -> None:
    (folder / "pyproject.toml").write_text('[tool.normscope.doctor]\nsilence = ["dead-sublayer"]\n')


def _read_pyproject(folder: Path, changed: Path) -> Any:
    try:
        return silenced_in(folder)
    except ValueError as error:  # told to the user by the command line
        raise UserError(str(error)) from error


# Models


def _tokeniser() -> TextTokeniser:
    return toy_documents().tokeniser


@cache
def _bert_config() -> Any:
    sizes = {"hidden_size": 12, "intermediate_size": 20, "num_attention_heads": 3, "num_hidden_layers": 2}
    return transformers.BertConfig(**sizes, max_position_embeddings=24, vocab_size=len(_tokeniser()))


def _make_bert(folder: Path) -> None:
    torch.manual_seed(0)
    transformers.BertForPreTraining(_bert_config()).save_pretrained(folder)
    _tokeniser().save(folder / "tokenizer.json")


def _read_bert(folder: Path, changed: Path) -> Any:
    return import_run(folder, folder / "run")


_SMALL: dict[str, dict[str, Any]] = {
    "Bert": {"hidden_size": 12, "intermediate_size": 20, "num_attention_heads": 3, "num_hidden_layers": 2},
    "GPT2": {"n_embd": 12, "n_layer": 2, "n_head": 2, "n_positions": 32},
    "Llama": {"hidden_size": 16, "intermediate_size": 20, "num_attention_heads": 2, "num_hidden_layers": 2},
    "T5": {"d_model": 12, "d_kv": 6, "d_ff": 20, "num_layers": 2, "num_heads": 2},
    "ViT": {"hidden_size": 12, "intermediate_size": 20, "num_attention_heads": 2, "num_hidden_layers": 2},
    "Wav2Vec2": {"hidden_size": 12, "intermediate_size": 20, "num_attention_heads": 2, "num_hidden_layers": 2},
}
_FURTHER = {"ViT": {"image_size": 16, "patch_size": 8}, "Wav2Vec2": {"conv_dim": [8, 8], "conv_stride": [5, 2]}}
_FURTHER["Wav2Vec2"] |= {"conv_kernel": [10, 3], "num_conv_pos_embeddings": 4, "num_conv_pos_embedding_groups": 2}


def _make_checkpoints(folder: Path) -> None:
    for name, sizes in _SMALL.items():
        vocabulary = {} if name == "ViT" else {"vocab_size": 40}
        config = getattr(transformers, f"{name}Config")(**sizes, **vocabulary, **_FURTHER.get(name, {}))
        torch.manual_seed(0)
        made = {"GPT2": "GPT2LMHeadModel", "T5": "T5ForConditionalGeneration", "ViT": "ViTForImageClassification"}
        made |= {"Llama": "LlamaForCausalLM", "Bert": "BertForMaskedLM", "Wav2Vec2": "Wav2Vec2ForCTC"}
        getattr(transformers, made[name])(config).save_pretrained(folder / name)
        (folder / f"{name}-alone").mkdir()
        (folder / f"{name}-alone" / "config.json").write_text((folder / name / "config.json").read_text())


def _read_checkpoints(folder: Path, changed: Path) -> Any:
    target = opened(str(changed.parent), [], tokens=4, sequences=2, seed=0)
    return target.title, target.loading


# Text


def _make_text(folder: Path) -> None:
    content = "".join(line + "\n" for line in _lines(60, 1)).encode()
    (folder / "plain.txt").write_bytes(content)
    (folder / "packed.gz").write_bytes(gzip.compress(content))
    (folder / "packed.xz").write_bytes(lzma.compress(content))


def _read_text(folder: Path, changed: Path) -> Any:
    words = sum(len(line) for _, line in read_lines(changed))
    for layout in ("paragraphs", "wikitext"):
        words += sum(document.words for document in documents_in([changed], layout, "en"))
    return words


def _make_pairs(folder: Path) -> None:
    both = zip(_lines(30, 1), _lines(30, 2), strict=True)
    rows = [f"{'yes' if i % 3 else 'no'}\t{a}\t{b}\n" for i, (a, b) in enumerate(both)]
    (folder / "pairs.tsv").write_text("label\tsentence1\tsentence2\n" + "".join(rows))


def _read_pairs(folder: Path, changed: Path) -> Any:
    pairs = read_pairs(folder / "pairs.tsv", Columns())
    return len(_tokeniser().encode_many([pair.first for pair in pairs]))


def _make_tokenizer(folder: Path) -> None:
    _tokeniser().save(folder / "wordpiece.json")
    TextTokeniser.learn(_lines(300, 3), 300, kind="bpe", lowercase=False).save(folder / "bpe.json")


def _read_tokenizer(folder: Path, changed: Path) -> Any:
    text = [*_lines(5, 4), "a" * 3000, "é" * 300, " " * 2000, "[MASK] x", ""]
    tokeniser = TextTokeniser.load(changed)
    ids = tokeniser.encode_many(text)
    tokeniser.decode(ids[0])
    return len(ids), len(tokeniser.begins_word_V), len(tokeniser.regular_ids)


# Folders of ours


def _make_parallel(folder: Path) -> None:
    made = opening.toy_corpus(30)
    made.save_vocabularies(folder)
    for name, split in made.splits.items():
        for side, sentences in (("source", split.source), ("target", split.target)):
            size = len(getattr(made, side).vocabulary)
            with parallel.TokenWriter(folder, name, side, size) as writer:
                for i in range(min(30, len(sentences))):
                    writer.append(sentences[i][:-1].tolist())
            if name != "train":
                text = getattr(split, f"{side}_text")[: min(30, len(sentences))]
                (folder / f"{name}.{side}.txt").write_text("".join(line + "\n" for line in text))
    preparation = {"vocabulary_size": 60, "lowercase": True, "report": {"pairs": {"train": 30}}}
    form = {"format_name": parallel.FORMAT, "version": parallel.VERSION}
    write_manifest(folder, **form, splits=list(made.splits), preparation=preparation)


def _read_parallel(folder: Path, changed: Path) -> Any:
    made = parallel.Corpus.open(folder)
    tokens = {name: (s.source.tokens.tolist(), s.target.offsets.tolist()) for name, s in made.splits.items()}
    return made.fingerprint, made.preparation, made.joint, made.codec.vocabulary_digests(), tokens


def _make_documents(folder: Path) -> None:
    from normscope.data.documents import corpus as documents

    made = toy_documents()
    made.save_vocabularies(folder)
    words = {}
    for name, split in made.splits.items():
        few = documents.DocumentSplit.of(
            [[split.tokens[a:b] for a, b in pairwise(split.sentences[:21])] for _ in range(2)],
            words=80,
            vocabulary_size=len(made.tokeniser),
        )
        few.save(folder, name, len(made.tokeniser))
        words[name] = few.words
    form = {"format_name": documents.FORMAT, "version": documents.VERSION}
    write_manifest(folder, **form, splits=list(made.splits), preparation={"report": {"words": words}, "kind": "toy"})


def _read_documents(folder: Path, changed: Path) -> Any:
    made = DocumentCorpus.open(folder)
    splits = {name: (s.tokens.tolist(), s.sentences.tolist(), s.words) for name, s in made.splits.items()}
    return made.fingerprint, made.preparation, splits


def _make_run(folder: Path) -> None:
    train_run(load(None, [*SETTINGS, "train.duration=2", "train.validate_every=1", "train.checkpoint_every=1"]), folder)


def _read_run(folder: Path, changed: Path) -> Any:
    run = load_run(folder, device="cpu")
    weights = {name: float(weight.double().sum()) for name, weight in run.model.state_dict().items()}
    return (
        to_toml(run.config),
        run.update,
        weights,
        run.codec.vocabulary_digests(),
        RunFolder(folder).events(),
        run.environment,
    )


def _read_codec(folder: Path, changed: Path) -> Any:
    codec = Codec.load(folder)
    return codec.vocabulary_digests(), codec.source.form, codec.target.form, codec.joint


def _make_codec(folder: Path) -> None:
    opening.toy_corpus(10).save_vocabularies(folder)


READERS: dict[str, Reader] = {
    "toml": Reader(_make_toml, {"*.toml": to.of_toml}, _read_toml, share=4),
    "overrides": Reader(_make_overrides, {"*": to.of_bytes}, _read_overrides),
    "pyproject": Reader(_make_pyproject, {"*": to.of_toml}, _read_pyproject),
    "bert": Reader(
        _make_bert,
        {"config.json": to.of_json, "tokenizer.json": to.of_json, "model.safetensors": to.of_tensors},
        _read_bert,
        share=3,
    ),
    "checkpoints": Reader(
        _make_checkpoints,
        {"*/config.json": to.of_json, "*/model.safetensors": to.of_tensors},
        _read_checkpoints,
        share=3,
    ),
    "text": Reader(_make_text, {"*.txt": to.of_bytes, "*.gz": to.of_gzip, "*.xz": to.of_xz}, _read_text),
    "pairs": Reader(_make_pairs, {"*": to.of_bytes}, _read_pairs),
    "tokenizer": Reader(_make_tokenizer, {"*": to.of_json}, _read_tokenizer, share=2),
    "parallel": Reader(_make_parallel, {"*.json": to.of_json, "*": to.of_bytes}, _read_parallel, guarded=True, share=2),
    "documents": Reader(
        _make_documents, {"*.json": to.of_json, "*": to.of_bytes}, _read_documents, guarded=True, share=2
    ),
    "run": Reader(
        _make_run,
        {
            "*.json*": to.of_json,
            "config.toml": to.of_toml,
            "vocabularies/*": to.of_json,
            "checkpoints/*/*.safetensors": to.of_tensors,
            "checkpoints/*/*.json": to.of_json,
            "checkpoints/*/MANIFEST*": to.of_bytes,
        },
        _read_run,
        guarded=True,
    ),
    "codec": Reader(_make_codec, {"*": to.of_json}, _read_codec, guarded=True),
}
