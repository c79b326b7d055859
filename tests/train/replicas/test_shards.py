"""Sharded models train as whole ones do: losses, gradients, clipping, tied tables, and checkpoints of one format."""

import json
import time
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from safetensors.torch import load_file

from normscope.errors import UserError
from normscope.model.stack import Stack
from normscope.optim.groups import roles
from normscope.runs import machine
from normscope.runs.config import load
from normscope.runs.machine import sharded
from normscope.runs.run import train_run
from normscope.settings.tables import to_toml
from normscope.tasks.registry import task_of
from normscope.train import RunFolder
from normscope.train.device import Precision, autocast
from normscope.train.group import ALONE, Replicas, is_part, joined, parted_as, scale, total_norm, whole
from together import ended, started

pytestmark = pytest.mark.sampled(one_in=4)

TEXT = (
    'task="language-model"',
    "model.width=16",
    "model.ffn_width=24",
    "model.heads=2",
    "model.blocks=3",
    "model.dropout=0.0",
    "model.attention_dropout=0.0",
    "data.sequence_length=24",
    "data.batch_sequences=4",
    "train.accumulation=4",
    'train.reduction="fast"',
    "train.shard=true",
    "train.threads=1",
    'train.device="cpu"',
)
PLACEMENTS = ("post-ln", "mhc", "attn-res", "x0-residual", "siamese-norm")


def compare(words: tuple[str, ...], environment: dict[str, str], folder: Path, stdin: bytes) -> None:
    """In a process of a group: how far a sharded model's gradients are from a whole one's, as JSON."""
    import os

    os.environ.update(environment)
    torch.set_num_threads(1)
    torch.set_default_dtype(torch.float64 if words[0] == "float64" else torch.float32)
    found: dict[str, dict[str, object]] = {}
    with joined(torch.device("cpu")) as group:
        for placement in PLACEMENTS:
            found[placement] = _compared(placement, group, set(words))
        told = group.gather(found)
    print(json.dumps(told[0] if told.count(told[0]) == len(told) else "they differ"))


def _compared(placement: str, group: Replicas, words: set[str]) -> dict[str, object]:
    config = load(None, [*TEXT, f'model.placement="{placement}"'])
    mean, cpu = "mean" in words, torch.device("cpu")
    precision: Precision = "bf16" if "bf16" in words else "fp32"
    task = task_of(config)
    corpus = task.open(config)
    objective = task.objective(config, corpus, torch.device("cpu"))
    plain, parted = (task.build(config, task.codec_of(corpus)) for _ in range(2))
    for module in parted.modules():
        if isinstance(module, Stack):
            module.activation_checkpointing = "recomputed" in words
    sharded(parted, config, group)
    if mean:  # as torch has it where nobody says otherwise
        for module in parted.modules():
            if hasattr(module, "set_gradient_divide_factor"):
                state = module._get_fsdp_state()._fsdp_param_group
                if state is not None:
                    state.gradient_divide_factor, state.force_sum_reduction_for_comms = None, False
    batches = [objective.micro_batch(number) for number in range(group.size)]
    tokens = sum(map(objective.target_tokens, batches))
    loss = 0.0
    for batch in batches:
        with autocast(cpu, precision):
            part, _ = objective.loss_sums(plain, batch)
        (part / tokens).backward()
        loss += float(part.detach())
    with autocast(cpu, precision):
        own, _ = objective.loss_sums(parted, batches[group.rank])
    (own / tokens).backward()
    added = [p for p in parted.parameters() if not is_part(p)]
    for parameter in added:
        assert parameter.grad is not None
        dist.all_reduce(parameter.grad)
    worst = 0.0
    names = dict(parted.named_parameters())
    for name, parameter in plain.named_parameters():
        assert parameter.grad is not None
        gradient = names[name].grad
        assert gradient is not None
        error = (whole(gradient) - parameter.grad).norm() / parameter.grad.norm().clamp(min=1e-6)
        worst = max(worst, float(error))
    gradients = [p.grad for p in parted.parameters() if p.grad is not None]
    norm = torch.nn.utils.get_total_norm([p.grad for p in plain.parameters() if p.grad is not None])
    norm_error = abs(float(total_norm(gradients) / norm) - 1)
    scale(gradients, 0.5)
    half_error = abs(float(total_norm(gradients) / norm) - 0.5)
    whole_loss = sum(group.gather(float(own.detach())))
    back = [torch.equal(whole(parted_as(whole(p.data), p)), whole(p.data)) for p in parted.parameters()]
    of = roles(parted)
    return {
        "gradients": worst,
        "loss": abs(whole_loss / loss - 1),
        "norm": norm_error,
        "clipped": half_error,
        "parted": sorted({of[name] for name, p in parted.named_parameters() if is_part(p)}),
        "whole": sorted({of[name] for name, p in parted.named_parameters() if not is_part(p)}),
        "tied": parted.output_rows() is parted.embedding.weight,
        "back": all(back),
    }


