"""Put a run together from its configuration: the one place where corpus, model, task and loop meet."""

import dataclasses
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from torch import nn

from . import config as configs
from .config import RunConfig
from .data.codec import Codec
from .data.corpus import Corpus, Split
from .data.opening import TOY, open_corpus
from .decode.beam import BeamConfig
from .decode.bleu import corpus_bleu, tokenised_bleu4
from .decode.translate import translate_lines
from .errors import UserError
from .measure import gradient_norms
from .model import EncoderDecoder
from .tasks import TranslationTask
from .train import RunFolder, Trainer
from .train.device import available_cores, choose_device, fast_matmul, keep_freed_memory, set_threads
from .train.environment import describe, differences
from .train.files import disk_errors, whole_folder, write_atomically
from .train.loop import Progress
from .train.run_folder import Event
from .train.seeds import seed_weights

Listener = Callable[[Event], None]


def resolve(config: RunConfig, folder: RunFolder) -> RunConfig:
    """The configuration with every `auto` replaced, and paths made absolute.

    By what the run in `folder` began with, where there is one: it goes on as it was on a machine with more cores, too.
    Otherwise by what this machine gives.
    """
    train = config.train
    if folder.is_run:
        began = configs.load(folder.config_file).train
        automatic = [name for name in ("device", "precision", "threads") if getattr(train, name) == "auto"]
        train = dataclasses.replace(train, **{name: getattr(began, name) for name in automatic})
    device = choose_device(train.device)
    precision, threads = train.precision, train.threads
    train = dataclasses.replace(
        train,
        device=str(device),
        precision=precision if precision != "auto" else ("bf16" if device.type == "cuda" else "fp32"),
        threads=available_cores() if threads == "auto" else threads,
    )
    corpus = config.data.corpus
    data = dataclasses.replace(config.data, corpus=corpus if corpus == TOY else str(Path(corpus).resolve()))
    imports = tuple(str(Path(file).resolve()) for file in config.imports)
    return dataclasses.replace(config, train=train, data=data, imports=imports)


def train_run(
    config: RunConfig,
    path: Path,
    *,
    listeners: Iterable[Listener] = (),
    from_step: int | None = None,
    say: Callable[[str], None] = lambda line: None,
) -> Progress:
    """Train `config` in the run folder `path`, or go on with the run that is there.

    say: takes notes for the user. Raises UserError, Interrupted or NonFinite as `Trainer.run` does.
    """
    folder = RunFolder(path)
    config = resolve(config, folder)
    refuse_other_configuration(folder, config)
    if from_step is None and folder.is_finished:
        say(f"{path} is finished; nothing to do")
        return Progress.of_state(folder.checkpoint("last").state())
    # All that the user may have to put right comes before the first thing written.
    corpus, device = open_corpus(config.data), torch.device(config.train.device)
    fast = _prepare_machine(config, device)
    environment = describe(device=device, seed=config.seed, data_fingerprint=corpus.fingerprint, fast_matmul=fast)
    trainer = _trainer(config, corpus, folder, device, listeners)
    with folder.lock():
        _claim(folder, config, corpus)
        _compare_environment(folder, environment, config.data.corpus, say)
        return trainer.run(from_step=from_step)


def refuse_other_configuration(folder: RunFolder, config: RunConfig) -> None:
    """Raise UserError where `folder` cannot become, or is not, a run of the resolved `config`."""
    if folder.is_run:
        there = configs.load(folder.config_file)
        if there != config:
            raise UserError(
                f"{folder.path} holds a run with another configuration ({_difference(there, config)}); "
                "choose another folder (--run, or --out of a comparison), or remove this one"
            )
    elif not folder.is_free:
        what = "is not empty and is not a run" if folder.path.is_dir() else "is a file"
        raise UserError(f"{folder.path} {what}; choose another folder (--run, or --out of a comparison)")


def _claim(folder: RunFolder, config: RunConfig, corpus: Corpus) -> None:
    """Make the folder this run's, or check that it is. Raises UserError where it belongs to another configuration.

    The caller holds its lock; so what another process made of it in the meantime is seen here.
    """
    refuse_other_configuration(folder, config)
    if folder.is_run:
        return
    with disk_errors(f"creating the run folder {folder.path}"):
        with whole_folder(folder.vocabularies) as vocabularies:
            corpus.save_vocabularies(vocabularies)
        # Written last: a folder with a configuration is a whole run.
        write_atomically(folder.config_file, configs.to_toml(config))


def _difference(there: RunConfig, here: RunConfig) -> str:
    def flat(table: dict[str, Any], prefix: str = "") -> dict[str, Any]:
        rows: dict[str, Any] = {}
        for key, value in table.items():
            rows |= flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {prefix + key: value}
        return rows

    old, new = flat(dataclasses.asdict(there)), flat(dataclasses.asdict(here))
    return "; ".join(f"{key}: {old[key]!r} there, {new[key]!r} now" for key in old if old[key] != new[key])


