"""A number that moves only while updates change the output little: what is measured, what is decided, and resuming."""

import copy
import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from normscope.errors import UserError
from normscope.model import EncoderDecoder, Layout, ModelConfig
from normscope.optim import AdaptiveConfig
from normscope.runs.hooks import ControlledHooks, OutputChange
from normscope.runs.run import train_run
from normscope.runs.trained import load_run
from normscope.train import Interrupted, RunFolder
from tiny import SHORT, result, tiny

pytestmark = pytest.mark.sampled(one_in=4)

CONTROLLED = (
    *SHORT,
    'model.placement="pre-to-post"',
    'adaptive.controller="output-change"',
    "adaptive.over=6",
    "adaptive.largest_change=0.1",
    "optimizer.peak_lr=6e-3",
)
"""At this bound some of the twelve updates are permitted and some are not."""


def updates(folder: Path) -> list[dict[str, Any]]:
    return [event for event in RunFolder(folder).events() if event["event"] == "update"]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("controlled") / "run"
    train_run(tiny(*CONTROLLED), folder)
    return folder


def model_and_batch() -> tuple[EncoderDecoder, Callable[[EncoderDecoder], torch.Tensor]]:
    torch.manual_seed(0)
    sizes = {"width": 16, "ffn_width": 16, "heads": 2, "encoder_blocks": 2, "decoder_blocks": 2}
    model = EncoderDecoder(ModelConfig(placement="pre-to-post", dropout=0.4, **sizes), 20, 20).train()
    layout = Layout(torch.tensor([4, 3]))
    tokens = torch.randint(4, 20, (7,))
    return model, lambda model: model(tokens, layout, tokens, layout)


def test_the_change_is_that_of_the_hidden_states_which_the_loss_reads() -> None:
    model, forward = model_and_batch()
    change = OutputChange(model, lambda: forward(model))
    change.before_step()
    before = copy.deepcopy(model).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.05 * torch.randn_like(parameter)
    found = change.after_step()
    old, new = forward(before).double(), forward(copy.deepcopy(model).eval()).double()
    squares = ((new - old) ** 2).sum() / (old**2).sum()
    assert found == pytest.approx(float(squares.detach().sqrt()), rel=1e-6)
    assert 0.01 < found < 1


def test_measuring_leaves_modes_hooks_gradients_and_random_numbers_alone() -> None:
    model, forward = model_and_batch()
    forward(model).square().mean().backward()
    model.encoder.eval()
    modes = [module.training for module in model.modules()]
    gradients = [parameter.grad.clone() for parameter in model.parameters() if parameter.grad is not None]
    state = torch.get_rng_state()
    change = OutputChange(model, lambda: forward(model))
    change.before_step()
    assert change.after_step() == 0
    assert [module.training for module in model.modules()] == modes
    assert torch.equal(torch.get_rng_state(), state)
    left = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
    assert all(map(torch.equal, left, gradients))
    assert not any(module._forward_hooks for module in model.modules())


def test_the_number_moves_after_the_updates_whose_change_was_small_enough(whole: Path) -> None:
    permitted = 0
    for event in updates(whole):
        assert event["post"] == min(1.0, permitted / 6)
        permitted += event["output_change"] <= 0.1
    assert 2 <= permitted <= 10


@pytest.mark.thorough
def test_one_measurement_decides_for_the_updates_up_to_the_next(tmp_path: Path) -> None:
    train_run(tiny(*CONTROLLED, "adaptive.measure_every=5"), tmp_path / "run")
    events = updates(tmp_path / "run")
    assert [event["update"] for event in events if "output_change" in event] == [1, 6, 11]
    counted, permitted = 0, False
    for event in events:
        counted += permitted
        assert event["post"] == min(1.0, counted / 6)
        permitted = event.get("output_change", 0.1 if permitted else 1.0) <= 0.1
    assert counted


@pytest.mark.parametrize("update", [1, 6, 7, 11])
def test_stopped_at_any_update_it_ends_with_the_same_bytes(update: int, whole: Path, tmp_path: Path) -> None:
    def stop(event: dict[str, Any]) -> None:
        if event["event"] == "update" and event["update"] == update:
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(Interrupted):
        train_run(tiny(*CONTROLLED), tmp_path / "run", listeners=[stop])
    train_run(tiny(*CONTROLLED), tmp_path / "run")
    assert result(tmp_path / "run", 12) == result(whole, 12)


def test_a_checkpoint_keeps_where_the_controller_stands(whole: Path) -> None:
    state = json.loads((whole / "checkpoints/step-12/state.json").read_text())
    changes = [event["output_change"] <= 0.1 for event in updates(whole)]
    assert state["hooks"] == {"adaptive": {"counted": sum(changes[:-1]), "permitted": changes[-1]}}


def test_where_nothing_is_permitted_the_training_is_that_of_a_number_that_stays(tmp_path: Path) -> None:
    held = (*CONTROLLED, "train.duration=4")
    train_run(tiny(*held, "adaptive.largest_change=1e-9"), tmp_path / "waits")
    train_run(tiny(*held, 'adaptive.controller="none"', "adaptive.end=0.0"), tmp_path / "stays")
    waits, stays = (load_run(tmp_path / name, which="last", device="cpu").model for name in ("waits", "stays"))
    for ours, theirs in zip(waits.parameters(), stays.parameters(), strict=True):
        assert torch.equal(ours, theirs)


def test_where_everything_is_permitted_it_is_the_schedule_an_update_later(tmp_path: Path) -> None:
    train_run(tiny(*CONTROLLED, "train.duration=9", "adaptive.largest_change=inf"), tmp_path / "run")
    assert [event["post"] for event in updates(tmp_path / "run")] == [min(1.0, n / 6) for n in range(9)]


def test_without_a_number_to_move_it_is_refused(tmp_path: Path) -> None:
    settings = (*SHORT, 'model.placement="post-ln"', 'adaptive.controller="output-change"')
    with pytest.raises(UserError, match=r'"post-ln": no number of this placement.*such as "pre-to-post"'):
        train_run(tiny(*settings), tmp_path / "run")
    assert not (tmp_path / "run/config.toml").exists()


def test_a_change_that_is_not_finite_permits_nothing_and_is_not_logged() -> None:
    model, forward = model_and_batch()
    config = AdaptiveConfig(controller="output-change", over=2, largest_change=1e9)
    hooks = ControlledHooks(model, config, drawn=True, forward=lambda: forward(model))
    hooks.before_update(1)
    with torch.no_grad():
        next(iter(model.decoder.parameters())).fill_(torch.nan)
    assert hooks.after_update() == {}
    assert hooks.before_update(2) == {"post": 0.0}
