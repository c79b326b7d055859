"""What the study of probes trains, the texts that models read, and what can be asked of their tokens."""

import hashlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.nn import functional

from normscope.data.batches import EpochBatches
from normscope.data.documents.batches import Stretches
from normscope.data.documents.corpus import DocumentCorpus
from normscope.data.documents.tokeniser import SEP
from normscope.data.opening import TextDataConfig, open_documents
from normscope.data.toy.language import toy_sentences, toy_words
from normscope.data.toy.lexicon import ToyWords, Word
from normscope.model import LanguageModel, Layout
from normscope.tasks.protocol import TrainingBatch

from ..engine.checks import check_choices, check_defined_for, check_different, check_least, check_positive
from ..engine.models import refuse_missing

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
        check_different(self, "placements", "texts")
        check_choices(self, "texts", TEXTS)
        if missing := [name for name in (BASE, POST) if name not in self.placements]:
            raise ValueError(
                f"placements must have {' and '.join(missing)} among them: the others are compared with it"
            )
        check_defined_for(self, "placements", model="decoder-only")
        check_positive(self, "grammar_target_nats", "documents_target_nats", "peak_lr", "accuracy_edge")
        check_least(self, seeds=1, blocks=1, validate_every=1, warmup_updates=1, frequent=2, probe_sequences=30)
        if self.most_updates % self.validate_every:
            raise ValueError(f"most_updates={self.most_updates} must be a multiple of validate_every")
        check_least(self, train_sentences=self.batch_sequences, valid_sequences=self.batch_sequences)

    def target_nats(self, text: str) -> float:
        """Of one of `TEXTS`."""
        return self.grammar_target_nats if text == "grammar" else self.documents_target_nats


# N = tokens of the probed sequences, end to end


Ids = NDArray[np.int64]
NONE = -1
"""The label of a token of which a property cannot be asked."""
_VERBS = 8
"""How many of the most frequent verbs are classes: a subject behind its verb is rare."""
_POSITIONS = 8
"""Classes of the position of a token of documents, each as wide; in a sentence every place is one."""
_FREQUENCIES = 5
"""Classes of how frequent a token is in training, which hold as many tokens of the text each."""


@dataclass(frozen=True, kw_only=True, eq=False)
class ProbeText:
    """Sequences of ids, each with one id more than it has inputs: the next of every one is its target."""

    name: str
    vocabulary: int
    train: Sequence[Ids]
    valid: Sequence[Ids]
    probed: Sequence[Ids]
    labels: Mapping[str, Ids]
    """By property, (N,): a class for each input of the probed sequences, or `NONE`."""

    @property
    def fingerprint(self) -> str:
        """SHA-256 of everything in it."""
        whole = hashlib.sha256()
        for part in (self.train, self.valid, self.probed, list(self.labels.values())):
            whole.update(np.concatenate([np.concatenate(part), [len(one) for one in part]]).tobytes())
        return whole.hexdigest()

    def batches(self, batch_sequences: int, seed: int) -> Callable[[int], TrainingBatch]:
        """Of training, counted from 0."""
        epochs = EpochBatches(sequences=len(self.train), batch_sequences=batch_sequences, seed=seed)
        return lambda number: batch_of([self.train[i] for i in epochs.micro_batch(number)[1]])


def batch_of(sequences: Sequence[Ids]) -> TrainingBatch:
    """Packed."""
    tokens_N, layout = packed(sequences)
    targets_N = torch.from_numpy(np.concatenate([ids[1:] for ids in sequences]))

    def run(model: nn.Module) -> torch.Tensor:
        assert isinstance(model, LanguageModel)
        return model.logits(model(tokens_N, layout))

    return TrainingBatch(run=run, loss=lambda logits_NV: functional.cross_entropy(logits_NV, targets_N))


def packed(sequences: Sequence[Ids]) -> tuple[torch.Tensor, Layout]:
    """Their inputs end to end."""
    inputs = [ids[:-1] for ids in sequences]
    return torch.from_numpy(np.concatenate(inputs)), Layout(torch.tensor([len(ids) for ids in inputs]))


def grammar(config: ProbesConfig) -> ProbeText:
    """The German-like side of the toy language; the end of a sentence also stands before it."""
    words = toy_words()[0]
    ids = {text: number for number, text in enumerate(words, 1)}
    counts = {"train": config.train_sentences, "valid": config.valid_sequences, "test": config.probe_sequences}
    sentences = {split: toy_sentences(count, seed=1, split=split) for split, count in counts.items()}

    def encoded(split: str) -> list[Ids]:
        return [np.array([0, *(ids[word.text] for word in one), 0]) for one in sentences[split]]

    return ProbeText(
        name="grammar",
        vocabulary=len(words) + 1,
        train=encoded("train"),
        valid=encoded("valid"),
        probed=encoded("test"),
        labels=_grammar_labels(sentences["test"]),
    )


