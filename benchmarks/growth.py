"""How costs grow: of a comparison with its runs, of a report with its arms and with their updates,
of a diagnosis with its model, of a corpus with its text.

Run: python benchmarks/growth.py [compare] [report] [updates] [diagnosis] [corpora] [--sizes N …]
[--rounds 1] [--folder FOLDER]. Every point is measured in a process of its own: seconds of the
processor, those of its children too, and megabytes at most. Prints a table for each curve with the
exponent of each step: from the size before, seconds grow as the size to that power. `--folder`
keeps the points, and what it has is not measured again. All of it takes some ten minutes of a core;
10,000 runs and the text of 200 MB take most of them.
"""

import argparse
import json
import math
import multiprocessing
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any
from unittest.mock import patch

import corpora

Point = dict[str, float]
UPDATES, VALIDATIONS = 200, 10
"""Of each stand-in for a run of a report."""
PASS_SECONDS = 0.2
"""How long the plain pass of a model is repeated, whose median is taken."""


COMMANDS = {"runs": 0, "finished runs": 1, "dry run": 2}
"""Of a comparison, and the place of each in what `_driven` sends."""


def comparison(runs: int, folder: Path, *, command: str) -> Point:
    """`normscope compare` on stand-ins for so many runs of ten arms, whose own seconds are not
    counted.

    command: all of them run, 100 at a time; the same again, of which all are finished; or a dry run
    of them.
    """
    file = folder / f"driven-{runs}.json"
    if not file.exists():
        ours, theirs = multiprocessing.Pipe()
        process = multiprocessing.get_context("fork").Process(target=_driven, args=(theirs, runs))
        process.start()
        theirs.close()
        file.write_text(json.dumps(ours.recv()) + "\n", encoding="utf-8")
        process.join()
    found: list[Point] = json.loads(file.read_text(encoding="utf-8"))
    return found[COMMANDS[command]]


