"""Put a run together from its configuration: the one place where corpus, model, task and loop meet."""

import dataclasses
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

import torch

from ..data.documents.corpus import TOKENISER
from ..data.documents.tokeniser import TextTokeniser
from ..data.parallel.codec import Codec
from ..data.parallel.opening import TOY
from ..errors import UserError
from ..files import disk_errors, whole_folder, write_atomically
from ..measure import gradient_norms
from ..model import EncoderDecoder, LanguageModel, MaskedEncoder
from ..train import RunFolder, Trainer, durations
from ..train.checkpoint import Checkpoint
from ..train.device import available_cores, choose_device, fast_matmul, keep_freed_memory, set_threads
from ..train.environment import describe, differences
from ..train.loop import Progress
from ..train.run_folder import Event
from . import config as configs
from .assembly import Assembly, assemble, build_model, build_text_model
from .config import AnyRunConfig, LanguageModelRunConfig, MaskedRunConfig, PairRunConfig, RunConfig
from .hooks import PlacementHooks

Config = TypeVar("Config", bound=AnyRunConfig)
Listener = Callable[[Event], None]


def resolve(config: Config, folder: RunFolder) -> Config:
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
    imports = tuple(_absolute(file) for file in config.imports)
    return dataclasses.replace(config, train=train, imports=imports, **_sections_with_paths(config))


def _sections_with_paths(config: AnyRunConfig) -> dict[str, Any]:
    """Those sections that name files or folders, with every path absolute."""
    if isinstance(config, PairRunConfig):
        valid = _absolute(config.data.valid_file) if config.data.valid_file else ""
        data = dataclasses.replace(config.data, corpus=_absolute(config.data.corpus), valid_file=valid)
        return {"data": data, "start": dataclasses.replace(config.start, run=_absolute(config.start.run))}
    corpus = config.data.corpus
    return {"data": dataclasses.replace(config.data, corpus=corpus if corpus == TOY else _absolute(corpus))}


def _absolute(path: str) -> str:
    return str(Path(path).resolve())


def train_run(
    config: AnyRunConfig,
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
    device = torch.device(config.train.device)
    assembly = assemble(config, device)
    fast = prepare_machine(config, device)
    environment = describe(device=device, seed=config.seed, data_fingerprint=assembly.fingerprint, fast_matmul=fast)
    trainer = _trainer(config, assembly, folder, device, listeners)
    with folder.lock():
        claim(folder, config, assembly.save_vocabularies)
        _compare_environment(folder, environment, config.data.corpus, say)
        return trainer.run(from_step=from_step)


def refuse_other_configuration(folder: RunFolder, config: AnyRunConfig) -> None:
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


def claim(folder: RunFolder, config: AnyRunConfig, save_vocabularies: Callable[[Path], None]) -> None:
    """Make the folder this run's, or check that it is. Raises UserError where it belongs to another configuration.

    The caller holds its lock; so what another process made of it in the meantime is seen here.
    """
    refuse_other_configuration(folder, config)
    if folder.is_run:
        return
    with disk_errors(f"creating the run folder {folder.path}"):
        with whole_folder(folder.vocabularies) as vocabularies:
            save_vocabularies(vocabularies)
        # Written last: a folder with a configuration is a whole run.
        write_atomically(folder.config_file, configs.to_toml(config))


def _difference(there: AnyRunConfig, here: AnyRunConfig) -> str:
    def flat(table: dict[str, Any], prefix: str = "") -> dict[str, Any]:
        rows: dict[str, Any] = {}
        for key, value in table.items():
            rows |= flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {prefix + key: value}
        return rows

    old, new = flat(dataclasses.asdict(there)), flat(dataclasses.asdict(here))
    # Those of another task have other keys; that its name differs says enough.
    differing = [key for key in old if key in new and old[key] != new[key]]
    return "; ".join(f"{key}: {old[key]!r} there, {new[key]!r} now" for key in differing)


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
    config: AnyRunConfig, assembly: Assembly, folder: RunFolder, device: torch.device, listeners: Iterable[Listener]
) -> Trainer:
    precision: Literal["fp32", "bf16"] = "bf16" if config.train.precision == "bf16" else "fp32"
    model = assembly.build().to(device)
    adaptive = config.adaptive.in_updates(durations(assembly.task, config.train))
    return Trainer(
        model=model,
        objective=assembly.task,
        folder=folder,
        train=config.train,
        optimizer=config.optimizer,
        schedule=config.schedule,
        seed=config.seed,
        device=device,
        precision=precision,
        hooks=PlacementHooks(model, adaptive, drawn=assembly.drawn),
        probe=lambda model: {"gradient_norms": gradient_norms(model)},
        extra_validation=assembly.extra_validation,
        listeners=listeners,
    )


