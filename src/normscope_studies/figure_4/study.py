"""The paper's figure 4, on its schedules and on schedules that are alike."""

from typing import Any

from normscope.evidence.estimates import plain_estimate

from ..engine.page import StudyTable
from ..engine.pieces import Pieces
from ..engine.study import Findings, Study
from ..translation.comparing import excess, updates_shares
from ..translation.records import as_data, conditions, ends_table, runs_data
from ..translation.sensitivity import of_several_rates, sensitivity_data, sensitivity_tables
from ..translation.trained import Trained, trained
from . import ABOUT
from .claims import PUBLISHED_SHARE, best_arms, claims, effects, radam_keeps
from .config import SCALES, Figure4Config
from .figures import figures, over_rates
from .pairings import alike, pairings, square


def run(config: Figure4Config, pieces: Pieces) -> Findings:
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
        data=runs_data(found) | _data(config, found) | {"lr_sensitivity": sensitivity_data(rates, found.curves)},
    )


def _shares_table(config: Figure4Config, found: Trained) -> StudyTable:
    return StudyTable(
        title="Share of the updates after which Pre-LN reaches the loss that Post-LN ends at",
        columns=("compared", *(f"seed {seed}" for seed in range(1, config.seeds + 1))),
        rows=[
            (pairing.name, *updates_shares(found.curves, pairing.post, pairing.pre))
            for pairing in (*pairings(config), *alike(config))
        ],
    )


def _data(config: Figure4Config, found: Trained) -> dict[str, Any]:
    compared = {
        pairing.name: {
            "pre_less_post_nats": plain_estimate(excess(found.curves, pairing.pre, pairing.post)),
            "share_of_updates": updates_shares(found.curves, pairing.post, pairing.pre),
        }
        for pairing in (*pairings(config), *alike(config))
    }
    made: dict[str, Any] = {"compared": compared, "published_share_of_updates": PUBLISHED_SHARE}
    if (of := square(config)) is None:
        return made
    seen, (post, pre) = effects(of, found.curves), best_arms(config, found.curves)
    return made | {
        "effects_nats": {name: as_data(getattr(seen, name)) for name in ("placement", "optimizer", "lead")},
        "radam_less_adam_pre_ln_nats": as_data(excess(found.curves, of.pre_radam, of.pre_adam)),
        "gain_kept_by_radam_post_ln": as_data(radam_keeps(config, of, found)),
        "best_rates": {
            "post_ln_with_warmup": post.peak_lr,
            "pre_ln_without": pre.peak_lr,
            "pre_less_post_nats": as_data(excess(found.curves, pre, post)),
        },
    }


STUDY = Study(
    about=ABOUT,
    scales=SCALES,
    run=run,
)
