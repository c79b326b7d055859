"""The arms of Xiong et al. 2020, figure 4, the controlled ones beside them, and which of them are
compared.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from normscope.optim import ScheduleConfig

from . import config
from .arms import DE_EN, EN_DE, POST, PRE, TranslationArm, controlled, coupled

DROP_AFTER_EPOCHS, DECAY_AFTER_EPOCHS = 8, 6
"""Section 4.1: De-En drops by 0.1 "at the 8-th epoch", En-De decays "at the 6-th epoch"."""
PAPER_EN_DE_LRS = (7e-4, 1.5e-3)
TITLES = {DE_EN: "De-En", EN_DE: "En-De"}
PAPER_S = "the paper's schedules"
ONE_DECAY = "one decay"
BOTH_WARM = "both with warm-up"


class Pairing(NamedTuple):
    """Post-LN and Pre-LN on one text at one peak rate."""

    schedules: str
    """PAPER_S, ONE_DECAY or BOTH_WARM."""
    post: TranslationArm
    """The arm with warm-up."""
    pre: TranslationArm
    """The arm without it, but in BOTH_WARM."""

    @property
    def setting(self) -> str:
        """Says what tells it from others on the same text."""
        return f"rate {self.post.peak_lr:g}, {self.schedules}"

    @property
    def name(self) -> str:
        """Text, rate and schedules."""
        return f"{TITLES[self.post.pair]}, {self.setting}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure4Config(config.RunsConfig):
    """Post-LN with warm-up and Pre-LN without, at the same rates."""

    pairs: tuple[str, ...] = (DE_EN, EN_DE)
    """Pairs to train: `["de-en"]` leaves En-De for later."""
    lrs: tuple[float, ...] = config.ADAM_LRS
    """De-En. The paper has the first alone; RAdam and the linear decay are tried at it."""
    curve_lrs: tuple[float, ...] = (4e-3,)
    """Further rates, at which the controlled schedules alone are run: where each arm's best rate
    lies.
    """
    en_de_lrs: tuple[float, ...] = config.ADAM_LRS

    RATES: ClassVar[Mapping[str, tuple[str, ...]]] = {"adam": ("lrs", "curve_lrs", "en_de_lrs")}

    def __post_init__(self) -> None:
        config.RunsConfig.__post_init__(self)
        if not self.pairs or not set(self.pairs) <= {DE_EN, EN_DE}:
            raise ValueError(f"pairs must be {DE_EN}, {EN_DE} or both, got {list(self.pairs)}")
        for name in ("lrs", "curve_lrs", "en_de_lrs"):
            rates = getattr(self, name)
            if list(rates) != sorted(set(rates)) or not all(rate > 0 for rate in rates):
                raise ValueError(
                    f"{name} must be different positive rates in rising order, got {list(rates)}"
                )
        if not self.lrs or not self.en_de_lrs:
            raise ValueError("lrs and en_de_lrs must have a rate each")
        if self.updates <= self.drop_after or self.updates <= self.decay_after:
            raise ValueError(
                f"epochs must be more than {DROP_AFTER_EPOCHS}: the paper's rate drops there"
            )

    @property
    def drop_after(self) -> int:
        return round(self.updates * DROP_AFTER_EPOCHS / 15)

    @property
    def decay_after(self) -> int:
        return round(self.updates * DECAY_AFTER_EPOCHS / 15)

    @property
    def all_lrs(self) -> list[float]:
        """Returns the rates of De-En on the controlled schedules, in rising order."""
        return sorted({*self.lrs, *self.curve_lrs})

    def post(self, pair: str, lr: float) -> TranslationArm:
        """Returns the paper's Post-LN: the long warm-up, then the coupled decay; the controlled
        family's too.
        """
        return self._arm(pair, POST, lr, coupled(self.long_warmup_updates))

    def pre(self, pair: str, lr: float) -> TranslationArm:
        """Returns the paper's Pre-LN: no warm-up, and a drop by 0.1 (De-En) or an inverse square
        root from epoch 6 (En-De).
        """
        drop = ScheduleConfig(decay="steps", decay_at=(self.drop_after,), decay_factor=0.1)
        return self._arm(pair, PRE, lr, drop if pair == DE_EN else controlled(0, self.decay_after))

    def controlled(self, placement: str, pair: str, lr: float, *, warm: bool) -> TranslationArm:
        """Returns the one decay for both placements, with the long warm-up or none.

        De-En: the decay of the paper's Post-LN. En-De: that of its Pre-LN, from epoch 6.
        """
        start = self.long_warmup_updates if pair == DE_EN else self.decay_after
        return self._arm(
            pair, placement, lr, controlled(self.long_warmup_updates if warm else 0, start)
        )

    def linear(self, placement: str, optimizer: str) -> TranslationArm:
        """Returns the arm without warm-up and with a linear decay, as Liu et al. 2019a suggest for
        RAdam; at the first rate of De-En.
        """
        schedule = ScheduleConfig(decay="linear")
        return self._arm(DE_EN, placement, self.lrs[0], schedule, optimizer=optimizer)

    def arms(self) -> list[TranslationArm]:
        """All of them, the most telling first."""
        found: list[TranslationArm] = []
        if DE_EN in self.pairs:
            for lr in self.lrs:
                found += [self.post(DE_EN, lr), self.pre(DE_EN, lr)]
            found += [self.controlled(PRE, DE_EN, lr, warm=False) for lr in self.lrs]
            found += [
                self.linear(place, name) for place in (POST, PRE) for name in ("radam", "adam")
            ]
            found += [self.controlled(PRE, DE_EN, lr, warm=True) for lr in self.lrs]
            kinds = [(placement, warm) for placement in (POST, PRE) for warm in (True, False)]
            found += [
                self.controlled(place, DE_EN, lr, warm=warm)
                for lr in self.all_lrs
                for place, warm in kinds
            ]
        if EN_DE in self.pairs:
            for lr in self.en_de_lrs:
                found += [
                    self.post(EN_DE, lr),
                    self.pre(EN_DE, lr),
                    self.controlled(POST, EN_DE, lr, warm=True),
                ]
        return list(dict.fromkeys(found))

    def pairings(self, pair: str) -> list[Pairing]:
        """Pre-LN without warm-up beside Post-LN with: on the paper's schedules, then on one decay
        for both.
        """
        found = []
        for lr in self._rates(pair):
            found.append(Pairing(PAPER_S, self.post(pair, lr), self.pre(pair, lr)))
            post, pre = (
                self.controlled(place, pair, lr, warm=place == POST) for place in (POST, PRE)
            )
            found.append(Pairing(ONE_DECAY, post, pre))
        return found

    def alike(self, pair: str) -> list[Pairing]:
        """Returns the pairs with the same warm-up and the same decay: only the placement differs.
        De-En alone.
        """
        found = []
        for lr in self._rates(pair) if pair == DE_EN else ():
            post = self.controlled(POST, pair, lr, warm=True)
            pre = self.controlled(PRE, pair, lr, warm=True)
            found.append(Pairing(BOTH_WARM, post, pre))
        return found

    def every_pairing(self) -> list[Pairing]:
        """Returns the pairings of both texts, and then those that are alike."""
        paired = [one for pair in self.pairs for one in self.pairings(pair)]
        return paired + [one for pair in self.pairs for one in self.alike(pair)]

    def square(self) -> dict[tuple[str, str], TranslationArm]:
        """Returns all without warm-up and on a linear decay, by placement and optimiser; none where
        De-En is left out.
        """
        if DE_EN not in self.pairs:
            return {}
        return {
            (place, name): self.linear(place, name)
            for place in (POST, PRE)
            for name in ("adam", "radam")
        }

    def _rates(self, pair: str) -> tuple[float, ...]:
        return {DE_EN: self.lrs, EN_DE: self.en_de_lrs}[pair]

    def _arm(
        self,
        pair: str,
        placement: str,
        lr: float,
        schedule: ScheduleConfig,
        optimizer: str = "adam",
    ) -> TranslationArm:
        return TranslationArm(
            pair=pair,
            placement=placement,
            optimizer=optimizer,
            peak_lr=lr,
            schedule=schedule,
            updates=self.updates,
        )


SCALES = config.figure_scales(
    Figure4Config,
    smoke={"lrs": config.ADAM_LRS[-1:], "curve_lrs": (), "en_de_lrs": config.ADAM_LRS[-1:]},
    paper={"lrs": config.PAPER_ADAM_LRS, "curve_lrs": (), "en_de_lrs": PAPER_EN_DE_LRS},
    multi30k={"lrs": (0.5, 1.0), "curve_lrs": (2.0,), "en_de_lrs": (0.5, 1.0)},
)
