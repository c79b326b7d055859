"""Placements train from their configuration alone, and what it moves over updates survives a stop
to the bit.
"""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from normscope.data.opening import DataConfig, open_corpus
from normscope.placement import named, registered
from normscope.runs import run
from normscope.runs.trained import load_run
from normscope.tasks.translation import TRANSLATION
from normscope.train import RunFolder
from placement.expected import expected
from tiny import SHORT, result, tiny

pytestmark = pytest.mark.sampled(one_in=20)

TRAINED = [
    name
    for name, placement in registered().items()
    if "encoder-decoder" in placement.models and not placement.variant_of
]
"""One of each family: a variant's outputs and gradients are compared with its source's equations
elsewhere.
"""
SETTINGS = (
    "model.width=32",
    "model.ffn_width=64",
    "model.heads=4",
    "model.encoder_blocks=2",  # some formulas differ from block to block
    "model.dropout=0.0",
    "data.toy_pairs=2000",
    "data.max_tokens=512",
    "schedule.warmup_updates=6",
    "adaptive.over=30",
)


@pytest.fixture(scope="module")
def unigram_nats() -> float:
    return TRANSLATION.chance_nats(open_corpus(DataConfig(toy_pairs=2000)))


@pytest.mark.parametrize("placement", TRAINED)
def test_trains_the_toy_language(placement: str, tmp_path: Path, unigram_nats: float) -> None:
    """Within `toy_updates`: a run that is there after half of them need not go on, the others are
    made longer.
    """
    known = expected(placement)
    early = known.toy_updates // 2
    for updates in (early, known.toy_updates * 3 // 4, known.toy_updates):
        length = (
            f"train.duration={updates}",
            f"train.validate_every={early}",
            f"train.checkpoint_every={early}",
        )
        rate = f"optimizer.peak_lr={known.toy_rate}"
        run.train_run(
            tiny(*SETTINGS, *length, rate, f'model.placement="{placement}"'), tmp_path / "run"
        )
        validations = [
            event
            for event in RunFolder(tmp_path / "run").events()
            if event["event"] == "validation"
        ]
        # A model that only counts words cannot get below 1; at the end the slowest is at 0.976,
        # most are below 0.92.
        if validations[-1]["nll_nats"] < 0.985 * unigram_nats:
            break
    assert unigram_nats == pytest.approx(4.4, abs=0.1)
    assert validations[-1]["update"] == updates
    assert validations[-1]["nll_nats"] < 0.985 * unigram_nats


def weights(folder: Path) -> dict[str, torch.Tensor]:
    model = load_run(folder, which="last", device="cpu").model
    return dict(model.named_parameters()) | dict(model.named_buffers())


@pytest.fixture
def short_run(tmp_path: Path) -> Callable[..., Path]:
    def make(placement: str, *settings: str) -> Path:
        folder = tmp_path / placement
        run.train_run(tiny(*SHORT, f'model.placement="{placement}"', *settings), folder)
        return folder

    return make


def test_rezeros_gates_open(short_run: Callable[..., Path]) -> None:
    gates = [value for name, value in weights(short_run("rezero")).items() if name.endswith("gate")]
    assert len(gates) == 2
    assert all(gate.abs() > 1e-5 for gate in gates)


def test_ngpt_stays_on_the_sphere(short_run: Callable[..., Path]) -> None:
    placement, found = named("ngpt"), weights(short_run("ngpt", 'model.activation="swiglu"'))
    matrices = [name for name in found if name.endswith(".weight") and ".f." in name]
    assert len(matrices) == 18, "a gate for each of two feed-forwards"
    for name in matrices:
        kind = name.split(".")[-2].replace("ffn_gate", "ffn_in")
        lengths = found[name].norm(dim=placement.unit_vectors[kind])
        torch.testing.assert_close(lengths, torch.ones_like(lengths), rtol=1e-6, atol=0)
    rows = found["target_embedding.weight"].norm(dim=1)
    # The padding row begins as 0; as an output that never occurs it has a gradient, and then a
    # direction too.
    torch.testing.assert_close(rows, torch.ones(len(rows)), rtol=1e-6, atol=0)


def test_admin_starts_from_its_profile_and_a_stop_does_not_profile_again(
    short_run: Callable[..., Path], unfinished: Callable[..., Path]
) -> None:
    whole = short_run("admin", "optimizer.peak_lr=1e-9")
    scales = [value for name, value in weights(whole).items() if name.endswith("skip_scale")]
    assert len(scales) == 5
    means = [scale.mean().item() for scale in scales]
    assert [round(mean, 6) for mean in means].count(1.0) == 2, "the first of each stack"
    # The others are roots of what the branches before them add, the decoder's third the largest.
    assert sorted(means)[0] < 0.9
    assert means[4] > means[3] > 0.1
    stopped = unfinished(6, 'model.placement="admin"', "optimizer.peak_lr=1e-9")
    run.train_run(tiny(*SHORT, 'model.placement="admin"', "optimizer.peak_lr=1e-9"), stopped)
    assert result(stopped, 12) == result(whole, 12)


@pytest.mark.parametrize(
    ("placement", "number"), [("branch-norm", "branch_scale"), ("pre-to-post", "post")]
)
def test_a_schedule_resumes_exactly(
    placement: str, number: str, short_run: Callable[..., Path], unfinished: Callable[..., Path]
) -> None:
    settings = "adaptive.start=0.2", "adaptive.end=0.9", "adaptive.over=10"
    whole = short_run(placement, *settings)
    updates = [event for event in RunFolder(whole).events() if event["event"] == "update"]
    expected = [0.2 + 0.07 * min(update, 10) for update in range(1, 13)]
    assert [event[number] for event in updates] == pytest.approx(expected, rel=1e-12)
    stopped = unfinished(6, f'model.placement="{placement}"', *settings)
    held = [
        value for name, value in weights(stopped).items() if name.endswith(f"schedules.{number}")
    ]
    assert [value.item() for value in held] == pytest.approx([0.62, 0.62], rel=1e-6), (
        "what the checkpoint keeps"
    )
    run.train_run(tiny(*SHORT, f'model.placement="{placement}"', *settings), stopped)
    assert result(stopped, 12) == result(whole, 12)


@pytest.mark.thorough
def test_a_schedule_is_part_of_what_is_learned(
    short_run: Callable[..., Path], tmp_path: Path
) -> None:
    """Held at 1, branch-norm is Post-LN to the bit; rising, it is not."""
    post = short_run("post-ln")
    held = short_run("branch-norm", "adaptive.start=1.0")
    rising = tmp_path / "rising"
    run.train_run(tiny(*SHORT, 'model.placement="branch-norm"', "adaptive.over=10"), rising)
    ours, theirs, others = weights(held), weights(post), weights(rising)
    assert ours.keys() - theirs.keys() == {
        "encoder.schedules.branch_scale",
        "decoder.schedules.branch_scale",
    }
    assert all(torch.equal(ours[name], value) for name, value in theirs.items())
    assert any(not torch.equal(others[name], value) for name, value in theirs.items())


@pytest.mark.thorough
def test_a_longer_run_of_every_kind_of_state_resumes_exactly(
    tmp_path: Path, unfinished: Callable[..., Path]
) -> None:
    """nGPT's spheres, a gated feed-forward and attention residuals' history leave nothing outside a
    checkpoint.
    """
    for placement, activation in (("ngpt", "swiglu"), ("attn-res-block", "geglu")):
        settings = (
            f'model.placement="{placement}"',
            f'model.activation="{activation}"',
            "model.encoder_blocks=2",
        )
        run.train_run(tiny(*SHORT, *settings), tmp_path / placement)
        stopped = unfinished(5, *settings)
        run.train_run(tiny(*SHORT, *settings), stopped)
        assert result(stopped, 12) == result(tmp_path / placement, 12)
        stopped.rename(tmp_path / f"{placement}-stopped")
