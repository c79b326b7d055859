"""The command line. Each verb reads its options, calls one function of the library, and prints what came back."""

import itertools
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from . import __version__
from .cli_data import data_app
from .cli_doctor import doctor
from .cli_exchange import export, import_, re_place
from .cli_finetune import finetune
from .cli_placements import placements_app
from .cli_predict import predict
from .cli_shared import Imports, listed, refuse_unwritable
from .cli_study import study_app
from .console import GridDisplay, TrainDisplay, stderr
from .errors import UserError

# Importing torch takes seconds, so every verb imports what it needs itself and `--help` answers at once.

app = typer.Typer(
    name="normscope",
    help="What does the placement of normalisation do to a Transformer, and does it need learning-rate warm-up?",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
    rich_markup_mode=None,
)
app.add_typer(data_app, name="data")
app.add_typer(placements_app, name="placements")
app.add_typer(study_app, name="study")
app.command("doctor")(doctor)
app.command("predict")(predict)
app.command("export")(export)
app.command("import")(import_)
app.command("re-place")(re_place)
app.command("finetune")(finetune)

Set = Annotated[
    list[str], typer.Option("--set", metavar="KEY=VALUE", help="Change one setting, such as model.width=256.")
]
Which = Annotated[str, typer.Option("--checkpoint", help="best (lowest validation loss), last, or an update's number.")]
Beam = Annotated[int, typer.Option(help="Hypotheses kept by the search; 1 is greedy.")]
LengthPenalty = Annotated[
    float, typer.Option(help="score = sum of log-probabilities / length ** length_penalty, end token counted.")
]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")]


def _version(show: bool) -> None:
    if show:
        typer.echo(f"normscope {__version__}")
        raise typer.Exit


