"""The paper's figure 6: a small fixed rate in place of warm-up."""

from typing import Any

from normscope.evidence.estimates import plain_estimate

from ..engine.page import StudyFigure
from ..engine.pieces import Pieces
from ..engine.study import Findings, Study
from ..translation.arms import Arm
from ..translation.pictures import SPREAD, bleu_panel, loss_panel
from ..translation.records import conditions, ends_table, runs_data
from ..translation.trained import Trained, trained
from . import ABOUT
from .claims import claims, small_less, times
from .config import SCALES, Figure6Config


def run(config: Figure6Config, pieces: Pieces) -> Findings:
    """Raises UserError for text that is not there, and for a training that fails."""
    found = trained(config, config.arms(), pieces)
    return Findings(
        conditions=conditions(config, found),
        claims=claims(config, found),
        figures=figures(config, found),
        tables=[ends_table(found)],
        data=runs_data(found) | {"small_less_others_nats": _data(config, found)},
    )


def figures(config: Figure6Config, found: Trained) -> list[StudyFigure]:
    arms = labelled(config)
    hues, epoch, unigram = list(arms), config.epoch_updates, found.unigram(config.small)
    panels = [
        loss_panel("validation loss", arms, found.curves, hues, epoch=epoch, unigram=unigram),
        bleu_panel("BLEU", arms, found.curves, hues, epoch=epoch),
    ]
    return [
        StudyFigure.of_panels(
            name="figure_6",
            title="Post-LN at a small fixed rate",
            caption=f"Validation loss and BLEU at every epoch, {SPREAD}.",
            panels=panels,
            told="Post-LN at a small fixed rate and at a large one, without and with warm-up",
            wide=True,
        )
    ]


def labelled(config: Figure6Config) -> dict[str, Arm]:
    """By their words in the legend; the paper's three first."""
    small, large, warm = f"{config.small_lr:g}", f"{config.peak_lr:g}", f"warm-up {config.long_warmup_updates:,}"
    return {
        f"{small} fixed, no warm-up": config.small,
        f"{large}, no warm-up, the paper's schedule": config.without,
        f"{large}, {warm}": config.long,
        f"{large}, no warm-up, the decay of {warm}": config.controlled_without,
        f"{large} fixed, no warm-up": config.fixed,
    }


def _data(config: Figure6Config, found: Trained) -> dict[str, Any]:
    return {
        words: {
            when: plain_estimate(small_less(config, arm, found.curves, update=update))
            for when, update in times(config).items()
        }
        for words, arm in labelled(config).items()
        if arm != config.small
    }


STUDY = Study(
    about=ABOUT,
    scales=SCALES,
    run=run,
)
