"""The draws of the study: models, the placements they are drawn with, and how often."""

from dataclasses import dataclass, replace

from normscope.placement import named
from normscope.theory.predict import ModelSetting

from ..engine.checks import check_least, check_positive
from ..theory import simulation

EIGHT = ("post-ln", "pre-ln", "deepnorm", "rezero", "peri-ln", "residual", "lns", "b2t")


@dataclass(frozen=True, slots=True)
class ModelCase:
    """One model, the placements it is drawn with, and how often."""

    name: str
    title: str
    placements: tuple[str, ...]
    model: ModelSetting
    draws: int
    limit: float
    """Per cent, of q."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HiddenStateConfig:
    """The settings of the study. Raises ValueError for what cannot be drawn."""

    deep: tuple[str, ...] = EIGHT
    """Encoders in the theory's setting, drawn deep and wide; their gradients are compared too."""
    deep_blocks: int = 48
    deep_width: int = 512
    deep_draws: int = 20
    others: tuple[str, ...] = ()
    """Encoders in both settings; without any, every placement that is defined for one."""
    decoders: tuple[str, ...] = ("post-ln", "pre-ln", "deepnorm", "peri-ln", "lns", "hybrid-norm")
    """Causal stacks in the theory's setting."""
    pairs: tuple[str, ...] = (
        "post-ln",
        "pre-ln",
        "deepnorm",
        "b2t",
        "residual",
        "admin",
        "sub-ln",
        "t-fixup",
    )
    """Encoder-decoders in the paper's setting, half as many blocks in each stack."""
    blocks: int = 12
    width: int = 256
    draws: int = 12
    tokens: int = 16
    vocabulary: int = 10_000
    q_limit_percent: float = 3.0
    """The largest deviation of q in the claims, and of gradients; `loose_limit_percent` in all
    other models: few draws of narrow stacks, and outside the theory's setting attention is
    approximate.
    """
    gradient_limit_percent: float = 7.0
    loose_limit_percent: float = 5.0

    def __post_init__(self) -> None:
        check_least(self, deep_draws=2, draws=2)
        check_positive(self, "q_limit_percent", "gradient_limit_percent", "loose_limit_percent")
        if self.blocks < 2 or self.blocks % 2:
            raise ValueError(f"blocks must be even and at least 2, got {self.blocks}")
        if not self.deep:
            raise ValueError("deep needs at least one placement")
        for case in self.cases():
            for kind in simulation.stacks_of(case.model):
                for name in case.placements:
                    named(name)(case.model.shape(kind))

    def cases(self) -> list[ModelCase]:
        """Returns the cases that are drawn."""
        deep = ModelSetting(
            blocks=self.deep_blocks,
            width=self.deep_width,
            ffn_width=self.deep_width,
            tokens=self.tokens,
            vocabulary=self.vocabulary,
        )
        theory = replace(deep, blocks=self.blocks, width=self.width, ffn_width=self.width)
        paper = replace(theory, setting="paper", ffn_width=2 * self.width, heads=4)
        causal = replace(theory, stack="decoder")
        pair = replace(paper, stack="encoder-decoder", blocks=self.blocks // 2)
        others = self.others or simulation.encoder_placements()

        def shallow(
            name: str, title: str, placements: tuple[str, ...], model: ModelSetting
        ) -> ModelCase:
            return ModelCase(name, title, placements, model, self.draws, self.loose_limit_percent)

        return [
            ModelCase(
                "deep",
                "Deep encoders, theory's setting",
                self.deep,
                deep,
                self.deep_draws,
                self.q_limit_percent,
            ),
            shallow("theory", "Encoders, theory's setting", others, theory),
            shallow("paper", "Encoders, paper's setting", others, paper),
            shallow("decoder", "Decoders, theory's setting", self.decoders, causal),
            shallow("pair", "Encoder-decoders, paper's setting", self.pairs, pair),
        ]
