"""The plan of Figure 5's trainings, counted beforehand: all of it is known."""

from pathlib import Path
from tempfile import TemporaryDirectory

from normscope.data.labelled import encoded, read_labelled
from normscope.data.opening import open_documents
from normscope.runs.machine import plan

from ..engine.pieces import Pieces
from ..engine.planning import Corpora, PlannedRuns, StudyPlan, planned_cells, tokens_per_update
from .config import Figure5Config, check_inputs
from .pretraining import cells_of
from .tuning import files_of


def planned(config: Figure5Config, pieces: Pieces) -> StudyPlan:
    """Returns the pre-trainings and the fine-tunings that the folder lacks.

    Raises UserError for text or tasks that are not there.
    """
    check_inputs(config)
    cells = cells_of(config, pieces)
    corpora = Corpora()
    first = planned_cells("pre-training", cells, corpora)
    one = config.training()
    corpus = corpora.of(one)
    per_token = plan(one, corpus).flops_per_update / tokens_per_update(one, corpus)
    tuned = [_planned_task(config, task, per_token, pieces) for task in config.tasks]
    return StudyPlan(stages=[first, *tuned])


def _planned_task(
    config: Figure5Config, task: str, per_token: float, pieces: Pieces
) -> PlannedRuns:
    """Plans a task by operations a token of the pre-training, whose head is about as large."""
    rows, tokens = _size(config, task)
    settings = list(config.space().settings())
    checkpoints = 2 * config.seeds * len(config.tuned)
    searching = 2 * (len(settings) - 1)
    epochs = sum(setting.epochs for setting in settings) / len(settings)
    batch = sum(setting.batch_sequences for setting in settings) / len(settings)
    runs = checkpoints * config.tune_seeds + searching
    over = len(list(pieces.folder.glob(f"fine-tuning/{task}_*/cells/*.json")))
    left = max(0, runs - over)
    return PlannedRuns(
        stage=f"fine-tuning on {task.upper()}",
        runs=runs,
        over=over,
        updates=round(left * epochs * rows / batch),
        tokens=left * epochs * tokens,
        flops=left * epochs * tokens * per_token,
    )


def _size(config: Figure5Config, task: str) -> tuple[int, int]:
    """Pairs to train on, and their tokens."""
    tokeniser = open_documents(config.training().data).tokeniser
    with TemporaryDirectory() as folder:  # of drawn pairs, which a plan leaves nowhere
        train, dev = files_of(config, task, Path(folder))
        data = encoded(
            read_labelled(train),
            read_labelled(dev),
            tokeniser,
            sequence_length=config.sequence_length,
        )
    return len(data.train), sum(len(ids_T) for ids_T in data.train.tokens_T)
