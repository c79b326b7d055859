"""The evidence in the package: what the results of the repository said when the manual's page was made."""

from collections.abc import Mapping
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any

from ..limits.sealed import SealedJson
from .values import BestRate, Depth, Evidence, Finding, Judged, Setting

FILE = Path(__file__).with_name("evidence.json")
_SEALED = SealedJson(
    format_name="normscope-evidence",
    version=1,
    keys=frozenset(Evidence.__dataclass_fields__),
    again="install NormScope again, or in a clone run `normscope placements choose --write-docs docs`",
)


def packed(evidence: Evidence) -> str:
    """The file's content."""
    return _SEALED.text(asdict(evidence))


@cache
def stored() -> Evidence:
    """What the package holds. Raises UserError where the file is damaged."""
    return unpacked(_SEALED.read(FILE))


def unpacked(table: Mapping[str, Any]) -> Evidence:
    """From plain values, as `asdict` makes them and JSON gives them back."""
    pairs = ("blocks", "width")
    return Evidence(
        settings={
            name: Setting(**{**one, **{key: tuple(one[key]) for key in pairs}})
            for name, one in table["settings"].items()
        },
        findings=[Finding(**one) for one in table["findings"]],
        rates=[BestRate(**{**one, "ladder": tuple(one["ladder"])}) for one in table["rates"]],
        depths=[Depth(**one) for one in table["depths"]],
        depth_blocks=table["depth_blocks"],
        advice=[Judged(**one) for one in table["advice"]],
        optimizers=table["optimizers"],
    )
