"""Real losses for the tests of flat ones: small Transformers of torch's own layers on the embedded
toy language, letter by letter and word by word, and on Markov chains. `python
tests/history/trained.py` trains them anew (a quarter of an hour on one core) and writes
losses.json; with names of trainings, these alone.
"""

import json
import math
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from normscope.data.toy import toy_pairs
from normscope.tasks.loss import unigram_entropy_nats

LOSSES = Path(__file__).with_name("losses.json")
SENTENCES, TOKENS = 4_000, 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """One training, and what its loss is a case of."""

    name: str
    kind: str
    """healthy, stuck, converged or fine-tuned."""
    words: bool = False
    chain: int = 0
    """Symbols of a Markov chain in which three may follow each; 0 for the toy language."""
    sentences: int = SENTENCES
    norm_first: bool = True
    blocks: int = 4
    rate: float = 1e-3
    warmup_updates: int = 0
    cosine: bool = False
    batch: int = 8
    updates: int = 300
    seed: int = 1
    after: str = ""
    """The training whose weights it begins with."""


TRAININGS = (
    Training(name="pre-ln", kind="healthy"),
    Training(name="pre-ln, low rate", kind="healthy", rate=2e-4),
    Training(name="pre-ln, warm-up", kind="healthy", rate=3e-3, warmup_updates=100),
    Training(name="pre-ln, cosine", kind="healthy", rate=2e-3, cosine=True),
    Training(name="pre-ln, noisy", kind="healthy", batch=2, updates=400),
    Training(name="pre-ln, deep", kind="healthy", blocks=8, seed=2),
    Training(name="pre-ln, words", kind="healthy", words=True),
    Training(name="pre-ln, words, low rate", kind="healthy", words=True, rate=2e-4),
    Training(name="pre-ln, words, warm-up", kind="healthy", words=True, warmup_updates=150),
    Training(name="post-ln, shallow", kind="healthy", norm_first=False, blocks=2),
    Training(name="post-ln, low rate", kind="healthy", norm_first=False, rate=3e-4),
    Training(name="post-ln, words", kind="healthy", norm_first=False, blocks=2, words=True),
    Training(name="post-ln, 12 blocks", kind="stuck", norm_first=False, blocks=12, rate=3e-3),
    Training(name="post-ln, 8 blocks", kind="stuck", norm_first=False, blocks=8, rate=5e-3, seed=2),
    Training(
        name="post-ln, 12 blocks, words",
        kind="stuck",
        norm_first=False,
        blocks=12,
        rate=3e-3,
        words=True,
    ),
    Training(name="by heart", kind="converged", sentences=4, rate=3e-3, cosine=True, updates=800),
    Training(name="chain of 40", kind="converged", chain=40, blocks=1, rate=5e-3, updates=1_500),
    Training(name="chain of 200", kind="converged", chain=200, blocks=1, rate=5e-3, updates=2_000),
    Training(name="one block", kind="converged", blocks=1, rate=5e-3, cosine=True, updates=1_500),
    Training(
        name="one block, words",
        kind="converged",
        words=True,
        blocks=1,
        rate=5e-3,
        cosine=True,
        updates=1_500,
    ),
    Training(name="on with it", kind="fine-tuned", after="one block", blocks=1, rate=1e-5, seed=7),
    Training(
        name="on with words",
        kind="fine-tuned",
        after="one block, words",
        words=True,
        blocks=1,
        rate=1e-5,
        seed=7,
    ),
)


def chain(symbols: int) -> Tensor:
    """A walk of fifty thousand steps along a chain that is drawn by itself."""
    draw = np.random.default_rng(symbols)
    after = np.array([draw.choice(symbols, size=3, replace=False) for _ in range(symbols)])
    shares = draw.dirichlet(np.ones(3), size=symbols)
    walk = [0]
    for _ in range(50_000):
        walk.append(int(draw.choice(after[walk[-1]], p=shares[walk[-1]])))
    return torch.tensor(walk)


