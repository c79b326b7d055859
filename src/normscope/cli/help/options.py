"""Options whose words, groups and defaults stand where they are used: in docstrings, or below a
class' fields.

    @described_by("api/comparison.py:compare")
    def compare(*, seeds: int, peak_lr: Annotated[str | None, "Separated by commas."]) -> None: ...

`--seeds` has the help, the group and the default that `seeds` has there. A string in `Annotated`
follows the help: how the command line writes what Python takes as a value. A sentence that begins
with "By default" becomes what stands in brackets. What the verb's own docstring lists is the help
as it stands, in that group; a name that it lists without words is put into that group alone. An
option with a help of its own keeps it; that of a bool is a flag.

Sources are read and not imported: what they import takes torch's seconds, and `--help` answers at
once.
"""

import ast
import inspect
import re
import sys
from collections.abc import Callable, Collection, Mapping
from copy import copy
from dataclasses import MISSING, Field, dataclass, fields
from functools import cache
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_args, get_origin, get_type_hints

import typer
from typer.models import ArgumentInfo, OptionInfo

from .docstrings import ListedOption, listed_options, without_lists

_Verb = TypeVar("_Verb", bound=Callable[..., None])
_PACKAGE = Path(__file__).parents[2]
_WITHOUT_DOCSTRINGS = 2
"""The value of sys.flags.optimize under `python -OO`: the verbs work, but their docstrings are
gone.
"""


@dataclass(frozen=True, slots=True)
class _Parameter:
    """The description of a parameter or a field in its source."""

    words: str
    default: Any = inspect.Parameter.empty
    group: str = ""
    """The heading that it stands below, where it is listed."""
    as_typed: bool = False
    """True where the first letter of the words is not to be raised."""

    def over(self, other: "_Parameter | None") -> "_Parameter":
        """This one, with what it leaves open as another source has it."""
        if other is None:
            return self
        worded = self if self.words else other
        is_open = self.default is inspect.Parameter.empty
        return _Parameter(
            worded.words,
            other.default if is_open else self.default,
            self.group or other.group,
            worded.as_typed,
        )


def described_by(*sources: str) -> Callable[[_Verb], _Verb]:
    """Complete the options of a verb by its docstring, and by what `sources`, FILE:NAME below the
    package, say.

    Of two sources the first counts. Groups come in the order of the sources, a group of the verb's
    alone before the next that they have too; within a group, the sources' options come first.

    Raises LookupError for an option that has no help, there or of its own, and where the docstring
    lists one that the verb does not have.
    """

    def decorated(verb: _Verb) -> _Verb:
        signature = inspect.signature(verb)
        told = verb.__doc__ or ""
        own = listed_options(told)
        absent = own.keys() - signature.parameters.keys()
        if absent:
            raise LookupError(f"{verb.__name__} lists {', '.join(sorted(absent))}, and has none")
        of_sources = _of_sources(sources)
        known = dict(of_sources)
        for name, one in own.items():
            listed = _Parameter(one.words, group=one.group, as_typed=True)
            known[name] = listed.over(known.get(name))
        completed = [_completed(one, known) for one in signature.parameters.values()]
        ordered = _in_groups(completed, own, of_sources)
        verb.__doc__ = without_lists(told)
        verb.__signature__ = inspect.Signature(ordered)  # type: ignore[attr-defined]
        verb.__annotations__ = {one.name: one.annotation for one in ordered}
        return verb

    return decorated


def _of_sources(sources: Collection[str]) -> dict[str, _Parameter]:
    """Returns the parameters that several sources describe, each source completing those before
    it.
    """
    known: dict[str, _Parameter] = {}
    for source in sources:
        file, _, name = source.partition(":")
        for option, one in parameters_of(_PACKAGE / file, name).items():
            known[option] = known[option].over(one) if option in known else one
    return known


def _in_groups(
    parameters: list[inspect.Parameter],
    own: Mapping[str, ListedOption],
    of_sources: Mapping[str, _Parameter],
) -> list[inspect.Parameter]:
    """Returns the parameters as help shows them: arguments as they stand, which is how they are
    typed, then the options of each group.
    """
    groups = _ordered(
        [one.group for one in own.values()],
        [one.group for one in of_sources.values() if one.group],
    )
    kept = [name for name, one in of_sources.items() if one.group and name not in own]
    listed = [*kept, *own]

    def place(parameter: inspect.Parameter) -> tuple[int, int]:
        info = _info_of(parameter)
        if not isinstance(info, OptionInfo):
            return -1, 0
        if not info.rich_help_panel:
            return len(groups), 0
        return groups.index(info.rich_help_panel), listed.index(parameter.name)

    # Typer calls a verb by names: so an option without a default may follow one that has one.
    by_name = [one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in parameters]
    return sorted(by_name, key=place)


def _ordered(own: Collection[str], of_sources: Collection[str]) -> list[str]:
    """Returns the groups in the order of the sources; one that is the verb's alone stands before
    the next that they have too.
    """
    found = list(dict.fromkeys(of_sources))
    place = len(found)
    for group in reversed(dict.fromkeys(own)):
        if group in found:
            place = found.index(group)
        else:
            found.insert(place, group)
    return found


