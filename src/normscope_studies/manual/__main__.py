"""`python -m normscope_studies.manual docs` writes the manual's generated pages and the package's
evidence anew.
"""

import argparse
from collections.abc import Iterator
from pathlib import Path

from normscope.choosing import evidence
from normscope.errors import UserError
from normscope.files import disk_errors, make_folders, write_atomically
from normscope.history.remedies import FILE as REMEDIES

from ..engine.packed import PACKED, packed
from ..memo import MEMO
from ..paper import PAPER
from . import choosing, placements, remedies
from .reading import collect


def generated(docs: Path) -> Iterator[tuple[Path, str]]:
    """Each file with its text, from the folder results/ beside the manual's. Raises UserError where
    there is none.
    """
    results = docs.resolve().parent / "results"
    found = collect(results)
    # First: the law of rates, which a page of the manual states, is fitted to what this file holds.
    yield evidence.FILE, evidence.packed(found)
    yield REMEDIES, remedies.packed(results)
    yield from packed(results, (text.listed()[0] for text in (PAPER, MEMO)))
    for name, text in {**choosing.pages(found), **placements.pages(results)}.items():
        yield docs / name, text


def main() -> None:
    """Run the command. Exit codes: 0 done, 2 the user's mistake."""
    parser = argparse.ArgumentParser(prog="python -m normscope_studies.manual", description=__doc__)
    parser.add_argument(
        "docs", type=Path, help="the manual's folder in a clone, with results/ beside it"
    )
    docs = parser.parse_args().docs
    try:
        with disk_errors(f"writing into {docs}"):
            for file, text in generated(docs):
                make_folders(file.parent)
                write_atomically(file, text)
    except UserError as error:
        parser.error(str(error))
    print(f"{evidence.FILE}\n{PACKED}\n{docs}")


if __name__ == "__main__":
    main()
