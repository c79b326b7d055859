"""The cases that are broken on purpose and those that are healthy, and the small causal language
model in which they are made.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from ..engine.checks import check_choices, check_least

LOOPS = ("normscope", "trainer")


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingCase:
    """One way to train. Midway is `change_at` of the study."""

    words: str
    cause: str = ""
    """The id of the pattern that it shows; "" for a healthy training."""
    place: Literal["", "block", "output", "whole"] = ""
    """The part that breaks: the block of the seed, the output layer, or nothing in particular."""
    from_start: bool = False
    """True where it is broken from the first update, and not midway."""
    optimizer: Literal["adamw", "sgd"] = "adamw"
    rate: float = 3e-3
    warmup: bool = True
    """Linear, over the updates before midway."""
    epsilon: float = 1e-8
    clip_norm: float = 1.0
    post_ln: bool = False
    block_times: float = 1.0
    """Factor on the rate of one block from midway on."""
    output_times: float = 1.0
    all_times: float = 1.0
    attention_times: float = 1.0
    """Factor by which queries' and keys' matrices grow at each update from midway on."""
    bad_batch: bool = False
    """True where the batch midway has random targets."""
    batch_times: float = 1.0
    """Factor on the number of sequences."""
    epoch_updates: int = 0
    """Batches that repeat; 0 for new ones throughout."""
    dropout: float = 0.0


BROKEN = {
    "rate": TrainingCase(
        words="one block's rate is 100 times higher once the warm-up has ended",
        cause="rate-too-high",
        place="block",
        block_times=100.0,
    ),
    "epsilon": TrainingCase(
        words="AdamW with ε = 10",
        cause="epsilon-swamps-gradients",
        place="whole",
        from_start=True,
        epsilon=10.0,
    ),
    "clip": TrainingCase(
        words="SGD whose gradients are clipped to 1e-4",
        cause="clip-hides-rate",
        place="whole",
        from_start=True,
        optimizer="sgd",
        rate=0.3,
        clip_norm=1e-4,
    ),
    "logits": TrainingCase(
        words="the output layer's rate is 300 times higher from midway on",
        cause="logits-growing",
        place="output",
        output_times=300.0,
    ),
    "collapse": TrainingCase(
        words="Post-LN whose rate is 100 times higher from midway on",
        cause="post-ln-collapse",
        place="whole",
        post_ln=True,
        all_times=100.0,
    ),
    "batch": TrainingCase(
        words="one batch with random targets", cause="bad-batch", place="whole", bad_batch=True
    ),
}
SLOW = {
    "queries": TrainingCase(
        words="queries' and keys' matrices grow by 10 % an update from midway on",
        attention_times=1.1,
    ),
    "rate-10": TrainingCase(words="every rate 10 times higher from midway on", all_times=10.0),
    "post-ln-rate-10": TrainingCase(
        words="Post-LN, every rate 10 times higher from midway on", post_ln=True, all_times=10.0
    ),
}
"""Broken midway too, but the loss may take long to show it, or never does: they are asked for a
warning alone.
"""
HEALTHY = {
    "warm-up": TrainingCase(words="a warm-up and a constant rate"),
    "noise": TrainingCase(
        words="batches of two sequences, dropout 0.1", batch_times=0.25, dropout=0.1
    ),
    "epochs": TrainingCase(
        words="twelve batches, again and again: the loss drops where an epoch begins",
        epoch_updates=12,
    ),
    "rate-drop": TrainingCase(
        words="a rate that falls to a tenth midway", warmup=False, all_times=0.1
    ),
    "large-batch": TrainingCase(
        words="batches eight times as large: a smooth loss", batch_times=8.0
    ),
}
CASES = BROKEN | SLOW | HEALTHY


@dataclass(frozen=True, slots=True, kw_only=True)
class SpikesConfig:
    """Trainings of a small causal language model on a Markov chain of tokens. Raises ValueError."""

    seeds: int = 3
    loops: tuple[str, ...] = LOOPS
    """normscope is this library's own loop, trainer Hugging Face's."""
    broken: tuple[str, ...] = tuple(BROKEN)
    slow: tuple[str, ...] = tuple(SLOW)
    healthy: tuple[str, ...] = tuple(HEALTHY)
    updates: int = 200
    change_at: int = 80
    """The update at which what is broken midway breaks; the warm-up ends there too."""
    every_updates: int = 5
    """The interval of the monitor, in updates."""
    width: int = 32
    blocks: int = 3
    sequences: int = 8
    tokens: int = 24
    classes: int = 48

    def __post_init__(self) -> None:
        for name, known in (
            ("loops", LOOPS),
            ("broken", BROKEN),
            ("slow", SLOW),
            ("healthy", HEALTHY),
        ):
            check_choices(self, name, tuple(known))
        if not 40 <= self.change_at < self.updates - 20:
            raise ValueError(
                f"change_at={self.change_at} must leave 40 updates before it and 20 after it"
            )
        check_least(self, seeds=1, every_updates=1)


# B = sequences, T = tokens, V = classes, D = width


class _Chain:
    """Tokens of which each depends on the one before; frequencies fall as one over the rank, as in
    text.
    """

    def __init__(self, classes: int, seed: int) -> None:
        generator = torch.Generator().manual_seed(1_000 + seed)
        frequencies_V = 1 / torch.arange(1, classes + 1, dtype=torch.float64)
        # Each token likes a few successors of its own, beside the frequent ones.
        own_VV = torch.rand(classes, classes, generator=generator, dtype=torch.float64).pow(24)
        rows_VV = 0.2 * frequencies_V / frequencies_V.sum() + 0.8 * own_VV / own_VV.sum(
            1, keepdim=True
        )
        self.sums_VV = (rows_VV / rows_VV.sum(1, keepdim=True)).cumsum(1)

    def draw(self, sequences: int, tokens: int, seed: int) -> Tensor:
        """(B, T + 1) token ids."""
        generator = torch.Generator().manual_seed(seed)
        draws_BT = torch.rand(sequences, tokens + 1, generator=generator, dtype=torch.float64)
        ids = [(draws_BT[:, 0] * len(self.sums_VV)).long()]
        for at in range(1, tokens + 1):
            ids.append(
                torch.searchsorted(
                    self.sums_VV[ids[-1]], draws_BT[:, at : at + 1].contiguous()
                ).squeeze(1)
            )
        return torch.stack(ids, 1).clamp_(max=len(self.sums_VV) - 1)


@dataclass(frozen=True)
class ChainBatches:
    """The batches of a training, from number 1."""

    case: TrainingCase
    config: SpikesConfig
    seed: int

    @property
    def sequences(self) -> int:
        return max(1, round(self.config.sequences * self.case.batch_times))

    def __call__(self, update: int) -> dict[str, Tensor]:
        """`input_ids` and `labels`, (B, T) each."""
        number = (update - 1) % self.case.epoch_updates if self.case.epoch_updates else update
        chain = _Chain(self.config.classes, self.seed)
        ids_BT = chain.draw(self.sequences, self.config.tokens, 10_000 * self.seed + number)
        labels_BT = ids_BT[:, 1:].contiguous()
        if self.case.bad_batch and update == self.config.change_at:
            # The rarest tokens, which a model that has learned never expects.
            labels_BT = torch.full_like(labels_BT, self.config.classes - 1)
        return {"input_ids": ids_BT[:, :-1].contiguous(), "labels": labels_BT}


class _SpikeModel(nn.Module):
    """Pre-LN with a final norm, or Post-LN; positions are learned."""

    def __init__(self, config: SpikesConfig, case: TrainingCase) -> None:
        super().__init__()
        self.embedding = nn.Embedding(config.classes, config.width)
        self.positions = nn.Parameter(0.02 * torch.randn(config.tokens, config.width))
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(
                config.width,
                4,
                4 * config.width,
                case.dropout,
                batch_first=True,
                norm_first=not case.post_ln,
            )
            for _ in range(config.blocks)
        )
        self.norm = nn.Identity() if case.post_ln else nn.LayerNorm(config.width)
        self.output = nn.Linear(config.width, config.classes)

    def forward(self, input_ids: Tensor, labels: Tensor) -> dict[str, Tensor]:
        tokens = input_ids.shape[1]
        x_BTD = self.embedding(input_ids) + self.positions[:tokens]
        mask_TT = nn.Transformer.generate_square_subsequent_mask(tokens)
        for layer in self.layers:
            x_BTD = layer(x_BTD, src_mask=mask_TT, is_causal=True)
        logits_BTV = self.output(self.norm(x_BTD))
        return {
            "loss": functional.cross_entropy(logits_BTV.flatten(0, 1), labels.flatten()),
            "logits": logits_BTV,
        }


def made_model(config: SpikesConfig, case: TrainingCase, seed: int) -> _SpikeModel:
    """Builds the model with the initial weights of the seed."""
    torch.manual_seed(seed)
    return _SpikeModel(config, case)


def made_optimizer(
    model: _SpikeModel, config: SpikesConfig, case: TrainingCase, seed: int
) -> torch.optim.Optimizer:
    """AdamW or SGD, whose step multiplies rates from midway on as the case says, whatever the loop
    sets them to.
    """
    block = broken_block(config, seed) - 1
    parts = {"block": model.layers[block], "output": model.output}
    inside = {id(p): name for name, part in parts.items() for p in part.parameters()}
    groups: dict[str, list[nn.Parameter]] = {"block": [], "output": [], "rest": []}
    for parameter in model.parameters():
        groups[inside.get(id(parameter), "rest")].append(parameter)
    times = {"block": case.block_times, "output": case.output_times, "rest": 1.0}
    options = [
        {"params": parameters, "midway": case.all_times * times[name]}
        for name, parameters in groups.items()
    ]
    optimizer: torch.optim.Optimizer = (
        torch.optim.SGD(options, lr=case.rate)
        if case.optimizer == "sgd"
        else torch.optim.AdamW(options, lr=case.rate, eps=case.epsilon, weight_decay=0.01)
    )
    steps = 0

    def before(made: torch.optim.Optimizer, *_: object) -> None:
        nonlocal steps
        steps += 1
        for group in made.param_groups:
            group["lr_of_loop"] = group["lr"]
            group["lr"] *= group["midway"] if steps >= config.change_at else 1.0
        if steps >= config.change_at and case.attention_times != 1.0:
            for name, parameter in model.named_parameters():
                if name.endswith("in_proj_weight"):  # queries, keys and values, one below the other
                    parameter.data[: 2 * config.width] *= case.attention_times

    def after(made: torch.optim.Optimizer, *_: object) -> None:
        for group in made.param_groups:
            group["lr"] = group["lr_of_loop"]

    optimizer.register_step_pre_hook(before)
    optimizer.register_step_post_hook(after)
    return optimizer


def broken_block(config: SpikesConfig, seed: int) -> int:
    """Counted from 1: another one for each seed."""
    return 1 + seed % config.blocks


def warmup_updates(config: SpikesConfig, case: TrainingCase) -> int:
    return config.change_at - 10 if case.warmup else 0
