"""A trained model out of its run folder, and its scores on a split: BLEU, or losses and
perplexities.
"""

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NotRequired, cast

from pydantic import TypeAdapter, ValidationError, with_config
from typing_extensions import TypedDict

from ..errors import UserError, option
from ..limits.ours import SealedJson
from ..tasks.protocol import AnyCorpus, Evaluation, LoadedRun, Task
from ..tasks.registry import task_of
from ..tasks.run_config import refuse_unrun
from ..train import RunFolder
from ..train.checkpoint import Checkpoint
from ..train.device import choose_device
from ..train.events import AS_WRITTEN, LoggedCount, LoggedNumber, first_fault
from .averaging import asked_checkpoints, average_into
from .config import load_run_config
from .machine import prepare_machine


def load_run(
    path: Path,
    *,
    which: str = "best",
    average: str | None = None,
    device: str = "auto",
    of_task: Task | None = None,
) -> LoadedRun:
    """Returns the model of a run at a checkpoint: `best`, `last` or an update's number.

    average: of which checkpoints the mean is to be taken instead, as `asked_checkpoints` reads it.
    of_task: what the run is to be of; None for any. Raises UserError, also for a run of another.
    """
    folder = RunFolder(path)
    checkpoints = _checkpoints(folder, which, average)
    config = load_run_config(folder)
    task = task_of(config)
    if of_task is not None and of_task is not task:
        raise UserError(
            f"{path} is a run of task {config.task}; this needs one of task {of_task.name}"
        )
    refuse_unrun(config, source=str(folder.path))
    folder.refuse_other_vocabularies()
    codec = task.load_codec(folder.vocabularies)
    chosen = choose_device(device)
    prepare_machine(config, chosen)
    model = task.build(config, codec)
    if average is None:
        checkpoints[0].load_model(model)
    else:
        average_into(model, checkpoints)
    updates = tuple(checkpoint.update for checkpoint in checkpoints)
    return LoadedRun(
        config,
        model.to(chosen).eval(),
        codec,
        updates[-1],
        folder.environment(),
        averaged_updates=() if average is None else updates,
    )


def _checkpoints(folder: RunFolder, which: str, average: str | None) -> list[Checkpoint]:
    if average is None:
        return [folder.checkpoint(which)]
    if which != "best":
        raise UserError(
            f"--checkpoint {which} takes one checkpoint, and --average {average} several; leave "
            "one of them out"
        )
    return asked_checkpoints(folder.path, average)


SCORES = SealedJson(
    format_name="normscope-scores",
    version=1,
    keys=frozenset({"run", "update", "split"}),
    optional=None,  # each task has scores of its own
    made_by="normscope evaluate",
    again="evaluate it again",
)
"""The kind of file that `normscope evaluate --save` writes."""


@with_config(AS_WRITTEN)
class _Scores(TypedDict):
    update: LoggedCount
    split: str
    bleu: NotRequired[LoggedNumber]
    bleu_tokenised: NotRequired[LoggedNumber]


_SCORES: TypeAdapter[_Scores] = TypeAdapter(_Scores)


def read_scores(file: Path) -> dict[str, Any]:
    """Reads what `normscope evaluate --save` has written. Raises UserError for what it does not
    write, whoever sealed it.
    """
    try:
        return cast(dict[str, Any], _SCORES.validate_python(SCORES.read(file)))
    except ValidationError as error:
        raise UserError(f"{file} is damaged ({first_fault(error)}); {SCORES.again}") from None


def evaluate_run(
    path: Path,
    split: str,
    *,
    which: str = "best",
    average: str | None = None,
    device: str = "auto",
    search: Mapping[str, Any] = MappingProxyType({}),
    translations: bool = False,
    say: Callable[[str], None] = lambda line: None,
) -> Evaluation:
    """Evaluate a run's checkpoint on the validation or test split of its corpus.

    average: as of `load_run`. search: fields of `BeamConfig`. translations: whether they are
    wanted too. say: takes notes for the user. Raises UserError, also where a run that does not
    translate is asked for either.
    """
    run = load_run(path, which=which, average=average, device=device)
    task = task_of(run.config)
    asked = [option(name) for name in search] + ["--output"] * translations
    if asked and not task.translates:
        raise UserError(
            f"{' and '.join(asked)}: for runs of task translation, and {path} is one of task "
            f"{run.config.task}; leave it out"
        )
    corpus = task.open(run.config)
    _check(corpus, split, run, say)
    found = task.evaluate(run, corpus, split, search)
    settings = {"run": str(path), **_weights(run), "split": split}
    return dataclasses.replace(found, settings={**settings, **found.settings})


def evaluate_text(
    path: Path,
    text: Path,
    *,
    layout: str = "paragraphs",
    language: str = "en",
    which: str = "best",
    average: str | None = None,
    device: str = "auto",
) -> Evaluation:
    """Evaluate a language model's checkpoint on a file of text, whatever it was trained on.

    average: as of `load_run`. layout: how documents are told apart (`documents_in`). language:
    whose sentences are told apart in paragraphs. Raises UserError, also for a run of another task.
    """
    run = load_run(path, which=which, average=average, device=device)
    found = task_of(run.config).evaluate_text(run, text, layout=layout, language=language)
    settings = {"run": str(path), **_weights(run), "split": str(text)}
    return dataclasses.replace(found, settings={**settings, **found.settings})


def _weights(run: LoadedRun) -> dict[str, Any]:
    """Says which weights were scored: the update, and those of all checkpoints of a mean."""
    if not run.averaged_updates:
        return {"update": run.update}
    return {"update": run.update, "average": list(run.averaged_updates)}


def _check(corpus: AnyCorpus, split: str, run: LoadedRun, say: Callable[[str], None]) -> None:
    """Raise UserError where the corpus has no such split; say it where the corpus is another than
    the run's.
    """
    if split not in corpus.splits or split == "train":
        allowed = ", ".join(name for name in corpus.splits if name != "train")
        raise UserError(f"the corpus has no split {split!r} to evaluate on; it has {allowed}")
    if corpus.fingerprint != run.environment.get("data_fingerprint"):
        say("note: the corpus is not as it was when the run began")
