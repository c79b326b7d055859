"""A small causal language model on a Markov chain of tokens, whose batches are a function of their number."""

# B = sequences, T = tokens, V = classes, D = width
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from .cases import SpikesConfig, TrainingCase


class _Chain:
    """Tokens of which each depends on the one before; frequencies fall as one over the rank, as in text."""

    def __init__(self, classes: int, seed: int) -> None:
        generator = torch.Generator().manual_seed(1_000 + seed)
        frequencies_V = 1 / torch.arange(1, classes + 1, dtype=torch.float64)
        # Each token likes a few successors of its own, beside the frequent ones.
        own_VV = torch.rand(classes, classes, generator=generator, dtype=torch.float64).pow(24)
        rows_VV = 0.2 * frequencies_V / frequencies_V.sum() + 0.8 * own_VV / own_VV.sum(1, keepdim=True)
        self.sums_VV = (rows_VV / rows_VV.sum(1, keepdim=True)).cumsum(1)

    def draw(self, sequences: int, tokens: int, seed: int) -> Tensor:
        """(B, T + 1) token ids."""
        generator = torch.Generator().manual_seed(seed)
        draws_BT = torch.rand(sequences, tokens + 1, generator=generator, dtype=torch.float64)
        ids = [(draws_BT[:, 0] * len(self.sums_VV)).long()]
        for at in range(1, tokens + 1):
            ids.append(torch.searchsorted(self.sums_VV[ids[-1]], draws_BT[:, at : at + 1].contiguous()).squeeze(1))
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


class SpikeModel(nn.Module):
    """Pre-LN with a final norm, or Post-LN; positions are learned."""

    def __init__(self, config: SpikesConfig, case: TrainingCase) -> None:
        super().__init__()
        self.embedding = nn.Embedding(config.classes, config.width)
        self.positions = nn.Parameter(0.02 * torch.randn(config.tokens, config.width))
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(
                config.width, 4, 4 * config.width, case.dropout, batch_first=True, norm_first=not case.post_ln
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
        return {"loss": functional.cross_entropy(logits_BTV.flatten(0, 1), labels.flatten()), "logits": logits_BTV}


def made_model(config: SpikesConfig, case: TrainingCase, seed: int) -> SpikeModel:
    """With the initial weights of the seed."""
    torch.manual_seed(seed)
    return SpikeModel(config, case)


def made_optimizer(model: SpikeModel, config: SpikesConfig, case: TrainingCase, seed: int) -> torch.optim.Optimizer:
    """AdamW or SGD, whose step multiplies rates from midway on as the case says, whatever the loop sets them to."""
    block = broken_block(config, seed) - 1
    parts = {"block": model.layers[block], "output": model.output}
    inside = {id(p): name for name, part in parts.items() for p in part.parameters()}
    groups: dict[str, list[nn.Parameter]] = {"block": [], "output": [], "rest": []}
    for parameter in model.parameters():
        groups[inside.get(id(parameter), "rest")].append(parameter)
    times = {"block": case.block_times, "output": case.output_times, "rest": 1.0}
    options = [{"params": parameters, "midway": case.all_times * times[name]} for name, parameters in groups.items()]
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
