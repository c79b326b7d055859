"""The record of a comparison in its folder: `comparison.json`, from which its report can be made at
any time.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Annotated

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError, with_config
from typing_extensions import TypedDict

from ..errors import UserError, option, user_errors
from ..files import disk_errors, write_atomically
from ..limits.names import inside, plain
from ..limits.ours import SealedJson
from ..limits.reading import parse_toml
from ..placement import registered
from ..runs.config import left_open, load_run_config
from ..settings.tables import differences
from ..tasks.protocol import AnyCorpus, StartingWeights, TargetFacts
from ..tasks.registry import config_of, task_of
from ..tasks.run_config import RunConfig
from ..train import RunFolder
from ..train.events import LARGEST, first_fault
from .grid import Arm, Cell, configurations

FILE = "comparison.json"
_AXES = (
    "seed",
    "model.placement",
    "schedule.warmup_updates",
    "optimizer.peak_lr",
    "optimizer.name",
)
_MAY_DIFFER = (
    *_AXES,
    "imports",
    "train.duration",
    "train.threads",
    "train.checkpoint_every",
    "train.keep_checkpoints",
)
"""Runs of one comparison may differ in these: its axes, and what changes none of their numbers."""


TITLE = "Comparison of norm placements"
_MOST_NATS = 44
"""The largest entropy of one target: no vocabulary has more than 2**63 entries."""


@dataclass(frozen=True, slots=True)
class _AboutCorpus:
    """The properties of the corpus that the report needs, kept so that it can be made when the
    corpus is gone.
    """

    fingerprint: str
    unigram_nats: float
    """Entropy of the validation targets: the loss of a model that ignores its input."""
    facts: list[tuple[str, str]]
    """Rows of a table."""
    targets: TargetFacts = field(default_factory=TargetFacts)
    """What the losses are means over; tokens, in folders of earlier versions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """The facts about a comparison that the runs in its folder do not say themselves."""

    corpus: _AboutCorpus
    title: str = TITLE
    commands: tuple[str, ...] = ()
    """The commands that have made it, the first one first."""
    cells: tuple[str, ...] = ()
    """Names of its runs, in the order of the report."""
    failed: Mapping[str, str] = field(default_factory=dict)
    """The last message of each run whose process has ended without finishing it, by name."""
    costs: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """The measured cost of a process that trains the model, by the placement's name: parameters,
    memory_bytes (weights, gradients, the optimiser's state, and what the passes of a batch keep),
    flops of an update, in products, and seconds of a batch on this machine's CPU, forward and
    backward: the least of a few.
    """
    own_placement: str = ""
    """The registered name of what the doctor finds in a model of the user's as it is built; ""
    where that was not asked, or where it finds none that is sure."""
    weights: Mapping[str, StartingWeights] = field(default_factory=dict)
    """The weights with which the runs of a placement begin, by its name, where the configuration
    does not say it.
    """

    def grown(self, title: str | None, command: str, cells: Sequence[Cell]) -> "Manifest":
        """Adds the runs of one more command, which is about to try again those that failed."""
        names = [cell.name for cell in cells]
        return replace(
            self,
            title=_writable(title or self.title),
            commands=tuple(dict.fromkeys([*self.commands, _writable(command)])),
            cells=tuple(dict.fromkeys([*self.cells, *names])),
            failed={name: why for name, why in self.failed.items() if name not in names},
        )


def _writable(text: str) -> str:
    """Replaces every byte of a command line that is no UTF-8, which no file of text can hold, by
    its escape.
    """
    return text.encode(errors="backslashreplace").decode()


_KIND = SealedJson(
    format_name="normscope-comparison",
    version=1,
    keys=frozenset(entry.name for entry in fields(Manifest))
    - {"costs", "weights", "own_placement"},
    optional=frozenset({"costs", "weights", "own_placement"}),  # earlier versions have none
    again="remove it and try again: the runs are found without it",
)


def about(config: RunConfig, corpus: AnyCorpus) -> Manifest:
    """Returns the manifest of a comparison without runs."""
    task = task_of(config)
    facts = list(task.corpus_facts(config, corpus))
    chance, targets = task.chance_nats(corpus), task.targets(corpus)
    return Manifest(corpus=_AboutCorpus(corpus.fingerprint, chance, facts, targets))


def write_manifest(folder: Path, manifest: Manifest) -> None:
    with disk_errors(f"writing into {folder}"):
        write_atomically(folder / FILE, _KIND.text(asdict(manifest)))


def former_manifest(folder: Path, open_corpus: Callable[[RunConfig], AnyCorpus]) -> Manifest | None:
    """Returns the manifest of a comparison's folder, also of one from an earlier version; None
    where there are no runs. Raises UserError for a damaged file.

    open_corpus: asked where the folder does not say what its corpus is, as one of an earlier
    version.
    """
    begun = [file.parent.name for file in (folder / "runs").glob("*/config.toml")]
    found, names = read_manifest(folder), sorted({*configurations(folder), *begun})
    if found is not None or not names:
        return found
    cells = named_cells(folder, names)
    return replace(about(cells[0].config, open_corpus(cells[0].config)), cells=tuple(names))