def _grammar_labels(sentences: Sequence[ToyWords]) -> dict[str, Ids]:
    asked: dict[str, Callable[[ToyWords, int], str]] = {
        "part of speech": lambda words, i: words[i].part,
        "number": lambda words, i: words[i].number,
        "gender": lambda words, i: words[i].gender,
        "case": lambda words, i: words[i].case,
        "position": lambda words, i: str(i),
        "its verb": _verb_before,
    }
    found = {}
    for name, of in asked.items():
        # The end before a sentence is no word.
        values = [value for words in sentences for value in ("", *(of(words, i) for i in range(len(words))))]
        found[name] = _classes(values)
    found["its verb"] = np.where(found["its verb"] < _VERBS, found["its verb"], NONE)
    return found


def _verb_before(words: ToyWords, place: int) -> str:
    """The finite verb that a subject's word agrees with, where it has been read already."""
    verb = words[place].verb
    return verb if verb and any(_is_verb(word, verb) for word in words[:place]) else ""


def _is_verb(word: Word, text: str) -> bool:
    return word.part == "verb" and word.text == text


def documents(config: ProbesConfig) -> ProbeText:
    """Stretches of a prepared corpus. Raises UserError where it is not there."""
    refuse_missing(config.text, "text", "normscope data documents")
    corpus = open_documents(TextDataConfig(corpus=config.text, sequence_length=config.sequence_length))
    train, valid = (_stretches(corpus, split, config.sequence_length) for split in ("train", "valid"))
    probed = valid[config.valid_sequences :][: max(config.probe_sequences // 3, 30)]
    return ProbeText(
        name="documents",
        vocabulary=len(corpus.tokeniser),
        train=train,
        valid=valid[: config.valid_sequences],
        probed=probed,
        labels=_token_labels(probed, train, config),
    )


def _stretches(corpus: DocumentCorpus, split: str, length: int) -> list[Ids]:
    stretches = Stretches.of(corpus.splits[split], length=length, end=corpus.tokeniser.ids[SEP])
    whole = stretches.targets // length
    ids = np.asarray(stretches.text[:], dtype=np.int64)
    return [ids[i * length : (i + 1) * length + 1] for i in range(whole)]


def _token_labels(probed: Sequence[Ids], train: Sequence[Ids], config: ProbesConfig) -> dict[str, Ids]:
    current, following = (np.concatenate([ids[part] for ids in probed]) for part in (slice(-1), slice(1, None)))
    before = np.concatenate([[NONE, *ids[:-2]] for ids in probed])
    places = np.concatenate([np.arange(len(ids) - 1) for ids in probed])
    return {
        "current token": _most_frequent(current, config.frequent),
        "previous token": _most_frequent(before, config.frequent),
        "next token": _most_frequent(following, config.frequent),
        "position": places * _POSITIONS // config.sequence_length,
        "frequency": _frequency_classes(current, np.concatenate([ids[:-1] for ids in train])),
    }


def _frequency_classes(tokens_N: Ids, train: Ids) -> Ids:
    """0 for the rarest; edges are of the training text, so that each class holds as many of its tokens."""
    counts = np.bincount(train, minlength=int(max(tokens_N.max(), train.max())) + 1)
    by_count = np.argsort(counts, kind="stable")
    share = np.cumsum(counts[by_count]) / counts.sum()
    classes = np.empty(len(counts), dtype=np.int64)
    classes[by_count] = np.minimum((share * _FREQUENCIES).astype(np.int64), _FREQUENCIES - 1)
    return classes[tokens_N]


def _most_frequent(tokens_N: Ids, frequent: int) -> Ids:
    kept = [token for token, _ in Counter(int(t) for t in tokens_N if t != NONE).most_common(frequent)]
    classes = {token: number for number, token in enumerate(kept)}
    return np.array([classes.get(int(token), NONE) for token in tokens_N])


def _classes(values: Sequence[str]) -> Ids:
    """The most frequent value is 0; an empty one has none."""
    kept = [value for value, _ in Counter(filter(None, values)).most_common()]
    classes = {value: number for number, value in enumerate(kept)}
    return np.array([classes.get(value, NONE) for value in values])


MAKERS: Mapping[str, Callable[[ProbesConfig], ProbeText]] = {"grammar": grammar, "documents": documents}
"""By the names of `TEXTS`."""
