"""Figure 2 in the paper's layout, the controlled family beside it, and both over the rate."""

from collections.abc import Callable

from normscope.report.chart import Panel

from ..engine.page import StudyFigure
from ..translation.arms import OPTIMIZERS, Arm
from ..translation.pictures import SPREAD, Labelled, bleu_panel, loss_panel, rate_panel
from ..translation.trained import Trained
from .claims import groups
from .config import Figure2Config, Group


def paper_family(group: Group) -> dict[str, Arm]:
    """By their words in the legend."""
    found = {"no warm-up": group.without, _warm(group.long): group.long}
    return found | ({_warm(group.short): group.short} if group.short is not None else {})


def controlled_family(group: Group) -> dict[str, Arm]:
    """By their words in the legend."""
    long = _warm(group.long)
    found = {
        long: group.long,
        f"no warm-up, cumulative learning rate of {long}": group.without_equal_sum,
        f"{long}, cumulative learning rate of no warm-up": group.long_equal_sum,
    }
    if group.controlled_without is not None and group.controlled_short is not None:
        found |= {
            "no warm-up, one decay": group.controlled_without,
            f"{_warm(group.controlled_short)}, one decay": group.controlled_short,
        }
    return found


def figures(config: Figure2Config, found: Trained) -> list[StudyFigure]:
    made = []
    for name in config.optimizers:
        made.append(_family(config, found, name, "paper", "the paper's schedules", paper_family))
        made.append(_family(config, found, name, "controlled", "schedules of one decay or one sum", controlled_family))
    return [*made, _over_rates(config, found)]


def _family(
    config: Figure2Config, found: Trained, optimizer: str, name: str, words: str, family: Callable[[Group], Labelled]
) -> StudyFigure:
    of, curves, epoch = groups(config, optimizer), found.curves, config.epoch_updates
    hues, panels = list(family(of[0])), list[Panel]()
    for group in of:
        title = f"{OPTIMIZERS[optimizer]}, rate {group.peak_lr:g}"
        arms, unigram = family(group), found.unigram(group.long)
        panels.append(loss_panel(title, arms, curves, hues, epoch=epoch, unigram=unigram))
        panels.append(bleu_panel(title, arms, curves, hues, epoch=epoch))
    return StudyFigure.of_panels(
        name=f"{optimizer}_{name}",
        title=f"Post-LN under {OPTIMIZERS[optimizer]}: {words}",
        caption=f"Validation loss and BLEU at every epoch, {SPREAD}.",
        panels=panels,
        told=f"Loss and BLEU over epochs, {OPTIMIZERS[optimizer]}, {words}",
        wide=True,
    )


def over_rates(config: Figure2Config) -> dict[str, dict[str, list[Arm]]]:
    """By panel and words: the arms of one schedule at every rate of their optimiser."""
    panels = {}
    for optimizer in config.optimizers:
        of = groups(config, optimizer)
        # A run that has another's sum at a lower peak has no rate of its own on this axis.
        own = {words for words, arm in _all(of[0]).items() if arm.peak_lr == of[0].peak_lr}
        for title, family in (("the paper's schedules", paper_family), ("one decay or one sum", controlled_family)):
            kinds = {words: [family(group)[words] for group in of] for words in family(of[0]) if words in own}
            panels[f"{OPTIMIZERS[optimizer]}: {title}"] = kinds
    return panels


def _over_rates(config: Figure2Config, found: Trained) -> StudyFigure:
    drawn = over_rates(config)
    hues = list(dict.fromkeys(words for kinds in drawn.values() for words in kinds))
    panels = [rate_panel(title, kinds, found.curves, hues) for title, kinds in drawn.items()]
    return StudyFigure.of_panels(
        name="over_rates",
        title="The last loss over the rate",
        caption=f"Last validation loss, {SPREAD}, at the rates that were tried.",
        panels=panels,
        told="Last validation loss over the peak rate",
        wide=True,
    )


def _all(group: Group) -> dict[str, Arm]:
    return paper_family(group) | controlled_family(group)


def _warm(arm: Arm) -> str:
    return f"warm-up {arm.schedule.warmup_updates:,}"