def read_manifest(folder: Path) -> Manifest | None:
    """Reads the manifest of a comparison's folder; None where there is none. Raises UserError for a
    damaged file.
    """
    file = folder / FILE
    with disk_errors(f"reading {file}"):
        if not file.is_file():
            return None
    table = _KIND.read(file)
    try:
        corpus = table["corpus"]
        facts = [(str(name), str(value)) for name, value in corpus["facts"]]
        if not 0 <= (unigram := float(corpus["unigram_nats"])) <= _MOST_NATS:
            raise ValueError(
                f"unigram_nats is the entropy of one target, from 0 to {_MOST_NATS}, got "
                f"{unigram:g}"
            )
        return Manifest(
            title=str(table["title"]),
            corpus=_AboutCorpus(
                str(corpus["fingerprint"]), unigram, facts, _targets(corpus.get("targets", {}))
            ),
            commands=tuple(map(str, table["commands"])),
            cells=tuple(plain(name, file) for name in table["cells"]),
            failed={str(name): str(why) for name, why in table["failed"].items()},
            costs={name: _cost(one) for name, one in table.get("costs", {}).items()},
            weights={name: _start(one) for name, one in table.get("weights", {}).items()},
            own_placement=_known(table.get("own_placement", "")),
        )
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise UserError(
            f"{file} is damaged ({type(error).__name__}: {error}); {_KIND.again}"
        ) from error


def _known(placement: object) -> str:
    """Returns a name as it was kept; "" for one that nothing registers here, as another machine's
    own.
    """
    return str(placement) if placement in registered() else ""


def _targets(found: object) -> TargetFacts:
    """As it was kept. Raises ValueError for what is none."""
    try:
        return _TARGETS.validate_python(found)
    except ValidationError as error:
        raise ValueError(f"what losses are means over: {first_fault(error)}") from None


_TARGETS: TypeAdapter[TargetFacts] = TypeAdapter(TargetFacts, config=None)
_Above0 = Annotated[float, Field(gt=0, le=LARGEST)]


@with_config(ConfigDict(strict=True, extra="forbid"))
class _Cost(TypedDict):
    parameters: _Above0
    memory_bytes: _Above0
    flops: _Above0
    seconds: _Above0


_COST: TypeAdapter[_Cost] = TypeAdapter(_Cost)


def _cost(found: Mapping[str, float]) -> Mapping[str, float]:
    """Checks a cost as it was kept, and returns it. Raises ValueError for what is no cost."""
    try:
        _COST.validate_python(found)
    except ValidationError as error:
        raise ValueError(f"what a placement takes: {first_fault(error)}") from None
    return found


def _start(found: Mapping[str, str]) -> StartingWeights:
    """Makes starting weights of a table as it was kept. Raises AttributeError, TypeError or
    ValueError where it is none.
    """
    if not all(isinstance(words, str) for words in found.values()):
        raise ValueError(f"starting weights are told in words, got {found}")
    return StartingWeights(**found)


def named_cells(folder: Path, names: Iterable[str]) -> list[Cell]:
    """Returns the runs of a comparison's folder by their names, as far as there is anything of
    them. Raises UserError, also for a name that leads out of the folder.
    """
    asked = configurations(folder)
    runs = [RunFolder(inside(folder / "runs", name, folder / FILE)) for name in names]
    known = (run for run in runs if run.is_run or run.path.name in asked)
    return [
        cell_of(r, load_run_config(r) if r.is_run else _config_of(asked[r.path.name], r))
        for r in known
    ]


def _config_of(text: str, run: RunFolder) -> RunConfig:
    with user_errors(
        TypeError,
        ValueError,
        said=lambda error: f"configuration of {run.path} is not TOML: {error}",
    ):
        return config_of(parse_toml(text), source=f"configuration of {run.path}")


def cell_of(run: RunFolder, config: RunConfig) -> Cell:
    """Returns a run as one of a comparison, by its configuration."""
    arm = Arm(
        config.model.placement,
        config.schedule.warmup_updates,
        config.optimizer.peak_lr,
        str(config.optimizer.name),
    )
    return Cell(arm, config.seed, run, config)


def refuse_unlike(
    cells: Sequence[Cell],
    others: Sequence[Cell],
    manifest: Manifest,
    fingerprint: str,
    folder: Path,
) -> None:
    """Raise UserError where runs cannot join those of a comparison, naming the settings in which
    they differ.

    others, manifest, folder: of the comparison. fingerprint: of the corpus of the runs that are to
    join it.
    """
    unlike = list[str]()
    if others:
        there, here = others[0].config, cells[0].config
        may_differ = (*_MAY_DIFFER, *left_open(there), *left_open(here))
        unlike = differences(there, here, apart_from=may_differ)
    if others and fingerprint != manifest.corpus.fingerprint:
        unlike.append(
            f"fingerprint of the corpus: {manifest.corpus.fingerprint} there, {fingerprint} now"
        )
    if unlike:
        raise UserError(
            f"{folder} holds a comparison with other settings ({'; '.join(unlike)}). Within one "
            "only placement, warm-up, rate, optimiser, seed and duration may differ; choose "
            f"another folder with {option('out')}"
        )
