"""What the doctor's monitor costs: one measurement over one training step of Hugging Face's GPT-2,
in CPU time.

    python benchmarks/monitor.py [--rounds 5]

A step is forward, backward and AdamW. The first measurement of a training also names what it finds;
it stands apart.
"""

import argparse
import statistics
import time
from collections.abc import Callable

import torch

from normscope.monitor import Monitor

SIZES = ((4, 128, 8, 64), (12, 256, 8, 128), (12, 768, 4, 128))
"""Blocks, width, sequences, tokens of each."""
VOCABULARY, EVERY = 5_000, 100


def cpu_seconds(run: Callable[[], object]) -> float:
    # Not the clock on the wall: other processes of the machine do not count.
    started = time.process_time()
    run()
    return time.process_time() - started


def ratios(
    blocks: int, width: int, sequences: int, tokens: int, rounds: int
) -> tuple[float, list[float]]:
    """Of the first measurement to the median step, and of later ones to the step of the same
    round.
    """
    import transformers

    torch.manual_seed(0)
    model = transformers.GPT2LMHeadModel(
        transformers.GPT2Config(
            vocab_size=VOCABULARY,
            n_embd=width,
            n_layer=blocks,
            n_head=4,
            bos_token_id=0,
            eos_token_id=0,
        )
    ).train()
    ids_BT = torch.randint(0, VOCABULARY, (sequences, tokens))
    inputs = {"input_ids": ids_BT, "labels": ids_BT}
    optimizer = torch.optim.AdamW(model.parameters())

    def step() -> None:
        model(**inputs).loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    def measure(monitor: Monitor) -> None:
        """Both calls around an optimiser's step, without it."""
        monitor(2)
        monitor.stepped(2)

    step()
    monitor = Monitor(model=model, inputs=inputs, every_updates=1)
    first = cpu_seconds(lambda: monitor(1))
    pairs = [(cpu_seconds(step), cpu_seconds(lambda: measure(monitor))) for _ in range(rounds)]
    return first / statistics.median(a for a, _ in pairs), [b / a for a, b in pairs]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    torch.set_num_threads(1)
    print(f"| blocks | width | tokens | first | later | range | of a training at N = {EVERY} |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for blocks, width, sequences, tokens in SIZES:
        first, later = ratios(blocks, width, sequences, tokens, rounds)
        middle = statistics.median(later)
        cells = [blocks, width, sequences * tokens, f"{first:.2f}", f"{middle:.2f}"]
        cells += [f"{min(later):.2f} to {max(later):.2f}", f"{middle / EVERY:.1%}"]
        print("| " + " | ".join(str(cell) for cell in cells) + " |")


if __name__ == "__main__":
    main()