def _driven(connection: Connection, runs: int) -> None:
    import grid
    from normscope.cli.console import stderr
    from normscope.cli.display import GridDisplay
    from normscope.compare import pool
    from normscope.compare.compare import prepare, run_comparison

    points = list[Point]()
    with tempfile.TemporaryDirectory() as first, tempfile.TemporaryDirectory() as other:
        for number, out in enumerate((first, first, other)):
            synced, grid.Stub.seconds, begun = grid.Synced(), 0.0, time.process_time()
            with patch.object(pool, "process_of", grid.Stub), patch.object(os, "fsync", synced):
                cells = _grid(runs // 10, 10).cells(_base(grid.UPDATES), Path(out))
                if number == COMMANDS["dry run"]:
                    prepare(cells, Path(out))
                else:
                    with GridDisplay(stderr()) as display:
                        options = pool.PoolOptions(
                            command="normscope compare", processes=100, watch=display
                        )
                        run_comparison(cells, Path(out), options)
            seconds = time.process_time() - begun - grid.Stub.seconds
            points.append(
                {"seconds": seconds, "peak_mb": _peak_mb(), "synchronisations": synced.times}
            )
    connection.send(points)


def report(arms: int, folder: Path, *, rates: int) -> Point:
    """`normscope report` on a comparison of so many arms, of one seed each, that differ in
    placement, rate and warm-up.

    rates: how many; with more than one the page draws the best of each ladder of rates, else every
    arm.
    """
    out = folder / f"report-{arms}-{rates}"
    if not (out / "comparison.json").exists():
        _make_runs(out, _grid(1, arms, rates), UPDATES, UPDATES // VALIDATIONS)
    return _reported(out)


def long_report(updates: int, folder: Path) -> Point:
    """`normscope report` on a comparison of one run of so many updates, each hundredth of them
    validated.
    """
    out = folder / f"report-of-{updates}"
    if not (out / "comparison.json").exists():
        _make_runs(out, _grid(1, 1), updates, 100)
    return _reported(out)


def _reported(out: Path) -> Point:
    measured = _child([sys.executable, "-m", "normscope", "report", str(out)])
    sizes = {
        f"{name.partition('.')[0]}_mb": (out / name).stat().st_size / 1e6
        for name in ("report.html", "results.json")
    }
    return measured | sizes


def _make_runs(out: Path, grid: Any, updates: int, validate_every: int) -> None:
    from normscope.compare.compare import corpus_of
    from normscope.compare.manifest import about, write_manifest
    from normscope.train.metrics import LogMark, MetricsLog

    base = _base(updates)
    cells = grid.cells(base, out)
    for number, cell in enumerate(cells):
        cell.folder.path.mkdir(parents=True)
        (cell.folder.config_file).write_text(cell.configuration, encoding="utf-8")
        log = MetricsLog(cell.folder.metrics_file, LogMark())
        for update in range(1, updates + 1):
            nats = 2 + 4 / (1 + update / (20 + number % 7))
            counts = {
                "update": update,
                "lr": 1e-3,
                "epoch": update / 50,
                "target_tokens": 128,
            }
            log.append({"event": "update", "nll_nats": nats, "gradient_norm": 1 / update} | counts)
            if update % validate_every == 0:
                log.append({"event": "validation", "update": update, "nll_nats": nats})
        log.append({"event": "finished", "update": updates, "best_update": updates})
        log.close()
    manifest = about(base, corpus_of(base, None)).grown(None, "normscope compare", cells)
    write_manifest(out, manifest)


def _base(updates: int) -> Any:
    from normscope.runs.config import load

    settings = [
        f"train.duration={updates}",
        "data.toy_pairs=100",
        "data.max_tokens=128",
        "model.width=16",
    ]
    return load(None, [*settings, "model.heads=2", "model.ffn_width=32"])


def _grid(seeds: int, arms: int, rates: int = 1) -> Any:
    from normscope.compare.grid import Grid

    names = ("pre-ln", "post-ln")[:arms]
    placements = [
        (name, 10 * number) for name in names for number in range(arms // rates // len(names))
    ]
    ladder = tuple(1e-4 * 1.5**number for number in range(rates))
    return Grid(
        placements_and_warmups=tuple(placements), peak_lrs=ladder, optimizers=("adam",), seeds=seeds
    )


def _child(words: list[str]) -> Point:
    """A command to its end."""
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{' '.join(words)} ended with {process.returncode}")
    return {
        "seconds": used.ru_utime + used.ru_stime,
        "peak_mb": used.ru_maxrss / 1024,
    }  # Linux gives KiB


def gpt2(blocks: int = 4, width: int = 64, tokens: int = 64) -> tuple[Any, Any]:
    """A model of random weights and the tokens of one sequence."""
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel

    sizes: dict[str, Any] = {"n_embd": width, "n_layer": blocks, "n_positions": tokens}
    config = GPT2Config(vocab_size=1000, n_head=4, bos_token_id=None, eos_token_id=None, **sizes)
    return GPT2LMHeadModel(config), torch.randint(1000, (1, tokens))


def plain(model: Any, tokens: Any) -> None:
    """One forward and backward pass, as in training."""
    model.train()
    model(input_ids=tokens, labels=tokens).loss.backward()


def diagnosis(model: Any, tokens: Any) -> None:
    """All that `normscope doctor` finds out."""
    import normscope

    found = normscope.diagnose(model, {"input_ids": tokens, "labels": tokens}, optimizer="adamw")
    assert found.stacks[0].blocks == model.config.num_hidden_layers


SIDES = {"plain": plain, "diagnosis": diagnosis}


def model(size: int, folder: Path, *, axis: str, side: str) -> Point:
    """A side of a GPT-2 of 4 blocks of width 64 over 64 tokens with one of the three changed.

    In a process forked from this one, which has imported what a side needs and done it once for a
    small model: neither counts. The peak is what the process grows by.
    """
    import torch

    torch.set_num_threads(1)
    torch.manual_seed(0)
    SIDES[side](*gpt2(blocks=2))
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("fork").Process(
        target=_side, args=(theirs, axis, side, size)
    )
    process.start()
    theirs.close()
    measured: Point = ours.recv()
    process.join()
    return measured


def _side(connection: Connection, axis: str, side: str, size: int) -> None:
    before = _peak_mb()
    given, times = gpt2(**{axis: size}), list[float]()
    if side == "plain":
        plain(*given)
    while sum(times) < (PASS_SECONDS if side == "plain" else 1e-9):
        begun = time.process_time()
        SIDES[side](*given)
        times.append(time.process_time() - begun)
    connection.send({"seconds": statistics.median(times), "peak_mb": _peak_mb() - before})


def _peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024  # Linux gives KiB


def corpus(megabytes: float, folder: Path) -> Point:
    """`normscope data documents` on so much of the synthetic text of `corpora.py`, by one
    process.
    """
    text = folder / f"text-{megabytes:g}.txt"
    if not text.exists():
        corpora.write_text(text, megabytes)
    found = corpora.measured("normscope", text, processes=1)
    return {
        "seconds": found["cpu_seconds"],
        "peak_mb": found["peak_megabytes"],
        "tokens": found["tokens"],
    }


CURVES: dict[str, tuple[str, Callable[..., Point], list[int]]] = {
    **{
        f"compare, {command}": ("runs", partial(comparison, command=command), [100, 1000, 10000])
        for command in COMMANDS
    },
    "report, every arm drawn": ("arms", partial(report, rates=1), [10, 100, 1000]),
    "report, ladders of 5 rates": ("arms", partial(report, rates=5), [10, 100, 1000]),
    "updates of one run": ("updates", long_report, [10_000, 20_000, 40_000, 200_000, 1_000_000]),
    **{
        f"{side}, {axis}": (axis, partial(model, axis=axis, side=side), sizes)
        for axis, sizes in (
            ("blocks", [4, 16, 64, 256]),
            ("width", [64, 256, 1024]),
            ("tokens", [64, 256, 1024]),
        )
        for side in ("plain", "diagnosis")
    },
    "corpus": ("MB", corpus, [20, 50, 200]),
}
"""By name: the unit of its sizes, what measures a point, and the sizes."""
PARTS = {
    "compare": ("compare",),
    "report": ("report",),
    "updates": ("updates",),
    "diagnosis": ("plain", "diagnosis"),
    "corpora": ("corpus",),
}


def point(name: str, size: int, folder: Path, rounds: int) -> Point:
    """One that the folder has, or else the medians of so many rounds."""
    file = folder / f"{name.replace(', ', '-').replace(' ', '-')}-{size}.json"
    if not file.exists():
        found = [CURVES[name][1](size, folder) for _ in range(rounds)]
        medians = {key: statistics.median(one[key] for one in found) for key in found[0]}
        file.write_text(json.dumps(medians) + "\n", encoding="utf-8")
    measured: Point = json.loads(file.read_text(encoding="utf-8"))
    return measured


def table(name: str, unit: str, points: dict[int, Point]) -> None:
    """Print a curve with the exponent of each step."""
    keys = list(next(iter(points.values())))
    print(f"\n{name}\n{unit:>8}" + "".join(f"{key:>14}" for key in keys) + f"{'exponent':>10}")
    sizes = list(points)
    for before, size in zip([None, *sizes], sizes, strict=False):
        step = "" if before is None else f"{exponent(points, before, size):.2f}"
        print(
            f"{size:>8}"
            + "".join(f"{value:>14,.3f}" for value in points[size].values())
            + f"{step:>10}",
            flush=True,
        )


def exponent(points: dict[int, Point], before: int, size: int) -> float:
    """Of the step from one size to the next."""
    return math.log(points[size]["seconds"] / points[before]["seconds"]) / math.log(size / before)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "parts", nargs="*", default=list(PARTS), metavar="PART", help=f"of {', '.join(PARTS)}"
    )
    parser.add_argument("--sizes", nargs="+", type=int, help="of every curve, instead of its own")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--folder", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = (options.folder or Path(temporary)).absolute()
        folder.mkdir(parents=True, exist_ok=True)
        for name, (unit, _, sizes) in CURVES.items():
            if any(name.startswith(PARTS[part]) for part in options.parts):
                table(
                    name,
                    unit,
                    {n: point(name, n, folder, options.rounds) for n in options.sizes or sizes},
                )


if __name__ == "__main__":
    main()