def text(training: Training) -> tuple[Tensor, int]:
    """The tokens of the chain or of the German sentences, and how many kinds of them there are."""
    if training.chain:
        return chain(training.chain), training.chain
    sentences = [german for german, _ in toy_pairs(SENTENCES, seed=1, split="train")]
    split = str.split if training.words else list
    kinds = sorted({token for sentence in sentences for token in split(sentence)})
    numbers = {token: number for number, token in enumerate(kinds)}
    end = len(kinds)
    tokens = []
    for sentence in sentences[: training.sentences]:
        tokens += [numbers[token] for token in split(sentence)]
        tokens.append(end)
    return torch.tensor(tokens), end + 1


class Model(nn.Module):
    """A causal language model of width 48."""

    def __init__(self, kinds: int, training: Training) -> None:
        super().__init__()
        width = 48
        self.embed = nn.Embedding(kinds, width)
        self.places = nn.Embedding(TOKENS, width)
        self.blocks = nn.ModuleList(
            nn.TransformerEncoderLayer(
                width,
                4,
                4 * width,
                dropout=0.0,
                batch_first=True,
                norm_first=training.norm_first,
            )
            for _ in range(training.blocks)
        )
        self.norm = nn.LayerNorm(width) if training.norm_first else nn.Identity()
        self.head = nn.Linear(width, kinds)
        for weight in self.parameters():
            if weight.dim() > 1:
                nn.init.xavier_uniform_(weight)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.embed(ids) + self.places(torch.arange(ids.shape[1]))
        mask = nn.Transformer.generate_square_subsequent_mask(ids.shape[1])
        for block in self.blocks:
            x = block(x, src_mask=mask, is_causal=True)
        logits: Tensor = self.head(self.norm(x))
        return logits


def factor(training: Training, update: int) -> float:
    """What the peak rate is multiplied with."""
    if training.warmup_updates:
        return min(1.0, update / training.warmup_updates)
    if training.cosine:
        return 0.5 * (1 + math.cos(math.pi * (update - 1) / training.updates))
    return 1.0


def losses(training: Training, model: Model, tokens: Tensor) -> Iterator[float]:
    """Of each update, by AdamW."""
    draw = torch.Generator().manual_seed(training.seed)
    optimizer = torch.optim.AdamW(model.parameters(), training.rate)
    for update in range(1, training.updates + 1):
        for group in optimizer.param_groups:
            group["lr"] = training.rate * factor(training, update)
        starts = torch.randint(0, len(tokens) - TOKENS - 1, (training.batch,), generator=draw)
        rows = torch.stack([tokens[start : start + TOKENS + 1] for start in starts])
        loss = nn.functional.cross_entropy(model(rows[:, :-1]).mT, rows[:, 1:])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield loss.item()


def trained(training: Training, models: dict[str, Model]) -> dict[str, Any]:
    """One of them in three digits, with what is known of its targets; its model is kept."""
    tokens, kinds = text(training)
    torch.manual_seed(training.seed)
    model = models.get(training.after) or Model(kinds, training)
    curve = [round(loss, 3) for loss in losses(training, model, tokens)]
    models[training.name] = model
    print(training.name, curve[0], curve[-1], flush=True)
    return {
        "name": training.name,
        "kind": training.kind,
        "classes": kinds,
        "unigram_nats": round(unigram_entropy_nats(np.asarray(tokens)), 3),
        "rate": training.rate,
        "losses": curve,
    }


def main(names: Sequence[str]) -> None:
    """Trains those of the names, or all, and writes them with what stands there of others."""
    torch.set_num_threads(1)
    former = {}
    if names:
        former = {one["name"]: one for one in json.loads(LOSSES.read_text(encoding="utf-8"))}
    models: dict[str, Model] = {}
    found = []
    for training in TRAININGS:
        if names and training.name not in names:
            found.append(former[training.name])
        else:
            found.append(trained(training, models))
    rows = ",\n".join(json.dumps(one) for one in found)
    LOSSES.write_text(f"[\n{rows}\n]\n", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
