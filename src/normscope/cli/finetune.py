"""`normscope finetune` trains a pre-trained encoder on labelled sentences, and searches for the
best setting.
"""

import shlex
import sys
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..processes.surroundings import rank_of_environment
from .compare import numbers
from .console import StageDisplay, note, stderr, tell
from .help.options import described_by, taking
from .shared import (
    EngineSettingOptions,
    Imports,
    Trust,
    engine_asked,
    resumable,
    spoken_once,
)

if TYPE_CHECKING:
    from ..finetune.cells import SearchSpace
    from ..finetune.opened import FineTuningConfig
    from ..finetune.search import SearchOptions

_SHOWN = "Separated by commas."


@dataclass(frozen=True, slots=True, kw_only=True)
class _FinetuneOptions:
    """The options of `normscope finetune`, with the words of what Python offers."""

    run: Annotated[Path, typer.Argument()]
    train: Annotated[Path, typer.Option(metavar="FILE")]
    dev: Annotated[Path, typer.Option(metavar="FILE")]
    columns: Annotated[
        str | None, typer.Option(metavar="LABEL,SENTENCE[,SECOND]"), "Separated by commas."
    ] = None
    search: Annotated[str, typer.Option(metavar="paper|small|none")] = "small"
    batch_sizes: Annotated[str | None, _SHOWN] = None
    rates: Annotated[str | None, _SHOWN] = None
    epochs: Annotated[str | None, _SHOWN] = None
    seeds: int = 6
    warmup_share: float = 0.1
    sequence_length: int | None = None
    dropout: float = 0.1
    which: Annotated[str, typer.Option("--checkpoint")] = "best"
    device: str = "auto"
    processes: int = 0
    engine: str = "local"
    engine_set: EngineSettingOptions = field(default_factory=list)
    dry_run: bool = False
    out: Path | None = None
    imports: Imports = field(default_factory=list)
    trust: Trust = False


@described_by("api/finetuning.py:finetune")
@taking(_FinetuneOptions)
@resumable()
@spoken_once()
def finetune(asked: _FinetuneOptions) -> None:
    """Fine-tune an encoder on labelled sentences, or pairs of them.

    The first seed tries every setting of the search; all seeds then train the best one, and the
    report draws them beside the majority class. Needs transformers and accelerate. After an
    interruption, run the same command to resume: finished trainings are not made again.

    What is trained on:
        imports, trust

    How the trainings are run:
        dry_run: Say how many trainings are left, with their updates and about how many minutes they
            take, and train and write nothing.

    For example:

    \b
      normscope finetune runs/bert --train mrpc/train.tsv --dev mrpc/dev.tsv
    """
    from ..api.finetuning import default_folder
    from ..finetune.opened import FineTuningConfig
    from ..finetune.search import SearchOptions

    columns = asked.columns
    config = FineTuningConfig(
        start=asked.run,
        which=asked.which,
        train=asked.train,
        dev=asked.dev,
        columns=None if columns is None else tuple(name.strip() for name in columns.split(",")),
        sequence_length=asked.sequence_length,
        dropout=asked.dropout,
        warmup_share=asked.warmup_share,
        device=asked.device,
        imports=tuple(map(Path, asked.imports)),
        trust=asked.trust,
    )
    options = SearchOptions(
        space=_space(asked),
        seeds=asked.seeds,
        processes=asked.processes,
        engine=engine_asked(asked.engine, asked.engine_set),
    )
    folder = asked.out or default_folder(asked.run, asked.train)
    if asked.dry_run:
        _tell_plan(config, folder, options)
    else:
        _search(config, folder, options)


def _tell_plan(config: "FineTuningConfig", folder: Path, options: "SearchOptions") -> None:
    """Shows what there is to train; of several processes the first alone speaks."""
    if rank_of_environment() == 0:
        from ..finetune.plan import plan

        tell(*plan(config, folder, options).lines())


def _search(config: "FineTuningConfig", folder: Path, options: "SearchOptions") -> None:
    """Trains what the folder lacks, and shows what was found."""
    from ..finetune.search import search

    options = replace(options, command=shlex.join(["normscope", *sys.argv[1:]]), say=note)
    if rank_of_environment() > 0:
        search(config, folder, options)
        return
    with StageDisplay(stderr()) as display:
        found = search(config, folder, replace(options, watch=display))
    tell(*found.lines())


def _space(asked: _FinetuneOptions) -> "SearchSpace":
    from ..finetune.cells import search_space

    sizes, rates = asked.batch_sizes, asked.rates
    epochs = asked.epochs
    return search_space(
        asked.search,
        batch_sizes=None if sizes is None else numbers(sizes, int, "batch-sizes"),
        rates=None if rates is None else numbers(rates, float, "rates"),
        epochs=None if epochs is None else numbers(epochs, int, "epochs"),
    )
