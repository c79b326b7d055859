"""Our encoders and language models, opened for the doctor from a configuration and from a run."""

from pathlib import Path

import pytest
import torch

from normscope.runs.config import load
from normscope.runs.run import train_run
from normscope.settings.tables import to_toml
from normscope.targets import opened
from normscope.tasks.registry import task_of

SIZES = (
    "data.sequence_length=24",
    "data.batch_sequences=6",
    "model.width=16",
    "model.ffn_width=32",
    "model.heads=2",
    "model.blocks=2",
    "model.positions=24",
    "model.dropout=0.0",
    "model.attention_dropout=0.0",
    "train.duration=2",
    "train.threads=1",
)


@pytest.mark.sampled(one_in=3)
@pytest.mark.parametrize("task", ["masked-lm", "language-model"])
@pytest.mark.parametrize("trained", [False, True])
def test_the_loss_of_a_target_is_that_of_its_training(
    task: str, trained: bool, tmp_path: Path
) -> None:
    config = load(None, [f'task="{task}"', *SIZES])
    (tmp_path / "mine.toml").write_text(to_toml(config))
    if trained:
        train_run(config, tmp_path / "run")
    target = opened(
        str(tmp_path / ("run" if trained else "mine.toml")), [], tokens=8, sequences=2, seed=0
    )
    found = target.loss(target.inputs(target.model.eval()), target.inputs)
    task = task_of(config)
    work = task.objective(config, task.open(config), torch.device("cpu"))
    batch = work.micro_batch(0)
    with torch.no_grad():
        expected = work.loss_sums(target.model, batch)[0] / work.target_tokens(batch)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)
    assert target.wanted_placement == config.model.placement
    assert (target.loading is not None) == trained


@pytest.mark.sampled(one_in=2)
@pytest.mark.parametrize(
    "settings",
    [
        [
            'task="language-model"',
            "data.batch_sequences=300",
            "data.sequence_length=24",
            "model.positions=24",
        ],
        ["data.max_tokens=8000", "data.toy_pairs=3000"],
    ],
    ids=["language-model", "translation"],
)
def test_a_diagnosis_looks_at_a_few_thousand_tokens_of_a_large_batch(
    settings: list[str], tmp_path: Path
) -> None:
    """Every tensor of that pass is kept; the training's own batches are larger."""
    sizes = ["model.width=8", "model.ffn_width=8", "model.heads=2"]
    (tmp_path / "mine.toml").write_text(to_toml(load(None, [*settings, *sizes])))
    target = opened(str(tmp_path / "mine.toml"), [], tokens=8, sequences=2, seed=0)
    assert callable(target.inputs)
    with torch.no_grad():
        assert 2000 < len(target.inputs(target.model.eval())) <= 4096
