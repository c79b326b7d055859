"""docs/placements.md and what lies in docs/placements/, written from the placements and from results."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from ..placement import registered
from . import words
from .details import details
from .measured import measured
from .placement_page import diagram, placement_page
from .predicted import predictions
from .rows import Row, Size, rows, sized

_INTRODUCTION = """\
# Placements

<!-- Written by `normscope placements --write-docs docs`; change the placements, not this page. -->

Every placement is one formula in one file of `src/normscope/placement/formulas/`. All on this page is read from those
formulas: what is printed and counted here is what trains. A placement's name leads to its own page, with its wiring,
its initial weights, what theory says of it over depth, and what was measured of it. F is a sub-layer (attention,
cross-attention or feed-forward), `norm` the norm the formula asks for, x the residual stream. [A placement of your
own](own-placements.md) appears in the same commands.

```console
$ normscope placements
$ normscope placements show deepnorm --model decoder-only --blocks 32 --svg deepnorm.svg
```

`--blocks`, `--width`, `--ffn-width`, `--heads` and `--model` choose the model that numbers are stated for,
`--import FILE.py` adds your own placements, and `--json` prints [the same as data](#as-data).
"""

_COLUMNS = (
    "placement",
    "formula",
    "year",
    "defined for",
    "final norm",
    "norms per block",
    "extra parameters per block",
    "cost",
    "× Pre-LN",
)

_AS_DATA = """\
## As data

`normscope placements --json` prints one object: `size` (`model`, `width`, `ffn_width`, `heads`, `encoder_blocks`,
`decoder_blocks`) and `placements`, a list of

| key | what it holds |
| --- | --- |
| `name`, `title`, `year`, `citation` | as above |
| `variant_of` | the name of the placement of which it is another reading; "" for none |
| `models` | where it is defined |
| `stacks` | facts by stack, `encoder` and `decoder`; empty where it is not defined for the model asked for |
| `general_formula` | the printed formula where `stacks` is empty, else an empty list |

The facts of a stack are `formula` (a list of statements), `brief_formula` (as in the table above, with less of what is
long), `final_norm` (true or false), `norms` and
`extra_parameters` (lists with an entry for every block), `last_block_cost` (`additions`, `scalings`, `norms`,
`mixed`) and `last_block_cost_ratio` (to Pre-LN's).

`normscope placements show NAME --json` prints `row` (the above), `description`, `norm`, `norm_epsilon`,
`embedding_rows`, `output_rows`, `scheme`, `scheme_source`, `weights` (for every `sublayer` and `weight`, `gain` and
`std` in the `first` and `last` block by stack), `embedding` (the same), `unit_vectors`, `constants` (by stack, or
under `class`), `parameters` (`stack`, `where`, `name`, `shape`, `initial`), `profiled`, `schedules` (initial values
by name), and `wiring`: by stack, sections of `title`, `boxes` (`kind`, `label`, `details`) and `wires` (`source`
and `target` as indices of boxes, `subtracted`).
"""


def files(size: Size, results: Path) -> dict[str, str]:
    """The pages and their pictures: path below the folder of the manual -> text. The same code gives the same bytes.

    A placement that is not defined for `size` is shown for the first kind of model that it has. results: the folder of
    results, beside that of the manual; it may be missing.
    """
    table = rows(size)
    known = registered()
    predicted, found = predictions(known), measured(results, known)
    written = {"placements.md": page(table, size)}
    for row in table:
        name = row.name
        shown = details(known[name], _fitting(row, size))
        variants = [other.name for other in table if other.variant_of == name]
        written[f"placements/{name}.md"] = placement_page(shown, predicted[name], found[name], variants, str(size))
        written[f"placements/{name}.svg"] = diagram(shown, next(iter(shown.wiring)))
        if predicted[name].picture:
            written[f"placements/{name}-depth.svg"] = predicted[name].picture
    return written


def page(table: Sequence[Row], size: Size) -> str:
    """docs/placements.md."""
    return "\n".join([_INTRODUCTION, *_overview(table, size), _AS_DATA])


def _fitting(row: Row, size: Size) -> Size:
    if row.stacks:
        return size
    blocks = str(max(size.encoder_blocks, size.decoder_blocks))
    return sized(row.models[0], blocks, size.width, size.ffn_width, size.heads)


def _overview(table: Sequence[Row], size: Size) -> Iterator[str]:
    yield f"## All of them\n\nNumbers are for {size}; of two, the first is the encoder's and the second the decoder's."
    yield f"{words.EXTRA} {words.COUNTED}\n"
    yield f"| {' | '.join(_COLUMNS)} |"
    yield f"|{' --- |' * len(_COLUMNS)}"
    for row in table:
        facts = list(row.stacks.values())
        name = f"[{row.name}](placements/{row.name}.md)"
        cells = [
            f"*{name}*" if row.variant_of else name,
            "<br>".join(f"`{line}`" for line in words.brief_formula(row)),
            str(row.year),
            words.defined(row, size),
            _each(words.final_norm(f) for f in facts),
            _each(words.span(f.norms) for f in facts),
            _each(words.span(f.extra_parameters) for f in facts),
            _each(words.number(f.last_block_cost.total) for f in facts),
            _each(f"{f.last_block_cost_ratio:.2f}" for f in facts),
        ]
        yield f"| {' | '.join(cells)} |"
    yield "\nNames in italics are variants: another reading of the placement above them.\n"


def _each(cells: Iterator[str]) -> str:
    """Once where all stacks have the same."""
    return " / ".join(dict.fromkeys(cells)) or "–"
