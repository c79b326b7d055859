"""A trained run on a split of its corpus: BLEU of a run that translates, losses and perplexities of the others."""

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from ..errors import UserError, option
from ..limits.sealed import SealedJson
from ..tasks.protocol import AnyCorpus, Evaluation
from ..tasks.registry import task_from_scratch
from .loading import AnyRun, load_run

Say = Callable[[str], None]

SCORES = SealedJson(
    format_name="normscope-scores",
    version=1,
    keys=frozenset({"run", "update", "split"}),
    optional=None,  # each task has scores of its own
    made_by="normscope evaluate",
    again="evaluate it again",
)
"""What `normscope evaluate --save` writes."""


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
    run = load_run(path, which=which, device=device)
    task = task_from_scratch(run.config, f"{path} cannot be evaluated")
    asked = [option(name) for name in search] + ["--output"] * translations
    if asked and not task.translates:
        raise UserError(
            f"{' and '.join(asked)}: for runs of task translation, and {path} is one of task {run.config.task}; "
            "leave it out"
        )
    corpus = task.open(run.config)
    _check(corpus, split, run, say)
    found = task.evaluate(run, corpus, split, search)
    settings = {"run": str(path), "update": run.update, "split": split}
    return dataclasses.replace(found, settings={**settings, **found.settings})


def evaluate_text(
    path: Path,
    text: Path,
    *,
    layout: str = "paragraphs",
    language: str = "en",
    which: str = "best",
    device: str = "auto",
) -> Evaluation:
    """Evaluate a language model's checkpoint on a file of text, whatever it was trained on.

    layout: how documents are told apart (`documents_in`). language: whose sentences are told apart in paragraphs.
    Raises UserError, also for a run of another task.
    """
    run = load_run(path, which=which, device=device)
    task = task_from_scratch(run.config, f"{path} cannot be evaluated")
    found = task.evaluate_text(run, text, layout=layout, language=language)
    settings = {"run": str(path), "update": run.update, "split": str(text)}
    return dataclasses.replace(found, settings={**settings, **found.settings})


def _check(corpus: AnyCorpus, split: str, run: AnyRun, say: Say) -> None:
    """Raise UserError where the corpus has no such split; say it where the corpus is another than the run's."""
    if split not in corpus.splits or split == "train":
        allowed = ", ".join(name for name in corpus.splits if name != "train")
        raise UserError(f"the corpus has no split {split!r} to evaluate on; it has {allowed}")
    if corpus.fingerprint != run.environment.get("data_fingerprint"):
        say("note: the corpus is not as it was when the run began")
