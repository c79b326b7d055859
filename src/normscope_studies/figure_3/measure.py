"""Gradients of feed-forward matrices, and hidden states, of an encoder-decoder on batches of a corpus."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import nn

from normscope.data.parallel.batches import TranslationBatch
from normscope.data.parallel.corpus import Corpus
from normscope.measure import expected_gradient_norms
from normscope.model import EncoderDecoder, ModelConfig
from normscope.model.linear import fast_matmul
from normscope.runs.trained import load_run_of
from normscope.tasks.translation import TRANSLATION, TranslationConfig, TranslationObjective, TranslationRunConfig
from normscope.train.device import keep_freed_memory, seed_micro_batch

from .config import Condition, Figure3Config

MATRICES = {"W1": "ffn_in", "W2": "ffn_out"}
PRINTED = {"W1": "W₁", "W2": "W₂"}
STACKS = ("encoder", "decoder")
"""Of one model: matrix -> stack -> what `GradientNorms` says, a list over layers each; and of the batches."""


class Bench:
    """Measures models of a configuration on a device, each on the batches of its seed."""

    def __init__(self, config: Figure3Config, corpus: Corpus, device: torch.device) -> None:
        self.config, self.corpus, self.device = config, corpus, device
        if device.type == "cpu":
            keep_freed_memory()
        self.fast_matmul = fast_matmul(device).on

    def at_start(
        self, model: ModelConfig, condition: Condition, seed: int, *, last_only: bool = False
    ) -> dict[str, Any]:
        """With its initial weights. last_only: of W2 in the decoder's last block, and of nothing else."""
        built = TRANSLATION.build(TranslationRunConfig(seed=seed, model=model), self.corpus.codec).to(self.device)
        return self.norms(built, condition, seed, last_only=last_only)

    def after_training(self, folder: Path, condition: Condition, seed: int) -> dict[str, Any]:
        """With the weights of the last checkpoint of a run."""
        run = load_run_of(TRANSLATION, folder, which="last", device=str(self.device))
        return self.norms(run.model, condition, seed) | {"update": run.update}

    def norms(
        self, model: EncoderDecoder, condition: Condition, seed: int, *, last_only: bool = False
    ) -> dict[str, Any]:
        """Of the mean loss per target token, label-smoothed, in nats; dropout as the model has it."""
        task = self.task(condition, seed)
        losses, batches = [], self.batches(condition, seed)

        def loss(number: int) -> torch.Tensor:
            seed_micro_batch(seed, number)
            value = task.loss_sums(model, batches[number])[0] / batches[number].target_tokens
            losses.append(float(value.detach()))
            return value

        model.train()
        wanted = last_matrix(model) if last_only else matrices(model)
        named = only_trainable(model, [weight for weights in wanted.values() for weight in weights])
        found = expected_gradient_norms(model, range(condition.batches), loss)
        values: dict[str, Any] = {}
        for (matrix, stack), weights in wanted.items():
            each = [found[named[weight]] for weight in weights]
            values.setdefault(matrix, {})[stack] = {
                "mean_of_norms": [one.mean_of_norms for one in each],
                "norm_of_mean": [one.norm_of_mean for one in each],
                "expected_squared": [one.expected_squared for one in each],
            }
        return values | {
            "target_tokens": [batch.target_tokens for batch in batches],
            "sentences": [len(batch.target_lengths_B) for batch in batches],
            "loss_nats": math.fsum(losses) / len(losses),
            "fast_matmul": self.fast_matmul,
        }

    def batches(self, condition: Condition, seed: int) -> list[TranslationBatch]:
        """Those of a seed: other seeds have others, other models the same."""
        task = self.task(condition, seed)
        return [task.micro_batch(number) for number in range(condition.batches)]

    def task(self, condition: Condition, seed: int) -> TranslationObjective:
        loss = TranslationConfig(label_smoothing=self.config.label_smoothing)
        return TranslationObjective(self.corpus, loss, max_tokens=condition.max_tokens, seed=seed, device=self.device)

    def asked(self, model: ModelConfig, condition: Condition, seed: int) -> dict[str, Any]:
        """All that the norms of a model with its initial weights depend on."""
        return {
            "model": asdict(model),
            "condition": asdict(condition),
            "seed": seed,
            "label_smoothing": self.config.label_smoothing,
            "corpus": self.corpus.fingerprint,
            "device": self.device.type,
        }

    def asked_of(self, config: TranslationRunConfig, condition: Condition) -> dict[str, Any]:
        """As `asked`, of the model that a run trained; where its corpus lies does not count."""
        training = asdict(config) | {"data": {"max_tokens": config.data.max_tokens}}
        return self.asked(config.model, condition, config.seed) | {"training": training}


def matrices(model: EncoderDecoder) -> dict[tuple[str, str], list[nn.Parameter]]:
    """The weights of every feed-forward sub-layer, by matrix and stack, in the order of the forward pass."""
    found: dict[tuple[str, str], list[nn.Parameter]] = {(m, s): [] for m in MATRICES for s in STACKS}
    for stack in STACKS:
        for sublayer in getattr(model, stack).sublayers():
            own = dict(sublayer.f.matrices())
            for matrix, name in MATRICES.items():
                if name in own:
                    found[matrix, stack].append(own[name].weight)
    return found


def only_trainable(model: nn.Module, weights: Sequence[nn.Parameter]) -> dict[nn.Parameter, str]:
    """Let no other parameter have a gradient: those that nobody asked for cost a third of the work. Their names."""
    model.requires_grad_(False)
    for weight in weights:
        weight.requires_grad_(True)
    return {weight: name for name, weight in model.named_parameters() if weight.requires_grad}


def last_matrix(model: EncoderDecoder) -> dict[tuple[str, str], list[nn.Parameter]]:
    """W2 of the decoder's last block, which panels (c) and (d) and Theorem 1 are about."""
    return {("W2", "decoder"): matrices(model)["W2", "decoder"][-1:]}


def mean_target_tokens(pieces: Sequence[Mapping[str, Any]]) -> float:
    """Of a batch, over all batches of some models."""
    tokens = [count for piece in pieces for count in piece["target_tokens"]]
    return math.fsum(tokens) / len(tokens)
