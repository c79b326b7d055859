"""Resident memory of a long training on a CPU, update by update, with large and with small caches of compiled kernels.

Two processes train the same tiny model on the toy language in turns of updates; each prints its memory. Batches hold
numbers of tokens that hardly ever come again, which is what lets a cache of compiled products grow. Usage:
`python benchmarks/memory.py [UPDATES [WIDTH]]`.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

SMALL = {"ONEDNN_PRIMITIVE_CACHE_CAPACITY": "256", "LRU_CACHE_CAPACITY": "8"}
"""oneDNN's own cache, and the one that torch has before it for each kind of product; both hold 1,024 by default."""


def train(updates: int, width: int) -> None:
    """Train, and print a JSON line [update, megabytes, seconds of the processor] fifty times."""
    import time

    from normscope.runs.config import load
    from normscope.runs.run import train_run
    from normscope.train.run_folder import Event

    every = max(1, updates // 50)

    def watch(event: Event) -> None:
        if event["event"] == "update" and (event["update"] % every == 0 or event["update"] == 10):
            print(json.dumps([event["update"], _resident_megabytes(), time.process_time()]), flush=True)

    settings = [f"model.width={width}", f"model.ffn_width={4 * width}", "model.heads=2", "model.encoder_blocks=1"]
    settings += ["model.decoder_blocks=1", "train.threads=1", 'train.device="cpu"', "data.max_tokens=384"]
    settings += ["data.toy_pairs=20000", f"train.duration={updates}", f"train.validate_every={updates}"]
    with tempfile.TemporaryDirectory() as folder:
        train_run(load(None, [*settings, f"train.checkpoint_every={updates}"]), Path(folder) / "run", listeners=[watch])


def main() -> None:
    """Both arms at once, so that they meet the same neighbours."""
    words = [sys.executable, __file__, "--arm", *(sys.argv[1:] or ["10000"])]
    arms = {
        name: subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=os.environ | more)
        for name, more in (("default", {}), ("small", SMALL))
    }
    curves = {name: [json.loads(line) for line in arm.communicate()[0].splitlines()] for name, arm in arms.items()}
    print(f"{'update':>8}{'default MB':>12}{'small MB':>12}{'CPU ratio':>11}")
    for (update, megabytes, seconds), (_, smaller, theirs) in zip(curves["default"], curves["small"], strict=True):
        print(f"{update:>8}{megabytes:>12}{smaller:>12}{theirs / seconds:>11.3f}")


def _resident_megabytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") // 2**20


if __name__ == "__main__":
    if sys.argv[1:2] == ["--arm"]:
        train(int(sys.argv[2]), int((sys.argv[3:] or ["32"])[0]))
    else:
        main()
