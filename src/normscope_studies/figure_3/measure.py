"""Figure 3 of Xiong et al. 2020: what is asked of which models, and the gradients of their
feed-forward matrices.
"""

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from normscope.data.opening import DataConfig, open_corpus
from normscope.data.parallel.batches import TranslationBatch
from normscope.data.parallel.corpus import Corpus
from normscope.model import EncoderDecoder, ModelConfig
from normscope.model.linear import fast_matmul
from normscope.optim import OptimizerConfig, ScheduleConfig
from normscope.runs.trained import load_run
from normscope.tasks.translation import (
    TRANSLATION,
    TranslationConfig,
    TranslationObjective,
    TranslationRunConfig,
)
from normscope.train import TrainConfig
from normscope.train.device import keep_freed_memory, seed_micro_batch

from ..engine.checks import check_different, check_least, check_rising, refuse_missing
from .gradients import expected_gradient_norms

POST, PRE = "post-ln", "pre-ln"
PLACEMENTS = {POST: "Post-LN", PRE: "Pre-LN"}
"""The two of the figure, and what it calls them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """The condition under which the gradient of the last W2 is measured, in panels (c) and (d)."""

    max_tokens: int
    """The largest batch: longest sentence of either side, in tokens, times sentences."""
    dropout: float
    batches: int
    """Each with a gradient of its own."""

    @property
    def name(self) -> str:
        """Safe as a part of a file's name."""
        return f"{self.max_tokens}-tokens_dropout-{self.dropout:g}"

    @property
    def title(self) -> str:
        dropout = f"with dropout {self.dropout:g}" if self.dropout else "without dropout"
        return f"{self.max_tokens:,} tokens {dropout}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure3Config:
    """The models of the figure, and the batches their gradients are taken of."""

    corpus: str = "corpora/iwslt14_deen"
    """A folder made by `normscope data prepare`, or `toy`."""
    toy_pairs: int = 20_000
    """toy: sentence pairs of the training split."""
    seeds: int = 10
    """Models of each kind; of the weights, the batches and the dropout masks."""
    blocks: tuple[int, ...] = (6, 8, 10, 12, 14)
    """The blocks of each stack in (c) and (d); the first number is that of the model of (a), (b)
    and the warm-up.
    """
    width: int = 512
    ffn_width: int = 1024
    heads: int = 4
    dropout: float = 0.1
    label_smoothing: float = 0.1
    max_tokens: int = 4096
    batches: int = 8
    """The batches in (a) and (b): their gradients are averaged before the norm is taken."""
    last_batches: int = 1
    """The batches in (c) and (d), of max_tokens."""
    small_max_tokens: int = 512
    small_batches: int = 4
    """The batches in (c) and (d), of small_max_tokens."""
    warm_up_seeds: int = 1
    """Trainings through the warm-up; 0 for none."""
    warm_up_width: int = 128
    warm_up_ffn_width: int = 256
    warm_up_updates: int = 4000
    warm_up_peak_lr: float = 5e-4
    warm_up_max_tokens: int = 2048
    device: str = "cpu"
    """auto, cpu, cuda, cuda:1 …"""

    def __post_init__(self) -> None:
        check_different(self, "blocks")
        check_rising(self, "blocks")
        if len(self.blocks) < 2 or self.blocks[0] < 2:
            raise ValueError(
                f"blocks needs two depths of 2 at least, to tell slopes from, got {self.blocks}"
            )
        check_least(
            self,
            seeds=2,
            batches=2,
            last_batches=1,
            small_batches=1,
            warm_up_updates=1,
            small_max_tokens=1,
        )
        if not self.small_max_tokens < self.max_tokens:
            raise ValueError(
                f"small_max_tokens={self.small_max_tokens} must be below "
                f"max_tokens={self.max_tokens}"
            )
        if not 0 < self.dropout < 1:
            raise ValueError(
                f"dropout must lie in (0, 1): it is compared with none, got {self.dropout}"
            )
        if not 0 <= self.warm_up_seeds <= self.seeds:
            raise ValueError(
                f"warm_up_seeds must lie in [0, seeds={self.seeds}], got {self.warm_up_seeds}"
            )
        for width, ffn_width in (
            (self.width, self.ffn_width),
            (self.warm_up_width, self.warm_up_ffn_width),
        ):
            ModelConfig(width=width, ffn_width=ffn_width, heads=self.heads)
        TranslationConfig(label_smoothing=self.label_smoothing)
        OptimizerConfig(peak_lr=self.warm_up_peak_lr)
        self.data(min(self.max_tokens, self.warm_up_max_tokens))

    @property
    def conditions(self) -> tuple[Condition, ...]:
        """The paper's own, then smaller batches, then these without dropout: one change at a
        time.
        """
        small, few = self.small_max_tokens, self.small_batches
        return (
            Condition(max_tokens=self.max_tokens, dropout=self.dropout, batches=self.last_batches),
            Condition(max_tokens=small, dropout=self.dropout, batches=few),
            Condition(max_tokens=small, dropout=0.0, batches=few),
        )

    @property
    def layers_condition(self) -> Condition:
        """The condition of panels (a) and (b)."""
        return Condition(max_tokens=self.max_tokens, dropout=self.dropout, batches=self.batches)

    def model(
        self, placement: str, blocks: int, dropout: float, *, small: bool = False
    ) -> ModelConfig:
        """Returns the model of `blocks` blocks a stack. small: of the size that is trained through
        the warm-up.
        """
        return ModelConfig(
            placement=placement,
            width=self.warm_up_width if small else self.width,
            ffn_width=self.warm_up_ffn_width if small else self.ffn_width,
            heads=self.heads,
            encoder_blocks=blocks,
            decoder_blocks=blocks,
            dropout=dropout,
            initialisation="paper",
            embeddings="separate",
        )

    def data(self, max_tokens: int) -> DataConfig:
        return DataConfig(corpus=self.corpus, toy_pairs=self.toy_pairs, max_tokens=max_tokens)

    def training(self) -> TranslationRunConfig:
        """Returns the training of Post-LN with Adam, from the first update to the end of the
        warm-up; a seed is still to be chosen.
        """
        updates = self.warm_up_updates
        return TranslationRunConfig(
            data=self.data(self.warm_up_max_tokens),
            model=self.model(POST, self.blocks[0], self.dropout, small=True),
            optimizer=OptimizerConfig(name="adam", peak_lr=self.warm_up_peak_lr),
            schedule=ScheduleConfig(warmup_updates=updates, decay="coupled-inverse-sqrt"),
            train=TrainConfig(
                duration=updates,
                validate_every=max(1, updates // 4),
                checkpoint_every=max(1, updates // 8),
                device=self.device,
                threads=1,
            ),
            translation=TranslationConfig(label_smoothing=self.label_smoothing),
        )


def corpus_of(corpus: str, toy_pairs: int) -> Corpus:
    """Returns a prepared corpus, or `toy`. Raises UserError that says how to come by one where
    there is none.
    """
    refuse_missing(corpus, "corpus", "normscope data prepare")
    return open_corpus(DataConfig(corpus=corpus, toy_pairs=toy_pairs))


def corpus_title(corpus: Corpus) -> str:
    """Languages and sizes, for the conditions."""
    languages = f"{corpus.source.form.language}-{corpus.target.form.language}"
    return (
        f"{languages}, {len(corpus.splits['train']):,} training sentences, "
        f"{len(corpus.target.vocabulary):,} entries"
    )


MATRICES = {"W1": "ffn_in", "W2": "ffn_out"}
PRINTED = {"W1": "W₁", "W2": "W₂"}
STACKS = ("encoder", "decoder")
"""The stacks of one model: matrix -> stack -> what `GradientNorms` says, a list over layers each;
and of the batches.
"""


class Bench:
    """Measures models of a configuration on a device, each on the batches of its seed."""

    def __init__(self, config: Figure3Config, corpus: Corpus, device: torch.device) -> None:
        self.config = config
        self.corpus = corpus
        self.device = device
        if device.type == "cpu":
            keep_freed_memory()
        self.fast_matmul = fast_matmul(device).on

    def at_start(
        self, model: ModelConfig, condition: Condition, seed: int, *, last_only: bool = False
    ) -> dict[str, Any]:
        """Measures norms with the initial weights. last_only: of W2 in the decoder's last block,
        and of nothing else.
        """
        built = TRANSLATION.build(
            TranslationRunConfig(seed=seed, model=model), self.corpus.codec
        ).to(self.device)
        return self.norms(built, condition, seed, last_only=last_only)

    def after_training(self, folder: Path, condition: Condition, seed: int) -> dict[str, Any]:
        """Measures norms with the weights of the last checkpoint of a run."""
        run = load_run(folder, of_task=TRANSLATION, which="last", device=str(self.device))
        return self.norms(run.model, condition, seed) | {"update": run.update}

    def norms(
        self, model: EncoderDecoder, condition: Condition, seed: int, *, last_only: bool = False
    ) -> dict[str, Any]:
        """Measures the gradient norms of the mean loss per target token, label-smoothed, in nats;
        dropout as the model has it.
        """
        task = self.task(condition, seed)
        losses, batches = [], self.batches(condition, seed)

        def loss(number: int) -> torch.Tensor:
            seed_micro_batch(seed, number)
            value = task.loss_sums(model, batches[number])[0] / batches[number].target_tokens
            losses.append(float(value.detach()))
            return value

        model.train()
        wanted = matrices(model)
        if last_only:
            wanted = {("W2", "decoder"): wanted["W2", "decoder"][-1:]}
        # Gradients of parameters that nobody asked for would cost a third of the work.
        model.requires_grad_(False)
        for weight in itertools.chain.from_iterable(wanted.values()):
            weight.requires_grad_(True)
        named = {weight: name for name, weight in model.named_parameters()}
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
        """Returns the batches of a seed: other seeds have others, other models the same."""
        task = self.task(condition, seed)
        return [task.micro_batch(number) for number in range(condition.batches)]

    def task(self, condition: Condition, seed: int) -> TranslationObjective:
        loss = TranslationConfig(label_smoothing=self.config.label_smoothing)
        return TranslationObjective(
            self.corpus, loss, max_tokens=condition.max_tokens, seed=seed, device=self.device
        )

    def asked(self, model: ModelConfig, condition: Condition, seed: int) -> dict[str, Any]:
        """Returns all that the norms of a model with its initial weights depend on."""
        return {
            "model": asdict(model),
            "condition": asdict(condition),
            "seed": seed,
            "label_smoothing": self.config.label_smoothing,
            "corpus": self.corpus.fingerprint,
            "device": self.device.type,
        }

    def asked_of(self, config: TranslationRunConfig, condition: Condition) -> dict[str, Any]:
        """Returns what `asked` does, for the model that a run trained; where its corpus lies does
        not count.
        """
        training = asdict(config) | {"data": {"max_tokens": config.data.max_tokens}}
        return self.asked(config.model, condition, config.seed) | {"training": training}


def matrices(model: EncoderDecoder) -> dict[tuple[str, str], list[nn.Parameter]]:
    """Returns the weights of every feed-forward sub-layer, by matrix and stack, in the order of the
    forward pass.
    """
    found: dict[tuple[str, str], list[nn.Parameter]] = {
        (m, s): [] for m in MATRICES for s in STACKS
    }
    for stack in STACKS:
        for sublayer in getattr(model, stack).sublayers():
            own = dict(sublayer.f.matrices())
            for matrix, name in MATRICES.items():
                if name in own:
                    found[matrix, stack].append(own[name].weight)
    return found


def mean_target_tokens(pieces: Sequence[Mapping[str, Any]]) -> float:
    """Returns the mean number of target tokens of a batch, over all batches of some models."""
    tokens = [count for piece in pieces for count in piece["target_tokens"]]
    return math.fsum(tokens) / len(tokens)
