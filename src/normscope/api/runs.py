"""A run: trained, read, drawn, evaluated and loaded."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from torch import nn

from ..decode.search import BeamConfig
from ..decode.translate import translate_lines
from ..errors import UserError, no_end
from ..report.notebook import fragment, picture, table
from ..report.words import significant
from ..runs import config as configs, trained
from ..runs.run import train_run
from ..runs.trained import evaluate_run
from ..settings.files import GivenConfig, given_config, refuse_no_run, run_named
from ..settings.validation import checked
from ..tasks.protocol import Evaluation
from ..tasks.registry import config_of, task_of
from ..tasks.run_config import RunConfig
from ..train import RunFolder
from ..train.metrics import Event
from ..train.record import UPDATE, RunRecord

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Configuration: TypeAlias = str | Path | Mapping[str, Any] | RunConfig | None
"""A TOML file, its tables, or what they make, or `my_model.py:build`; None for every default."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunLosses:
    """Cross-entropy in nats per target token, at the updates where it was measured."""

    updates: NDArray[np.int64]
    nats: NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class TrainedModel:
    """The model of a run at one of its checkpoints, in evaluation mode, with what is needed to use
    it.
    """

    config: RunConfig
    model: nn.Module
    codec: Any
    """Text to ids and back: vocabularies and word pieces of a translation run, the tokeniser of
    others.
    """
    update: int

    def __repr__(self) -> str:
        return (
            f"TrainedModel({type(self.model).__name__} of task {self.config.task}, update "
            f"{self.update})"
        )

    def translate(
        self, lines: Iterable[str], *, beam: int = 5, length_penalty: float = 1.0
    ) -> list[str]:
        """Returns each line's translation, in order; an empty line gives an empty one.

        Raises UserError where the run does not translate, ValueError for a search that is none.
        """
        if not task_of(self.config).translates:
            raise UserError(
                f"a run of task {self.config.task} does not translate; task translation does"
            )
        search = BeamConfig(beam=beam, length_penalty=length_penalty)
        model: Any = self.model
        return [found.detokenised for found in translate_lines(model, self.codec, lines, search)]


@dataclass(frozen=True, slots=True)
class Run:
    """A run's folder, read anew each time."""

    folder: Path

    @property
    def config(self) -> RunConfig:
        """The complete configuration."""
        return configs.load(RunFolder(self.folder).config_file)

    @property
    def events(self) -> list[Event]:
        """Everything that was recorded, in order; the manual's page on run folders says what there
        is.
        """
        return RunFolder(self.folder).events()

    @property
    def is_finished(self) -> bool:
        """True where the training reached its end."""
        return RunFolder(self.folder).is_finished

    @property
    def losses(self) -> dict[str, RunLosses]:
        """The losses of the updates as "train", and those of the validations as "valid"."""
        record = RunFolder(self.folder).record()
        return {
            name: _losses(record, kind)
            for name, kind in (("train", "update"), ("valid", "validation"))
        }

    def plot(self) -> "Figure":
        """Draws both losses over the updates, as a matplotlib figure."""
        from ..report.chart_svg import panels_figure

        return panels_figure([self._panel()], columns=1)

    @no_end()
    def evaluate(
        self,
        split: str = "valid",
        *,
        which: str = "best",
        average: int | str | None = None,
        device: str = "auto",
        trust: bool = False,
        **search: Any,
    ) -> Evaluation:
        """Returns the scores of a checkpoint on a split of the run's corpus, in `.scores`.

        What is scored:
            split: of the run's corpus.
            search: beam and length_penalty, of a run that translates.

        The checkpoint:
            which: `best`, `last` or an update's number.
            average: of how many of the last checkpoints the mean is taken instead, or of which
                updates, separated by commas.
            device: auto, cpu, cuda or cuda:N.
            trust: as `load_run`'s.

        Raises UserError for what there is not.
        """
        if trust:
            configs.trust_run(self.folder)
        return evaluate_run(
            self.folder,
            split,
            which=which,
            average=None if average is None else str(average),
            device=device,
            search=search,
        )

    def load(
        self,
        which: str = "best",
        *,
        average: int | str | None = None,
        device: str = "auto",
        trust: bool = False,
    ) -> TrainedModel:
        """Returns the model at a checkpoint, as `load_run`. Raises UserError."""
        return load_run(self.folder, which=which, average=average, device=device, trust=trust)

    def _repr_html_(self) -> str:
        from ..report.chart_svg import panels_svg

        title = f"Losses of {self.folder.name}"
        rows = [
            (
                name,
                len(found.updates),
                significant(found.nats[0]),
                significant(found.nats.min()),
                found.updates[-1],
            )
            for name, found in self.losses.items()
            if len(found.updates)
        ]
        heads = ("loss (nats per token)", "measured", "first", "lowest", "last update")
        return fragment(
            [picture(panels_svg([self._panel()], title=title, columns=1)), table(heads, rows)]
        )

    def _panel(self) -> Any:
        from ..report.chart import Panel, Series

        labels = {"train": "training", "valid": "validation"}
        series = [
            Series(
                label=labels[name],
                kind="measured",
                hue=hue,
                x=found.updates.tolist(),
                y=found.nats.tolist(),
            )
            for hue, (name, found) in enumerate(self.losses.items())
        ]
        return Panel(
            title=self.folder.name,
            xlabel="update",
            ylabel="cross-entropy (nats per token)",
            series=series,
        )


