"""The definition of a task: all that is particular to what a model learns, in one class.

Nothing outside this room asks which task a configuration has: it takes the task of its name
(`tasks.registry`) and calls a method.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, Protocol

import torch
from torch import Tensor, nn

from ..data.opening import TOY
from ..errors import UserError, user_errors
from ..limits.memory import bounded_building
from ..model.transformer import least_weights
from ..placement import StackShape, registered
from ..settings.files import OwnFile
from ..train import Objective
from ..train.device import seed_weights
from .words import Words


class AnyCorpus(Protocol):
    """The parts of any corpus that a run needs."""

    @property
    def fingerprint(self) -> str:
        """The fingerprint of the training data."""
        ...

    @property
    def splits(self) -> Mapping[str, Any]: ...

    @property
    def codec(self) -> Any:
        """The codec between text and numbers: vocabularies, or a tokeniser."""
        ...


@dataclass(frozen=True, slots=True)
class LoadedRun:
    """A trained model with what is needed to use it."""

    config: Any
    """The configuration, of the task's own class, as are the others."""
    model: Any
    codec: Any
    update: int
    environment: dict[str, Any]
    """The environment in which it was trained."""
    averaged_updates: tuple[int, ...] = ()
    """The updates of the checkpoints whose mean the weights are; empty for those of one
    checkpoint.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingBatch:
    """A model on one batch of its training."""

    run: Callable[[nn.Module], Any]
    """Model -> logits."""
    loss: Callable[[Any], Tensor]
    """The function from those logits to the mean loss per target token in nats, a scalar."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """The scores of a run on a split of its corpus, and how they were made."""

    settings: Mapping[str, Any]
    scores: Mapping[str, Any]
    translations: tuple[str, ...] = ()
    """The translations of every line of the split; empty where the task does not translate."""
    decimals: int = 4
    """The decimals that scores are printed with."""

    def lines(self) -> list[str]:
        """Returns the scores as lines of text."""
        search = dict(self.settings)
        run = Path(search.pop("run")).name
        update = search.pop("update")
        split = search.pop("split")
        averaged = search.pop("average", None)
        weights = f"update {update}"
        if averaged is not None:
            weights = f"mean of updates {', '.join(map(str, averaged))}"
        heading = [run, weights, split]
        heading += [f"{name.replace('_', ' ')} {value}" for name, value in search.items()]
        return [
            ", ".join(heading),
            *(f"  {name:22} {self._written(value)}" for name, value in self.scores.items()),
        ]

    def _written(self, value: str | float) -> str:
        return value if isinstance(value, str) else f"{value:.{self.decimals}f}"


@dataclass(frozen=True, slots=True, kw_only=True)
class StartingWeights:
    """The weights with which a model begins under one placement."""

    told: str
    """The description of the weights."""
    unlike_own: str = ""
    """The matrices that were drawn in other sizes than the model's own code draws, in words; "" for
    none.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetFacts:
    """What the losses of a validation are means over."""

    one: Literal["token", "example", "target"] = "token"
    """An example has one label of several; a target is what is not known to be either."""
    guessed: bool = True
    """Whether the loss without an input is the entropy of the targets; else it is that of the model
    as it is built."""
    classes: int = 0
    """Of examples: how many labels there are."""
    commonest_share: float = 0.0
    """And how many of the examples have the commonest of them."""

    def __post_init__(self) -> None:
        shown = self.one == "example"
        if shown and not (self.classes >= 1 and 0 < self.commonest_share <= 1):
            raise ValueError(
                f"examples have labels, one of them the commonest, got {self.classes} labels and "
                f"a share of {self.commonest_share}"
            )


SMALLER = "make model.width, model.ffn_width, the blocks or the vocabulary smaller"
"""The advice on a model that does not fit into memory."""


