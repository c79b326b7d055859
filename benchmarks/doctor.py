"""The whole diagnosis of a GPT-2 of 124M parameters beside one plain forward and backward pass of it.

Run: python benchmarks/doctor.py [--threads 1]. Each side runs in processes of its own, in turn, on the same model and
512 tokens; prints the median of each with quartiles, their ratio, and the ratio of their peak memory.
"""

import argparse
import json
import resource
import subprocess
import sys
import time
from typing import Any

import numpy as np

TOKENS = 512
ROUNDS = 3


def plain() -> None:
    """One forward and backward pass with the loss of the next token, as in training."""
    model, tokens = _model()
    model.train()
    model(input_ids=tokens, labels=tokens).loss.backward()  # warm: allocations and kernels
    model.zero_grad()
    started = time.perf_counter()
    model(input_ids=tokens, labels=tokens).loss.backward()
    _told(time.perf_counter() - started)


def doctor() -> None:
    """Everything that `normscope doctor` finds out."""
    import normscope

    model, tokens = _model()
    started = time.perf_counter()
    found = normscope.diagnose(model, {"input_ids": tokens, "labels": tokens}, optimizer="adamw", wanted_rate=6e-4)
    seconds = time.perf_counter() - started
    assert found.stacks[0].blocks == 12
    assert found.advice is not None
    _told(seconds)


def _model() -> tuple[Any, Any]:
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.set_num_threads(int(sys.argv[2]))
    torch.manual_seed(0)
    model = GPT2LMHeadModel(GPT2Config())
    return model, torch.randint(model.config.vocab_size, (1, TOKENS))


def _told(seconds: float) -> None:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({"seconds": seconds, "peak_mb": peak}))


SIDES = {"plain": plain, "doctor": doctor}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    options = parser.parse_args()
    found: dict[str, list[dict[str, float]]] = {name: [] for name in SIDES}
    for number in range(options.rounds):
        for name in SIDES:
            command = [sys.executable, __file__, name, str(options.threads)]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            found[name].append(json.loads(done.stdout.splitlines()[-1]))
            print(f"round {number + 1}, {name}: {found[name][-1]}", file=sys.stderr)
    for name, rounds in found.items():
        low, middle, high = np.percentile([one["seconds"] for one in rounds], [25, 50, 75])
        peak = max(one["peak_mb"] for one in rounds)
        print(f"{name:8} {middle:7.2f} s ({low:.2f} to {high:.2f}), peak {peak:,.0f} MB")
    times, peaks = (
        {name: function([one[what] for one in rounds]) for name, rounds in found.items()}
        for what, function in (("seconds", np.median), ("peak_mb", max))
    )
    print(f"time: {times['doctor'] / times['plain']:.2f} times; memory: {peaks['doctor'] / peaks['plain']:.2f} times")


if __name__ == "__main__":
    if len(sys.argv) > 1 and sys.argv[1] in SIDES:
        SIDES[sys.argv[1]]()
    else:
        main()