def _info_of(parameter: inspect.Parameter) -> OptionInfo | ArgumentInfo | None:
    """Returns typer's description of a parameter that is an option or an argument; None for
    others.
    """
    for note in getattr(parameter.annotation, "__metadata__", ()):
        if isinstance(note, OptionInfo | ArgumentInfo):
            return note
    return None


def taking(options: type) -> Callable[[Callable[[Any], None]], Callable[..., None]]:
    """Returns a decorator with which a verb takes each field of a dataclass as an option, and is
    given all of them as one value.

        @dataclass(frozen=True, kw_only=True)
        class Many:
            seeds: int = 1

        @taking(Many)
        def train(many: Many) -> None: ...

    The verb is then called as `train(seeds=3)`.
    """

    def decorated(verb: Callable[[Any], None]) -> Callable[..., None]:
        def called(**given: Any) -> None:
            verb(options(**given))

        called.__name__, called.__doc__ = verb.__name__, verb.__doc__
        hints = get_type_hints(options, include_extras=True)
        parameters = [
            inspect.Parameter(
                one.name,
                inspect.Parameter.KEYWORD_ONLY,
                default=_default_of(one),
                annotation=hints[one.name],
            )
            for one in fields(options)
        ]
        called.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        return called

    return decorated


def _default_of(field: Field[Any]) -> Any:
    if field.default_factory is not MISSING:
        return field.default_factory()
    return inspect.Parameter.empty if field.default is MISSING else field.default


@cache
def parameters_of(file: Path, name: str) -> Mapping[str, _Parameter]:
    """Returns the explained parameters of a function, or fields of a class. Raises LookupError
    where the file has none such.
    """
    for node in ast.parse(file.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ClassDef) and node.name == name:
            return _fields(node)
        if isinstance(node, ast.FunctionDef) and node.name == name:
            return _arguments(node)
    raise LookupError(f"{file} defines no {name}")


def _arguments(function: ast.FunctionDef) -> dict[str, _Parameter]:
    given = function.args
    positional = [*given.posonlyargs, *given.args]
    defaults: list[ast.expr | None] = [
        *[None] * (len(positional) - len(given.defaults)),
        *given.defaults,
    ]
    pairs = zip([*positional, *given.kwonlyargs], [*defaults, *given.kw_defaults], strict=True)
    values = {argument.arg: _value(default) for argument, default in pairs}
    if given.kwarg is not None:
        values[given.kwarg.arg] = inspect.Parameter.empty
    found = {}
    for name, one in listed_options(ast.get_docstring(function) or "").items():
        default = values.get(name, inspect.Parameter.empty)
        found[name] = _Parameter(one.words, default, one.group)
    return found


def _fields(owner: ast.ClassDef) -> dict[str, _Parameter]:
    found = {}
    for node, after in zip(owner.body, [*owner.body[1:], None], strict=True):
        match node, after:
            case (
                ast.AnnAssign(target=ast.Name(id=name), value=value),
                ast.Expr(value=ast.Constant(value=str(words))),
            ):
                found[name] = _Parameter(" ".join(words.split()), _value(value))
    return found


def _value(default: ast.expr | None) -> Any:
    """Returns the value of a literal default; `inspect.Parameter.empty` for other expressions and
    for none.
    """
    try:
        return inspect.Parameter.empty if default is None else ast.literal_eval(default)
    except ValueError:
        return inspect.Parameter.empty


def _completed(parameter: inspect.Parameter, known: Mapping[str, _Parameter]) -> inspect.Parameter:
    option = f"--{parameter.name.replace('_', '-')}"
    kind, *notes = (
        get_args(parameter.annotation)
        if get_origin(parameter.annotation) is Annotated
        else (parameter.annotation,)
    )
    own = next(
        (note for note in notes if isinstance(note, OptionInfo | ArgumentInfo)), typer.Option()
    )
    if kind is typer.Context:
        return parameter
    source, info = known.get(parameter.name, _Parameter("")), copy(own)
    if own.help is None:
        if not source.words and sys.flags.optimize < _WITHOUT_DOCSTRINGS:
            raise LookupError(f"nothing says what {option} is")
        info.help = help_of(source, [note for note in notes if isinstance(note, str)])
    if source.group:
        info.rich_help_panel = source.group
    if kind is bool and own.help is None and own.default is ...:  # there a typed name stands
        info.param_decls = (option,)
    default = source.default if parameter.default is inspect.Parameter.empty else parameter.default
    return parameter.replace(annotation=Annotated[kind, info], default=default)


def help_of(source: _Parameter, notations: Collection[str]) -> str:
    """Returns an explanation as the help of an option, with what the command line adds, and its
    default last.
    """
    said, by_default, default = source.words.partition("By default ")
    told = " ".join([said.strip(), *notations])
    # A value that is explained is written as it is typed.
    if not source.as_typed and not re.match(r"[\w.]+:", told):
        told = told[:1].upper() + told[1:]
    return f"{told}  [default: {default.removesuffix('.')}]" if by_default else told
