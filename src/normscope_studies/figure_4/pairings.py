"""Which arms of figure 4 are compared: as the paper has them, and on schedules that are alike."""

from collections.abc import Sequence
from dataclasses import dataclass

from ..translation.arms import DE_EN, EN_DE, POST, PRE, Arm
from .config import Figure4Config

TITLES = {DE_EN: "De-En", EN_DE: "En-De"}
PAPER_S, ONE_DECAY, BOTH_WARM = "the paper's schedules", "one decay", "both with warm-up"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pairing:
    """Post-LN and Pre-LN at one peak rate."""

    schedules: str
    """PAPER_S, ONE_DECAY or BOTH_WARM."""
    post: Arm
    """With warm-up."""
    pre: Arm
    """Without it, but in `alike`."""

    @property
    def setting(self) -> str:
        """What tells it from others on the same text."""
        return f"rate {self.post.peak_lr:g}, {self.schedules}"

    @property
    def name(self) -> str:
        """Text, rate and schedules."""
        return f"{TITLES[self.post.pair]}, {self.setting}"


def pairings(config: Figure4Config) -> list[Pairing]:
    """Pre-LN without warm-up beside Post-LN with: on the paper's schedules, then on one decay for both."""
    found = []
    for pair, lr in _rates(config):
        found.append(Pairing(schedules=PAPER_S, post=config.post(pair, lr), pre=config.pre(pair, lr)))
        post = config.controlled(POST, pair, lr, warm=True)
        pre = config.controlled(PRE, pair, lr, warm=False)
        found.append(Pairing(schedules=ONE_DECAY, post=post, pre=pre))
    return found


def alike(config: Figure4Config) -> list[Pairing]:
    """Both with the same warm-up and the same decay: only the placement differs. De-En alone."""
    return [
        Pairing(
            schedules=BOTH_WARM,
            post=config.controlled(POST, pair, lr, warm=True),
            pre=config.controlled(PRE, pair, lr, warm=True),
        )
        for pair, lr in _rates(config)
        if pair == DE_EN
    ]


def of_pair(found: Sequence[Pairing], pair: str) -> list[Pairing]:
    """Those on one text."""
    return [one for one in found if one.post.pair == pair]


@dataclass(frozen=True, slots=True, kw_only=True)
class Square:
    """Two placements times two optimisers, all without warm-up and on a linear decay."""

    post_adam: Arm
    post_radam: Arm
    pre_adam: Arm
    pre_radam: Arm

    def arms(self) -> tuple[Arm, Arm, Arm, Arm]:
        return self.post_adam, self.post_radam, self.pre_adam, self.pre_radam


def square(config: Figure4Config) -> Square | None:
    """None where De-En is left out."""
    if DE_EN not in config.pairs:
        return None
    return Square(
        post_adam=config.linear(POST, "adam"),
        post_radam=config.linear(POST, "radam"),
        pre_adam=config.linear(PRE, "adam"),
        pre_radam=config.linear(PRE, "radam"),
    )


def _rates(config: Figure4Config) -> list[tuple[str, float]]:
    rates = {DE_EN: config.lrs, EN_DE: config.en_de_lrs}
    return [(pair, lr) for pair in config.pairs for lr in rates[pair]]
