"""What the page of a comparison says of its runs: the data, the model, the loss, and the formula of each placement."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from ...data.documents.corpus import DocumentCorpus
from ...data.parallel.corpus import Corpus
from ...data.parallel.opening import unigram_entropy_nats
from ...model import stack_shape
from ...optim import parse_duration
from ...placement import StackShape, named
from ...placement.printing import formula
from ...runs.config import AnyRunConfig, MaskedRunConfig, RunConfig

LEARNED_BELOW = 0.9
"""Share of the unigram baseline's loss under which a run counts as having learned to use its input."""

AnyCorpus = Corpus | DocumentCorpus
Facts = list[tuple[str, str]]


def chance_nats(corpus: AnyCorpus) -> float:
    """The loss of the unigram baseline: the entropy of the validation split's (target) tokens taken one by one."""
    if isinstance(corpus, Corpus):
        return unigram_entropy_nats(corpus)
    counts = np.bincount(corpus.splits["valid"].tokens)
    shares = counts[counts > 0] / counts.sum()
    return float(-(shares * np.log(shares)).sum())


def formula_in(placement: str, config: AnyRunConfig) -> str:
    """The formula with the constants of this model; encoder and decoder apart where they differ."""
    found = {shape.kind: formula(named(placement), shape) for shape in _shapes(config)}
    if len(set(found.values())) == 1:
        return next(iter(found.values()))
    return "; ".join(f"{kind}: {text}" for kind, text in found.items())


def facts(config: AnyRunConfig, corpus: AnyCorpus, *, seeds: int) -> Facts:
    """The same for all runs of a comparison, as rows of a table."""
    model, train = config.model, config.train
    own = _of_sentences(config, corpus) if isinstance(corpus, Corpus) else _of_documents(config, corpus)
    return [
        *own,
        (
            "Model",
            f"{'+'.join(str(shape.blocks) for shape in _shapes(config))} blocks, width {model.width}, "
            f"feed-forward {model.ffn_width}, {model.heads} heads, dropout {model.dropout:g}, norm {model.norm}, "
            f"initialisation {model.initialisation}",
        ),
        ("Duration", f"{_duration(config)} {_batch(config)} per update"),
        ("Schedule", f"{config.schedule.decay} after the warm-up; cumulative learning rates are in the table"),
        ("Loss", _loss(config)),
        ("Precision", f"{train.precision} on {train.device}, {train.threads} thread(s) per run"),
        ("Seeds", f"{seeds} per row"),
        ("Learned", f"validation loss under {LEARNED_BELOW:.0%} of the unigram baseline, the entropy of the targets"),
    ]


def _of_sentences(config: AnyRunConfig, corpus: Corpus) -> Facts:
    train, valid = corpus.splits["train"], corpus.splits["valid"]
    languages = f"{corpus.source.language} to {corpus.target.language}"
    return [
        ("Corpus", f"{Path(config.data.corpus).name}, {languages}"),
        ("Fingerprint", corpus.fingerprint),
        ("Sentences", f"{len(train):,} to train on, {len(valid):,} to validate on"),
        ("Vocabulary", _vocabulary(corpus)),
    ]


def _vocabulary(corpus: Corpus) -> str:
    source, target = len(corpus.source.vocabulary), len(corpus.target.vocabulary)
    return f"joint: {target:,}" if corpus.codec.joint else f"{source:,} source, {target:,} target"


def _of_documents(config: AnyRunConfig, corpus: DocumentCorpus) -> Facts:
    train, valid = corpus.splits["train"], corpus.splits["valid"]
    return [
        ("Corpus", Path(config.data.corpus).name),
        ("Fingerprint", corpus.fingerprint),
        ("Documents", f"{len(train):,} to train on ({len(train.tokens):,} tokens), {len(valid):,} to validate on"),
        ("Vocabulary", f"{len(corpus.tokeniser):,}"),
    ]


def _shapes(config: AnyRunConfig) -> Sequence[StackShape]:
    if isinstance(config, RunConfig):
        return [stack_shape(config.model, "encoder"), stack_shape(config.model, "decoder")]
    return [config.model.shape()]


def _duration(config: AnyRunConfig) -> str:
    number, unit = parse_duration(config.train.duration)
    batches = "1 batch" if config.train.accumulation == 1 else f"{config.train.accumulation} batches"
    return f"{float(number):g} {unit}; {batches} of at most"


def _batch(config: AnyRunConfig) -> str:
    if isinstance(config, RunConfig):
        return f"{config.data.max_tokens} tokens"
    return f"{config.data.batch_sequences} sequences of up to {config.data.sequence_length} tokens"


def _loss(config: AnyRunConfig) -> str:
    if isinstance(config, RunConfig):
        return f"label smoothing {config.translation.label_smoothing:g}; the losses shown are not smoothed"
    if isinstance(config, MaskedRunConfig):
        return "of masked tokens and of next sentences; the losses shown are of masked tokens"
    return "of every next token"
