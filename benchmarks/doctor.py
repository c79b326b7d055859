"""The diagnosis of a model beside one plain forward and backward pass of it.

Run: python benchmarks/doctor.py [--model gpt2 | llama-1b] [--threads 1] [--rounds 3] [--sides plain
diagnosis]. Each side runs in processes of its own, in turn, on the same model and tokens; prints
the median of each in seconds of the processor with quartiles, its ratio to the plain pass, and the
ratio of their peak memory.
"""

import argparse
import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np


def gpt2() -> tuple[Any, Any]:
    """124M parameters in float32, 512 tokens."""
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel

    model = GPT2LMHeadModel(GPT2Config())
    return model, torch.randint(model.config.vocab_size, (1, 512))


def llama_1b() -> tuple[Any, Any]:
    """The shape of Llama 3.2 1B with 1.24 billion parameters in bfloat16, 64 tokens."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.set_default_dtype(torch.bfloat16)
    config = LlamaConfig(
        vocab_size=128_256,
        hidden_size=2048,
        intermediate_size=8192,
        num_hidden_layers=16,
        num_attention_heads=32,
        num_key_value_heads=8,
        tie_word_embeddings=True,
    )
    return LlamaForCausalLM(config), torch.randint(config.vocab_size, (1, 64))


MODELS: dict[str, Callable[[], tuple[Any, Any]]] = {"gpt2": gpt2, "llama-1b": llama_1b}


def plain(model: Any, tokens: Any) -> None:
    """One forward and backward pass with the loss of the next token, as in training."""
    model.train()
    model(input_ids=tokens, labels=tokens).loss.backward()


def diagnosis(model: Any, tokens: Any, *, laws: bool = True) -> None:
    """Everything that `normscope doctor` finds out."""
    import normscope

    found = normscope.diagnose(
        model,
        {"input_ids": tokens, "labels": tokens},
        optimizer="adamw",
        wanted_rate=6e-4,
        laws=laws,
    )
    assert found.stacks[0].blocks == model.config.num_hidden_layers
    assert found.advice is not None
    assert found.advice.wanted_place == "in range"


def without_laws(model: Any, tokens: Any) -> None:
    """The same with `--no-laws`: no copy of the model is tried."""
    diagnosis(model, tokens, laws=False)


SIDES = {"plain": plain, "diagnosis": diagnosis, "without-laws": without_laws}


def measure(side: str, made: str, threads: int) -> None:
    """Print what one side takes."""
    import torch

    torch.set_num_threads(threads)
    torch.manual_seed(0)
    model, tokens = MODELS[made]()
    if side == "plain":
        plain(model, tokens)  # warm: allocations and kernels
        model.zero_grad()
    wall, processor = time.perf_counter(), time.process_time()
    SIDES[side](model, tokens)
    wall, processor = time.perf_counter() - wall, time.process_time() - processor
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({"seconds": processor, "wall_seconds": wall, "peak_mb": peak}))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", choices=MODELS, default="gpt2")
    parser.add_argument("--sides", nargs="+", choices=SIDES, default=list(SIDES))
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--measure", choices=SIDES, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure is not None:
        measure(options.measure, options.model, options.threads)
        return
    found: dict[str, list[dict[str, float]]] = {name: [] for name in options.sides}
    for number in range(options.rounds):
        for name in options.sides:
            command = [sys.executable, __file__, "--measure", name, "--model", options.model]
            done = subprocess.run(
                [*command, "--threads", str(options.threads)],
                stdout=subprocess.PIPE,
                text=True,
                check=True,
            )
            found[name].append(json.loads(done.stdout.splitlines()[-1]))
            print(f"round {number + 1}, {name}: {found[name][-1]}", file=sys.stderr)
    first, *_ = options.sides
    for name, rounds in found.items():
        low, middle, high = np.percentile([one["seconds"] for one in rounds], [25, 50, 75])
        peak, base = (max(one["peak_mb"] for one in some) for some in (rounds, found[first]))
        ratio = middle / np.median([one["seconds"] for one in found[first]])
        print(
            f"{name:9} {middle:7.2f} s ({low:.2f} to {high:.2f}), {ratio:.2f} times {first}; "
            f"peak {peak:,.0f} MB, {peak / base:.2f} times"
        )


if __name__ == "__main__":
    main()
