"""Names of placements on the command line: given the same way to every verb, and completed by the shell."""

from collections.abc import Iterable
from typing import Annotated

import typer

from ..errors import UserError


def complete_placements(incomplete: str) -> list[str]:
    """What the shell offers for a name that is being typed, after a comma too."""
    from ..placement import registered

    before, comma, begun = incomplete.rpartition(",")
    given = before.split(",")
    return [f"{before}{comma}{name}" for name in [*registered(), "all"] if name.startswith(begun) and name not in given]


PlacementWords = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[PLACEMENT]...",
        help="Names of placements, separated by spaces or commas; `all` for every one.",
        autocompletion=complete_placements,
    ),
]
PlacementOption = Annotated[
    list[str],
    typer.Option(
        metavar="NAME,…",
        help="Names of placements, with commas or the option repeated; `normscope placements` lists them, and `all` "
        "stands for those that the model can have.  [default: the configuration's model.placement, or post-ln,pre-ln]",
        autocompletion=complete_placements,
    ),
]


def placement_names(given: Iterable[str]) -> list[str]:
    """The registered names in the order given, each once, separated by commas or as words of their own.

    `all` stays as it is, where it stands alone: which placements there are depends on the model. Raises UserError for
    a name that is not registered, naming the nearest one, and for `all` beside a name.
    """
    from ..placement import named

    words = [name.strip() for text in given for name in text.split(",") if name.strip()]
    if "all" in words and len(set(words)) > 1:
        raise UserError(f"`all` stands alone, and here it stands beside {', '.join(n for n in words if n != 'all')}")
    try:
        return list(dict.fromkeys(word if word == "all" else named(word).name for word in words))
    except ValueError as error:
        raise UserError(str(error)) from error