class Task(ABC):
    """A task: how its runs are configured, built, trained, compared, diagnosed, evaluated and
    exported.

    Each has classes of its own for configuration, corpus, model and codec, which its methods are
    given and return.
    """

    name: str
    """The name in `task = "…"` of a configuration."""
    config: type[Any]
    model: type[Any]
    model_words: str
    """The kind of model, with its article."""
    translates: bool = False
    """True where its runs translate, so that they can be searched with a beam and scored by
    BLEU.
    """
    compared: tuple[str, ...] = ("post-ln", "pre-ln")
    """The placements of a comparison that names none."""
    weighs_placements: bool = False
    """True where a comparison measures what each placement takes in memory and time."""

    def with_absolute_paths(self, config: Any) -> Any:
        """Returns the configuration with every path in it absolute, and what its imports hold.

        Raises UserError for a file that is not there.
        """
        data = config.data
        corpus = data.corpus if data.corpus == TOY else str(Path(data.corpus).resolve())
        imports = tuple(str(OwnFile.of(file).pinned()) for file in config.imports)
        return replace(config, imports=imports, data=replace(data, corpus=corpus))

    @abstractmethod
    def open(self, config: Any) -> Any:
        """Opens the corpus of a configuration. Raises UserError where it cannot be opened."""

    def recorded(self, config: Any, vocabularies: Path) -> Any:
        """Returns what a report needs of the corpus of a run that is there; `open` where the run's
        folder does not hold it.
        """
        return self.open(config)

    @abstractmethod
    def load_codec(self, vocabularies: Path) -> Any:
        """Read the codec from a run's folder. Raises UserError where it is damaged."""

    @abstractmethod
    def save_vocabularies(self, corpus: Any, folder: Path) -> None:
        """Write what is needed to use a model without the corpus."""

    @abstractmethod
    def build(self, config: Any, codec: Any) -> Any:
        """The model with its initial weights. Raises UserError where the configuration does not
        allow it.
        """

    def drawn(self, config: Any, *vocabularies: int) -> Any:
        """Returns the model of a configuration over vocabularies of those sizes; raises as
        `build`.
        """
        seed_weights(config.seed)
        with user_errors(ValueError):
            least = sum(map(least_weights, self.shapes(config)))
            with bounded_building("the model of this configuration", SMALLER, least_weights=least):
                return self.model(config.model, *vocabularies)

    @abstractmethod
    def objective(self, config: Any, corpus: Any, device: torch.device) -> Objective:
        """Batches and loss. Raises UserError where the corpus has no use for the task."""

    def groups(self, config: Any) -> Callable[[nn.Module], list[dict[str, Any]]] | None:
        """Returns the parameter groups that the configuration's model has of its own."""
        return None

    def notes(self, corpus: Any) -> Sequence[str]:
        """Returns the notes on the corpus for the user at the start."""
        return ()

    def extra_validation(
        self, config: Any, corpus: Any
    ) -> Callable[[nn.Module], dict[str, float]] | None:
        """Further numbers for each validation, beside the losses."""
        return None

    @abstractmethod
    def evaluate(
        self, run: LoadedRun, corpus: Any, split: str, search: Mapping[str, Any]
    ) -> Evaluation:
        """Scores of a split. search: fields of `BeamConfig`, for a task that translates. Raises
        UserError.
        """

    def evaluate_text(
        self, run: LoadedRun, text: Path, *, layout: str, language: str
    ) -> Evaluation:
        """Scores of a file of text from anywhere, read as `data.documents.text.documents_in` does.
        Raises UserError.
        """
        raise UserError(
            "a text of your own is for runs of task language-model, and this is one of task "
            f"{self.name}"
        )

    @abstractmethod
    def chance_nats(self, corpus: Any) -> float:
        """Entropy of the validation split's target tokens one by one: the loss of a model that
        ignores its input.
        """

    def target_entropy_nats(self, corpus: Any) -> float | None:
        """The same where it is known to be that entropy; None where something else stands in for
        it.
        """
        return self.chance_nats(corpus)

    def targets(self, corpus: Any) -> TargetFacts:
        """What the losses of the validation are means over."""
        return TargetFacts()

    def placement_as_built(self, corpus: Any) -> str:
        """Returns the registered name of what `own` is, as the doctor finds it in the user's model;
        "" for a task without such a model, and where it finds none that is sure.
        """
        return ""

    @abstractmethod
    def shapes(self, config: Any) -> Sequence[StackShape]:
        """Returns the shape of every stack of the model, the encoder first."""

    def defined(self, config: Any) -> list[str]:
        """Returns the names of all placements that the model can have."""
        kinds = {shape.model for shape in self.shapes(config)}
        return [name for name, one in registered().items() if kinds.issubset(one.models)]

    def described(self, config: Any) -> str:
        """Returns the model in words, its placement apart."""
        model: Any = config.model
        return (
            f"{'+'.join(str(shape.blocks) for shape in self.shapes(config))} blocks, width "
            f"{model.width}, feed-forward {model.ffn_width}, {model.heads} heads, dropout "
            f"{model.dropout:g}, norm {model.norm}, initialisation {model.initialisation}"
        )

    @abstractmethod
    def corpus_facts(self, config: Any, corpus: Any) -> list[tuple[str, str]]:
        """Rows of a table that say what is trained on."""

    def batch_tokens(self, config: Any) -> int | None:
        """Returns how many tokens a batch has at most, before accumulation; None where the task
        does not count them.
        """
        return None

    @abstractmethod
    def batch_words(self, config: Any) -> str:
        """Returns the size of a batch, in words."""

    def starting_weights(self, config: Any) -> StartingWeights | None:
        """Returns the weights with which the model of a configuration begins; None where the
        configuration says it. Raises UserError as `build`.
        """
        return None

    @abstractmethod
    def in_smaller_batches(self, config: Any, tokens: int) -> Any:
        """The same with batches of at most so many tokens, or of one sequence where that has
        more.
        """

    @abstractmethod
    def loss_words(self, config: Any) -> str:
        """Returns what is minimised, and what is shown, in words."""

    @abstractmethod
    def batches(self, config: Any, corpus: Any) -> Callable[[int], TrainingBatch]:
        """The model on the micro-batch of that number of its training, from 0, on the CPU."""

    @abstractmethod
    def words(self, codec: Any) -> Words:
        """The tokens of a model as other libraries want them."""