@app.callback()
def _main(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Options that stand before the verb."""


@app.command()
def train(
    config: Annotated[Path | None, typer.Argument(metavar="CONFIG.toml", help="Without one: the defaults.")] = None,
    run: Annotated[Path | None, typer.Option(help="Run folder; runs/NAME-OF-CONFIG without it.")] = None,
    settings: Set = [],  # noqa: B006
    imports: Imports = [],  # noqa: B006
    on_nonfinite: Annotated[str | None, typer.Option(help="stop or skip; as --set train.on_nonfinite=….")] = None,
    from_step: Annotated[int | None, typer.Option(help="Go on from this checkpoint and drop the later ones.")] = None,
) -> None:
    """Train one model, or go on with a run that was stopped: the same command does both."""
    from .adapters.tensorboard import TensorBoardLog
    from .config import load
    from .run import train_run
    from .train import Interrupted, NonFinite

    overrides = [*settings, *([f'train.on_nonfinite="{on_nonfinite}"'] if on_nonfinite else [])]
    folder = run or Path("runs") / (config.stem if config else "default")
    loaded = load(config, overrides, imports)
    try:
        with TrainDisplay(stderr, folder.name) as display, TensorBoardLog(folder / "tensorboard") as board:
            train_run(loaded, folder, listeners=[display, board], from_step=from_step, say=_say)
    except Interrupted as stop:
        _say(f"{stop}; the same command goes on from there")
        raise typer.Exit(stop.exit_code) from None
    except NonFinite as problem:
        _say(f"stopped at {problem}. The last checkpoint is kept; a lower rate, a warm-up or clip_norm may help")
        raise typer.Exit(1) from None
    typer.echo(str(folder))


@app.command()
def translate(
    run: Annotated[Path, typer.Argument(help="Run folder.")],
    beam: Beam = 5,
    length_penalty: LengthPenalty = 1.0,
    which: Which = "best",
    device: Device = "auto",
) -> None:
    """Translate lines from standard input to standard output, in order."""
    from .decode.beam import BeamConfig
    from .decode.translate import translate_lines
    from .run import load_run

    search = _user_values(BeamConfig, beam=beam, length_penalty=length_penalty)
    loaded = load_run(run, which=which, device=device)
    # Undecodable bytes become replacement characters: one bad line must not end the translation of the others.
    lines = (raw.decode("utf-8", errors="replace").rstrip("\r\n") for raw in sys.stdin.buffer)
    for number, translation in enumerate(translate_lines(loaded.model, loaded.codec, lines, search), 1):
        if translation.cut:
            _say(f"note: line {number} is too long and was cut")
        sys.stdout.buffer.write(translation.detokenised.encode("utf-8") + b"\n")
        sys.stdout.buffer.flush()


@app.command()
def evaluate(
    run: Annotated[Path, typer.Argument(help="Run folder.")],
    split: Annotated[str, typer.Option(help="Split of the run's corpus: valid or test.")] = "valid",
    beam: Annotated[
        int | None, typer.Option(help="Hypotheses kept by the search; 1 is greedy.", show_default="5")
    ] = None,
    length_penalty: Annotated[
        float | None,
        typer.Option(
            help="score = sum of log-probabilities / length ** length_penalty, end token counted.", show_default="1.0"
        ),
    ] = None,
    which: Which = "best",
    device: Device = "auto",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    save: Annotated[Path | None, typer.Option(help="Write the scores as JSON here, whole or not at all.")] = None,
    output: Annotated[Path | None, typer.Option(help="Write the translations here, one a line.")] = None,
) -> None:
    """Score a run on a split: sacreBLEU of its translations with its signature, and tokenised BLEU4; or the losses and
    perplexities of a masked-lm or language-model run."""
    import json

    from .evaluating import evaluate_run
    from .train.files import disk_errors, write_atomically

    for option, file in (("--save", save), ("--output", output)):
        if file is not None:
            refuse_unwritable(option, file)
    given = {"beam": beam, "length_penalty": length_penalty}
    search = {name: value for name, value in given.items() if value is not None}
    done = evaluate_run(
        run, split, which=which, device=device, search=search, translations=output is not None, say=_say
    )
    values = {**done.settings, **done.scores}
    with disk_errors("writing the scores and translations"):
        if output is not None:
            write_atomically(output, "".join(line + "\n" for line in done.translations))
        if save is not None:
            write_atomically(save, json.dumps(values, indent=1) + "\n")
    for line in [json.dumps(values)] if as_json else done.lines():
        typer.echo(line)


@app.command()
def compare(
    config: Annotated[Path | None, typer.Argument(metavar="CONFIG.toml", help="Without one: the defaults.")] = None,
    placements: Annotated[str, typer.Option(help="Comma-separated.")] = "post-ln,pre-ln",
    warmup_updates: Annotated[str, typer.Option(help="Comma-separated; 0 for none.")] = "0,200",
    arms: Annotated[
        str | None, typer.Option(metavar="PLACEMENT:WARMUP,…", help="Only these pairs, instead of every combination.")
    ] = None,
    peak_lr: Annotated[str, typer.Option(help="Comma-separated.")] = "3e-3",
    optimizers: Annotated[str, typer.Option(help="Comma-separated: adam, adamw, sgd, radam, lion.")] = "adam",
    seeds: Annotated[int, typer.Option(help="Runs of each setting.")] = 1,
    out: Annotated[Path | None, typer.Option(help="Folder for runs and report; runs/compare-NAME without it.")] = None,
    settings: Set = [],  # noqa: B006
    imports: Imports = [],  # noqa: B006
    evaluate: Annotated[str | None, typer.Option(help="Split to translate with each run's best checkpoint.")] = None,
    processes: Annotated[int, typer.Option(help="Runs at a time; 0 for as many as there are cores.")] = 0,
    title: Annotated[str, typer.Option(help="Of the report.")] = "Comparison of norm placements",
) -> None:
    """Train every combination of the listed values, in processes side by side, and write report.html.

    Finished runs are skipped and unfinished ones resumed, so the same command goes on after an interruption.
    """
    from .config import load
    from .studies.compare import run_comparison
    from .studies.grid import Grid

    if arms is not None:
        pairs = listed(arms, _placement_and_warmup, "arms")
    else:
        warmups = listed(warmup_updates, int, "warmup-updates")
        pairs = list(itertools.product(listed(placements, str, "placements"), warmups))
    grid = Grid(
        placements_and_warmups=tuple(pairs),
        peak_lrs=tuple(listed(peak_lr, float, "peak-lr")),
        optimizers=tuple(listed(optimizers, str, "optimizers")),
        seeds=seeds,
    )
    folder = out or Path("runs") / f"compare-{config.stem if config else 'default'}"
    base = load(config, settings, imports)
    _compare(run_comparison, base, grid, folder, processes=processes, evaluate=evaluate, title=title)


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Folder for runs and report.")] = Path("demo"),
    processes: Annotated[int, typer.Option(help="Runs at a time; 0 for as many as there are cores.")] = 0,
) -> None:
    """Post-LN and Pre-LN, with warm-up and without, on the embedded toy language: about two minutes on two cores."""
    from .studies.compare import run_comparison
    from .studies.demo import DEMO_GRID, demo_config

    title = "Does it need warm-up? Post-LN and Pre-LN on the toy language"
    _compare(run_comparison, demo_config(), DEMO_GRID, out, processes=processes, evaluate=None, title=title)


def _compare(run_comparison: Callable[..., Any], base: Any, grid: Any, folder: Path, **options: Any) -> None:
    import shlex

    from .train import Interrupted

    command = shlex.join(["normscope", *sys.argv[1:]])
    try:
        with GridDisplay(stderr) as display:
            page, file, failed = run_comparison(base, grid, folder, watch=display, command=command, **options)
    except Interrupted as stop:
        _say(f"{stop}; the same command goes on from there")
        raise typer.Exit(stop.exit_code) from None
    for arm, line in zip(page.arms, page.summary, strict=True):
        typer.echo(f"{arm.verdict:16} {line}")
    typer.echo(f"report: {file}")
    for line in failed:
        _say(f"failed: {line}")
    if failed:
        raise typer.Exit(1)


def _placement_and_warmup(text: str) -> tuple[str, int]:
    placement, sign, updates = text.partition(":")
    if not sign:
        raise ValueError(f"{text!r} is not PLACEMENT:WARMUP, such as post-ln:4000")
    return placement, int(updates)


def _say(text: str) -> None:
    stderr.print(text, soft_wrap=True)


def _user_values(make: Callable[..., Any], **values: Any) -> Any:
    """Build a configuration from options; its ValueError is the user's mistake."""
    try:
        return make(**values)
    except ValueError as error:
        raise UserError(str(error)) from error


def main() -> None:
    """Run the command line. Exit codes: 0 done, 1 failed, 2 the user's mistake, 130 after SIGINT, 143 after SIGTERM."""
    try:
        app()
    except UserError as error:
        _say(f"error: {error}")
        sys.exit(2)
    except BrokenPipeError:
        # Whoever read our output has gone; leave quietly, as other filters do.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
