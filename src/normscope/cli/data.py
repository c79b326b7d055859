"""`normscope data prepare` and `normscope data documents` make corpora from texts."""

from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args

import typer

from ..data.sources import FIELD, TextLayout
from ..errors import UserError
from .console import StageDisplay, stderr, tell
from .help.layout import GroupedCommand
from .help.options import described_by
from .shared import WholeLines

if TYPE_CHECKING:
    from ..data.documents.tokeniser import TokeniserKind

data_app = typer.Typer(
    cls=WholeLines,
    help="Make corpora from parallel text or from documents.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


_PAIRS = {
    **dict.fromkeys(("--train", "--valid", "--test"), "two files"),
    "--languages": "two languages",
    "--fields": "two fields",
}


class _OfPairs(GroupedCommand):
    """A verb with options of two values each: one value alone is refused in words, whatever comes
    after it.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Reads arguments, and checks those of pairs. Raises UserError where an option of `_PAIRS`
        has fewer than two values before the next one, or the end.
        """
        for place, word in enumerate(args):
            option, sign, first = word.partition("=")
            if option in _PAIRS and not ctx.resilient_parsing:
                following = (
                    [first, *args[place + 1 : place + 2]] if sign else args[place + 1 : place + 3]
                )
                given = list(takewhile(lambda value: not value.startswith("--"), following))
                if len(given) < 2:
                    got = f"{given[0]!r} alone" if given else "none"
                    raise UserError(
                        f"{option} takes {_PAIRS[option]}, of the source and of the target, got "
                        f"{got}"
                    )
        return super().parse_args(ctx, args)


@data_app.command("prepare", cls=_OfPairs)
@described_by("data/parallel/preparation.py:PrepareConfig")
def data_prepare(
    out: Annotated[Path, typer.Argument()],
    *,
    train: tuple[Path, Path],
    languages: tuple[str, str],
    valid: tuple[Path, Path] | None = None,
    test: tuple[Path, Path] | None = None,
    vocabulary_size: int = 10_000,
    separate: bool = False,
    lowercase: Annotated[bool, typer.Option("--lowercase")],
    tokenised: bool = False,
    max_tokens: int,
    max_length_ratio: float,
    workers: Annotated[int, typer.Option("--processes", "--workers")],
    fields: tuple[str, str] | None,
) -> None:
    """Make a corpus for translation from parallel text.

    The text is tokenised and filtered, a BPE vocabulary is learned, and the sentences are stored as
    numbers. A command that was stopped goes on where it was.

    The text:
        out
        train: Source and target file of the training text: text or JSON lines, plain, .gz, .xz or
            .zst; Parquet; or a folder that Hugging Face datasets saved. One file of records may
            stand twice.
        languages: Codes of the source and the target language, such as de en. Moses' rules for a
            language split its words; one that it has no rules for is split by the English ones, and
            a note says so.
        valid: Source and target file of the validation text; without them every 23rd training pair
            is held out.
        test: Source and target file of the test text.
        fields
        tokenised: The text is Moses-tokenised already.

    How the corpus is made:
        vocabulary_size
        separate: Learn one vocabulary for each language instead of a joint one.
        lowercase, max_tokens, max_length_ratio, workers

    For example:

    \b
      normscope data prepare corpora/mine --languages de en \\
          --train train.de.gz train.en.gz --valid valid.de valid.en
    """
    from ..data.parallel.preparation import PrepareConfig, summary
    from ..data.parallel.prepare import prepare

    given = {"train": train, "valid": valid, "test": test}
    config = PrepareConfig(
        out=out,
        source_language=languages[0],
        target_language=languages[1],
        splits={name: files for name, files in given.items() if files is not None},
        vocabulary_size=vocabulary_size,
        joint=not separate,
        tokenise=not tokenised,
        lowercase=lowercase,
        max_tokens=max_tokens,
        max_length_ratio=max_length_ratio,
        workers=workers,
        fields=fields,
    )
    with StageDisplay(stderr()) as display:
        report = prepare(config, display)
    tell(*summary(report, config))


@data_app.command("documents", cls=GroupedCommand)
@described_by("data/documents/prepare.py:DocumentsConfig")
def data_documents(
    out: Annotated[Path, typer.Argument()],
    *,
    train: list[Path],
    valid: Path | None = None,
    test: Path | None = None,
    tokeniser: Annotated[str, typer.Option(metavar="wordpiece|bpe|FILE.json")],
    vocabulary_size: int | None,
    lowercase: Annotated[bool, typer.Option("--lowercase")],
    layout: TextLayout,
    language: str,
    field: str = FIELD,
    processes: int,
) -> None:
    """Make a corpus for masked-lm or language-model from documents.

    Paragraphs are split into sentences, a tokeniser is learned, and the sentences are stored as
    numbers. Memory holds a part of the text at a time, and a command that was stopped goes on where
    it was.

    The text:
        out
        train: File of text or of JSON lines, plain, .gz, .xz or .zst; Parquet file; or folder that
            Hugging Face datasets saved. The option may be repeated.
        valid: Validation file; without one every 200th training document is held out.
        test: Test file.
        layout, language, field

    How the corpus is made:
        tokeniser, vocabulary_size, lowercase, processes

    For example:

    \b
      normscope data documents corpora/books --train books.txt
    """
    from ..data.documents.prepare import DocumentsConfig, prepare_documents, summary

    others = {"valid": valid, "test": test}
    config = DocumentsConfig(
        out=out,
        splits={"train": tuple(train)}
        | {name: (file,) for name, file in others.items() if file is not None},
        tokeniser=_tokeniser(tokeniser),
        vocabulary_size=vocabulary_size,
        lowercase=lowercase,
        layout=layout,
        language=language,
        field=field,
        processes=processes,
    )
    with StageDisplay(stderr()) as display:
        report = prepare_documents(config, display)
    tell(*summary(report))


def _tokeniser(asked: str) -> "TokeniserKind | Path":
    """Return the kind or the file that was asked for. Raises UserError for anything else."""
    from ..data.documents.tokeniser import TokeniserKind

    for kind in get_args(TokeniserKind):
        if asked == kind:
            return kind  # type: ignore[no-any-return]
    if not asked.endswith(".json"):
        raise UserError(
            f"--tokeniser takes {', '.join(get_args(TokeniserKind))} or a tokenizer.json, got "
            f"{asked!r}"
        )
    return Path(asked)
