"""The benchmarks of `make gpu` on a CPU, at sizes that say nothing: all of their code but the
device's own.
"""

import importlib
import json
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

ROOT = Path(__file__).parents[2]
# Of what x-transformers imports.
pytestmark = [
    pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated:DeprecationWarning"),
    pytest.mark.thorough,
]


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The module that holds the parts."""
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    return importlib.import_module("gpu.__main__")


@pytest.fixture
def where(gpu: ModuleType) -> Any:
    return gpu.Where(device=torch.device("cpu"), quick=True)


def measured(
    gpu: ModuleType, where: Any, folder: Path, name: str, *words: str
) -> Mapping[str, Any]:
    """What a part leaves of the arms in whose names all of one of the words stand; of all without
    words.
    """
    part = gpu.PARTS[name]
    arms = {
        arm: m
        for arm, m in part.arms(where).items()
        if not words or any(word in arm for word in words)
    }
    assert arms
    assert gpu.run(
        name, replace(part, arms=lambda _: arms), where, folder=folder, budget_seconds=1e9
    )
    found = json.loads((folder / f"{name}.json").read_text())
    assert found["arms"].keys() | found["not_installed"].keys() == arms.keys()
    return found


def test_a_translation_step_in_all_its_ways(gpu: ModuleType, where: Any, tmp_path: Path) -> None:
    ways = ("product", "operations", "bf16, 128 tokens", "normscope, fp32")
    found = measured(gpu, where, tmp_path, "step-translation", *ways)
    rows = {row["step"]: row for row in found["rows"]}
    assert {
        "normscope, bf16, 128 tokens",
        "torch, bf16, 128 tokens",
        "normscope, fp32, 128 tokens",
    } <= rows.keys()
    for way in ("Adam not fused", "batches from pinned memory", "batches from ordinary memory"):
        assert f"normscope, bf16, 128 tokens, {way}" in rows
    ours, arms = rows["normscope, bf16, 128 tokens"], found["arms"]
    seconds = arms["normscope, bf16, 128 tokens"]["seconds"]
    operations, product = (
        arms["operations, 128 tokens"]["operations"],
        arms["product bf16"]["tflops"],
    )
    assert ours["MFU %"] == pytest.approx(100 * operations / seconds / 1e12 / product)
    assert ours["MFU % of the data sheet"] is None
    if "transformers, bf16, 128 tokens" in arms:
        assert ours["× transformers"] == arms["transformers, bf16, 128 tokens"]["seconds"] / seconds
    profile = arms["profile of normscope, bf16, 128 tokens"]
    assert profile["longest"][0]["seconds"] >= profile["longest"][-1]["seconds"] >= 0


@pytest.mark.parametrize("name", ["step-bert", "step-llama"])
def test_steps_of_the_other_families(
    gpu: ModuleType, where: Any, tmp_path: Path, name: str
) -> None:
    measured(gpu, where, tmp_path, name, "operations", "fp32, 128 tokens")


def test_operations_are_those_of_the_llamas_matrices(gpu: ModuleType, where: Any) -> None:
    """Six for each weight of a matrix and token, beside attention's products of queries, keys and
    values.
    """
    arms = gpu.PARTS["step-llama"].arms(where)
    tokens, width, length = 2 * 128, 16, 32
    weights = 4 * width**2 + 3 * width * 32 + 50 * width
    scores = 2 * 2 * tokens * length * width
    # Two products of scores forward, and four or five of them backward.
    operations = arms["operations, 128 tokens"]()["operations"]
    assert 6 * tokens * weights + 3 * scores <= operations <= 6 * tokens * weights + 3.5 * scores


def test_decoding(gpu: ModuleType, where: Any, tmp_path: Path) -> None:
    found = measured(
        gpu, where, tmp_path, "decode", "product fp32", "operations", "fp32, 2 sentences"
    )
    assert found["rows"][0]["MFU %"] > 0


def test_trainings_with_fixed_bits(gpu: ModuleType, where: Any, tmp_path: Path) -> None:
    found = measured(
        gpu, where, tmp_path, "training", "product bf16", "operations", "bf16, deterministic"
    )
    bits = {row["training"]: row.get("bits") for row in found["rows"]}
    assert bits == {
        "bf16, deterministic": None,
        "bf16, deterministic, again": "the same",
        "bf16, deterministic, stopped in the middle and gone on with": "the same",
    }


def test_a_run_with_other_bits_is_told(gpu: ModuleType) -> None:
    one = {"precision": "bf16", "tokens_per_second": 1.0, "peak_mb": None, "bits": "a"}
    rows = gpu.TRAINING.rows(
        {"bf16": one, "bf16, again": one | {"bits": "b"}, "bf16, deterministic": one}
    )
    assert [(row.get("bits"), row.get("times as long as without")) for row in rows] == [
        (None, None),
        ("others", None),
        (None, 1.0),
    ]


def test_the_doctor_and_predict(gpu: ModuleType, where: Any, tmp_path: Path) -> None:
    found = measured(gpu, where, tmp_path, "doctor", "torch.nn")
    assert found["rows"][0]["findings and placements"] == "the CPU's"
    assert found["rows"][0]["largest deviation"] == 0
    assert found["arms"]["torch.nn.Transformer"]["placements"] == ["post-ln", "post-ln"]
    found = measured(gpu, where, tmp_path, "predict", "post-ln, fp32")
    # Two draws of a model of width 32.
    assert 0 < found["rows"][0]["q, % from theory at most"] < 20


def test_what_is_measured_is_not_measured_again(
    gpu: ModuleType, where: Any, tmp_path: Path, capsys: Any
) -> None:
    asked: list[str] = []

    def arm(name: str) -> Any:
        def measure() -> dict[str, float]:
            asked.append(name)
            if name == "fails" and asked.count(name) == 1:
                raise RuntimeError("out of memory")
            return {"seconds": 1.0}

        return measure

    part = gpu.Part(
        arms=lambda _: {name: arm(name) for name in ("a", "fails", "b")}, rows=lambda arms: []
    )
    assert not gpu.run("some", part, where, folder=tmp_path, budget_seconds=1e9)
    assert asked == ["a", "fails", "b"]
    assert json.loads((tmp_path / "some.json").read_text())["failed"] == {
        "fails": "RuntimeError: out of memory"
    }
    assert gpu.run("some", part, where, folder=tmp_path, budget_seconds=1e9)
    assert asked == ["a", "fails", "b", "fails"]
    assert gpu.run("some", part, replace(where, quick=False), folder=tmp_path, budget_seconds=0.0)
    assert asked == ["a", "fails", "b", "fails"]
    assert (
        "some: no time was left for a, fails, b; the same command goes on with them"
        in capsys.readouterr().out
    )
    assert gpu.run("some", part, replace(where, quick=False), folder=tmp_path, budget_seconds=1e9)
    assert asked[4:] == ["a", "fails", "b"]


def test_without_a_device_it_says_so(
    gpu: ModuleType,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(sys, "argv", ["gpu", "--out", str(tmp_path / "out")])
    assert gpu.main() == 0
    assert capsys.readouterr().out == "nothing is measured: torch sees no CUDA device\n"
    assert not (tmp_path / "out").exists()
