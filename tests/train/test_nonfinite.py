"""A loss, a gradient or a weight that is no number: stop before anything is lost, or skip by
selection.
"""

import math
import os
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from normscope.runs import run
from normscope.tasks import translation as translating
from normscope.train import Interrupted, NonFinite, RunFolder, loop
from normscope.train.gradients import first_bad_weight, unfit_to_keep
from tiny import result, steps, tiny

SETTINGS = (
    "train.duration=8",
    "train.validate_every=4",
    "train.checkpoint_every=1",
    "train.keep_checkpoints=9",
)
BAD = 6
"""The update whose batch is poisoned."""


@pytest.fixture
def trained(monkeypatch: pytest.MonkeyPatch) -> list[nn.Module]:
    """Every model that is built, so that its weights can be looked at after the run has raised."""
    models: list[nn.Module] = []

    def build(*arguments: Any) -> nn.Module:
        models.append(build_model(*arguments))
        return models[-1]

    build_model = translating.Translation.build
    monkeypatch.setattr(translating.Translation, "build", build)
    return models


def poison(monkeypatch: pytest.MonkeyPatch, factor: float) -> None:
    """Multiply the loss of update BAD."""

    class Poisoned(translating.TranslationObjective):
        def micro_batch(self, number: int) -> Any:
            self.number = number
            return super().micro_batch(number)

        def loss_sums(self, model: nn.Module, batch: Any) -> tuple[Tensor, Tensor]:
            loss, nll = super().loss_sums(model, batch)
            return loss * (factor if model.training and self.number == BAD - 1 else 1.0), nll

    monkeypatch.setattr(translating, "TranslationObjective", Poisoned)


def assert_weights_are_those_of(model: nn.Module, folder: Path, update: int) -> None:
    saved = load_file(folder / f"checkpoints/step-{update}/model.safetensors")
    for name, parameter in model.named_parameters():
        assert torch.equal(parameter.detach(), saved[name]), name


@pytest.mark.parametrize("factor", [math.nan, math.inf])
def test_a_loss_that_is_not_finite_stops_before_the_optimiser_moves(
    tmp_path: Path, trained: list[nn.Module], monkeypatch: pytest.MonkeyPatch, factor: float
) -> None:
    poison(monkeypatch, factor)
    with pytest.raises(
        NonFinite,
        match=rf"update {BAD}: the loss \({factor}\) is not finite; first seen in the grad",
    ):
        run.train_run(tiny(*SETTINGS), tmp_path)
    assert steps(tmp_path) == [1, 2, 3, 4, 5]
    assert_weights_are_those_of(trained[0], tmp_path, 5)
    last = RunFolder(tmp_path).events()[-1]
    assert (last["event"], last["update"]) == ("non-finite", BAD)
    assert RunFolder(tmp_path).checkpoint("last").update == 5


@pytest.mark.parametrize(
    ("module", "first"),
    [
        ("decoder.blocks.0.feed_forward", "decoder.blocks.0.feed_forward"),
        ("encoder.blocks.0.attention", "encoder.blocks.0.attention"),
    ],
)
def test_an_infinite_gradient_in_the_middle_is_traced_to_where_it_began(
    tmp_path: Path,
    trained: list[nn.Module],
    monkeypatch: pytest.MonkeyPatch,
    module: str,
    first: str,
) -> None:
    updates = 0

    def overflow(gradient: Tensor) -> Tensor:
        return gradient * math.inf if updates == BAD - 1 else gradient

    def hook(_: nn.Module, __: Any, output: Tensor) -> None:
        if output.requires_grad:
            output.register_hook(overflow)

    def count(event: dict[str, Any]) -> None:
        nonlocal updates
        updates = event["update"]
        if event["event"] == "initialisation":
            trained[0].get_submodule(module).register_forward_hook(hook)

    with pytest.raises(NonFinite) as stop:
        run.train_run(tiny(*SETTINGS), tmp_path, listeners=[count])
    # Blocks behind it in the backward pass are infinite too; those before it, and so the loss, are
    # not.
    said, _, micro_batch = str(stop.value).rpartition(", in micro-batch ")
    assert said.startswith(
        f"update {BAD}: the gradient is not finite; first seen in the gradient of {first}"
    )
    assert micro_batch == f"{BAD - 1}"  # batches are counted from 0, and each update has one
    assert_weights_are_those_of(trained[0], tmp_path, BAD - 1)


def test_a_weight_that_is_not_finite_is_named_even_where_updates_are_skipped(
    tmp_path: Path, trained: list[nn.Module]
) -> None:
    def spoil(event: dict[str, Any]) -> None:
        if event["event"] == "update" and event["update"] == 5:
            trained[0].get_parameter("decoder.blocks.0.feed_forward.f.ffn_in.weight").data[0, 0] = (
                math.nan
            )

    settings = [*SETTINGS, "train.checkpoint_every=2", "train.on_nonfinite='skip'"]
    name = "decoder.blocks.0.feed_forward.f.ffn_in.weight"
    with pytest.raises(
        NonFinite, match=rf"update 6: the weights of {name} are not finite, nor then is the loss"
    ):
        run.train_run(tiny(*settings), tmp_path, listeners=[spoil])
    assert steps(tmp_path) == [2, 4]


def test_weights_spoilt_by_the_optimiser_are_never_saved(tmp_path: Path) -> None:
    with pytest.raises(
        NonFinite, match=r"update 1: the weights of .* are not finite after the optimiser's step"
    ):
        run.train_run(tiny(*SETTINGS, "optimizer.peak_lr=1e39"), tmp_path)
    assert steps(tmp_path) == []
    assert "NaN" not in (tmp_path / "metrics.jsonl").read_text()


