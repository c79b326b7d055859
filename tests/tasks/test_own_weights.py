"""With which weights a model of one's own begins under each placement: said in the comparison's
report, and never drawn over what is trained.
"""

from collections.abc import Mapping
from pathlib import Path

import pytest
import torch

import in_process
import normscope
from normscope.compare import pool
from normscope.compare.facts import facts_of_weights
from normscope.runs.config import load
from normscope.tasks.protocol import StartingWeights
from normscope.tasks.registry import task_of

MODEL = '''
import torch
from torch import nn


class Attention(nn.Module):
    """As T5's: nothing divides the logits, and queries start smaller."""

    def __init__(self):
        super().__init__()
        self.q, self.k, self.v, self.o = (nn.Linear(64, 64, bias=False) for _ in range(4))
        for one, std in ((self.q, 0.125 / 32**0.5), (self.k, 0.125), (self.v, 0.125)):
            nn.init.normal_(one.weight, std=std)

    def forward(self, x):
        q, k, v = (f(x).unflatten(-1, (2, 32)).transpose(1, 2) for f in (self.q, self.k, self.v))
        mixed = (q @ k.mT).softmax(-1) @ v
        return self.o(mixed.transpose(1, 2).flatten(2))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.two = nn.LayerNorm(64), nn.LayerNorm(64)
        self.attention = Attention()
        self.mlp = nn.Sequential(nn.Linear(64, 128), nn.GELU(), nn.Linear(128, 64))

    def forward(self, x):
        x = x + self.attention(self.one(x))
        return x + self.mlp(self.two(x))


class Reader(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.head = nn.Embedding(11, 64), nn.Linear(64, 11)
        self.blocks, self.final = nn.ModuleList(Block() for _ in range(2)), nn.LayerNorm(64)

    def forward(self, x):
        x = self.embed(x)
        for block in self.blocks:
            x = block(x)
        return self.head(self.final(x))


def build():
    model = Reader()
    TRAINING
    return model


def batches(number):
    x = torch.randint(11, (2, 6))
    return x, (3 * x + 1) % 11


def validation():
    return [batches(number) for number in range(2)]
'''
UPDATE = """model(torch.arange(6)[None]).square().mean().backward()
    torch.optim.SGD(model.parameters(), 0.1).step()"""


def written(folder: Path, training: str = "") -> str:
    (folder / "my_model.py").write_text(MODEL.replace("TRAINING", training))
    return f"{folder / 'my_model.py'}:build"


def compared(
    factory: str, out: Path, monkeypatch: pytest.MonkeyPatch, **settings: object
) -> Mapping[str, str]:
    """The rows of the report of a comparison, and of that made of its folder later."""
    monkeypatch.setattr(pool, "run_cells", in_process.run_cells)
    done = normscope.compare(
        factory,
        out=out,
        placements=["own", "pre-ln", "deepnorm"],
        peak_lr=1e-3,
        warmup_updates=0,
        train__duration=1,
        **settings,
    )
    assert not done.problems
    rows = dict(done.page.what)
    again = dict(normscope.compare_runs(out).page.what)
    weights = {name for name in rows if name.startswith("Weights of ")} | {"Not comparable"}
    assert {name: again.get(name) for name in weights} == {name: rows.get(name) for name in weights}
    return rows


def test_the_report_says_what_was_drawn_and_what_cannot_be_compared_with_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = compared(written(tmp_path), tmp_path / "out", monkeypatch)
    assert rows["Weights of Own"] == "as its code builds them"
    drawn = rows["Weights of Pre-LN"]
    assert "drawn: blocks.*.attention.q.weight, blocks.*.attention.k.weight" in drawn
    unlike = rows["Not comparable"]
    assert unlike.startswith("Own beside Pre-LN (")
    assert "of placement and initial weights together" in unlike
    # fairseq's packed Glorot on values is √(2/(4 · 64)) = 0.088, which is 0.71 of 0.125; queries,
    # divided by √32 in both, are so too. DeepNorm's values have Glorot's 0.125 times (8 · 2)^-1/4.
    of_pre_ln, of_deepnorm = unlike.split("DeepNorm (")
    for found in (of_pre_ln, of_deepnorm):
        sizes = dict(_factors(found))
        expected = 2**-0.5 if found is of_pre_ln else 16**-0.25
        assert sizes["value"] == pytest.approx(expected, rel=0.07)
        assert ("query" in sizes) is (found is of_pre_ln)


def _factors(text: str) -> list[tuple[str, float]]:
    found = []
    for told in text.partition(")")[0].rpartition("(")[2].split(", "):
        part, low = told.split()[:2]
        found.append((part, float(low)))
    return found


@pytest.mark.parametrize("asked", ["as-found", "draw"])
def test_what_build_returns_trained_is_kept_unless_it_is_asked_to_draw(
    asked: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    factory = written(tmp_path, UPDATE)
    rows = compared(factory, tmp_path / "out", monkeypatch, model__initialise=asked)
    if asked == "draw":
        assert (
            "drawn as the placement wants them: as initialise='draw'" in rows["Weights of Pre-LN"]
        )
        assert "Not comparable" in rows
    else:
        assert "weights are kept: the entries of blocks." in rows["Weights of Pre-LN"]
        assert "Not comparable" not in rows
    config = load(
        Path(factory), ["model.placement=pre-ln", f"model.initialise={asked}", "train.threads=1"]
    )
    built = task_of(config).build(config, None)
    own = task_of(config).build(load(Path(factory), ["train.threads=1"]), None)
    name = "blocks.0.attention.v.weight"
    same = torch.equal(built.get_parameter(name), own.get_parameter(name))
    assert same is (asked == "as-found")


def test_without_own_or_without_another_size_nothing_is_said_to_be_confounded() -> None:
    alike = StartingWeights(told="drawn")
    other = StartingWeights(told="drawn", unlike_own="query 3 times")
    own = StartingWeights(told="as its code builds them")
    assert "Not comparable" not in dict(facts_of_weights({"own": own, "pre-ln": alike}))
    assert "Not comparable" not in dict(facts_of_weights({"pre-ln": other}))
    rows = dict(facts_of_weights({"own": own, "pre-ln": alike, "deepnorm": other}))
    assert rows["Not comparable"].startswith("Own beside DeepNorm (query 3 times): ")
