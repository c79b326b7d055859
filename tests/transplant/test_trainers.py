"""Transplanted models in the training loops of others: the weights that a loop of one's own
gives.
"""

import faulthandler
import os
import sys
from collections.abc import Callable
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.distributed.fsdp import fully_shard
from torch.multiprocessing import start_processes

import normscope
from transplant.hand_written import GPT, by_hand, ids, perturb

UPDATES, RATE = 20, 1e-2
pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]


class WithLoss(GPT):
    """As transformers' models: a dictionary with the loss."""

    def forward(self, input_ids: Tensor, labels: Tensor | None = None) -> Any:
        logits = super().forward(input_ids)
        return logits if labels is None else {"loss": loss_of(logits, labels), "logits": logits}


def loss_of(logits: Tensor, labels: Tensor) -> Tensor:
    return nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten())


def rows() -> list[dict[str, Tensor]]:
    """Four sequences for every update."""
    tokens = torch.randint(17, (4 * UPDATES, 9), generator=torch.Generator().manual_seed(4))
    return [{"input_ids": row, "labels": row} for row in tokens]


def batch(number: int) -> Tensor:
    return torch.stack([one["labels"] for one in rows()[4 * number : 4 * number + 4]])


def model() -> WithLoss:
    torch.manual_seed(0)
    return perturb(normscope.transplant(WithLoss(blocks=2), "peri-ln", inputs=ids()))  # type: ignore[return-value]


def trained(logits: Callable[[Any, Tensor], Tensor]) -> dict[str, Tensor]:
    """By plain SGD, with a forward of one's own."""
    one = model()
    optimizer = torch.optim.SGD(one.parameters(), RATE)
    for number in range(UPDATES):
        optimizer.zero_grad()
        loss_of(logits(one, batch(number)), batch(number)).backward()
        optimizer.step()
    return one.state_dict()


@cache
def expected() -> dict[str, Tensor]:
    return trained(lambda one, tokens: by_hand(one, "peri-ln", tokens))


def assert_trained(weights: dict[str, Tensor], tolerance: float = 0.0) -> None:
    for name, value in expected().items():
        torch.testing.assert_close(weights[name], value, rtol=0, atol=tolerance, msg=name)


@pytest.mark.thorough
def test_trainer_of_transformers(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("accelerate")
    one = model()
    arguments = transformers.TrainingArguments(
        output_dir=str(tmp_path),
        max_steps=UPDATES,
        per_device_train_batch_size=4,
        learning_rate=RATE,
        lr_scheduler_type="constant",
        optim="sgd",
        max_grad_norm=0.0,
        report_to=[],
        use_cpu=True,
        save_strategy="no",
        disable_tqdm=True,
    )

    class InOrder(transformers.Trainer):  # type: ignore[misc, name-defined]
        def _get_train_sampler(self, *_: Any) -> Any:
            return torch.utils.data.SequentialSampler(self.train_dataset)

    InOrder(model=one, args=arguments, train_dataset=rows()).train()
    assert_trained(one.state_dict())


def test_accelerate() -> None:
    accelerate = pytest.importorskip("accelerate")
    running = accelerate.Accelerator(cpu=True)
    one = model()
    loader = torch.utils.data.DataLoader(rows(), batch_size=4)
    prepared, optimizer, loader = running.prepare(
        one, torch.optim.SGD(one.parameters(), RATE), loader
    )
    for some in loader:
        optimizer.zero_grad()
        running.backward(prepared(**some)["loss"])
        optimizer.step()
    assert_trained(running.unwrap_model(prepared).state_dict())


@pytest.mark.thorough
@pytest.mark.filterwarnings("ignore")  # of Slurm, data loaders and much else
def test_lightning(tmp_path: Path) -> None:
    lightning = pytest.importorskip("lightning")

    class Module(lightning.LightningModule):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.one = model()

        def training_step(self, some: dict[str, Tensor], number: int) -> Tensor:
            return self.one(**some)["loss"]  # type: ignore[no-any-return]

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), RATE)

    module = Module()
    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    running = lightning.Trainer(
        max_steps=UPDATES,
        accelerator="cpu",
        default_root_dir=tmp_path,
        enable_model_summary=False,
        **quiet,
    )
    running.fit(module, torch.utils.data.DataLoader(rows(), batch_size=4))
    assert_trained(module.one.state_dict())


LIMIT_SECONDS = 240
"""Of a process that takes five on an idle machine; then both say where they are, and the test
fails.
"""


@pytest.mark.thorough
@pytest.mark.parametrize("way", ["ddp", "fsdp2"])
def test_two_processes(way: str, tmp_path: Path) -> None:
    """Each has half of every batch; under FSDP2 it keeps half of every weight."""
    # Spawned: torch's engine for gradients does not outlive a fork.
    torch.save(model(), tmp_path / "model")
    start_processes(half, (way, tmp_path), nprocs=2, start_method="spawn")
    assert_trained(torch.load(tmp_path / "weights"), 1e-6)


def half(rank: int, way: str, folder: Path) -> None:
    """One of the two."""
    # pytest has captured the place of standard error, and the one who waits for us has no stack of
    # ours.
    faulthandler.dump_traceback_later(LIMIT_SECONDS, exit=True, file=sys.__stderr__)
    torch.set_num_threads(1)
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"  # a test machine's name need not lead anywhere
    # They meet in a file: a port that was free may be another's by now, who is then waited for, and
    # a server of the first process ends with it, whatever the second still asks.
    limit = timedelta(seconds=LIMIT_SECONDS / 2)
    torch.distributed.init_process_group(
        "gloo", f"file://{folder}/store", world_size=2, rank=rank, timeout=limit
    )
    one = torch.load(folder / "model", weights_only=False)
    wrapped: nn.Module = one
    if way == "ddp":
        wrapped = nn.parallel.DistributedDataParallel(one)
    else:
        for module in (*one.blocks, one):
            fully_shard(module)  # type: ignore[arg-type]
    optimizer = torch.optim.SGD(one.parameters(), RATE)
    for number in range(UPDATES):
        mine = batch(number)[2 * rank : 2 * rank + 2]
        optimizer.zero_grad()
        wrapped(mine, mine)["loss"].backward()
        optimizer.step()
    own = one.state_dict()
    whole = {
        name: value.full_tensor() if hasattr(value, "full_tensor") else value
        for name, value in own.items()
    }
    if rank == 0:
        torch.save(whole, folder / "weights")
    torch.distributed.barrier()  # neither takes the group down while the other still gathers
    torch.distributed.destroy_process_group()
    # What is asked of the process is on the disk; the threads that gloo and the reducer leave
    # behind have waited for each other for ever while Python took itself down.
    os._exit(0)
