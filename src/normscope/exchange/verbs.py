"""The verbs behind the command line: export a run, import one, convert its placement, and average its checkpoints.

Averaging is Vaswani et al. 2017, section 6.1, and fairseq's `average_checkpoints.py`: the weights of checkpoints of one
run are averaged with the same share each, and nothing is trained. Every verb that loads a run can be given the mean.
"""

import dataclasses
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ..data.documents.corpus import TOKENISER
from ..data.documents.tokeniser import TextTokeniser
from ..data.opening import TextDataConfig
from ..errors import UserError
from ..files import disk_errors
from ..limits.ours import nothing_of_ours, refuse_foreign
from ..model import renormalise, unit_vectors
from ..runs.config import changed
from ..runs.trained import load_run, write_run
from ..tasks.registry import task_from_scratch
from ..tasks.text_task import TextTask
from ..train import RunFolder
from ..train.checkpoint import Checkpoint, existing
from ..train.device import seed_weights
from . import families
from .export import Report, chosen, export
from .layout import ImportedLayout, ImportedRun, configuration
from .replacing import Change, Effect, effect, re_placed

_AnyTask = TextTask[Any, Any]
LAYOUTS: dict[str, ImportedLayout] = {layout.model_type: layout for layout in families.LAYOUTS}
"""What can be imported, by the name that `config.json` has for it."""
NO_CORPUS = "none"
"""What an imported run has for a corpus, until it is given one."""
_LONGEST = 128
"""Tokens of a sequence, where an imported run goes on training: BERT's first 90 % of updates."""
_MAY_DIFFER = ("dropout", "attention_dropout", "activation_dropout", "activation_checkpointing")
"""Settings of an imported model that its weights do not depend on."""


def export_run(run: Path, out: Path, *, form: str | None = None, which: str = "best") -> Report:
    """Write a run's model, and its tokeniser, as another library has them; without `form` as the first that fits.

    Raises UserError where no form fits, naming those that would, and where `out` is not free.
    """
    loaded = load_run(run, which=which, device="cpu")
    words = task_from_scratch(loaded.config, f"{run} cannot be exported").words(loaded.codec)
    return export(loaded.model, words, out, chosen(form, loaded.model))


def import_run(folder: Path, run: Path, *, settings: Sequence[str] = ()) -> ImportedRun:
    """Make a run, at update 0, of a checkpoint that Hugging Face transformers saved, in one of the layouts `LAYOUTS`.

    settings: `key=value` of the run's configuration, such as `data.corpus=FOLDER` to go on with its pre-training.
    Raises UserError where it is no such folder, its tokeniser is not a `tokenizer.json` with as many tokens as the
    model has, or `run` is not free.
    """
    refuse_foreign(run, nothing_of_ours)
    theirs = configuration(folder)
    layout = LAYOUTS.get(str(theirs.get("model_type")))
    if layout is None:
        raise UserError(
            f"{folder / 'config.json'}: model_type is {theirs.get('model_type')!r}; what can be imported is "
            f"{', '.join(LAYOUTS)}"
        )
    model_config = layout.read_config(folder / "config.json", theirs)
    if not (folder / TOKENISER).is_file():
        raise UserError(
            f"{folder / TOKENISER} is missing; transformers writes one from an older vocabulary with "
            "AutoTokenizer.from_pretrained(FOLDER).save_pretrained(FOLDER)"
        )
    layout.check_sizes(folder, model_config)
    tokeniser = TextTokeniser.load(folder / TOKENISER)
    tensors = layout.tensors(folder)
    layout.task.refuse_lacking(tokeniser)
    rows = layout.rows(tensors)
    if rows > len(tokeniser) and layout.has_spare_rows:
        tokeniser = tokeniser.grown(rows)
    if rows != len(tokeniser):
        raise UserError(f"{folder}: the model has {rows} tokens, and its {TOKENISER} {len(tokeniser)}")
    config = _imported_config(layout.task, model_config, settings)
    fingerprint = _corpus_fingerprint(layout.task, config, tokeniser)
    seed_weights(config.seed)
    model = layout.task.model(config.model, rows)
    imported = layout.fill(model, tensors)
    write_run(
        run,
        config,
        model,
        lambda folder: layout.task.save_codec(tokeniser, folder),
        made_from=f"imported from {folder.resolve()}",
        data_fingerprint=fingerprint,
    )
    return imported


def _imported_config(task: _AnyTask, model: Any, settings: Sequence[str]) -> Any:
    data = TextDataConfig(corpus=NO_CORPUS, sequence_length=min(_LONGEST, model.positions))
    config: Any = changed(task.config(data=data, model=model), settings)
    kept = {name: getattr(model, name) for name in _MAY_DIFFER}
    if dataclasses.replace(config.model, **kept) != model:
        raise UserError(
            f"of an imported model only {', '.join(_MAY_DIFFER)} can be set: its weights were made for the rest. "
            "`normscope convert-placement` gives it another placement afterwards"
        )
    return config


def _corpus_fingerprint(task: _AnyTask, config: Any, tokeniser: TextTokeniser) -> str:
    """Of the corpus to go on with. Raises UserError for one of other tokens."""
    if config.data.corpus == NO_CORPUS:
        return ""
    corpus = task.open(config)
    if corpus.tokeniser.to_json() != tokeniser.to_json():
        raise UserError(f"the corpus {config.data.corpus} was prepared with another tokeniser than the imported one")
    return corpus.fingerprint