def prepare_machine(config: AnyRunConfig, device: torch.device) -> bool:
    """Threads, products and memory for this process; True where float32 products go through oneDNN."""
    threads = config.train.threads
    if threads != "auto":
        set_threads(threads)
    if device.type == "cpu":
        keep_freed_memory()
    return fast_matmul(device).on


@dataclass(frozen=True, slots=True)
class LoadedRun:
    """A trained translation model with what is needed to use it."""

    config: RunConfig
    model: EncoderDecoder
    codec: Codec
    update: int
    environment: dict[str, Any]
    """What it was trained on."""


@dataclass(frozen=True, slots=True)
class LoadedTextRun:
    """A trained encoder or language model with what is needed to use it."""

    config: MaskedRunConfig | LanguageModelRunConfig
    model: MaskedEncoder | LanguageModel
    tokeniser: TextTokeniser
    update: int
    environment: dict[str, Any]
    """What it was trained on."""


def load_run(path: Path, *, which: str = "best", device: str = "auto") -> LoadedRun:
    """The model of a translation run at a checkpoint: `best`, `last` or an update's number.

    Raises UserError, also for a run of another task.
    """
    folder, found, config = _found(path, which)
    if not isinstance(config, RunConfig):
        raise UserError(f"{path} is a run of task {config.task}; this needs one of task translation")
    codec = Codec.load(folder.vocabularies)
    chosen = choose_device(device)
    prepare_machine(config, chosen)
    model = build_model(config, codec)
    found.load_model(model)
    return LoadedRun(config, model.to(chosen).eval(), codec, found.update, folder.environment())


def load_text_run(path: Path, *, which: str = "best", device: str = "auto") -> LoadedTextRun:
    """The model of a masked-lm or language-model run at a checkpoint, as `load_run` does. Raises UserError."""
    folder, found, config = _found(path, which)
    if not isinstance(config, MaskedRunConfig | LanguageModelRunConfig):
        raise UserError(f"{path} is a run of task {config.task}; this needs one of task masked-lm or language-model")
    tokeniser = TextTokeniser.load(folder.vocabularies / TOKENISER)
    chosen = choose_device(device)
    prepare_machine(config, chosen)
    model = build_text_model(config, tokeniser)
    found.load_model(model)
    model = model.to(chosen).eval()
    return LoadedTextRun(config, model, tokeniser, found.update, folder.environment())


def _found(path: Path, which: str) -> tuple[RunFolder, Checkpoint, AnyRunConfig]:
    folder = RunFolder(path)
    found = folder.checkpoint(which)
    return folder, found, configs.load(folder.config_file)


AnyRun = LoadedRun | LoadedTextRun


def open_any(path: Path, *, which: str = "best", device: str = "cpu") -> AnyRun:
    """A run of any task. Raises UserError."""
    folder = RunFolder(path)
    folder.checkpoint(which)
    if isinstance(configs.load(folder.config_file), RunConfig):
        return load_run(path, which=which, device=device)
    return load_text_run(path, which=which, device=device)
