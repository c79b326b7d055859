"""Options get their help and their defaults from the API: read as text here, and imported by these
tests.
"""

import importlib.util
import inspect
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import pytest
import typer
from typer.main import get_command

import normscope
from normscope.cli.help.options import described_by, help_of, parameters_of, taking
from normscope.cli.main import command_line
from normscope.data.documents.prepare import DocumentsConfig
from normscope.data.parallel.preparation import PrepareConfig

ROOT = Path(__file__).parents[3]
FUNCTIONS = [("api/comparison.py", normscope.compare), ("api/runs.py", normscope.train)]


def manual_of(docstring: str) -> dict[str, str]:
    """What the manual says of each option, by its own reading of docstrings."""
    spec = importlib.util.spec_from_file_location("docstrings", ROOT / "docs/site/docstrings.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    made = module.as_fields(inspect.cleandoc(docstring).splitlines())
    rows = [line for line in made if ":param" in line]
    return dict(row.removeprefix(":param ").split(": ", 1) for row in rows)


@pytest.mark.parametrize(("file", "function"), FUNCTIONS)
def test_parameters_are_those_of_the_function_with_the_words_of_the_manual(
    file: str, function: Any
) -> None:
    found = parameters_of(ROOT / "src/normscope" / file, function.__name__)
    signature = inspect.signature(function).parameters
    words = manual_of(function.__doc__ or "")
    assert {name: one.words for name, one in found.items()} == words
    plain = {
        name: signature[name].default for name in found if not callable(signature[name].default)
    }
    assert {name: found[name].default for name in plain} == plain


@pytest.mark.parametrize(
    ("file", "config"),
    [("parallel/preparation.py", PrepareConfig), ("documents/prepare.py", DocumentsConfig)],
)
def test_fields_have_the_defaults_of_the_class(file: str, config: Any) -> None:
    found = parameters_of(ROOT / "src/normscope/data" / file, config.__name__)
    literal = {
        name: one.default
        for name, one in found.items()
        if one.default is not inspect.Parameter.empty
    }
    assert literal
    assert {name: config.__dataclass_fields__[name].default for name in literal} == literal


def test_compare_runs_with_the_defaults_of_the_function() -> None:
    verb: Any = get_command(command_line())
    defaults = {option.name: option.default for option in verb.commands["compare"].params}
    signature = inspect.signature(normscope.compare).parameters
    shared = defaults.keys() & signature.keys() - {"placements", "settings", "engine_set"}
    assert len(shared) > 9
    assert {name: defaults[name] for name in shared} == {
        name: signature[name].default for name in shared
    }


def test_help_has_the_notation_and_ends_in_the_default() -> None:
    @described_by("api/comparison.py:compare")
    def verb(
        *, peak_lr: Annotated[str | None, "LOW:HIGH."], seeds: int, processes: int = 7
    ) -> None: ...

    made = inspect.signature(verb).parameters
    help_of = {name: one.annotation.__metadata__[0].help for name, one in made.items()}
    default = "[default: the configuration's optimizer.peak_lr, or 3e-3]"
    assert help_of["peak_lr"] == f"Peak learning rates. LOW:HIGH.  {default}"
    assert (made["peak_lr"].default, made["seeds"].default, made["processes"].default) == (
        None,
        1,
        7,
    )


def test_own_help_stays_and_an_option_without_any_is_refused() -> None:
    @described_by("api/comparison.py:compare")
    def told(*, seeds: Annotated[int, typer.Option(help="Mine.")] = 2) -> None: ...

    assert inspect.signature(told).parameters["seeds"].annotation.__metadata__[0].help == "Mine."
    with pytest.raises(LookupError, match="nothing says what --sideways is"):

        @described_by("api/comparison.py:compare")
        def untold(*, sideways: int = 2) -> None: ...

    with pytest.raises(LookupError, match="astray lists sideways, and has none"):

        @described_by()
        def astray(*, seeds: int = 2) -> None:
            """Go.

            Where:
                seeds, sideways: Which way.
            """

    with pytest.raises(LookupError, match="defines no absent"):
        parameters_of(ROOT / "src/normscope/api/comparison.py", "absent")


def test_a_verbs_own_groups_stand_among_the_sources_and_its_options_behind_theirs() -> None:
    @described_by("api/comparison.py:compare")
    def verb(
        name: Annotated[str, typer.Argument(help="Whose.")],
        *,
        mine: int = 1,
        title: str | None,
        dry_run: bool = False,
        seeds: int,
        engine: str,
        processes: int,
    ) -> None:
        """Go.

        Of my own:
            mine: How many.
            seeds

        How the runs are trained:
            dry_run: Do nothing.

        Type it.
        """

    made = inspect.signature(verb).parameters
    panels = {name: one.annotation.__metadata__[0].rich_help_panel for name, one in made.items()}
    assert list(panels.items()) == [
        ("name", None),
        ("mine", "Of my own"),
        ("seeds", "Of my own"),
        ("processes", "How the runs are trained"),
        ("engine", "How the runs are trained"),
        ("dry_run", "How the runs are trained"),
        ("title", "What is written"),
    ]
    assert made["seeds"].annotation.__metadata__[0].help.startswith("Runs of each configuration")
    assert verb.__doc__ == "Go.\n\nType it."


@dataclass(frozen=True, kw_only=True)
class _Many:
    files: Annotated[list[str], typer.Argument(metavar="FILE", help="What to read.")] = field(
        default_factory=list
    )
    seeds: Annotated[int, typer.Option(help="How many.")] = 2
    rate: Annotated[float, typer.Option(help="Of learning.")]


def test_a_verb_takes_the_fields_of_a_dataclass_as_one_value() -> None:
    """From the words of a command line, as typer reads them."""
    given = []

    @taking(_Many)
    def verb(many: _Many) -> None:
        """Do it."""
        given.append(many)

    app = typer.Typer()
    app.command()(verb)
    command: Any = get_command(app)
    assert command.help == "Do it."
    for words in (["a", "b", "--rate", "3", "--seeds", "5"], ["--rate", "3"]):
        command(words, standalone_mode=False)
    assert given == [
        _Many(files=["a", "b"], seeds=5, rate=3.0),
        _Many(files=[], seeds=2, rate=3.0),
    ]
    assert given[0].files is not given[1].files
    with pytest.raises(Exception, match="Missing parameter: rate"):
        command([], standalone_mode=False)


def test_an_explanation_that_begins_with_a_value_stays_as_it_is_typed() -> None:
    """`package.module:function`, beside a word that begins a sentence."""
    found = parameters_of(ROOT / "src/normscope/cli/doctor_options.py", "DoctorOptions")
    assert help_of(found["target"], []).startswith("package.module:function or file.py:function")
    assert help_of(found["seed"], []).startswith("Seed of initial weights")