def re_place_run(
    run: Path, out: Path, placement: str, *, which: str = "best", settings: Sequence[str] = ()
) -> tuple[Change, Effect]:
    """Make a run, at update 0, of another run's weights under another placement, and measure what that does.

    settings: `key=value` of the new run's configuration, for the training that goes on. Raises UserError where the
    placement is not known or not defined for such a model, or `out` is not free.
    """
    refuse_foreign(out, nothing_of_ours)
    loaded = load_run(run, which=which, device="cpu")
    task = task_from_scratch(loaded.config, f"{run} has no placement of its own")
    if not task.shapes(loaded.config):
        raise UserError(
            f"{run} has a model of your own: `normscope train` gives it another placement (model.placement), and "
            "normscope.transplant keeps its weights"
        )
    seed_weights(loaded.config.seed)
    model, change = re_placed(loaded.model, placement)
    config = changed(loaded.config, [f"model.placement={placement}", *settings])
    write_run(
        out,
        config,
        model,
        lambda folder: task.save_codec(loaded.codec, folder),
        made_from=f"{run.resolve()}, update {loaded.update}, {change.before} -> {change.after}",
        data_fingerprint=loaded.environment.get("data_fingerprint", ""),
    )
    return change, effect(loaded, loaded.model, model)


_FORMS = "last:N, or numbers of updates separated by commas"


@dataclass(frozen=True, slots=True, kw_only=True)
class AveragedRun:
    """A run whose only checkpoint is the mean of another's."""

    run: Path
    """There while the averaging is open."""
    updates: tuple[int, ...]
    """Of the checkpoints that were averaged, rising."""

    @property
    def words(self) -> str:
        """ "mean of 3 checkpoints, updates 10, 20, 30"."""
        return f"mean of {len(self.updates)} checkpoints, updates {', '.join(map(str, self.updates))}"


@contextmanager
def averaged(run: Path, asked: str) -> Iterator[AveragedRun]:
    """The mean of some of a run's checkpoints, as a run in a folder that is removed afterwards.

    asked: "last:10", or the numbers of updates "100,200,300". Raises UserError for what is neither, for a run that
    cannot be loaded, and for checkpoints that it does not have or that are damaged.
    """
    folder = RunFolder(run)
    updates = _updates(run, existing(folder.checkpoints), asked)
    checkpoints = [folder.checkpoint(str(update)) for update in updates]
    loaded = load_run(run, which=str(updates[-1]), device="cpu")
    average_into(loaded.model, checkpoints)
    task = task_from_scratch(loaded.config, f"{run} cannot be averaged")
    with ExitStack() as stack:
        with disk_errors("making a temporary folder for the mean"):
            place = stack.enter_context(tempfile.TemporaryDirectory(prefix="normscope-average-"))
        made = Path(place) / run.resolve().name
        write_run(
            made,
            loaded.config,
            loaded.model,
            lambda where: task.save_codec(loaded.codec, where),
            made_from=f"{run.resolve()}, mean of updates {', '.join(map(str, updates))}",
            data_fingerprint=loaded.environment.get("data_fingerprint", ""),
        )
        yield AveragedRun(run=made, updates=tuple(updates))


@torch.no_grad()
def average_into(model: nn.Module, checkpoints: Sequence[Checkpoint]) -> None:
    """Put the mean of the checkpoints' parameters into `model`: summed in float64, rounded once to their own type.

    A parameter that two modules share is averaged once. Buffers, which are numbers that follow the updates or were
    profiled before the first, are those of the last of the checkpoints. What a placement keeps at length 1, as nGPT
    does, is put back to it, as after every update. Raises UserError where a checkpoint is of another model.
    """
    sums: dict[str, Tensor] = {}
    for checkpoint in checkpoints:
        checkpoint.load_model(model)
        for name, parameter in model.named_parameters():
            weights = parameter.detach().to(torch.float64)
            sums[name] = sums[name].add_(weights) if name in sums else weights.clone()
    for name, parameter in model.named_parameters():
        parameter.copy_(sums[name] / len(checkpoints))
    renormalise(unit_vectors(model))


def _updates(run: Path, there: Sequence[Checkpoint], asked: str) -> list[int]:
    """The checkpoints that are asked for, by their updates, rising."""
    have = [checkpoint.update for checkpoint in there]
    kind, colon, count = asked.partition(":")
    if colon and kind.strip() == "last" and count.strip().isdecimal() and int(count) > 0:
        wanted = have[-int(count) :]
        if len(wanted) < int(count):
            raise UserError(
                f"--average {asked}: {run} has {_counted(have)}, and this needs {int(count)}. A run keeps the last "
                f"train.keep_checkpoints, and the best: train it with --set train.keep_checkpoints={int(count)}, and "
                "with train.checkpoint_every for how often; what was removed is gone"
            )
        return wanted
    numbers = [part.strip() for part in asked.split(",")]
    if not all(number.isdecimal() for number in numbers):
        raise UserError(f"--average takes {_FORMS}, such as last:10 or 800,900,1000; got {asked!r}")
    updates = sorted(map(int, numbers))
    if len(set(updates)) < len(updates):
        raise UserError(f"--average {asked}: each update counts once, and one is given twice")
    if missing := [str(update) for update in updates if update not in have]:
        raise UserError(f"--average {asked}: {run} has {_counted(have)}, and none of {' or '.join(missing)}")
    return updates


def _counted(updates: Sequence[int]) -> str:
    if not updates:
        return "no checkpoint"
    noun = "checkpoint, of update" if len(updates) == 1 else "checkpoints, of updates"
    return f"{len(updates)} {noun} {', '.join(map(str, updates))}"