@checked
def train(
    config: Configuration,
    run: str | Path,
    *,
    watch: Callable[[Event], None] | None = None,
    from_step: int | None = None,
    **settings: Any,
) -> Run:
    """Train a configuration in the run folder `run`, or go on with the run that is there.

    What is trained:
        config: a TOML file, a dictionary of its tables, a configuration, or a model of your own as
            `my_model.py:build`; None for every default.
        settings: keys to change, sections joined by two underscores, such as
            optimizer__peak_lr=1e-3.
        run: the run's folder.

    How it goes:
        from_step: resume from the checkpoint of this update and delete the later ones.
        watch: called with every event as it is recorded.

    Raises UserError for a setting, a corpus or a folder that does not fit,
    `normscope.train.NonFinite` where a loss or weight is not finite, `normscope.train.Interrupted`
    after Ctrl-C, when all is saved.
    """
    made = configuration(config, settings)
    train_run(made, Path(run), listeners=[watch] if watch else [], from_step=from_step)
    return Run(Path(run))


@checked
def open_run(folder: str | Path) -> Run:
    """Returns the run in a folder, finished or not. Raises UserError where there is none."""
    refuse_no_run(Path(folder))
    return Run(Path(folder))


@checked
def load_run(
    folder: str | Path,
    *,
    which: str = "best",
    average: int | str | None = None,
    device: str = "auto",
    trust: bool = False,
) -> TrainedModel:
    """Returns the trained model of a run at a checkpoint: `best`, `last` or an update's number.

    The checkpoint:
        folder: of the run.
        which: `best`, `last` or an update's number.
        average: of how many of the last checkpoints the mean is taken instead, or of which updates,
            separated by commas.
        device: auto, cpu, cuda or cuda:N.
        trust: run the Python files that the run names first, where they hold what they did when it
            began.

    Raises UserError.
    """
    if trust:
        configs.trust_run(Path(folder))
    asked = None if average is None else str(average)
    found = trained.load_run(Path(folder), which=which, average=asked, device=device)
    return TrainedModel(
        config=found.config, model=found.model, codec=found.codec, update=found.update
    )


def configuration(config: Configuration | GivenConfig, settings: Mapping[str, Any]) -> RunConfig:
    """Returns a configuration with some keys changed, to be trained: the files that it names are
    run.

    Raises UserError naming the key that is wrong.
    """
    source = "configuration"
    if config is None or isinstance(config, str | Path):
        config = given_config(None if config is None else Path(config))
    if isinstance(config, GivenConfig):
        source, config = config.source, config.table
    run_named(config if isinstance(config, Mapping) else {"imports": config.imports}, source=source)
    made = config_of(config, source=source) if isinstance(config, Mapping) else config
    return configs.replaced(made, **settings) if settings else made


def _losses(record: RunRecord, kind: str) -> RunLosses:
    """Returns the known losses of a kind, with their updates."""
    updates, nats = record.column(kind, UPDATE), record.column(kind, "nll_nats")
    known = np.isfinite(nats)
    return RunLosses(updates=updates[known].astype(np.int64), nats=nats[known])
