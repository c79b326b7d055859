"""What a dry run says, against the whole model, and against what a process takes."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.profiler import ProfilerActivity, profile

from normscope.cli import main as cli
from normscope.model import linear as products
from normscope.optim import make_optimizer
from normscope.runs import machine as plans
from normscope.runs.config import load
from normscope.runs.machine import Plan, plan
from normscope.tasks.registry import task_of
from normscope.train.gradients import TreeSum

SMALL = (
    "model.width=32",
    "model.ffn_width=64",
    "model.heads=4",
    "data.sequence_length=32",
    "data.batch_sequences=32",
    "train.threads=1",
    'train.device="cpu"',
)
CASES = {
    "language-model": ('task="language-model"', *SMALL, "model.blocks=5", 'model.preset="llama"'),
    "streams": (
        'task="language-model"',
        *SMALL,
        "model.blocks=4",
        'model.placement="mhc"',
        'optimizer.name="muon"',
    ),
    "masked-lm": (
        'task="masked-lm"',
        *SMALL,
        "model.blocks=3",
        "model.activation_checkpointing=true",
    ),
    "translation": (
        *SMALL[:3],
        *SMALL[5:],
        "data.toy_pairs=400",
        "data.max_tokens=2048",
        "model.encoder_blocks=3",
        "model.decoder_blocks=2",
        'optimizer.name="sgd"',
        "optimizer.momentum=0.9",
    ),
}


def planned(*settings: str) -> tuple[Plan, Any, Any]:
    config = load(None, settings)
    task = task_of(config)
    return plan(config), config, task


@pytest.mark.sampled(one_in=6)
@pytest.mark.parametrize("case", CASES)
def test_a_plan_from_slices_is_what_the_whole_model_takes(case: str) -> None:
    found, config, task = planned(*CASES[case])
    corpus = task.open(config)
    codec = corpus.codec
    kept, operations = plans._measured(task, config, corpus, codec, torch.device("cpu"))
    # A batch that is measured on has not quite the lengths of the whole.
    loose = 0.12 if case == "translation" else 0.05
    assert found.activations == pytest.approx(kept, rel=loose)
    assert found.flops_per_update == pytest.approx(operations, rel=loose)
    model = task.build(config, codec)
    assert found.parameters == sum(p.numel() for p in model.parameters())
    objective = task.objective(config, corpus, torch.device("cpu"))
    loss, _ = objective.loss_sums(model, objective.micro_batch(0))
    loss.backward()
    optimizer = make_optimizer(model, config.optimizer)
    optimizer.step()
    held = [t for state in optimizer.state.values() for name, t in state.items() if name != "step"]
    assert found.optimizer == sum(t.nbytes for t in held if isinstance(t, torch.Tensor))
    assert found.weights == found.gradients == sum(p.nbytes for p in model.parameters())


@pytest.mark.sampled(one_in=2)
@pytest.mark.parametrize(("length", "least"), [(32, None), (32, 1), (64, 1)])
def test_operations_are_those_of_the_matrices(
    length: int, least: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Six for each weight of a matrix and token, beside the products of scores; by every kernel.

    least: multiplications of a product that goes to oneDNN, where this processor's do.
    """
    if least is not None:
        monkeypatch.setattr(products, "LEAST_MULTIPLICATIONS", least)
    settings = (
        "train.accumulation=2",
        f"data.sequence_length={length}",
        "model.attention_dropout=0.0",
    )
    found, config, _ = planned(*CASES["language-model"], *settings)
    tokens = 2 * 32 * length
    # The rows of a table that are looked up are no product, and vectors multiply no matrix.
    task = task_of(config)
    of = dict(task.build(config, task.open(config).codec).named_parameters())
    matrices = sum(p.numel() for name, p in of.items() if p.ndim == 2 and "embedding" not in name)
    product = 2 * tokens * length * config.model.width * config.model.blocks
    # Two forward and four or, computing the scores again, five backward; of the future too.
    expected = 6 * tokens * matrices
    assert expected + 6 * product == pytest.approx(
        found.flops_per_update, rel=0.03 + product / expected
    )
    assert found.flops_per_update > expected
    assert plans.flops_per_update(config) == found.flops_per_update


@pytest.mark.parametrize("batches", [1, 2, 3, 4, 6, 8, 9])
def test_gradients_are_counted_as_often_as_the_ordered_sum_holds_them(batches: int) -> None:
    tree, most = TreeSum(), 0
    for _ in range(batches):
        most = max(most, len(tree._waiting) + 1)
        tree.push([torch.zeros(1)])
    assert plans.gradients_at_once(batches) == most


@pytest.mark.thorough
def test_the_sum_is_near_what_torch_takes(tmp_path: Path) -> None:
    """The most that torch's allocator had given out at once, by its profiler, over two updates."""
    settings = (
        'task="language-model"',
        "model.width=128",
        "model.ffn_width=512",
        "model.heads=4",
        "model.blocks=6",
        "data.sequence_length=64",
        "data.batch_sequences=16",
        "train.threads=1",
        'train.device="cpu"',
    )
    found, config, task = planned(*settings)
    corpus = task.open(config)
    objective = task.objective(config, corpus, torch.device("cpu"))
    batch = objective.micro_batch(0)
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiled:
        model = task.build(config, corpus.codec)
        optimizer = make_optimizer(model, config.optimizer)
        for _ in range(2):
            loss, _ = objective.loss_sums(model, batch)
            loss.backward()
            optimizer.step()
    trace = tmp_path / "trace.json"
    profiled.export_chrome_trace(str(trace))
    events = json.loads(trace.read_text(encoding="utf-8"))["traceEvents"]
    most = max(
        event["args"]["Total Allocated"] for event in events if event.get("name") == "[memory]"
    )
    assert found.sum == pytest.approx(most, rel=0.1)


def test_the_table(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    words = [word for setting in CASES["language-model"] for word in ("--set", setting)]
    monkeypatch.setattr(sys, "argv", ["normscope", "train", "--dry-run", *words])
    with pytest.raises(SystemExit) as end:
        cli.main()
    assert not end.value.code
    rows = capsys.readouterr().out.splitlines()
    assert rows[0].startswith("parameters: ")
    assert "in 1 batch" in rows[1]
    assert rows[2] == "memory in MB:"
    *parts, total = [float(row.split()[-1].replace(",", "")) for row in rows[3:]]
    assert total == pytest.approx(sum(parts), abs=0.3)
    assert not list(tmp_path.iterdir())
