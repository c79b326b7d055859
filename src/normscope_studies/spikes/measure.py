"""The same trainings in two loops, and what the doctor says of their own logs."""

import io
import math
import tempfile
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from normscope.history.episodes import EpisodeKind, episodes
from normscope.history.explain import explain
from normscope.history.reading.readers import TRAINER_STATE, of_events, of_trainer_state
from normscope.history.record import History
from normscope.history.signs import signs
from normscope.monitor import Monitor
from normscope.optim import OptimizerConfig, ScheduleConfig
from normscope.train import Hooks, Objective, RunFolder, TrainConfig, Trainer

from . import cases

_GIVEN = 7_000_003
"""Seed of the batch that the monitor measures on."""


class _Objective(Objective):
    """The chain's next token."""

    micro_batches_per_epoch = 100

    def __init__(self, batches: cases.ChainBatches) -> None:
        self.batches = batches

    def prepare(self, number: int) -> dict[str, Tensor]:
        return self.batches(number + 1)

    def micro_batch(self, number: int) -> dict[str, Tensor]:
        return self.prepare(number)

    def target_tokens(self, batch: dict[str, Tensor]) -> int:
        return batch["labels"].numel()

    def loss_sums(self, model: nn.Module, batch: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        total = model(**batch)["loss"] * self.target_tokens(batch)
        return total, total.detach()

    def validate(self, model: nn.Module) -> dict[str, float]:
        with torch.no_grad():
            return {"nll_nats": float(model.eval()(**self.batches(_GIVEN))["loss"])}


class _Monitored(Hooks):
    """Measures over depth around the steps."""

    def __init__(self, monitor: Monitor) -> None:
        self.monitor = monitor

    def before_step(self, update: int) -> dict[str, float]:
        return self.monitor(update)

    def after_step(self, update: int) -> dict[str, float]:
        return self.monitor.stepped(update)


def by_normscope(case: cases.TrainingCase, config: cases.SpikesConfig, seed: int) -> History:
    """Trains in this library's loop, and returns what its metrics.jsonl says."""
    batches = cases.ChainBatches(case, config, seed)
    model = cases.made_model(config, case, seed)
    with tempfile.TemporaryDirectory() as folder:
        run = RunFolder(Path(folder) / "run")
        trainer = Trainer(
            model=model,
            objective=_Objective(batches),
            folder=run,
            train=TrainConfig(
                duration=config.updates,
                clip_norm=case.clip_norm,
                validate_every=config.updates,
                checkpoint_every=config.updates,
                device="cpu",
                on_nonfinite="skip",
            ),
            optimizer=OptimizerConfig(peak_lr=case.rate),
            schedule=ScheduleConfig(warmup_updates=cases.warmup_updates(config, case)),
            seed=seed,
            device=torch.device("cpu"),
            precision="fp32",
            hooks=_Monitored(
                Monitor(model=model, inputs=batches(_GIVEN), every_updates=config.every_updates)
            ),
        )
        trainer.optimizer = cases.made_optimizer(model, config, case, seed)
        with run.lock():
            trainer.run()
        settings = {
            "optimizer": {"name": case.optimizer, "epsilon": case.epsilon},
            "train": {"clip_norm": case.clip_norm},
        }
        return of_events("metrics.jsonl", run.events(), settings)


def by_trainer(case: cases.TrainingCase, config: cases.SpikesConfig, seed: int) -> History:
    """Trains in Hugging Face's Trainer, and returns what its trainer_state.json says. Needs
    transformers and accelerate.
    """
    import transformers

    from normscope.adapters.trainer import NormScopeTrainerCallback

    batches = cases.ChainBatches(case, config, seed)
    model = cases.made_model(config, case, seed)
    rows = []
    for update in range(1, config.updates + 1):
        batch = batches(update)
        for row in range(batches.sequences):
            rows.append({name: tensor[row] for name, tensor in batch.items()})
    optimizer = cases.made_optimizer(model, config, case, seed)
    warmup = cases.warmup_updates(config, case)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda done: min(1.0, (done + 1) / max(1, warmup))
    )
    with tempfile.TemporaryDirectory() as folder:
        settings: dict[str, Any] = {
            "output_dir": folder,
            "use_cpu": True,
            "per_device_train_batch_size": batches.sequences,
            "max_steps": config.updates,
            "max_grad_norm": case.clip_norm,
            "train_sampling_strategy": "sequential",
            "logging_steps": 1,
            "report_to": "none",
            "save_strategy": "no",
            "disable_tqdm": True,
            "dataloader_pin_memory": False,
            "seed": seed,
        }
        trainer = transformers.Trainer(
            model=model,
            train_dataset=rows,
            args=transformers.TrainingArguments(**settings),
            optimizers=(optimizer, schedule),
            callbacks=[NormScopeTrainerCallback(config.every_updates, batches(_GIVEN))],
        )
        with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
            trainer.train()
        file = Path(folder) / TRAINER_STATE
        trainer.state.save_to_json(str(file))
        return of_trainer_state(file)


TRAINED = {"normscope": by_normscope, "trainer": by_trainer}


def measured(loop: str, name: str, config: cases.SpikesConfig, seed: int) -> dict[str, Any]:
    """Returns the episodes that the doctor finds, what is true, its warnings as the training went
    on, and the loss's curve.
    """
    case = cases.CASES[name]
    history = TRAINED[loop](case, config, seed)
    found = explain(history)
    block = f"block_{cases.broken_block(config, seed):02}"
    breaks = name not in cases.HEALTHY
    left = [one.onset for one in episodes(history)]
    return {
        "onset": None if not breaks else 1 if case.from_start else config.change_at,
        "cause": case.cause,
        "place": {"block": block, "output": "output layer"}.get(case.place, "no sub-layer"),
        "episodes": found.to_json()["episodes"],
        "warned": warnings(history, config.every_updates),
        "loss_left": next((onset for onset in left if onset >= config.change_at), None)
        if breaks
        else None,
        "loss": [value if math.isfinite(value) else None for value in history.loss.values],
    }


def warnings(history: History, every_updates: int) -> list[int]:
    """Returns the updates at which a reader of the growing log would first have read of another
    episode or sign.

    What only a log that has ended can say, a rate that still rises, is not counted.
    """
    told: set[tuple[str, int]] = set()
    found = []
    for update in range(1, history.last_update + 1, every_updates):
        known = history.until(update)
        now = {
            (one.cause, one.onset)
            for one in signs(known)
            if one.kind is EpisodeKind.SIGN and one.cause != "warmup-never-ends"
        }
        now |= {("episode", one.onset) for one in episodes(known) if not one.needs_cause}
        if any(_is_new(kind, at, told) for kind, at in now):
            found.append(update)
        told |= now
    return found


def _is_new(kind: str, onset: int, told: set[tuple[str, int]]) -> bool:
    """Returns whether nothing of that kind was told that began at about the same update.

    The onset of an episode moves by a few updates as more of it is seen.
    """
    return all(kind != other or abs(onset - was) > _SAME for other, was in told)


_SAME = 10
"""Updates within which two onsets are of one episode."""
