"""Our own models: a TOML configuration, with initial weights, or a run folder, with trained ones."""

from collections.abc import Sequence
from pathlib import Path

import torch

from ..data.documents.opening import open_documents
from ..data.parallel.batches import TranslationBatch
from ..data.parallel.corpus import Corpus
from ..data.parallel.opening import open_corpus
from ..doctor.lint.rules import Loading
from ..errors import UserError
from ..model import EncoderDecoder, Layout
from ..optim import make_optimizer
from ..runs.assembly import build_model, build_text_model
from ..runs.config import LanguageModelRunConfig, MaskedRunConfig, RunConfig, load
from ..runs.run import load_run, load_text_run
from ..tasks import TranslationTask
from .ours_text import text_target
from .samples import logits_of, smoothed_loss
from .target import Target


def of_config(file: Path, settings: Sequence[str]) -> Target:
    """Initial weights of the configuration's seed, the first batch of its training, its loss and its optimiser."""
    config = load(file, settings)
    if isinstance(config, RunConfig):
        corpus = open_corpus(config.data)
        return _target(str(file), config, build_model(config, corpus.codec), corpus, None)
    if isinstance(config, MaskedRunConfig | LanguageModelRunConfig):
        documents = open_documents(config.data)
        return text_target(str(file), config, build_text_model(config, documents.tokeniser), documents, None)
    raise UserError(f"{file} has task {config.task}: a fine-tuning is diagnosed by the run that it starts from")


def of_run(folder: Path, settings: Sequence[str]) -> Target:
    """The best checkpoint of a run, on the first batch that it was trained on."""
    if settings:
        raise UserError(f"--set {settings[0]}: {folder} is a run, whose configuration is fixed; give its config.toml")
    # A checkpoint of ours that lacks something is refused when it is loaded.
    whole = Loading(missing=(), unexpected=())
    if not isinstance(load(folder / "config.toml"), RunConfig):
        text = load_text_run(folder, device="cpu")
        title = f"{folder.resolve().name}, update {text.update}"
        return text_target(title, text.config, text.model, open_documents(text.config.data), whole)
    loaded = load_run(folder, device="cpu")
    title = f"{folder.resolve().name}, update {loaded.update}"
    return _target(title, loaded.config, loaded.model, open_corpus(loaded.config.data), whole)


def _target(title: str, config: RunConfig, model: EncoderDecoder, corpus: Corpus, loading: Loading | None) -> Target:
    task = TranslationTask(
        corpus, config.translation, max_tokens=config.data.max_tokens, seed=config.seed, device=torch.device("cpu")
    )
    batch: TranslationBatch = task.micro_batch(0)
    source, target = Layout(batch.source_lengths_B), Layout(batch.target_lengths_B)
    return Target(
        title=f"{type(model).__name__} ({title})",
        model=model,
        inputs=logits_of(source.pack(batch.source_BS), source, target.pack(batch.target_in_BT), target),
        loss=smoothed_loss(target.pack(batch.target_out_BT), config.translation.label_smoothing),
        optimizer=make_optimizer(model.parameters(), config.optimizer),
        loading=loading,
        wanted_placement=config.model.placement,
    )
