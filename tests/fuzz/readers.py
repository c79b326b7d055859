"""Every reader of a file: seeds made by our own writers, which of their files are changed and how,
and what is read.

`read` returns what a file means, for comparison. A guarded reader must refuse whatever means
something else than what was written; the others read what people write, where any meaning is
allowed.
"""

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import fuzz.mutations as to
from fuzz import models, ours, received, texts

Change = Callable[[bytes, random.Random], bytes]


@dataclass(frozen=True)
class Reader:
    """One kind of file or folder."""

    make: Callable[[Path], None]
    """Fill an empty folder with a whole one."""
    changes: Mapping[str, Change]
    """How files are changed, by pattern of their names."""
    read: Callable[[Path, Path], Any]
    """The folder, and which of its files was changed -> what it means. Raises UserError where it is
    refused.
    """
    guarded: bool = False
    share: int = 1
    """How often it is tried, beside the others."""


READERS: dict[str, Reader] = {
    "toml": Reader(models.make_toml, {"*.toml": to.of_toml}, models.read_toml, share=4),
    "overrides": Reader(models.make_overrides, {"*": to.of_bytes}, models.read_overrides),
    "pyproject": Reader(models.make_pyproject, {"*": to.of_toml}, models.read_pyproject),
    "checkpoints": Reader(
        models.make_checkpoints,
        {"*/config.json": to.of_json, "*/model.safetensors": to.of_tensors},
        models.read_checkpoints,
        share=3,
    ),
    "text": Reader(
        texts.make_text,
        {"*.txt": to.of_bytes, "*.gz": to.of_gzip, "*.xz": to.of_xz},
        texts.read_text,
    ),
    "tokenizer": Reader(texts.make_tokenizer, {"*": to.of_json}, texts.read_tokenizer, share=2),
    "parallel": Reader(
        ours.make_parallel,
        {"*.json": to.of_json, "*": to.of_bytes},
        ours.read_parallel,
        guarded=True,
        share=2,
    ),
    "documents": Reader(
        ours.make_documents,
        {"*.json": to.of_json, "*": to.of_bytes},
        ours.read_documents,
        guarded=True,
        share=2,
    ),
    "run": Reader(
        ours.make_run,
        {
            "*.json*": to.of_json,
            "config.toml": to.of_toml,
            "vocabularies/*": to.of_json,
            "checkpoints/*/*.safetensors": to.of_tensors,
            "checkpoints/*/*.json": to.of_json,
            "checkpoints/*/MANIFEST*": to.of_bytes,
        },
        ours.read_run,
        guarded=True,
    ),
    "histories": Reader(
        ours.make_histories,
        {"trainer/*": to.of_json, "wandb/*": to.of_json_lines, "run/*": ours.change_sealed},
        ours.read_histories,
        share=3,
    ),
    "codec": Reader(ours.make_codec, {"*": to.of_json}, ours.read_codec, guarded=True),
    "factory": Reader(
        models.make_factory,
        {"*.json": to.of_json, "part.py": to.of_bytes, "factory.py": to.of_bytes},
        models.read_factory,
    ),
    "pieces": Reader(
        ours.make_pieces,
        {"pieces/*.json": to.of_json, "pieces/*/*.json": to.of_json},
        ours.read_pieces,
        guarded=True,
    ),
    "scores": Reader(
        ours.make_scores, {"runs/*/*.json": to.of_json}, ours.read_scores, guarded=True
    ),
    "comparison": Reader(
        ours.make_comparison, {"*.json": to.of_json}, ours.read_comparison, guarded=True
    ),
    "received": Reader(
        received.make_received,
        {
            "comparison.json": received.change_sealed_json,
            "cells.json": received.change_sealed_json,
            "runs/*/config.toml": received.change_sealed_toml,
            "runs/*/environment.json": received.change_sealed_json,
            "runs/*/evaluation-*.json": received.change_sealed_json,
            "runs/*/metrics.jsonl": received.change_sealed_log,
            "runs/*/checkpoints/*/*.json": to.of_json,
        },
        received.read_received,
        share=3,
    ),
    "received-run": Reader(
        received.make_received_run,
        {
            "run/metrics.jsonl": received.change_sealed_log,
            "run/config.toml": received.change_sealed_toml,
            "run/*.json": received.change_sealed_json,
            "run/vocabularies/*": received.change_sealed_json,
        },
        received.read_received_run,
        share=3,
    ),
    "placements": Reader(
        received.make_placements,
        {"*.py": received.change_python, "own.toml": to.of_toml},
        received.read_placements,
        share=4,
    ),
    "logs": Reader(
        received.make_logs,
        {"board/*": to.of_bytes, "store/*": received.change_datastore},
        received.read_logs,
        share=2,
    ),
    "columns": Reader(
        received.make_columns,
        {
            "texts.jsonl": to.of_json_lines,
            "*/state.json": to.of_json,
            "*.parquet": to.of_bytes,
            "*.arrow": to.of_bytes,
        },
        received.read_columns,
        share=2,
    ),
}
