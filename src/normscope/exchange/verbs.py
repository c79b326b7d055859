"""The verbs behind the command line: export a run, and import one."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..data.documents.corpus import TOKENISER
from ..data.documents.tokeniser import TextTokeniser
from ..data.opening import TextDataConfig
from ..errors import UserError
from ..limits.ours import nothing_of_ours, refuse_foreign
from ..runs.config import changed
from ..runs.trained import load_run, write_run
from ..tasks.registry import task_of
from ..tasks.text_task import TextTask
from ..train.device import seed_weights
from . import families
from .export import Report, chosen, export
from .layout import ImportedLayout, ImportedRun, configuration

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
    words = task_of(loaded.config).words(loaded.codec)
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


def _imported_config(task: TextTask, model: Any, settings: Sequence[str]) -> Any:
    data = TextDataConfig(corpus=NO_CORPUS, sequence_length=min(_LONGEST, model.positions))
    config: Any = changed(task.config(data=data, model=model), settings)
    kept = {name: getattr(model, name) for name in _MAY_DIFFER}
    if dataclasses.replace(config.model, **kept) != model:
        raise UserError(
            f"of an imported model only {', '.join(_MAY_DIFFER)} can be set: its weights were made for the rest"
        )
    return config


def _corpus_fingerprint(task: TextTask, config: Any, tokeniser: TextTokeniser) -> str:
    """Of the corpus to go on with. Raises UserError for one of other tokens."""
    if config.data.corpus == NO_CORPUS:
        return ""
    corpus = task.open(config)
    if corpus.tokeniser.to_json() != tokeniser.to_json():
        raise UserError(f"the corpus {config.data.corpus} was prepared with another tokeniser than the imported one")
    return corpus.fingerprint
