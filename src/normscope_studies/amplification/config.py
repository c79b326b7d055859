"""The settings of the study of amplification: placements, depths, kinds of updates and sizes."""

from dataclasses import dataclass

from normscope.model import SCHEMES
from normscope.placement import StackShape, named
from normscope.theory.predict import ModelSetting

from ..engine.checks import (
    check_choices,
    check_different,
    check_least,
    check_positive,
    check_rising,
)
from ..engine.study import scales
from .measure import ALL, MATRICES, RANDOM, SMALL_RATES


@dataclass(frozen=True, slots=True, kw_only=True)
class AmplificationConfig:
    """Encoders that are alike but for placement and depth. Raises ValueError for what cannot be
    measured.
    """

    placements: tuple[str, ...] = ("post-ln", "pre-ln", "admin", "deepnorm", "rezero", "peri-ln")
    updates: tuple[str, ...] = (RANDOM, "sgd", "adam")
    """Lion's first is the gradient's sign, as Adam's is; muon may be asked for as well."""
    moves: tuple[str, ...] = (MATRICES, ALL)
    """The parameters that every update moves: matrices and the placement's own numbers, or all."""
    depths: tuple[int, ...] = (6, 12, 24, 48)
    """The depths in blocks of two sub-layers."""
    width: int = 256
    tokens: int = 16
    """The tokens of the one sequence."""
    vocabulary: int = 256
    """Classes of the random targets."""
    initialisation: str = "theory"
    """The initialisation of the stacks that are moved: one head, W_Q = W_K = 0, no W_O, N(0, 1 /
    fan-in).
    """
    draws: int = 24
    """Each of its own weights, inputs and targets."""
    edge: float = 0.2
    """An exponent agrees with an order, or a prediction, where its interval lies within so much of
    it.
    """
    limit_percent: float = 10.0
    """The largest deviation of predicted changes of the stream."""
    jacobian_depths: tuple[int, ...] = (4, 12, 64)
    """The depths of Bachlechner et al. 2020."""
    jacobian_width: int = 48
    jacobian_tokens: int = 8
    """The tokens of a Jacobian; their product with the width is the number of singular values."""
    jacobian_draws: int = 5
    jacobian_initialisation: str = "as-placement"
    """Weights as each placement's source draws them; heads of 12, an inner width twice the outer
    one.
    """

    def __post_init__(self) -> None:
        check_different(self, "placements", "updates", "moves", "depths", "jacobian_depths")
        check_choices(self, "updates", tuple(SMALL_RATES))
        check_choices(self, "moves", (MATRICES, ALL))
        check_rising(self, "depths", "jacobian_depths")
        check_least(self, draws=3, jacobian_draws=2, tokens=1, jacobian_tokens=1, vocabulary=2)
        check_positive(self, "edge", "limit_percent")
        if len(self.depths) < 2:
            raise ValueError(f"depths: an exponent takes two or more, got {self.depths}")
        if self.jacobian_width < HEADS or self.jacobian_width % HEADS:
            raise ValueError(
                f"jacobian_width must be a multiple of {HEADS}, its heads, got "
                f"{self.jacobian_width}"
            )
        for name in ("initialisation", "jacobian_initialisation"):
            if (value := getattr(self, name)) not in ("as-placement", *SCHEMES):
                raise ValueError(f"{name} must be one of {', '.join(SCHEMES)}, got {value!r}")
        for placement in self.placements:
            for blocks in (*self.depths, *self.jacobian_depths):
                named(placement)(self.shape(blocks))

    def shape(self, blocks: int) -> StackShape:
        """Returns the shape of a stack whose weights are moved."""
        return StackShape(
            kind="encoder", width=self.width, ffn_width=self.width, heads=1, encoder_blocks=blocks
        )

    def jacobian_shape(self, blocks: int) -> StackShape:
        """Returns the shape of a stack whose Jacobian is taken."""
        width = self.jacobian_width
        return StackShape(
            kind="encoder", width=width, ffn_width=2 * width, heads=HEADS, encoder_blocks=blocks
        )

    def model(self, blocks: int) -> ModelSetting:
        """Returns the model for which a prediction is made."""
        return ModelSetting(
            blocks=blocks,
            width=self.width,
            ffn_width=self.width,
            tokens=self.tokens,
            vocabulary=self.vocabulary,
            setting=self.initialisation,
        )


HEADS = 4
"""The number of heads of the stacks whose Jacobians are taken."""

SCALES = scales(
    AmplificationConfig,
    smoke={
        "placements": ("post-ln", "pre-ln", "admin", "deepnorm", "rezero"),
        "depths": (2, 4),
        "width": 32,
        "draws": 3,
        "tokens": 4,
        "vocabulary": 32,
        "jacobian_depths": (2, 4),
        "jacobian_width": 16,
        "jacobian_tokens": 3,
        "jacobian_draws": 2,
    },
    paper={
        "depths": (6, 12, 24, 48, 96),
        "width": 512,
        "draws": 40,
        "tokens": 32,
        "jacobian_width": 128,
    },
)
"""Cost: smoke takes seconds; cpu three quarters of an hour of one core, in pieces of at most ten
seconds (576 of changes, 90 of Jacobians); paper some two days of one core."""
