"""A model that is trained as Pre-LN, moved to Peri-LN with its weights, and trained on, beside the
same model trained on as Pre-LN, and Peri-LN from scratch.

`python moved.py SEED…` in a folder where `corpora` holds the corpus; writes results.json and
loss.svg.
"""

import copy
import gzip
import json
import sys
import time
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

import normscope
from normscope.provenance import provenance
from normscope.report.chart import Panel, Series
from normscope.report.chart_svg import panels_svg
from normscope_studies.engine.estimates import estimate

BLOCKS, WIDTH, HEADS, LENGTH, ROWS = 4, 32, 4, 32, 16
TRAINED, MORE, EVERY, RATE = 1500, 1500, 25, 3e-3
FOLDER = Path("corpora/multi30k_deen")


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.mlp = nn.Sequential(
            nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH)
        )

    def attention(self, x: Tensor) -> Tensor:
        q, k, v = (
            part.view(*x.shape[:2], HEADS, -1).transpose(1, 2)
            for part in self.qkv(x).split(WIDTH, dim=-1)
        )
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(mixed.transpose(1, 2).reshape(x.shape))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class Characters(nn.Module):
    def __init__(self, alphabet: int) -> None:
        super().__init__()
        self.table, self.places = nn.Embedding(alphabet, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(BLOCKS))
        self.final, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, alphabet)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.table(ids) + self.places.weight[: ids.shape[1]]
        for block in self.blocks:
            x = block(x)
        return self.head(self.final(x))


lines = gzip.decompress((FOLDER / "train.en.gz").read_bytes()).decode("utf-8")
ALPHABET = {one: number for number, one in enumerate(sorted(set(lines)))}
TRAIN = torch.tensor([ALPHABET[one] for one in lines])
held = (FOLDER / "valid.en").read_text(encoding="utf-8")[:10_000]
VALID = torch.tensor([ALPHABET[one] for one in held if one in ALPHABET])


def cut(characters: Tensor, starts: Tensor) -> Tensor:
    return torch.stack([characters[at : at + LENGTH + 1] for at in starts.tolist()])


def loss_of(model: nn.Module, rows: Tensor) -> Tensor:
    return functional.cross_entropy(model(rows[:, :-1]).flatten(0, 1), rows[:, 1:].flatten())


@torch.no_grad()
def valid(model: nn.Module) -> float:
    return float(loss_of(model, cut(VALID, torch.arange(0, len(VALID) - LENGTH - 1, LENGTH))))


def train(model: nn.Module, updates: int, seed: int) -> list[list[float]]:
    """Validation losses by updates, in nats a character; Adam at one rate after 50 updates of
    warm-up.
    """
    draws = torch.Generator().manual_seed(seed)
    optimizer = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], lr=RATE)
    found = [[0, valid(model)]]
    for update in range(1, updates + 1):
        optimizer.param_groups[0]["lr"] = RATE * min(1.0, update / 50)
        optimizer.zero_grad()
        loss_of(
            model, cut(TRAIN, torch.randint(len(TRAIN) - LENGTH - 1, (ROWS,), generator=draws))
        ).backward()
        optimizer.step()
        if update % EVERY == 0:
            found.append([update, valid(model)])
    return found


def unigram_nats() -> float:
    """The loss of the shares of the training's characters on those held out."""
    counts = torch.bincount(TRAIN, minlength=len(ALPHABET)).double()
    return -float((counts / counts.sum()).log()[VALID].mean())


def bigram_nats() -> float:
    pairs = torch.ones(len(ALPHABET), len(ALPHABET), dtype=torch.float64)
    pairs.index_put_(
        (TRAIN[:-1], TRAIN[1:]), torch.ones(len(TRAIN) - 1, dtype=torch.float64), accumulate=True
    )
    return -float((pairs / pairs.sum(1, keepdim=True)).log()[VALID[:-1], VALID[1:]].mean())


def first(losses: list[list[float]], below: float) -> int | None:
    return next((int(update) for update, loss in losses if loss <= below), None)


def measured(seed: int) -> dict[str, object]:
    ids = cut(VALID, torch.arange(2))[:, :-1]
    torch.manual_seed(seed)
    model = Characters(len(ALPHABET))
    before = train(model, TRAINED, seed)
    loss = before[-1][1]
    # The control: what the model makes of as many updates on the same batches where it is.
    stayed = train(copy.deepcopy(model), MORE, seed + 100)
    normscope.transplant(model, "peri-ln", inputs=ids, initialise="keep")
    change = model.transplanted.change
    moved = train(model, MORE, seed + 100)
    torch.manual_seed(seed)
    scratch = normscope.transplant(
        Characters(len(ALPHABET)), "peri-ln", inputs=ids, initialise="draw"
    )
    fresh = train(scratch, MORE, seed + 100)
    return {
        "seed": seed,
        "pre_ln": before,
        "loss_before": loss,
        "change": change,
        "loss_after": moved[0][1],
        "stayed": stayed,
        "moved": moved,
        "scratch": fresh,
        "back_after": first(moved, loss),
        "scratch_back_after": first(fresh, loss),
        "stayed_end": stayed[-1][1],
        "moved_end": moved[-1][1],
        "scratch_end": fresh[-1][1],
    }


def less(found: dict[str, Any], key: str) -> dict[str, float]:
    """Returns how much lower than the model that stayed one ends, over the seeds, with the half
    width of its 95 % interval.
    """
    ends = [seed["stayed_end"] - seed[key] for seed in found["seeds"]]
    by_seed = estimate(ends)
    return {"mean": float(by_seed.mean), "half_width": float(by_seed.half_width)}


def draw(found: dict[str, Any]) -> str:
    """All three trainings over the updates of each."""
    rows = {
        "moved": "Peri-LN with Pre-LN's weights",
        "stayed": "Pre-LN, trained on",
        "scratch": "Peri-LN from scratch",
        "pre_ln": "Pre-LN, before",
    }
    series = []
    for hue, (key, words) in enumerate(rows.items()):
        updates = [update for update, _ in found["seeds"][0][key]]
        by_update = list(
            zip(*([loss for _, loss in seed[key]] for seed in found["seeds"]), strict=True)
        )
        mean, low, high = ([of(losses) for losses in by_update] for of in (fmean, min, max))
        series.append(
            Series(label=words, kind="measured", hue=hue, x=updates, y=mean, low=low, high=high)
        )
    panel = Panel(title=found["title"], xlabel="update", ylabel="nats a character", series=series)
    return panels_svg([panel], title=f"{found['title']}; unigrams have {found['unigram']:.3g} nats")


if __name__ == "__main__":
    torch.set_num_threads(1)
    title = "A trained model moved from Pre-LN to Peri-LN"
    found = {
        "title": title,
        **provenance(),
        "unigram": unigram_nats(),
        "bigram": bigram_nats(),
        "seeds": [],
    }
    found["seeds"] = [measured(int(seed)) for seed in sys.argv[1:]]
    found["less_than_stayed"] = {key: less(found, key) for key in ("moved_end", "scratch_end")}
    found["processor_hours"] = float(f"{time.process_time() / 3600:.3g}")
    Path("results.json").write_text(json.dumps(found, indent=1) + "\n")
    Path("loss.svg").write_text(draw(found))
