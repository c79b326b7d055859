"""The arms of Xiong et al. 2020, figure 4, and the controlled ones beside them."""

from dataclasses import dataclass

from normscope.optim import ScheduleConfig

from ..translation.arms import DE_EN, EN_DE, POST, PRE, Arm
from ..translation.config import RunsConfig
from ..translation.scales import ADAM_LRS, PAPER_ADAM_LRS, scales
from ..translation.schedules import controlled, coupled

DROP_AFTER_EPOCHS, DECAY_AFTER_EPOCHS = 8, 6
"""Section 4.1: De-En drops by 0.1 "at the 8-th epoch", En-De decays "at the 6-th epoch"."""
PAPER_EN_DE_LRS = (7e-4, 1.5e-3)


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure4Config(RunsConfig):
    """Post-LN with warm-up and Pre-LN without, at the same rates."""

    pairs: tuple[str, ...] = (DE_EN, EN_DE)
    """Those to train: `["de-en"]` leaves En-De for later."""
    lrs: tuple[float, ...] = ADAM_LRS
    """De-En. The paper has the first alone; RAdam and the linear decay are tried at it."""
    curve_lrs: tuple[float, ...] = (4e-3,)
    """Further rates, at which the controlled schedules alone are run: where each arm's best rate lies."""
    en_de_lrs: tuple[float, ...] = ADAM_LRS

    def __post_init__(self) -> None:
        RunsConfig.__post_init__(self)
        if not self.pairs or not set(self.pairs) <= {DE_EN, EN_DE}:
            raise ValueError(f"pairs must be {DE_EN}, {EN_DE} or both, got {list(self.pairs)}")
        for name in ("lrs", "curve_lrs", "en_de_lrs"):
            rates = getattr(self, name)
            if list(rates) != sorted(set(rates)) or not all(rate > 0 for rate in rates):
                raise ValueError(f"{name} must be different positive rates in rising order, got {list(rates)}")
        if not self.lrs or not self.en_de_lrs:
            raise ValueError("lrs and en_de_lrs must have a rate each")
        if self.updates <= self.drop_after or self.updates <= self.decay_after:
            raise ValueError(f"epochs must be more than {DROP_AFTER_EPOCHS}: the paper's rate drops there")

    @property
    def drop_after(self) -> int:
        return round(self.updates * DROP_AFTER_EPOCHS / 15)

    @property
    def decay_after(self) -> int:
        return round(self.updates * DECAY_AFTER_EPOCHS / 15)

    def post(self, pair: str, lr: float) -> Arm:
        """The paper's Post-LN: the long warm-up, then the coupled decay; the controlled family's too."""
        return self._arm(pair, POST, lr, coupled(self.long_warmup_updates))

    def pre(self, pair: str, lr: float) -> Arm:
        """The paper's Pre-LN: no warm-up, and a drop by 0.1 (De-En) or an inverse square root from epoch 6 (En-De)."""
        drop = ScheduleConfig(decay="steps", decay_at=(self.drop_after,), decay_factor=0.1)
        return self._arm(pair, PRE, lr, drop if pair == DE_EN else controlled(0, self.decay_after))

    def controlled(self, placement: str, pair: str, lr: float, *, warm: bool) -> Arm:
        """The one decay for both placements, with the long warm-up or none.

        De-En: the decay of the paper's Post-LN. En-De: that of its Pre-LN, from epoch 6.
        """
        start = self.long_warmup_updates if pair == DE_EN else self.decay_after
        return self._arm(pair, placement, lr, controlled(self.long_warmup_updates if warm else 0, start))

    def linear(self, placement: str, optimizer: str) -> Arm:
        """No warm-up and a linear decay, as Liu et al. 2019a suggest for RAdam; at the first rate of De-En."""
        schedule = ScheduleConfig(decay="linear")
        return self._arm(DE_EN, placement, self.lrs[0], schedule, optimizer=optimizer)

    def arms(self) -> list[Arm]:
        """All of them, the most telling first."""
        found: list[Arm] = []
        if DE_EN in self.pairs:
            for lr in self.lrs:
                found += [self.post(DE_EN, lr), self.pre(DE_EN, lr)]
            found += [self.controlled(PRE, DE_EN, lr, warm=False) for lr in self.lrs]
            found += [self.linear(place, name) for place in (POST, PRE) for name in ("radam", "adam")]
            found += [self.controlled(PRE, DE_EN, lr, warm=True) for lr in self.lrs]
            found += self.on_the_curve()
        if EN_DE in self.pairs:
            for lr in self.en_de_lrs:
                found += [self.post(EN_DE, lr), self.pre(EN_DE, lr), self.controlled(POST, EN_DE, lr, warm=True)]
        return list(dict.fromkeys(found))

    def on_the_curve(self) -> list[Arm]:
        """Both placements, with warm-up and without, on one decay, at every rate of De-En."""
        rates = sorted({*self.lrs, *self.curve_lrs})
        kinds = [(placement, warm) for placement in (POST, PRE) for warm in (True, False)]
        return [self.controlled(placement, DE_EN, lr, warm=warm) for lr in rates for placement, warm in kinds]

    def _arm(self, pair: str, placement: str, lr: float, schedule: ScheduleConfig, optimizer: str = "adam") -> Arm:
        return Arm(
            pair=pair, placement=placement, optimizer=optimizer, peak_lr=lr, schedule=schedule, updates=self.updates
        )


SCALES = scales(
    Figure4Config,
    smoke={"lrs": ADAM_LRS[-1:], "curve_lrs": (), "en_de_lrs": ADAM_LRS[-1:]},
    paper={"lrs": PAPER_ADAM_LRS, "curve_lrs": (), "en_de_lrs": PAPER_EN_DE_LRS},
)