def _compare_environment(folder: RunFolder, now: dict[str, Any], corpus: str, say: Callable[[str], None]) -> None:
    """Write down what the run is made on, or note what has changed. Raises UserError for another corpus."""
    before = folder.environment()
    if not before:
        folder.write_environment(now)
    elif before["data_fingerprint"] != now["data_fingerprint"]:
        raise UserError(
            f"the corpus {corpus} is not the one the run {folder.path} began with: its fingerprint was "
            f"{before['data_fingerprint']} and is {now['data_fingerprint']}; put it back, or start in another folder"
        )
    for change in differences(before, now):
        say(f"note: this machine is not as it was when the run began ({change}); the bits may differ from here on")


def _trainer(
    config: RunConfig, corpus: Corpus, folder: RunFolder, device: torch.device, listeners: Iterable[Listener]
) -> Trainer:
    precision: Literal["fp32", "bf16"] = "bf16" if config.train.precision == "bf16" else "fp32"
    task = TranslationTask(
        corpus, config.translation, max_tokens=config.data.max_tokens, seed=config.seed, device=device
    )
    return Trainer(
        model=build_model(config, corpus.codec).to(device),
        task=task,
        folder=folder,
        train=config.train,
        optimizer=config.optimizer,
        schedule=config.schedule,
        adaptive=config.adaptive,
        seed=config.seed,
        device=device,
        precision=precision,
        probe=lambda model: {"gradient_norms": gradient_norms(model)},
        extra_validation=_bleu(config, corpus) if config.translation.bleu_sentences else None,
        listeners=listeners,
    )


def _prepare_machine(config: RunConfig, device: torch.device) -> bool:
    """Threads, products and memory for this process; True where float32 products go through oneDNN."""
    threads = config.train.threads
    if threads != "auto":
        set_threads(threads)
    if device.type == "cpu":
        keep_freed_memory()
    return fast_matmul(device).on


def build_model(config: RunConfig, codec: Codec) -> EncoderDecoder:
    """The model with its initial weights. Raises UserError where configuration and vocabularies do not fit."""
    seed_weights(config.seed)
    try:
        return EncoderDecoder(config.model, len(codec.source.vocabulary), len(codec.target.vocabulary))
    except ValueError as error:
        raise UserError(str(error)) from error


def _bleu(config: RunConfig, corpus: Corpus) -> Callable[[nn.Module], dict[str, float]]:
    def measure(model: nn.Module) -> dict[str, float]:
        assert isinstance(model, EncoderDecoder)
        count, beam = config.translation.bleu_sentences, BeamConfig(beam=config.translation.bleu_beam)
        return {"bleu": evaluate_split(model, corpus.codec, corpus.splits["valid"], beam, limit=count)["bleu"]}

    return measure


def evaluate_split(
    model: EncoderDecoder, codec: Codec, split: Split, beam: BeamConfig, *, limit: int | None = None
) -> dict[str, Any]:
    """Translate a split and score it: sacreBLEU and tokenised BLEU4 with their signatures, and the translations."""
    sources, references = split.source_text[:limit], split.target_text[:limit]
    translations = list(translate_lines(model, codec, sources, beam))
    form = codec.target.form
    bleu = corpus_bleu([t.detokenised for t in translations], references, lowercase=form.lowercase)
    tokenised = tokenised_bleu4(
        [t.tokenised for t in translations], [form.prepare(line) for line in references], lowercase=form.lowercase
    )
    return {
        "bleu": bleu.score,
        "bleu_signature": bleu.signature,
        "bleu_tokenised": tokenised.score,
        "bleu_tokenised_signature": tokenised.signature,
        "translations": [t.detokenised for t in translations],
    }


@dataclass(frozen=True, slots=True)
class LoadedRun:
    """A trained model with what is needed to use it."""

    config: RunConfig
    model: EncoderDecoder
    codec: Codec
    update: int
    environment: dict[str, Any]
    """What it was trained on."""


def load_run(path: Path, *, which: str = "best", device: str = "auto") -> LoadedRun:
    """The model of a run folder at a checkpoint: `best`, `last` or an update's number. Raises UserError."""
    folder = RunFolder(path)
    found = folder.checkpoint(which)
    config = configs.load(folder.config_file)
    codec = Codec.load(folder.vocabularies)
    chosen = choose_device(device)
    _prepare_machine(config, chosen)
    model = build_model(config, codec)
    found.load_model(model)
    return LoadedRun(config, model.to(chosen).eval(), codec, found.update, folder.environment())
