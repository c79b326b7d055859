"""`normscope study …`: measurements with a page and data of their own, one verb each."""

import shlex
import sys
from collections.abc import Callable
from importlib.metadata import entry_points
from pathlib import Path
from typing import Annotated, Any

import typer

from .console import StageDisplay, note, stderr, tell
from .help.layout import GroupedCommand
from .help.options import described_by
from .shared import (
    EngineSettingOptions,
    Imports,
    WholeLines,
    engine_asked,
    resumable,
    run_imports,
)

study_app = typer.Typer(
    cls=WholeLines,
    help="Studies: a question each, answered by a measurement with a page and its data.\n\n"
    "For example:\n\n\b\n  normscope study lemmas --scale smoke",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@study_app.callback()
def _study() -> None:
    """Studies: one measurement each, with a page and its data."""


def _verb(name: str, study: Any) -> Callable[..., None]:
    """Returns the verb of one study; its type is not known here, since the tool imports no package
    of studies.
    """

    @described_by()
    @resumable()
    def verb(
        *,
        scale: str = "cpu",
        settings: Annotated[list[str], typer.Option("--set", metavar="KEY=VALUE")] = [],  # noqa: B006
        out: Path | None = None,
        processes: int = 0,
        engine: str = "local",
        engine_set: EngineSettingOptions = [],  # noqa: B006
        dry_run: bool = False,
        imports: Imports = [],  # noqa: B006
    ) -> None:
        """What is measured:
            scale: How large: smoke, cpu or paper, or another that the study's page in the manual
                names.
            settings: Change one setting of the scale, such as seeds=3.
            imports

        How the trainings are run:
            processes: Runs at a time; 0 for one a core, or one on a device.
            engine: Where the trainings run: local, ray or slurm.
            engine_set
            dry_run: Say how many trainings are left, with their updates, operations and hours, and
                train nothing.

        What is written:
            out: Folder of the study. By default runs/NAME.
        """
        import torch

        asked = engine_asked(engine, engine_set)
        run_imports(imports)
        torch.set_num_threads(1)  # the same bits on every number of cores
        with StageDisplay(stderr()) as display:
            lines = study.run(
                scale=scale,
                settings=settings,
                out=out or Path("runs") / name,
                processes=processes,
                engine=asked,
                watch=display,
                say=note,
                command=shlex.join(["normscope", *sys.argv[1:]]),
                dry_run=dry_run,
            )
        tell(*lines)

    return verb


# Those of every installed package that offers some, ours among them.
for _name, _listed in (
    one for entry in entry_points(group="normscope.studies") for one in entry.load()().items()
):
    study_app.command(
        _name,
        cls=GroupedCommand,
        help=f"{_listed.help}\n\n{_listed.question}\n\n"
        "What the folder holds already is not measured again.\n\n"
        f"For example:\n\n\b\n  normscope study {_name} --scale smoke",
    )(_verb(_name, _listed))
