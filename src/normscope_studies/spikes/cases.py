"""What is broken on purpose and what is healthy, with what the doctor should say, and how large the trainings are."""

from dataclasses import dataclass
from typing import Literal

from ..engine.checks import check_choices, check_least

LOOPS = ("normscope", "trainer")


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingCase:
    """One way to train. Midway is `change_at` of the study."""

    words: str
    cause: str = ""
    """The id of the pattern that it shows; "" for a healthy training."""
    place: Literal["", "block", "output", "whole"] = ""
    """What breaks: the block of the seed, the output layer, or nothing in particular."""
    from_start: bool = False
    """Whether it is broken from the first update, and not midway."""
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
    bad_batch: bool = False
    """Whether the batch midway has random targets."""
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
        words="AdamW with ε = 10", cause="epsilon-swamps-gradients", place="whole", from_start=True, epsilon=10.0
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
    "batch": TrainingCase(words="one batch with random targets", cause="bad-batch", place="whole", bad_batch=True),
}
HEALTHY = {
    "warm-up": TrainingCase(words="a warm-up and a constant rate"),
    "noise": TrainingCase(words="batches of two sequences, dropout 0.1", batch_times=0.25, dropout=0.1),
    "epochs": TrainingCase(
        words="twelve batches, again and again: the loss drops where an epoch begins", epoch_updates=12
    ),
    "rate-drop": TrainingCase(words="a rate that falls to a tenth midway", warmup=False, all_times=0.1),
    "large-batch": TrainingCase(words="batches eight times as large: a smooth loss", batch_times=8.0),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class SpikesConfig:
    """Trainings of a small causal language model on a Markov chain of tokens. Raises ValueError."""

    seeds: int = 1
    loops: tuple[str, ...] = LOOPS
    """normscope is this library's own loop, trainer Hugging Face's."""
    broken: tuple[str, ...] = tuple(BROKEN)
    healthy: tuple[str, ...] = tuple(HEALTHY)
    updates: int = 130
    change_at: int = 80
    """The update at which what is broken midway breaks; the warm-up ends there too."""
    every_updates: int = 5
    """Of the monitor."""
    width: int = 32
    blocks: int = 3
    sequences: int = 8
    tokens: int = 24
    classes: int = 48

    def __post_init__(self) -> None:
        for name, known in (("loops", LOOPS), ("broken", BROKEN), ("healthy", HEALTHY)):
            check_choices(self, name, tuple(known))
        if not 40 <= self.change_at < self.updates - 20:
            raise ValueError(f"change_at={self.change_at} must leave 40 updates before it and 20 after it")
        check_least(self, seeds=1, every_updates=1)
