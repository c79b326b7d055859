"""What the study of probes trains, until when, and what is probed."""

from dataclasses import dataclass

from normscope.data.opening import TOY
from normscope.placement import named

from ..engine.study import Scale

TEXTS = ("grammar", "documents")
BASE, POST = "pre-ln", "post-ln"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbesConfig:
    """Small decoders, alike but for their placement. Raises ValueError for what cannot be probed."""

    placements: tuple[str, ...] = (POST, BASE, "deepnorm", "peri-ln", "residual", "sub-ln")
    texts: tuple[str, ...] = TEXTS
    """grammar: the German-like side of the toy language, a word a token; documents: those of `text`."""
    text: str = "corpora/wikipedia_1000"
    """A folder made by `normscope data documents`, or `toy`."""
    seeds: int = 3
    grammar_target_nats: float = 2.9
    """Validation loss at whose first validation at or below it a training ends."""
    documents_target_nats: float = 5.25
    """The same of documents."""
    most_updates: int = 1_000
    """A training that has not reached the target by then ends, and its placement is told to have missed it."""
    validate_every: int = 10
    peak_lr: float = 2e-3
    warmup_updates: int = 60
    width: int = 32
    ffn_width: int = 64
    heads: int = 2
    blocks: int = 4
    sequence_length: int = 32
    """Tokens of a stretch of documents; sentences of the toy language are as long as they are."""
    batch_sequences: int = 32
    """Sentences of an update; of documents half as many stretches."""
    train_sentences: int = 6_000
    valid_sequences: int = 150
    probe_sequences: int = 900
    """Sequences whose tokens are probed; a third of them is held out from the probes. Of documents a third as many."""
    frequent: int = 20
    """How many of the most frequent tokens are classes."""
    accuracy_edge: float = 0.02
    """Accuracies that differ by less are taken to be alike."""

    def __post_init__(self) -> None:
        for name, allowed in (("placements", ()), ("texts", TEXTS)):
            values = getattr(self, name)
            if not values or len(set(values)) < len(values):
                raise ValueError(f"{name}: give one or more different values, got {values}")
            if allowed and (unknown := set(values) - set(allowed)):
                raise ValueError(f"{name}: {', '.join(sorted(unknown))} is not one; choose from {', '.join(allowed)}")
        if missing := [name for name in (BASE, POST) if name not in self.placements]:
            raise ValueError(
                f"placements must have {' and '.join(missing)} among them: the others are compared with it"
            )
        for name in self.placements:
            if "decoder-only" not in named(name).models:
                raise ValueError(f"{name} is not defined for a decoder alone; leave it out")
        if min(self.grammar_target_nats, self.documents_target_nats, self.peak_lr, self.accuracy_edge) <= 0:
            raise ValueError("both targets, peak_lr and accuracy_edge must be positive")
        if min(self.seeds, self.blocks, self.validate_every, self.warmup_updates) < 1 or self.frequent < 2:
            raise ValueError("seeds, blocks, validate_every and warmup_updates must be at least 1, frequent at least 2")
        if self.most_updates % self.validate_every:
            raise ValueError(f"most_updates={self.most_updates} must be a multiple of validate_every")
        if min(self.train_sentences, self.valid_sequences) < self.batch_sequences or self.probe_sequences < 30:
            raise ValueError("train_sentences and valid_sequences must hold a batch, probe_sequences be at least 30")

    def target_nats(self, text: str) -> float:
        """Of one of `TEXTS`."""
        return self.grammar_target_nats if text == "grammar" else self.documents_target_nats


SCALES = {
    "smoke": Scale(
        config=ProbesConfig(
            placements=(POST, BASE),
            text=TOY,
            seeds=2,
            grammar_target_nats=5.6,
            documents_target_nats=5.6,
            most_updates=20,
            warmup_updates=5,
            width=16,
            ffn_width=16,
            blocks=2,
            batch_sequences=8,
            train_sentences=200,
            valid_sequences=16,
            probe_sequences=90,
            frequent=5,
        ),
        decides=False,
    ),
    "cpu": Scale(config=ProbesConfig()),
    "paper": Scale(
        config=ProbesConfig(
            text="corpora/wikipedia_8000",
            grammar_target_nats=1.7,
            documents_target_nats=4.2,
            most_updates=50_000,
            validate_every=100,
            peak_lr=5e-4,
            warmup_updates=2_000,
            width=512,
            ffn_width=2048,
            heads=8,
            blocks=12,
            sequence_length=128,
            batch_sequences=64,
            train_sentences=500_000,
            valid_sequences=2_000,
            probe_sequences=6_000,
            frequent=100,
        )
    ),
}
"""Cost: smoke takes seconds; cpu 36 trainings of some ten seconds of one core and as long for their probes; paper, with
models of 40 million parameters, as many of an hour or two of an accelerator."""
