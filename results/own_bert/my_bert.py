"""transformers' BERT, tiny, telling German from English by 16 characters of Multi30k's captions."""

import gzip
from functools import cache
from pathlib import Path

import torch
from transformers import BertConfig, BertForSequenceClassification

LENGTH = 16
FOLDER = Path("corpora/multi30k_deen")


def read(split, language):
    if split == "train":
        return (
            gzip.decompress((FOLDER / f"train.{language}.gz").read_bytes()).decode("utf-8").lower()
        )
    return (FOLDER / f"valid.{language}").read_text(encoding="utf-8").lower()


@cache
def alphabet():
    lines = read("train", "de") + read("train", "en")
    return {one: number for number, one in enumerate(sorted(set(lines)), 1)}


@cache
def text(split):
    """The characters of both languages as numbers; 0 is what the answer is read at."""
    return [
        torch.tensor([alphabet()[one] for one in read(split, language) if one in alphabet()])
        for language in ("de", "en")
    ]


def build():
    config = BertConfig(
        vocab_size=1 + len(alphabet()),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=3,
        num_attention_heads=4,
        max_position_embeddings=1 + LENGTH,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        num_labels=2,
    )
    return BertForSequenceClassification(config)


def drawn(split, count):
    labels = torch.arange(count) % 2
    rows = []
    for label in labels.tolist():
        characters = text(split)[label]
        start = int(torch.randint(len(characters) - LENGTH, ()))
        rows.append(
            torch.cat([torch.zeros(1, dtype=torch.long), characters[start : start + LENGTH]])
        )
    return {"input_ids": torch.stack(rows), "labels": labels}


def batches(number):
    return drawn("train", 32)


def validation():
    return [drawn("valid", 256) for _ in range(4)]