@pytest.mark.sampled(one_in=4)
@pytest.mark.parametrize("spoilt", ["weights", "exp_avg_sq"])
@pytest.mark.parametrize("update", [5, 6])
@pytest.mark.parametrize("signalled", [True, False])
def test_nothing_that_is_not_finite_takes_the_place_of_the_last_good_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spoilt: str, update: int, signalled: bool
) -> None:
    settings = (
        *SETTINGS,
        "train.validate_every=100",
        "train.checkpoint_every=2",
        "train.keep_checkpoints=1",
    )
    optimizers: list[torch.optim.Optimizer] = []

    def make(*arguments: Any) -> torch.optim.Optimizer:
        optimizers.append(make_optimizer(*arguments))
        return optimizers[-1]

    def spoil(event: dict[str, Any]) -> None:
        if (event["event"], event["update"]) == ("update", update):
            parameter, state = next(iter(optimizers[0].state.items()))
            (parameter.data if spoilt == "weights" else state[spoilt]).view(-1)[0] = math.inf
            if signalled:
                os.kill(os.getpid(), signal.SIGTERM)

    make_optimizer = loop.make_optimizer
    with monkeypatch.context() as patch:
        patch.setattr(loop, "make_optimizer", make)
        with pytest.raises(
            NonFinite,
            match=r"weights of .* not finite|the optimiser's exp_avg_sq of .* is not finite",
        ):
            run.train_run(tiny(*settings), tmp_path, listeners=[spoil])
    assert RunFolder(tmp_path).events()[-1]["event"] == "non-finite"
    assert steps(tmp_path) == [4]  # 6 is the next at which one is due
    run.train_run(tiny(*settings), tmp_path)
    assert steps(tmp_path) == [8]


def test_an_update_that_is_validated_and_saved_is_looked_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked = list[int]()

    def look(model: nn.Module, optimizer: torch.optim.Optimizer) -> str | None:
        looked.append(int(next(iter(optimizer.state.values()))["step"]))
        return unfit_to_keep(model, optimizer)

    monkeypatch.setattr(loop, "unfit_to_keep", look)
    run.train_run(tiny(*SETTINGS, "train.checkpoint_every=2"), tmp_path)
    assert looked == [2, 4, 6, 8]  # 4 and 8 are validated, too


def test_a_validation_loss_that_is_not_finite_stops_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Overflowing(translating.TranslationObjective):
        def validate(self, model: nn.Module) -> dict[str, float]:
            return super().validate(model) | {"nll_nats": math.inf}

    monkeypatch.setattr(translating, "TranslationObjective", Overflowing)
    with pytest.raises(NonFinite, match=r"update 4: the validation loss \(inf\) is not finite"):
        run.train_run(tiny(*SETTINGS), tmp_path)
    assert steps(tmp_path) == [1, 2, 3]


def test_skip_leaves_weights_moments_and_summed_rate_and_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    poison(monkeypatch, math.nan)
    progress = run.train_run(tiny(*SETTINGS, "train.on_nonfinite='skip'"), tmp_path)
    assert (progress.update, progress.skipped_updates) == (8, 1)
    assert progress.summed_lr == pytest.approx(7 * 5e-4, rel=1e-12)
    before, bad, after = (
        tmp_path / f"checkpoints/step-{update}" for update in (BAD - 1, BAD, BAD + 1)
    )
    for file in ("model.safetensors", "optimizer.safetensors"):
        assert (
            (before / file).read_bytes() == (bad / file).read_bytes() != (after / file).read_bytes()
        )
    events = RunFolder(tmp_path).events()
    assert [e["update"] for e in events if e["event"] == "update"] == [1, 2, 3, 4, 5, 7, 8]
    ((skipped, reason),) = [(e["update"], e["reason"]) for e in events if e["event"] == "skipped"]
    assert skipped == BAD
    assert reason.startswith("the loss (nan) is not finite; first seen in the gradient of ")
    assert all(math.isfinite(e["loss_nats"]) for e in events if e["event"] == "update")


@pytest.mark.sampled(one_in=3)
@pytest.mark.parametrize("at", [BAD - 1, BAD, BAD + 1])
def test_a_run_with_a_skip_resumes_exactly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    poison(monkeypatch, math.nan)
    config = tiny(*SETTINGS, "train.on_nonfinite='skip'", "train.checkpoint_every=3")
    run.train_run(config, tmp_path / "whole")

    def interrupt(event: dict[str, Any]) -> None:
        if event["update"] == at:
            os.kill(os.getpid(), signal.SIGTERM)

    with pytest.raises(Interrupted):
        run.train_run(config, tmp_path / "stopped", listeners=[interrupt])
    run.train_run(config, tmp_path / "stopped")
    assert result(tmp_path / "stopped", 8) == result(tmp_path / "whole", 8)


def test_a_norm_that_overflows_over_finite_gradients_is_called_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    poison(monkeypatch, 1e30)
    with pytest.raises(
        NonFinite, match="the gradient is not finite, though every single gradient is: the sum of"
    ):
        run.train_run(tiny(*SETTINGS), tmp_path)


def test_the_first_bad_weight_is_that_of_the_models_order() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    assert first_bad_weight(model) is None
    model.get_parameter("1.weight").data[0, 1] = math.nan
    model.get_parameter("0.bias").data[1] = -math.inf
    assert first_bad_weight(model) == "0.bias"
