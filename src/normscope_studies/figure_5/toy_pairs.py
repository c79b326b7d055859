"""Labelled pairs of the toy language, for a trial of the fine-tuning that needs no files."""

from pathlib import Path

from normscope.data.toy import toy_pairs
from normscope.files import make_folders, write_over
from normscope.limits.kinds import TEXT

ROWS = {"train": 96, "dev": 48}
_SPLITS = {"train": "train", "dev": "valid"}


def write_toy_pairs(folder: Path) -> None:
    """Writes train.tsv and dev.tsv: is the second sentence of a pair the first one again?

    Two of three are, so that the majority class is not a half.
    """
    make_folders(folder)
    for name, count in ROWS.items():
        english = [target for _, target in toy_pairs(2 * count, seed=3, split=_SPLITS[name])]
        lines = ["label\tsentence1\tsentence2\n"]
        for row in range(count):
            first, other = english[2 * row : 2 * row + 2]
            if row % 3:
                lines.append(f"same\t{first}\t{first}\n")
            else:
                lines.append(f"other\t{first}\t{other}\n")
        write_over(folder / f"{name}.tsv", "".join(lines), TEXT)
