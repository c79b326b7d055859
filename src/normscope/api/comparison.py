"""A grid of runs that compares placements, as the command line trains it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..compare.compare import opened, run_comparison
from ..compare.grid import Cell, grid_of
from ..compare.page import read
from ..compare.pool import PoolOptions
from ..engines.choosing import engine_settings
from ..errors import UserError
from ..placement import named
from ..report.comparison.contents import ComparisonPage as Page, RunCurve
from ..report.comparison.page import comparison_html, summary_lines
from ..report.words import broken
from ..settings.files import GivenConfig, given_config
from ..settings.tables import as_table, flat
from ..settings.validation import checked
from ..tasks.run_config import RunConfig
from ..train import StopRule
from .runs import Configuration, Run, configuration

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Comparison:
    """The outcome of a comparison: its runs, its report and its conclusion."""

    folder: Path
    report: Path
    """The page, an HTML file that needs nothing else; `compare` writes it, and `normscope report`
    at any time.
    """
    page: Page
    """Everything on it, as values."""
    runs: Mapping[str, Run]
    """The runs by name: only those that were asked for, or all; the page may also show earlier runs
    of the folder.
    """
    problems: Sequence[str]
    """A line for each run that failed, or whose evaluation did."""

    @property
    def conclusion(self) -> str:
        """The conclusion in one sentence, and the paper's statement on it in another."""
        return " ".join(self.page.conclusion)

    @property
    def table(self) -> list[dict[str, Any]]:
        """A row for each run: its configuration, where it ended, and the verdict on its
        configuration.
        """
        return [
            {
                "placement": row.name.group,
                "configuration": str(row.name),
                "warmup_updates": row.warmup_updates,
                "peak_lr": row.peak_lr,
                "optimizer": row.optimizer,
                **asdict(seed),
                "status": str(seed.status),
                "verdict": row.verdict.text,
            }
            for row in self.page.configurations
            for seed in row.seeds
        ]

    @property
    def verdicts(self) -> dict[str, str]:
        """The verdict on each configuration, by the configuration's name."""
        return {str(row.name): str(row.verdict.text) for row in self.page.configurations}

    @property
    def curves(self) -> dict[str, RunCurve]:
        """Validation losses of each configuration by its name: `updates`, and a row for each seed
        in `seeds_values`.
        """
        return {
            str(curve.name): curve for curve in (*self.page.valid_curves, *self.page.undrawn_curves)
        }

    def plot(self) -> "Figure":
        """Returns the validation losses over the updates, as a matplotlib figure."""
        from ..report.chart_panels import chart_panels
        from ..report.chart_svg import panels_figure
        from ..report.comparison.explore import explorer

        return panels_figure(chart_panels(explorer(self.page)["valid-loss"][0]))

    def __str__(self) -> str:
        """Returns the lines that the terminal shows at the end."""
        lines = [
            *summary_lines(self.page, str(self.report)),
            *(f"failed: {one}" for one in self.problems),
        ]
        return broken("\n".join(lines))

    def __repr__(self) -> str:
        failed = f", {len(self.problems)} failed" if self.problems else ""
        return f"Comparison({len(self.table)} runs{failed}; {self.report})"

    def _repr_html_(self) -> str:
        return comparison_html(self.page, str(self.report))


@checked
def compare(
    config: Configuration = None,
    *,
    out: str | Path | None = None,
    placements: str | Sequence[str] | None = None,
    warmup_updates: int | Sequence[int] | None = None,
    arms: Sequence[tuple[str, int]] | None = None,
    peak_lr: float | Sequence[float] | None = None,
    optimizers: str | Sequence[str] | None = None,
    qk_norm: str | Sequence[str] | None = None,
    seeds: int = 1,
    evaluate: str | None = None,
    processes: int = 0,
    engine: str = "local",
    engine_set: Mapping[str, Any] | None = None,
    stop_when: str | None = None,
    title: str | None = None,
    watch: Callable[[list[Any]], None] = lambda states: None,
    **settings: Any,
) -> Comparison:
    """Train every combination of the listed values in processes side by side, and write the report.

    What is compared:
        config, settings: as `train` takes them; what they give is used.
        placements: names of placements; `all` stands for those that the model can have. By default
            the configuration's model.placement, or post-ln,pre-ln.
        warmup_updates: lengths of warm-up in updates, 0 for none. By default the configuration's
            schedule.warmup_updates, or 0,200.
        arms: train only these pairs of a placement and a warm-up instead of every combination.
        peak_lr: peak learning rates. By default the configuration's optimizer.peak_lr, or 3e-3.
        optimizers: optimisers, such as adam and sgd. By default the configuration's optimizer.name,
            or adam.
        qk_norm: norms on queries and keys, each with every placement: none, head, whole, or others
            that `transplant` takes.
        seeds: runs of each configuration, from the seed of the configuration on.

    How the runs are trained:
        processes: number of runs at a time; 0 for as many as there is room for.
        engine: where the runs train: local, ray or slurm.
        engine_set: settings of the engine, such as gpus_per_run.
        stop_when: with decided, end a run early once its validation loss is not below the unigram
            baseline at 3 validations in a row, or at N with decided:N, after the peak of its
            schedule. By default such a run goes on.
        watch: called twice a second with the state of every run.

    What is written:
        out: folder for the runs and the report; in the folder of a former comparison, it grows. By
            default runs/compare-NAME.
        evaluate: translate and score this split with the best checkpoint of each run.
        title: title of the report. By default Comparison of norm placements.

    Finished runs are skipped and unfinished ones resumed. Raises UserError before anything runs for
    what does not fit, and `normscope.train.Interrupted` after Ctrl-C, when runs and report are
    saved.
    """
    base, places = _base(config, settings)
    axes = _axes(placements, warmup_updates, peak_lr, optimizers, qk_norm)
    grid, defaults = grid_of(base, places, **axes, arms=arms, seeds=seeds)
    folder = _usual_folder(config) if out is None else Path(out)
    asked = engine_settings(engine, engine_set)
    options = PoolOptions(
        command=f"normscope.compare(…, out={str(folder)!r})",
        engine=asked,
        processes=processes,
        stop_when=StopRule.of(stop_when),
        watch=watch,
    )
    cells = grid.cells(base, folder, elsewhere=asked.elsewhere)
    return _trained(cells, folder, options, evaluate, title, defaults)


