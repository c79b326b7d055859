"""A classification of the user's own: what is right of it beside a plain count, the user's
metrics(), and the words of its comparison.
"""

import json
import re
from pathlib import Path

import pytest
import torch

import normscope
from normscope.errors import UserError
from normscope.runs.trained import load_run
from tasks.test_own import trained, written

CLASSIFIER = '''"""Sorts rows of numbers into three kinds, of which one is common."""

import torch
from torch import nn


class Sorter(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Linear(4, 16)
        options = {"dropout": 0.0, "batch_first": True, "norm_first": True}
        layer = nn.TransformerEncoderLayer(16, 2, 32, **options)
        self.encoder = nn.TransformerEncoder(layer, 2, nn.LayerNorm(16), enable_nested_tensor=False)
        for weight in self.encoder.parameters():
            if weight.dim() > 1:
                nn.init.xavier_uniform_(weight)
        self.head = nn.Linear(16, 3)

    def forward(self, x):
        return self.head(self.encoder(self.embed(x)).mean(1))


def build():
    return Sorter()


def batches(number):
    x = torch.randn(RAGGED if number == 1 else 16, 5, 4)
    return x, (x.sum((1, 2)) > 2).long() + (x.sum((1, 2)) > 4).long()


def validation():
    generator = torch.Generator().manual_seed(7)
    found = []
    for rows in (16, 9):
        x = torch.randn(rows, 5, 4, generator=generator)
        found.append((x, (x.sum((1, 2)) > 2).long() + (x.sum((1, 2)) > 4).long()))
    return found


RAGGED = 16
'''
METRICS = """

def metrics(model, batch):
    x, labels = batch
    return {"rows": len(x), "second": (model(x).argmax(-1) == 1).double().mean()}
"""
DURATION = "train.duration=3"


def last_validation(run: Path) -> dict[str, float]:
    lines = (run / "metrics.jsonl").read_text().splitlines()
    events = [json.loads(line) for line in lines]
    return [one for one in events if one["event"] == "validation"][-1]


def test_what_is_right_is_counted_as_a_plain_loop_counts_it(tmp_path: Path) -> None:
    factory = written(tmp_path, CLASSIFIER + METRICS)
    trained(factory, tmp_path / "run", DURATION)
    found = last_validation(tmp_path / "run")
    loaded = load_run(tmp_path / "run", which="last", device="cpu")
    space: dict[str, object] = {}
    exec(CLASSIFIER, space)
    batches = space["validation"]()  # type: ignore[operator]
    with torch.no_grad():
        answers = [(loaded.model(x).argmax(-1), labels) for x, labels in batches]
    right = sum(int((given == labels).sum()) for given, labels in answers)
    second = sum(int((given == 1).sum()) for given, _ in answers)
    assert found["metrics.accuracy"] == pytest.approx(right / 25, abs=1e-12)
    assert found["metrics.second"] == pytest.approx(second / 25, abs=1e-12)
    assert found["metrics.rows"] == pytest.approx((16 * 16 + 9 * 9) / 25)


def test_a_comparison_of_a_classification_speaks_of_what_is_right(tmp_path: Path) -> None:
    factory = written(tmp_path, CLASSIFIER + METRICS)
    found = normscope.compare(
        factory,
        out=tmp_path / "grid",
        placements=["own"],
        peak_lr=[1e-3, 1e-2],
        warmup_updates=0,
        train__duration=8,
        train__threads=1,
    )
    labels = torch.cat([labels for _, labels in namespace()["validation"]()])  # type: ignore[operator]
    commonest = 100 * float(labels.bincount().max()) / len(labels)
    said = found.conclusion
    assert f"always the commonest label {commonest:.1f} %, chance 33.3 %" in said
    told = [said, str(found)]
    page = (tmp_path / "grid" / "report.html").read_text()
    told.append(re.sub(r"<script.*?</script>|<style.*?</style>", "", page, flags=re.DOTALL))
    assert [text for text in told if re.search("perplexity|unigram|nats per", text)] == []
    for heading in ("accuracy, valid (%)", "second, valid", "guess by label frequencies"):
        assert heading in page, heading
    seeds = json.loads((tmp_path / "grid" / "results.json").read_text())["arms"][0]["seeds"]
    assert seeds[0]["scores"]["accuracy, valid (%)"] == 100 * seeds[0]["accuracy"]
    again = normscope.compare_runs(tmp_path / "grid")
    assert again.conclusion == found.conclusion


def namespace() -> dict[str, object]:
    space: dict[str, object] = {}
    exec(CLASSIFIER, space)
    return space


@pytest.mark.parametrize(
    ("returned", "said"),
    [
        ("0.5", "must return numbers by their names"),
        ("{'accuracy': 91.2}", "it is the share of right answers, from 0 to 1"),
        ("{'f1': float('nan')}", "must give a finite number"),
        ("{'a b': 1.0}", "a name is a word of at most 40 letters"),
        ("{'f1': [1.0]}", "must give a finite number"),
    ],
)
def test_metrics_that_are_none_are_told(tmp_path: Path, returned: str, said: str) -> None:
    text = f"{CLASSIFIER}\n\ndef metrics(model, batch):\n    return {returned}\n"
    with pytest.raises(UserError, match=said):
        trained(written(tmp_path, text), tmp_path / "run", DURATION)


def test_tokens_and_losses_of_ones_own_have_other_words(tmp_path: Path) -> None:
    """A loss of one's own is no cross-entropy that is known: the model as it is built stands in."""
    own = f"{CLASSIFIER}\n\ndef loss(model, batch):\n    return model(batch[0]).square().mean()\n"
    found = normscope.compare(
        written(tmp_path, own),
        out=tmp_path / "grid",
        placements=["own"],
        peak_lr=1e-3,
        warmup_updates=0,
        train__duration=2,
        train__threads=1,
    )
    assert "model as it is built" in found.conclusion
    assert "unigram" not in found.conclusion
