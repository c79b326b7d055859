"""transformers' Llama, tiny, on the characters of Multi30k's English captions."""

import gzip
from functools import cache
from pathlib import Path

import torch
from transformers import LlamaConfig, LlamaForCausalLM

LENGTH = 32


@cache
def text(split):
    """The characters of a split as numbers, by the training's alphabet."""
    folder = Path("corpora/multi30k_deen")
    lines = gzip.decompress((folder / "train.en.gz").read_bytes()).decode("utf-8")
    alphabet = {one: number for number, one in enumerate(sorted(set(lines)))}
    if split == "valid":
        lines = (folder / "valid.en").read_text(encoding="utf-8")[:10_000]
    return torch.tensor([alphabet[one] for one in lines if one in alphabet]), len(alphabet)


def build():
    config = LlamaConfig(
        vocab_size=text("train")[1],
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=4,
        max_position_embeddings=LENGTH,
        use_cache=False,
    )
    return LlamaForCausalLM(config)


def of(rows):
    return {"input_ids": rows, "labels": rows}


def batches(number):
    characters, _ = text("train")
    starts = torch.randint(len(characters) - LENGTH, (16,))
    return of(torch.stack([characters[at : at + LENGTH] for at in starts]))


def validation():
    characters, _ = text("valid")
    rows = characters[: len(characters) // LENGTH * LENGTH].view(-1, LENGTH)
    return [of(some) for some in rows.split(64)]


def bigram_nats():
    """The loss on the validation of each character's share after the one before it; `bigram_nats`
    of results.json.
    """
    characters, size = text("train")
    pairs = torch.ones(size, size, dtype=torch.float64)
    one = torch.ones(len(characters) - 1, dtype=torch.float64)
    pairs.index_put_((characters[:-1], characters[1:]), one, accumulate=True)
    rows = torch.cat([batch["input_ids"] for batch in validation()])
    return -float((pairs / pairs.sum(1, keepdim=True)).log()[rows[:, :-1], rows[:, 1:]].mean())
