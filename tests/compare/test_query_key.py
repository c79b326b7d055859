"""Norms on queries and keys as an axis of a comparison: of a model of one's own, and of ours."""

from pathlib import Path

import pytest

import in_process
import normscope
from normscope.compare import pool
from normscope.compare.grid import grid_of
from normscope.errors import UserError
from normscope.tasks.registry import config_of
from tiny import tiny

MODEL = '''"""Attention of which queries and keys are seen."""

import torch
from torch import nn
from torch.nn import functional


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.last = nn.LayerNorm(16), nn.LayerNorm(16)
        self.qkv, self.out = nn.Linear(16, 48), nn.Linear(16, 16)
        self.wide, self.narrow = nn.Linear(16, 32), nn.Linear(32, 16)

    def forward(self, x):
        q, k, v = (
            part.unflatten(-1, (2, 8)).transpose(1, 2)
            for part in self.qkv(self.norm(x)).chunk(3, -1)
        )
        mixed = functional.scaled_dot_product_attention(q, k, v)
        x = x + self.out(mixed.transpose(1, 2).flatten(-2))
        return x + self.narrow(functional.gelu(self.wide(self.last(x))))


def build():
    blocks = Block(), Block()
    return nn.Sequential(nn.Embedding(11, 16), *blocks, nn.LayerNorm(16), nn.Linear(16, 11))


def batches(number):
    x = torch.randint(11, (4, 6))
    return x, (3 * x + 1) % 11


def validation():
    return [batches(number) for number in range(2)]
'''


def axes(qk: list[str] | None, **asked: object) -> list[str]:
    base = config_of({}, source="a test")
    grid, _ = grid_of(base, {}, query_key_norms=qk, **asked)  # type: ignore[arg-type]
    return list(dict.fromkeys(placement for placement, _ in grid.placements_and_warmups))


def test_every_placement_is_taken_with_every_norm() -> None:
    assert axes(["none", "whole"], placements=["pre-ln", "post-ln"]) == [
        "pre-ln",
        "pre-ln+qk-norm-whole",
        "post-ln",
        "post-ln+qk-norm-whole",
    ]


def test_without_placements_norms_alone_are_compared() -> None:
    usual = tiny().model.placement
    base = tiny()
    grid, _ = grid_of(base, {}, query_key_norms=["none", "head"])
    placements = {placement for placement, _ in grid.placements_and_warmups}
    assert placements == {usual, f"{usual}+qk-norm"}


def test_wrong_words_and_arms_beside_them_are_refused() -> None:
    with pytest.raises(UserError, match=r"say head .* or whole"):
        axes(["heads"])
    with pytest.raises(UserError, match=r"pre-ln\+qk-norm:0"):
        axes(["none", "head"], arms=[("pre-ln", 0)])


@pytest.mark.thorough
def test_a_model_of_ones_own_is_compared_with_them_and_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool, "run_cells", in_process.run_cells)
    (tmp_path / "seen.py").write_text(MODEL)
    found = normscope.compare(
        f"{tmp_path / 'seen.py'}:build",
        out=tmp_path / "runs",
        qk_norm=["none", "head"],
        peak_lr=3e-3,
        warmup_updates=0,
        train__duration=2,
    )
    assert not found.problems
    assert {row["placement"] for row in found.table} == {"Own", "Own + QK-norm"}
    page = found.report.read_text(encoding="utf-8")
    assert "Own + QK-norm" in page
    runs = sorted(path.name for path in (tmp_path / "runs" / "runs").iterdir())
    assert runs == [
        "own+qk-norm_warmup-0_lr-0.003_adam_seed-1",
        "own_warmup-0_lr-0.003_adam_seed-1",
    ]
    again = normscope.compare_runs(tmp_path / "runs")
    assert again.page.conclusion == found.page.conclusion


def test_a_model_of_ours_is_trained_with_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool, "run_cells", in_process.run_cells)
    found = normscope.compare(
        tiny(),
        out=tmp_path / "runs",
        placements="pre-ln",
        qk_norm=["none", "head", "whole"],
        peak_lr=3e-3,
        warmup_updates=0,
        train__duration=2,
    )
    assert not found.problems
    losses = {row["placement"]: row["valid_loss_nats"] for row in found.table}
    assert {*losses} == {"Pre-LN", "Pre-LN + QK-norm", "Pre-LN + QK-norm-whole"}
    assert len({*losses.values()}) == 3
