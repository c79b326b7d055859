"""The callbacks of both training libraries, in trainings of a tiny GPT-2 on three batches."""

import csv
import importlib
import re
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from normscope.errors import installation

transformers = pytest.importorskip(
    "transformers", reason="needs Hugging Face transformers (the `huggingface` extra)"
)

pytestmark = [
    # Lightning 2.5.5 asks torch 2.13 for its trees in a way that is deprecated there.
    pytest.mark.filterwarnings(
        r"ignore:`isinstance\(treespec, LeafSpec\)` is deprecated:FutureWarning"
    ),
    # It advises more worker processes; the data is twenty short rows.
    pytest.mark.filterwarnings("ignore:The 'train_dataloader' does not have many workers"),
    # Where Slurm is installed it advises to use it.
    pytest.mark.filterwarnings("ignore:The `srun` command is available"),
]

VOCABULARY, SEQUENCES, TOKENS, UPDATES, EVERY, RATE, CLIP = 30, 4, 6, 5, 2, 0.5, 0.05
MEASURED = [1, 3, 5]


def gpt2() -> nn.Module:
    torch.manual_seed(0)
    sizes = {"vocab_size": VOCABULARY, "n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 8}
    # Without dropout, so that each loop may use up random numbers in its own order.
    dropout = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
    config = transformers.GPT2Config(**sizes, **dropout, bos_token_id=0, eos_token_id=0)
    return transformers.GPT2LMHeadModel(config)


def rows() -> list[dict[str, Tensor]]:
    """So many sequences as UPDATES batches have, each of its own.

    Nothing is asked of the first place, where there is nothing before it: Trainer divides by the
    number of labels, the model's own loss by that of predictions.
    """
    ids_NT = torch.randint(
        0, VOCABULARY, (UPDATES * SEQUENCES, TOKENS), generator=torch.Generator().manual_seed(1)
    )
    labels_NT = ids_NT.clone()
    labels_NT[:, 0] = -100
    return [
        {"input_ids": ids_T, "labels": labels_T}
        for ids_T, labels_T in zip(ids_NT, labels_NT, strict=True)
    ]


def given() -> dict[str, Tensor]:
    return {
        "input_ids": torch.randint(
            0, VOCABULARY, (2, TOKENS), generator=torch.Generator().manual_seed(2)
        )
    }


Measured = dict[int, dict[str, float]]


def hugging_face_trainer(folder: Path, **arguments: Any) -> Any:
    pytest.importorskip("accelerate", reason="transformers.Trainer needs accelerate")
    return transformers.Trainer(
        model=gpt2(),
        train_dataset=rows(),
        args=transformers.TrainingArguments(
            **{
                "output_dir": str(folder),
                "use_cpu": True,
                "per_device_train_batch_size": SEQUENCES,
                "max_steps": UPDATES,
                "optim": "sgd",
                "learning_rate": RATE,
                "lr_scheduler_type": "constant",
                "max_grad_norm": CLIP,
                "train_sampling_strategy": "sequential",
                "logging_steps": 1,
                "report_to": "none",
                "save_strategy": "no",
                "disable_tqdm": True,
                "dataloader_pin_memory": False,
            }
            | arguments
        ),
    )


def by_trainer(folder: Path, batch: dict[str, Tensor] | None) -> tuple[nn.Module, Measured]:
    """Trained by transformers.Trainer: the model, and what its log history holds by update."""
    from normscope.adapters.trainer import NormScopeTrainerCallback

    trainer = hugging_face_trainer(folder)
    trainer.add_callback(NormScopeTrainerCallback(EVERY, batch))
    trainer.train()
    return trainer.model, ours(trainer.state.log_history)


def ours(history: list[dict[str, float]]) -> Measured:
    """What of a log history is a measurement, by update; none stands there twice. The recipe stands
    with the first.
    """
    entries = [entry for entry in history if any(name.startswith("normscope/") for name in entry)]
    assert len({entry["step"] for entry in entries}) == len(entries)
    assert RECIPE.items() <= entries[0].items()
    assert not any(RECIPE.keys() & entry.keys() for entry in entries[1:])
    return {int(entry["step"]): measurements(entry) for entry in entries}


RECIPE = {"normscope/recipe/divides": 0.0, "normscope/recipe/clip_norm": CLIP}
"""SGD's update grows with the gradient, and has no ε."""


def measurements(entry: dict[str, float]) -> dict[str, float]:
    return {
        name: value
        for name, value in entry.items()
        if name.startswith("normscope/") and name not in RECIPE
    }


def by_lightning(folder: Path, batch: dict[str, Tensor] | None) -> tuple[nn.Module, Measured]:
    """Trained by lightning.Trainer: the model, and what its CSVLogger wrote by update."""
    lightning = pytest.importorskip("lightning", reason="needs Lightning (the `lightning` extra)")
    from lightning.pytorch.loggers import CSVLogger

    from normscope.adapters.lightning import NormScopeCallback

    class Module(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.model = gpt2()

        def forward(self, **inputs: Tensor) -> Any:
            return self.model(**inputs)

        def training_step(self, batch: dict[str, Tensor], _: int) -> Tensor:
            loss = self.model(**batch).loss
            self.log("loss", loss)
            return loss

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters(), lr=RATE)

    module = Module()
    lightning.Trainer(
        accelerator="cpu",
        devices=1,
        max_steps=UPDATES,
        gradient_clip_val=CLIP,
        logger=CSVLogger(folder),
        log_every_n_steps=1,
        callbacks=[NormScopeCallback(EVERY, batch)],
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    ).fit(module, torch.utils.data.DataLoader(rows(), batch_size=SEQUENCES))
    (log,) = folder.rglob("metrics.csv")
    found: Measured = {}
    with log.open() as file:
        for row in csv.DictReader(file):
            values = {
                name: float(value)
                for name, value in row.items()
                if name.startswith("normscope/") and value
            }
            if values:
                found[int(row["step"]) + 1] = values
    assert RECIPE.items() <= found[1].items()
    return module.model, {update: measurements(values) for update, values in found.items()}


def by_hand(batch: dict[str, Tensor] | None) -> tuple[nn.Module, Measured]:
    """The same training in a loop of its own, with gradient norms of plain autograd before
    clipping.
    """
    from normscope.monitor import Monitor

    model = gpt2().train()
    monitor = Monitor(model=model, inputs=batch, every_updates=EVERY)
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
    measured = {}
    for update in range(1, UPDATES + 1):
        chosen = rows()[(update - 1) * SEQUENCES : update * SEQUENCES]
        current = {name: torch.stack([row[name] for row in chosen]) for name in chosen[0]}
        model(**current).loss.backward()
        if values := monitor(update, current if batch is None else None):
            measured[update] = values
        nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        optimizer.step()
        if values:
            measured[update] |= monitor.stepped(update)
        optimizer.zero_grad()
    return model, measured


@pytest.mark.sampled(one_in=3)
@pytest.mark.parametrize("batch", [None, given()], ids=["each update's batch", "one batch"])
@pytest.mark.parametrize("library", [by_trainer, by_lightning])
def test_both_libraries_log_what_a_loop_of_ones_own_measures(
    library: Any, batch: Any, tmp_path: Path
) -> None:
    """Clipping is strong: gradient norms that were read after it would be far smaller."""
    model, found = library(tmp_path, batch)
    expected_model, expected = by_hand(batch)
    assert sorted(found) == MEASURED
    ratios = [name for name in found[1] if name.endswith("/update_ratio")]
    assert len(ratios) == 4
    assert all(found[1][name] > 0 for name in ratios)
    for update in MEASURED:
        assert found[update] == pytest.approx(expected[update], rel=2e-3), update
    for mine, other in zip(
        model.state_dict().values(), expected_model.state_dict().values(), strict=True
    ):
        torch.testing.assert_close(mine.cpu(), other)


def test_measurements_reach_whatever_the_trainer_reports_to(tmp_path: Path) -> None:
    """Two batches an update: gradients are those of both."""
    from normscope.adapters.trainer import NormScopeTrainerCallback

    class Reporter(transformers.TrainerCallback):
        def on_log(
            self, args: Any, state: Any, control: Any, logs: dict[str, float], **kwargs: Any
        ) -> None:
            reported.append({**logs, "step": state.global_step})

    reported: list[dict[str, float]] = []
    trainer = hugging_face_trainer(tmp_path, gradient_accumulation_steps=2, max_steps=1)
    trainer.add_callback(Reporter())
    trainer.add_callback(NormScopeTrainerCallback(EVERY))
    trainer.train()
    assert ours(reported) == ours(trainer.state.log_history)
    model, both = gpt2(), rows()[: 2 * SEQUENCES]
    model(**{name: torch.stack([row[name] for row in both]) for name in both[0]}).loss.backward()
    matrices = [p for p in model.transformer.h[0].mlp.parameters() if p.ndim == 2]
    wanted = sum(float(p.grad.square().sum()) for p in matrices) ** 0.5
    name = "normscope/transformer.h/block_01/feed_forward/gradient_norm"
    assert ours(reported)[1][name] == pytest.approx(wanted, rel=1e-4)


@pytest.mark.parametrize("bar", [False, True])
def test_what_is_printed_of_a_measurement_is_a_short_line(
    bar: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from normscope.adapters.trainer import NormScopeTrainerCallback

    trainer = hugging_face_trainer(tmp_path, disable_tqdm=not bar)
    callbacks = list(trainer.callback_handler.callbacks)
    trainer.add_callback(NormScopeTrainerCallback(EVERY))
    trainer.train()
    assert trainer.callback_handler.callbacks[:-1] == callbacks
    printed = re.findall(r"\{.*?\}", "".join(capsys.readouterr()))
    measured = [line for line in printed if "normscope" in line]
    assert len(measured) == len(MEASURED)
    assert max(map(len, measured)) <= 80
    assert len([line for line in printed if "'loss'" in line]) == UPDATES
    gradients = [
        v
        for name, v in ours(trainer.state.log_history)[1].items()
        if name.endswith("/gradient_norm")
    ]
    assert f"gradients {min(gradients):.2g} to {max(gradients):.2g} (" in measured[0]


def test_in_tensorboard_they_stand_beside_the_loss_of_every_update(tmp_path: Path) -> None:
    """Read from the event file: what logs in an update does not keep the update's own loss from
    being logged.
    """
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    from normscope.adapters.trainer import NormScopeTrainerCallback

    folder = tmp_path / "events"
    arguments = {"report_to": ["tensorboard"], "logging_strategy": "steps", "logging_steps": 1}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TENSORBOARD_LOGGING_DIR", str(folder))
        trainer = hugging_face_trainer(tmp_path, **arguments)
        trainer.add_callback(NormScopeTrainerCallback(EVERY))
        trainer.train()
    events = EventAccumulator(str(folder)).Reload()
    scalars = {
        tag: [event.step for event in events.Scalars(tag)] for tag in events.Tags()["scalars"]
    }
    assert scalars["train/loss"] == [1, 2, 3, 4, 5]
    measured = {tag: steps for tag, steps in scalars.items() if "normscope/" in tag}
    assert any("gradient_norm" in tag for tag in measured)
    assert all(
        steps == (MEASURED[:1] if "/recipe/" in tag else MEASURED)
        for tag, steps in measured.items()
    )


def test_a_callback_outside_of_a_trainer_says_so() -> None:
    from normscope.adapters.trainer import NormScopeTrainerCallback

    with pytest.raises(RuntimeError, match=r"by a transformers\.Trainer"):
        NormScopeTrainerCallback().on_train_begin(None, None, None)


def test_a_trainer_of_pytorch_lightning_takes_the_callback_as_well() -> None:
    """Its own check of callbacks refuses those of the other package."""
    pytorch_lightning = pytest.importorskip("pytorch_lightning", reason="needs pytorch_lightning")
    from normscope.adapters.lightning import NormScopeCallback

    quiet = {
        "enable_checkpointing": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
    }
    callback = NormScopeCallback()
    trainer = pytorch_lightning.Trainer(
        accelerator="cpu", logger=False, callbacks=[callback], **quiet
    )
    assert callback in trainer.callbacks


@pytest.mark.parametrize(
    ("adapter", "absent", "extra"),
    [
        ("lightning", ("lightning", "pytorch_lightning"), "lightning"),
        ("trainer", ("transformers",), "huggingface"),
    ],
)
def test_without_the_library_the_extra_is_named(
    adapter: str, absent: tuple[str, ...], extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in list(sys.modules):
        if name.split(".")[0] in absent:
            monkeypatch.delitem(sys.modules, name)
    for name in absent:
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.delitem(sys.modules, f"normscope.adapters.{adapter}", raising=False)
    with pytest.raises(ImportError, match=re.escape(installation(extra))):
        importlib.import_module(f"normscope.adapters.{adapter}")
