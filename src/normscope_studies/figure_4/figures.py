"""Figure 4 in the paper's layout, the controlled schedules beside it, the square of optimisers, and the rate axis."""

from ..engine.page import StudyFigure
from ..translation.arms import DE_EN, PLACEMENTS, POST, PRE, Arm
from ..translation.pictures import SPREAD, Labelled, bleu_panel, loss_panel, rate_panel
from ..translation.trained import Trained
from .config import Figure4Config
from .pairings import TITLES, Square, alike, of_pair, pairings, square


def figures(config: Figure4Config, found: Trained) -> list[StudyFigure]:
    made = [_pair(config, found, pair) for pair in config.pairs]
    if (of := square(config)) is not None:
        made += [_square(config, found, of), _over_rates(config, found)]
    return made


def _pair(config: Figure4Config, found: Trained, pair: str) -> StudyFigure:
    drawn: dict[float, dict[str, Labelled]] = {}
    for pairing in of_pair([*pairings(config), *alike(config)], pair):
        family = pairing.schedules
        arms = {"Post-LN with warm-up": pairing.post, f"Pre-LN, {family}": pairing.pre}
        if pairing.post != config.post(pair, pairing.post.peak_lr):
            arms = {f"Post-LN with warm-up, {family}": pairing.post, f"Pre-LN, {family}": pairing.pre}
        drawn.setdefault(pairing.post.peak_lr, {})[family] = arms
    panels, hues = [], list(dict.fromkeys(words for rate in drawn.values() for arms in rate.values() for words in arms))
    for rate, families in drawn.items():
        together = {words: arm for arms in families.values() for words, arm in arms.items()}
        title, unigram = f"{TITLES[pair]}, rate {rate:g}", found.texts[pair].unigram_nats
        epoch = config.epoch_updates
        panels.append(loss_panel(title, together, found.curves, hues, epoch=epoch, unigram=unigram))
        panels.append(bleu_panel(title, together, found.curves, hues, epoch=epoch))
    return StudyFigure.of_panels(
        name=pair.replace("-", "_"),
        title=f"{TITLES[pair]}: Post-LN with warm-up, Pre-LN without",
        caption=f"Validation loss and BLEU at every epoch, {SPREAD}; on the paper's schedules and on one decay.",
        panels=panels,
        told=f"Loss and BLEU over epochs, {TITLES[pair]}",
        wide=True,
    )


def _square(config: Figure4Config, found: Trained, of: Square) -> StudyFigure:
    arms = dict(zip(("Post-LN, Adam", "Post-LN, RAdam", "Pre-LN, Adam", "Pre-LN, RAdam"), of.arms(), strict=True))
    hues, epoch = list(arms), config.epoch_updates
    title, unigram = f"no warm-up, linear decay, rate {of.pre_adam.peak_lr:g}", found.unigram(of.pre_adam)
    panels = [
        loss_panel(title, arms, found.curves, hues, epoch=epoch, unigram=unigram),
        bleu_panel(title, arms, found.curves, hues, epoch=epoch),
    ]
    return StudyFigure.of_panels(
        name="optimisers",
        title="Placement and optimiser, without warm-up",
        caption=f"Validation loss and BLEU at every epoch, {SPREAD}.",
        panels=panels,
        told="Two placements under Adam and RAdam",
        wide=True,
    )


def over_rates(config: Figure4Config) -> dict[str, dict[str, list[Arm]]]:
    """By panel and words: each placement with warm-up and without, on one decay, at every rate; none without De-En."""
    if DE_EN not in config.pairs:
        return {}
    rates = sorted({*config.lrs, *config.curve_lrs})
    kinds = {
        f"{PLACEMENTS[placement]}, {'warm-up' if warm else 'no warm-up'}": [
            config.controlled(placement, DE_EN, lr, warm=warm) for lr in rates
        ]
        for placement in (POST, PRE)
        for warm in (True, False)
    }
    return {"De-En, one decay": kinds}


def _over_rates(config: Figure4Config, found: Trained) -> StudyFigure:
    panels = [rate_panel(title, kinds, found.curves, list(kinds)) for title, kinds in over_rates(config).items()]
    return StudyFigure.of_panels(
        name="over_rates",
        title="The last loss over the rate",
        caption=f"Last validation loss, {SPREAD}, on one decay for all. A comparison at one rate says who was tuned.",
        panels=panels,
        told="Last validation loss over the peak rate",
    )
