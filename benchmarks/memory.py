"""Resident memory and processor seconds of a long training on a CPU, by what oneDNN is given to
compute.

Two processes train the same model on the toy language. Batches hold numbers of tokens that hardly
ever come again, and on processors with AVX-512 oneDNN compiles and keeps a product for every shape.
One arm sends every product there, the other the large ones, in round numbers of rows, as NormScope
does on processors that are not Intel's. A third, by `--arm none UPDATES WIDTH`, does as on Intel's.
On a processor with AMX, `ONEDNN_MAX_CPU_ISA=AVX512_CORE` shows what one without it does. Usage:
`python benchmarks/memory.py FOLDER [UPDATES [WIDTH]]`; FOLDER gets JSON and a picture.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ARMS = {"every": "every product", "large": "large products, round rows"}


def train(updates: int, width: int, arm: str) -> None:
    """Train, and print a JSON line [update, megabytes, seconds of the processor] a hundred
    times.
    """
    import time

    import torch

    from normscope.model import linear as products
    from normscope.runs.config import load
    from normscope.runs.run import train_run
    from normscope.train.run_folder import Event

    products.made_by_intel = lambda: arm != "large"
    if arm == "every":
        torch.backends.mkldnn.matmul.fp32_precision = "bf16"  # type: ignore[attr-defined]
    every = max(1, updates // 100)

    def watch(event: Event) -> None:
        if event["event"] == "update" and (
            event["update"] % every == 0 or event["update"] in (1, 10)
        ):
            print(
                json.dumps([event["update"], _resident_megabytes(), time.process_time()]),
                flush=True,
            )

    settings = [
        f"model.width={width}",
        f"model.ffn_width={4 * width}",
        "model.heads=2",
        "model.encoder_blocks=1",
    ]
    settings += [
        "model.decoder_blocks=1",
        "train.threads=1",
        'train.device="cpu"',
        "data.max_tokens=128",
    ]
    settings += [
        "data.toy_pairs=20000",
        f"train.duration={updates}",
        f"train.validate_every={updates}",
    ]
    with tempfile.TemporaryDirectory() as folder:
        train_run(
            load(None, [*settings, f"train.checkpoint_every={updates}"]),
            Path(folder) / "run",
            listeners=[watch],
        )


def main(folder: Path, updates: int, width: int) -> None:
    """Both arms at once, so that they meet the same neighbours."""
    folder.mkdir(parents=True, exist_ok=True)
    arms = []
    for arm in ARMS:
        with (folder / f"{arm}.jsonl").open("w") as lines:
            words = [sys.executable, __file__, "--arm", arm, str(updates), str(width)]
            arms.append(subprocess.Popen(words, stdout=lines))
    failed = [arm.args for arm in arms if arm.wait()]
    if failed:
        raise SystemExit("an arm failed; what it said stands above")
    collect(folder, width)


def collect(folder: Path, width: int) -> None:
    """Join what the arms wrote, and draw it."""
    files = [folder / f"{arm}.jsonl" for arm in ARMS]
    curves = {
        path.stem: [json.loads(line) for line in path.read_text().splitlines()] for path in files
    }
    columns = ["update", "resident megabytes", "processor seconds"]
    facts = {
        "width": width,
        "max_cpu_isa": os.environ.get("ONEDNN_MAX_CPU_ISA", ""),
        "columns": columns,
    }
    (folder / "memory.json").write_text(json.dumps(facts | {"arms": curves}) + "\n")
    _draw(curves, folder / "memory.svg", f"Resident memory of a training on a CPU, width {width}")
    for path in files:
        path.unlink()


def _draw(curves: dict[str, list[list[float]]], path: Path, title: str) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 3.6), layout="constrained")
    axes = figure.add_subplot(xlabel="update", ylabel="megabytes", title=title)
    for arm, words in ARMS.items():
        updates, megabytes, _ = zip(*curves[arm], strict=True)
        axes.plot(updates, megabytes, label=f"through oneDNN: {words}")
    axes.set_ylim(0)
    axes.legend()
    figure.savefig(path, metadata={"Date": None})


def _resident_megabytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") // 2**20


if __name__ == "__main__":
    if sys.argv[1:2] == ["--arm"]:
        train(int(sys.argv[3]), int(sys.argv[4]), sys.argv[2])
    else:
        words = sys.argv[1:]
        main(Path(words[0]), int((words[1:] or ["10000"])[0]), int((words[2:] or ["128"])[0]))
