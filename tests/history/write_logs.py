"""Writes `tests/history/logs`: one training, as each library writes it.

    python tests/history/write_logs.py FOLDER LIBRARY [LIBRARY ...]

The files that are committed were written by pandas 3.1.1, wandb 0.31.0, mlflow-skinny 3.17.2,
trackio 0.43.0, lightning 2.5.5 and transformers 5.23.0. Of databases the tables with numbers are
kept, as SQL: `sqlite3 FILE < FILE.sql` makes them again. Those of nanoGPT, Megatron-LM and
torchtitan are in the form of the line of their source that prints them; these trainers were not
run.
"""

import contextlib
import io
import math
import os
import shutil
import sqlite3
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

UPDATES, PEAK, WARMUP = 12, 3e-4, 4
SETTINGS = {"learning_rate": PEAK, "warmup_steps": WARMUP}
RUNS = ("first", "second")
"""The second one ends in a loss that is no number."""


def loss(update: int) -> float:
    """Falls from 3.67 to 2.57."""
    return round(2.5 + 1.5 * math.exp(-update / 4), 4)


def rate(update: int) -> float:
    """Rises over four updates."""
    return PEAK * min(1.0, update / WARMUP)


def norm(update: int) -> float:
    """Of the gradient."""
    return round(1 + update / 10, 2)


def rows(run: str) -> Iterator[tuple[int, dict[str, float]]]:
    """Every update with what is logged of it."""
    for at in range(1, UPDATES + 1):
        values = {"loss": loss(at), "learning_rate": rate(at), "grad_norm": norm(at)}
        yield at, {f"train/{name}": value for name, value in values.items()}
    if run == RUNS[1]:
        yield UPDATES + 1, {"train/loss": math.nan}


def pandas(folder: Path) -> None:
    """A frame with its index, and one without, whose columns are named by hand."""
    import pandas as frames

    table = frames.DataFrame([values | {"epoch": 1, "step": at} for at, values in rows("second")])
    table.set_index("step").to_csv(folder / "pandas_index.csv")
    table.columns = ["Loss", "LR", "Grad Norm", "Epoch", "Iteration"]
    table.to_csv(folder / "pandas_named.csv", sep=";")


def lightning(folder: Path) -> None:
    """`CSVLogger`, with validation in rows of its own, and with names of one's own."""
    from lightning.pytorch.loggers import CSVLogger

    for name, prefix in (("lightning", "train_"), ("lightning_step", "train/")):
        with tempfile.TemporaryDirectory() as place:
            logger = CSVLogger(place, version=0)
            logger.log_hyperparams(SETTINGS)
            for at, values in rows("second"):
                plain = {key.removeprefix("train/"): value for key, value in values.items()}
                rates = plain.pop("learning_rate", None)
                logger.log_metrics({f"{prefix}{key}": v for key, v in plain.items()}, step=at)
                if rates is not None:
                    logger.log_metrics({"lr-AdamW": rates}, step=at)
            logger.log_metrics({"val_loss": 2.9, "epoch": 0}, step=UPDATES)
            logger.save()
            (folder / name).mkdir(exist_ok=True)
            for file in ("metrics.csv", "hparams.yaml"):
                shutil.copy(Path(logger.log_dir) / file, folder / name / file)


def wandb(folder: Path) -> None:
    """Offline runs; the folder around a run has other files, which are not kept."""
    os.environ |= {"WANDB_MODE": "offline", "WANDB_SILENT": "true"}
    import wandb as library

    # Nothing of the machine that wrote them is kept.
    private = library.Settings(
        x_disable_meta=True,
        x_disable_stats=True,
        disable_git=True,
        disable_code=True,
        host="host",
        console="off",
    )
    for name in RUNS:
        with tempfile.TemporaryDirectory() as place:
            run = library.init(
                project="letters",
                name=name,
                config=SETTINGS | {"size": {"width": 8}},
                dir=place,
                settings=private,
            )
            for at, values in rows(name):
                run.log(values | {"train/global_step": at})
            run.finish()
            (written,) = Path(place).glob("wandb/offline-run-*/run-*.wandb")
            shutil.copy(written, folder / f"run-{name}.wandb")


def mlflow(folder: Path) -> None:
    """Its store of files and its database, two runs each."""
    os.environ["MLFLOW_ALLOW_FILE_STORE"] = "true"
    import mlflow as library

    with tempfile.TemporaryDirectory() as place:
        for uri in (f"file://{place}/mlruns", f"sqlite:///{place}/mlflow.db"):
            library.set_tracking_uri(uri)
            library.create_experiment("letters", artifact_location="mlflow-artifacts:/letters")
            library.set_experiment("letters")
            for name in RUNS:
                with library.start_run(run_name=name):
                    library.log_params(SETTINGS)
                    for at, values in rows(name):
                        library.log_metrics(values, step=at)
                    library.log_metric("eval/loss", 2.9, step=UPDATES)
        apart = shutil.ignore_patterns("tags", "0", "meta.yaml", ".trash")
        shutil.copytree(f"{place}/mlruns", folder / "mlruns", dirs_exist_ok=True, ignore=apart)
        for meta in Path(place).glob("mlruns/*/*/meta.yaml"):
            words = [line for line in meta.read_text().splitlines() if "user" not in line]
            kept = folder / meta.relative_to(place)
            kept.write_text("\n".join(words) + "\n")
        _dump(Path(place, "mlflow.db"), folder, ("runs", "metrics", "params"))