@pytest.mark.parametrize(
    ("size", "words", "bound"),
    [
        (2, ("float32", "recomputed"), 1e-6),
        (4, ("float64",), 1e-12),
        # Float32 weights under bf16 products: both round alike, and only the sums over processes differ.
        (2, ("float32", "bf16", "recomputed"), 1e-6),
    ],
)
def test_losses_and_gathered_gradients_are_those_of_one_process(
    size: int, words: tuple[str, ...], bound: float
) -> None:
    for code, out, err in ended(started(size, *words, program=compare)):
        assert code == 0, err
        for placement, found in json.loads(out).items():
            assert max(found[key] for key in ("gradients", "loss", "norm", "clipped")) < bound, (placement, found)
            assert found["parted"] == ["embedding", "matrix"]
            assert not {"embedding", "matrix"} & set(found["whole"])
            assert found["tied"], placement
            assert found["back"], placement


@pytest.mark.thorough
def test_what_torch_does_by_itself_over_gloo_is_seen() -> None:
    """Its mean is a sum there or a true mean, by its version; both with a loss that is divided already."""
    for code, out, err in ended(started(2, "float64", "mean", program=compare)):
        assert code == 0, err
        errors = {found["gradients"] for found in json.loads(out).values()}
        assert all(error < 1e-12 or error > 0.4 for error in errors)


def test_a_sharded_run_is_that_of_one_process_and_goes_on_in_any_number(tmp_path: Path) -> None:
    settings = (
        *TEXT,
        "train.duration=6",
        "train.validate_every=3",
        "train.checkpoint_every=3",
        "train.clip_norm=0.3",
        "train.keep_checkpoints=3",
    )
    config = load(None, settings)
    file = tmp_path / "my.toml"
    file.write_text(to_toml(config), encoding="utf-8")
    for size, words in ((2, ()), (4, ("--from-step", "3"))):
        for rank, (code, _, err) in enumerate(
            ended(started(size, "train", str(file), "--run", str(tmp_path / "several"), *words))
        ):
            assert code == 0, err
            assert not rank or err == ""
    train_run(config, tmp_path / "one")
    one, several = (load_file(tmp_path / name / "checkpoints/step-6/model.safetensors") for name in ("one", "several"))
    assert one.keys() == several.keys()
    for name, tensor in one.items():
        torch.testing.assert_close(several[name], tensor, rtol=1e-4, atol=1e-5)
    losses = [
        [event["nll_nats"] for event in RunFolder(tmp_path / name).events() if "nll_nats" in event]
        for name in ("one", "several")
    ]
    assert len(losses[0]) == len(losses[1])
    for mine, theirs in zip(*losses, strict=True):
        assert mine == pytest.approx(theirs, rel=1e-5)


@pytest.mark.thorough
def test_who_loses_another_process_of_a_sharded_training_says_so_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Torch's own calls within the model meet the loss there."""
    monkeypatch.chdir(tmp_path)
    words = [word for setting in (*TEXT, "train.duration=3000") for word in ("--set", setting)]
    processes = started(2, "train", "--run", "run", *words)
    metrics, deadline = tmp_path / "run/metrics.jsonl", time.monotonic() + 240
    while not metrics.is_file() or metrics.read_bytes().count(b"\n") < 3:
        assert processes[0].poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.01)
    processes[1].kill()
    code, _, err = ended(processes)[0]
    assert code == 1, err
    assert err.splitlines()[-1].startswith("stopped: process 0 of 2 has lost another one")
    assert "Traceback" not in err


@pytest.mark.sampled(one_in=1)
@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (['train.reduction="ordered"'], 'set train.reduction = "fast"'),
        (['model.placement="ngpt"'], "the placement ngpt keeps rows and columns"),
        (['model.placement="admin"'], "the placement admin takes initial values from a first batch"),
        (['optimizer.name="muon"'], "choose another optimizer.name"),
        (["train.clip_update_rms=1.0"], "train.clip_update_rms measures whole steps"),
        (["train.monitor_every=5"], "leave it out"),
        (["train.compile=true"], "leave one of them out"),
    ],
)
def test_what_is_not_known_to_work_is_refused_by_name(settings: list[str], message: str) -> None:
    config = load(None, [*TEXT, *settings])
    task = task_of(config)
    model = task.build(config, task.codec_of(task.open(config)))
    with pytest.raises(UserError, match=r"^train\.shard: ") as refused:
        machine.sharded(model, config, ALONE)
    assert message in str(refused.value)


def test_an_update_is_shared_out_evenly() -> None:
    class Three(type(ALONE)):  # type: ignore[misc]
        size = 3

    config = load(None, TEXT)
    task = task_of(config)
    model = task.build(config, task.codec_of(task.open(config)))
    with pytest.raises(UserError, match=r"train\.accumulation=4 must be a multiple of the 3 processes"):
        machine.sharded(model, config, Three())
