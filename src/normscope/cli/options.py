"""Options whose words and defaults stand where they are used: in docstrings, or below a class'
fields.

    @described_by("api/comparison.py:compare")
    def compare(*, seeds: int, peak_lr: Annotated[str | None, "Separated by commas."]) -> None: ...

`--seeds` has the help and the default that `seeds` has there. A string in `Annotated` follows the
help: how the command line writes what Python takes as a value. A sentence that begins with "By
default" becomes what stands in brackets. What the verb's own docstring explains is the help as it
stands, and no part of what `--help` says of the verb. An option with a help of its own keeps it;
that of a bool is a flag.

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

_Verb = TypeVar("_Verb", bound=Callable[..., None])
_PACKAGE = Path(__file__).parents[1]
_EXPLAINED = re.compile(r"(?:^|(?<=[.;)] ))(\w+(?:, \w+)*): ")
"""Where a docstring begins to explain parameters, one or several together."""
_WITHOUT_DOCSTRINGS = 2
"""What `python -OO` sets sys.flags.optimize to: the verbs work, and those words are not there."""


@dataclass(frozen=True, slots=True)
class _Parameter:
    """What a source says of one of its parameters or fields."""

    words: str
    default: Any = inspect.Parameter.empty
    as_typed: bool = False
    """Whether the words begin with a letter that is not to be raised."""


def described_by(*sources: str) -> Callable[[_Verb], _Verb]:
    """Complete the options of a verb by its docstring, and by what `sources`, FILE:NAME below the
    package, say.

    Of two sources the first counts.

    Raises LookupError for an option that has no help, there or of its own.
    """

    def decorated(verb: _Verb) -> _Verb:
        known: dict[str, _Parameter] = {}
        for source in reversed(sources):
            file, _, name = source.partition(":")
            known |= parameters_of(_PACKAGE / file, name)
        signature = inspect.signature(verb)
        own = explanations(verb.__doc__ or "", signature.parameters)
        known |= {name: _Parameter(words, as_typed=True) for name, words in own.items()}
        paragraphs = inspect.cleandoc(verb.__doc__ or "").split("\n\n")
        verb.__doc__ = "\n\n".join(
            one for one in paragraphs if not explanations(one, signature.parameters)
        )
        completed = [_completed(one, known) for one in signature.parameters.values()]
        verb.__signature__ = signature.replace(parameters=completed)  # type: ignore[attr-defined]
        verb.__annotations__ = {one.name: one.annotation for one in completed}
        return verb

    return decorated


def taking(options: type) -> Callable[[Callable[[Any], None]], Callable[..., None]]:
    """Has a verb take each field of a dataclass as an option; it is given all of them as one value.

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
    """The explained parameters of a function, or fields of a class. Raises LookupError where the
    file has none such.
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
    words = explanations(ast.get_docstring(function) or "", values)
    return {name: _Parameter(words[name], value) for name, value in values.items() if name in words}


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
    """What is written there, where that is a plain value."""
    try:
        return inspect.Parameter.empty if default is None else ast.literal_eval(default)
    except ValueError:
        return inspect.Parameter.empty


def explanations(docstring: str, names: Collection[str]) -> dict[str, str]:
    """What a docstring says of each parameter that it explains as "x: …"; errors that are raised
    end an explanation.
    """
    found = dict[str, str]()
    for paragraph in docstring.split("\n\n"):
        text = " ".join(paragraph.split())
        begins = [one for one in _EXPLAINED.finditer(text) if {*one[1].split(", ")} <= {*names}]
        ends = [one.start() for one in begins[1:]] + [len(text)]
        for one, end in zip(begins, ends, strict=bool(begins)):
            words = re.split(r"(?<=\.) Raises ", text[one.end() : end])[0].strip()
            found |= dict.fromkeys(one[1].split(", "), words)
    return found


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
    if own.help is not None or kind is typer.Context:
        return parameter
    source, info = known.get(parameter.name), copy(own)
    if source is None and sys.flags.optimize < _WITHOUT_DOCSTRINGS:
        raise LookupError(f"nothing says what {option} is")
    if source is None:
        source = _Parameter("")
    info.help = help_of(source, [note for note in notes if isinstance(note, str)])
    if kind is bool and own.default is ...:  # there a typed name stands
        info.param_decls = (option,)
    default = source.default if parameter.default is inspect.Parameter.empty else parameter.default
    return parameter.replace(annotation=Annotated[kind, info], default=default)


def help_of(source: _Parameter, notations: Collection[str]) -> str:
    """An explanation as the help of an option, with what the command line adds, and its default
    last.
    """
    said, by_default, default = source.words.partition("By default ")
    told = " ".join([said.strip(), *notations])
    # A value that is explained is written as it is typed.
    if not source.as_typed and not re.match(r"[\w.]+:", told):
        told = told[:1].upper() + told[1:]
    return f"{told}  [default: {default.removesuffix('.')}]" if by_default else told