def trackio(folder: Path) -> None:
    """Two runs of one project."""
    with tempfile.TemporaryDirectory() as place:
        os.environ["TRACKIO_DIR"] = place
        import trackio as library

        for name in RUNS:
            library.init(project="letters", name=name, config=SETTINGS)
            for at, values in rows(name):
                library.log(values | {"note": "text"}, step=at)
            library.finish()
        _dump(Path(place, "letters.db"), folder, ("metrics", "configs"))


def _dump(database: Path, folder: Path, tables: tuple[str, ...]) -> None:
    """Some tables of a database, as SQL."""
    with contextlib.closing(sqlite3.connect(database)) as opened:
        lines = list(opened.iterdump())
    heads = tuple(
        f"{word} {name}"
        for table in tables
        for name in (f'"{table}"', f"{table} ")
        for word in ("CREATE TABLE", "INSERT INTO")
    )
    kept = [line for line in lines if line.replace("IF NOT EXISTS ", "").startswith(heads)]
    (folder / f"{database.name}.sql").write_text("\n".join(kept) + "\n")


def transformers(folder: Path) -> None:
    """What the Trainer prints, without and with its bar, of a training of its own."""
    import torch
    from transformers import Trainer, TrainingArguments
    from transformers.trainer_callback import PrinterCallback

    class Line(torch.nn.Module):
        """One weight, whose loss falls."""

        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.tensor(2.0))

        def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
            return {"loss": (self.weight * x).square().mean() + 2.5}

    for bar in (False, True):
        with tempfile.TemporaryDirectory() as place:
            arguments = TrainingArguments(
                place,
                max_steps=12,
                logging_steps=1,
                learning_rate=0.1,
                warmup_steps=4,
                disable_tqdm=not bar,
                report_to=[],
                per_device_train_batch_size=1,
                use_cpu=True,
                save_strategy="no",
            )
            trainer = Trainer(Line(), arguments, train_dataset=[{"x": 1.0}] * 12)
            assert bar or any(
                isinstance(one, PrinterCallback) for one in trainer.callback_handler.callbacks
            )
            shown = io.StringIO()
            with contextlib.redirect_stdout(shown), contextlib.redirect_stderr(shown):
                trainer.train()
            name = "transformers_bar.txt" if bar else "transformers.txt"
            (folder / name).write_text(shown.getvalue())


def printed(folder: Path) -> None:
    """Lines of trainers that were not run, in the form in which their source prints them."""
    nano, megatron, titan = [], [], []
    for at, values in rows("second"):
        one, step = values["train/loss"], f"{at:2}"
        if at % 6 == 1:
            nano.append(f"step {at}: train loss {one:.4f}, val loss 2.9000")
        nano.append(f"iter {at}: loss {one:.4f}, time 101.35ms, mfu 12.34%")
        megatron.append(
            f" [2026-01-02 03:04:05] iteration {at:8d}/{1000:8d} | consumed samples: {256 * at:12d}"
            f" | elapsed time per iteration (ms): 1234.5 | learning rate: {rate(at):.6E} | global "
            f"batch size:   256 | lm loss: {one:.6E} | loss scale: 1.0 | grad norm: {norm(at):.3f} "
            "| number of skipped iterations:   0 | number of nan iterations:   0 |"
        )
        titan.append(
            f"[rank0]:[titan] 2026-01-02 03:04:05,678 - root - INFO - \x1b[31mstep: {step}  "
            f"\x1b[32mloss: {one:8.5f}  \x1b[38;2;180;60;0mgrad_norm: {norm(at):7.4f}  "
            "\x1b[38;2;54;234;195mmemory:  1.19GiB(1.26%)  \x1b[34mtps: 1,234  \x1b[36mtflops: "
            "5.67  \x1b[35mmfu: 8.90%\x1b[39m"
        )
    megatron.append("-" * 80)
    megatron.append(
        f" validation loss at iteration {UPDATES} | lm loss value: 2.900000E+00 | lm loss PPL: "
        "1.817415E+01 | "
    )
    nano.insert(0, "number of parameters: 10.65M\ntokens per iteration will be: 16,384")
    titan.append(f"\x1b[32mvalidate step: {UPDATES:2}  \x1b[32mloss: 2.90000  \x1b[34mtps: 1,234")
    for name, lines in (("nanogpt", nano), ("megatron", megatron), ("torchtitan", titan)):
        (folder / f"{name}.log").write_text("\n".join(lines) + "\n")
        # As it is copied out of a terminal: the shell's line, no colours, and the last line cut.
        plain = "\n".join(lines[:-2])
        for colour in ("31", "32", "34", "35", "36", "39", "38;2;180;60;0", "38;2;54;234;195"):
            plain = plain.replace(f"\x1b[{colour}m", "")
        (folder / f"{name}_pasted.txt").write_text(f"$ python train.py\n{plain}\n{lines[-2][:9]}")


WRITERS: dict[str, Callable[[Path], Any]] = {
    one.__name__: one for one in (pandas, lightning, wandb, mlflow, trackio, transformers, printed)
}

if __name__ == "__main__":
    for library in sys.argv[2:]:
        WRITERS[library](Path(sys.argv[1]))
