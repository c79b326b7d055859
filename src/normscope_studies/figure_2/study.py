"""The paper's figure 2, and how much of it is warm-up."""

from typing import Any

from normscope.evidence.estimates import with_interval

from ..engine.page import StudyTable
from ..engine.pieces import Pieces
from ..engine.study import Findings, Study
from ..translation.arms import OPTIMIZERS
from ..translation.records import as_data, conditions, ends_table, runs_data
from ..translation.sensitivity import of_several_rates, sensitivity_data, sensitivity_tables
from ..translation.trained import Trained, trained
from . import ABOUT
from .claims import PUBLISHED_BLEU, claims, group_shares, groups, kept_without, longer_helps
from .config import SCALES, Figure2Config
from .figures import figures, over_rates


def run(config: Figure2Config, pieces: Pieces) -> Findings:
    """Raises UserError for text that is not there, and for a training that fails."""
    found = trained(config, config.arms(), pieces)
    rates = of_several_rates(over_rates(config))
    return Findings(
        conditions=conditions(config, found),
        claims=claims(config, found),
        figures=figures(config, found),
        tables=[
            _shares_table(config, found),
            *sensitivity_tables(rates, found.curves),
            ends_table(found),
        ],
        data=runs_data(found)
        | {
            "groups": _data(config, found),
            "published_bleu": PUBLISHED_BLEU,
            "lr_sensitivity": sensitivity_data(rates, found.curves),
        },
    )


def _shares_table(config: Figure2Config, found: Trained) -> StudyTable:
    rows: list[tuple[str | float, ...]] = []
    for name in config.optimizers:
        for group in groups(config, name):
            share = group_shares(group, found.curves)
            columns = (share.gap, share.summed_rate, share.given_back, share.taken_away)
            rows.append((OPTIMIZERS[name], group.peak_lr, *map(with_interval, columns)))
    return StudyTable(
        title="How much of the gap between no warm-up and warm-up is cumulative learning rate",
        columns=(
            *("optimiser", "rate", "gap, nats", "share that is cumulative learning rate"),
            *("given back without warm-up", "taken away with warm-up"),
        ),
        rows=rows,
    )


def _data(config: Figure2Config, found: Trained) -> list[dict[str, Any]]:
    return [
        {
            "optimizer": name,
            "peak_lr": group.peak_lr,
            "gain_kept_without_warmup": {
                family: as_data(kept) for family, (_, kept) in kept_without(group, found).items()
            },
            "short_less_long_nats": {
                family: as_data(difference) for family, difference in longer_helps(group, found.curves).items()
            },
            "gap_nats": as_data(share.gap),
            "share_of_summed_rate": as_data(share.summed_rate),
            "share_given_back_without_warmup": as_data(share.given_back),
            "share_taken_away_with_warmup": as_data(share.taken_away),
            "summed_lr_with_over_without": group.long.summed_lr / group.without.summed_lr,
        }
        for name in config.optimizers
        for group in groups(config, name)
        for share in (group_shares(group, found.curves),)
    ]


STUDY = Study(
    about=ABOUT,
    scales=SCALES,
    run=run,
)