def _axes(
    placements: str | Sequence[str] | None,
    warmup_updates: int | Sequence[int] | None,
    peak_lr: float | Sequence[float] | None,
    optimizers: str | Sequence[str] | None,
    qk_norm: str | Sequence[str] | None,
) -> dict[str, Any]:
    """Returns the axes of a grid as lists, by the names that `grid_of` has for them."""
    return {
        "placements": _several(placements, str),
        "warmups_updates": _several(warmup_updates, int),
        "peak_lrs": _several(peak_lr, float),
        "optimizers": _several(optimizers, str),
        "query_key_norms": _several(qk_norm, str),
    }


def _base(
    config: Configuration, settings: Mapping[str, Any]
) -> tuple[RunConfig, Mapping[str, str]]:
    """Returns the configuration that all runs share, and the source of each key that was set."""
    given = _given(config)
    places = dict(given.places)
    for key in settings:
        places[key.replace("__", ".")] = "a keyword"
    return configuration(given, settings), places


def _usual_folder(config: Configuration) -> Path:
    name = Path(config).stem if isinstance(config, str | Path) else "default"
    return Path("runs") / f"compare-{name}"


def _trained(
    cells: list[Cell],
    folder: Path,
    options: PoolOptions,
    evaluate: str | None,
    title: str | None,
    defaults: Sequence[str],
) -> Comparison:
    """Runs the comparison, and says what it came to."""
    _refuse_unknown_to_other_processes(cells)
    done = run_comparison(cells, folder, options, evaluate=evaluate, title=title, defaults=defaults)
    if done.stopped is not None:
        raise done.stopped
    runs = {cell.name: Run(cell.folder.path) for cell in done.cells}
    return Comparison(
        folder=folder, report=done.file, page=done.page, runs=runs, problems=done.problems
    )


@checked
def compare_runs(folder: str | Path) -> Comparison:
    """Returns the comparison of the runs in a folder, finished or not; the folder may also be that
    of a single run.

    Nothing is trained or written. Raises UserError where there are none, or where a run's corpus
    cannot be opened.
    """
    place = Path(folder)
    cells, manifest = opened(place)
    page = read(cells, manifest)
    return Comparison(
        folder=place,
        report=place / "report.html",
        page=page,
        runs={cell.name: Run(cell.folder.path) for cell in cells},
        problems=[f"{name}: {message}" for name, message in manifest.failed.items()],
    )


def _several(values: Any, kind: type) -> list[Any] | None:
    """Returns one value or several, as a list."""
    if values is None:
        return None
    return (
        [kind(values)]
        if isinstance(values, str | int | float)
        else [kind(value) for value in values]
    )


def _given(config: Configuration) -> GivenConfig:
    """Returns the configuration before its keywords, and what sets each key that is not left to its
    default.
    """
    if config is None or isinstance(config, str | Path):
        return given_config(None if config is None else Path(config))
    if isinstance(config, Mapping):
        table, places = config, set(flat(config))
    else:
        # What has no default is no axis of a comparison.
        factory = getattr(config.model, "factory", None)
        least = {
            "task": config.task,
            **({} if factory is None else {"model": {"factory": factory}}),
        }
        table, usual = as_table(config), flat(as_table(configuration(least, {})))
        places = {key for key, value in flat(table).items() if usual.get(key) != value}
    source = "configuration"
    return GivenConfig(source=source, table=table, places=dict.fromkeys(places, f"the {source}"))


def _refuse_unknown_to_other_processes(cells: Sequence[Cell]) -> None:
    """Raise UserError for a placement that the processes of the runs could not know."""
    for name in dict.fromkeys(cell.config.model.placement for cell in cells):
        module = named(name).__module__
        if not module.startswith("normscope.") and "normscope_user_" not in module:
            raise UserError(
                f"placement {name!r} is registered in this process alone ({module}), and every run "
                "is a process of its own: put it into a file and name the file in `imports` of the "
                "configuration"
            )
