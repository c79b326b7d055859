"""A trained run on a split of its corpus: BLEU of a translation run, losses and perplexities of the others."""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from ..data.documents.corpus import DocumentCorpus
from ..data.documents.opening import open_documents
from ..data.parallel.corpus import Corpus
from ..data.parallel.opening import open_corpus
from ..decode.beam import BeamConfig
from ..errors import UserError
from .assembly import evaluate_split, text_task
from .run import LoadedRun, LoadedTextRun, open_any

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """What was evaluated, and what came out."""

    settings: Mapping[str, Any]
    scores: Mapping[str, Any]
    translations: tuple[str, ...]
    """Of every line of the split; none where the task does not translate."""
    decimals: int
    """That scores are printed with."""

    def lines(self) -> list[str]:
        """As lines of text."""
        run, update, split, *search = self.settings.items()
        heading = [Path(run[1]).name, f"update {update[1]}", split[1]]
        heading += [f"{name.replace('_', ' ')} {value}" for name, value in search]
        return [", ".join(heading), *(f"  {name:22} {self._written(value)}" for name, value in self.scores.items())]

    def _written(self, value: str | float) -> str:
        return value if isinstance(value, str) else f"{value:.{self.decimals}f}"


def evaluate_run(
    path: Path,
    split: str,
    *,
    which: str = "best",
    device: str = "auto",
    search: Mapping[str, Any] = MappingProxyType({}),
    translations: bool = False,
    say: Say = lambda line: None,
) -> Evaluation:
    """Evaluate a run's checkpoint on the validation or test split of its corpus.

    search: fields of `BeamConfig`. translations: whether they are wanted too. say: takes notes for the user. Raises
    UserError, also where a run that does not translate is asked for either.
    """
    loaded = open_any(path, which=which, device=device)
    settings = {"run": str(path), "update": loaded.update, "split": split}
    if isinstance(loaded, LoadedRun):
        return _translation(loaded, split, settings, search, say)
    asked = [f"--{name.replace('_', '-')}" for name in search] + ["--output"] * translations
    if asked:
        raise UserError(
            f"{' and '.join(asked)}: for runs of task translation, and {path} is one of task {loaded.config.task}; "
            "leave it out"
        )
    return _text(loaded, split, settings, say)


def _translation(
    run: LoadedRun, split: str, settings: Mapping[str, Any], search: Mapping[str, Any], say: Say
) -> Evaluation:
    try:
        beam = BeamConfig(**search)
    except ValueError as error:
        raise UserError(str(error)) from error
    corpus = open_corpus(run.config.data)
    _check(corpus, split, run, say)
    scores = evaluate_split(run.model, run.codec, corpus.splits[split], beam)
    translations = tuple(scores.pop("translations"))
    searched = {name: asdict(beam)[name] for name in ("beam", "length_penalty")}
    return Evaluation(settings={**settings, **searched}, scores=scores, translations=translations, decimals=2)


def _text(run: LoadedTextRun, split: str, settings: Mapping[str, Any], say: Say) -> Evaluation:
    corpus = open_documents(run.config.data)
    _check(corpus, split, run, say)
    task = text_task(run.config, corpus, next(run.model.parameters()).device)
    return Evaluation(settings=settings, scores=task.evaluate(run.model, split), translations=(), decimals=4)


def _check(corpus: Corpus | DocumentCorpus, split: str, run: LoadedRun | LoadedTextRun, say: Say) -> None:
    """Raise UserError where the corpus has no such split; say it where the corpus is another than the run's."""
    if split not in corpus.splits or split == "train":
        allowed = ", ".join(name for name in corpus.splits if name != "train")
        raise UserError(f"the corpus has no split {split!r} to evaluate on; it has {allowed}")
    if corpus.fingerprint != run.environment["data_fingerprint"]:
        say("note: the corpus is not as it was when the run began")
