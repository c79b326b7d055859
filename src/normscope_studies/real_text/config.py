"""How large the study of real text is asked."""

from dataclasses import dataclass

from normscope.data.parallel.opening import TOY, DataConfig
from normscope.model import ModelConfig
from normscope.tasks.translation import TranslationConfig

from ..engine.deviation import Compared
from ..engine.study import Scale

QUANTITIES = {"q": "E‖x_l‖² / d of the hidden state", "ffn_out": "gradient norm of W2, by layer"}
"""What is compared."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RealTextConfig:
    """The paper's encoder-decoders at initialisation."""

    corpus: str = "corpora/iwslt14_deen"
    """A folder made by `normscope data prepare`, or `toy`."""
    placements: tuple[str, ...] = ("post-ln", "pre-ln")
    blocks: tuple[int, ...] = (6, 8, 10, 12, 14)
    """Of each stack."""
    seeds: int = 20
    """Of weights, batch and dropout masks."""
    max_tokens: int = 1024
    """Of a batch, of which a model gets one."""
    toy_pairs: int = 20_000
    """toy: sentence pairs of the training split."""
    width: int = 512
    ffn_width: int = 1024
    heads: int = 4
    dropout: float = 0.1
    label_smoothing: float = 0.1

    def __post_init__(self) -> None:
        if self.seeds < 2:
            raise ValueError(f"seeds must be at least 2, to tell a spread from, got {self.seeds}")
        for name in ("placements", "blocks"):
            values = getattr(self, name)
            if not values or len(set(values)) < len(values):
                raise ValueError(f"{name}: give one or more different values, got {values}")
        if self.max_tokens < 1:
            raise ValueError(f"max_tokens must be at least 1, got {self.max_tokens}")
        for placement in self.placements:
            for blocks in self.blocks:
                self.model(placement, blocks)
        TranslationConfig(label_smoothing=self.label_smoothing)

    def model(self, placement: str, blocks: int) -> ModelConfig:
        return ModelConfig(
            placement=placement,
            width=self.width,
            ffn_width=self.ffn_width,
            heads=self.heads,
            encoder_blocks=blocks,
            decoder_blocks=blocks,
            dropout=self.dropout,
            initialisation="paper",
            embeddings="separate",
        )

    def data(self, max_tokens: int) -> DataConfig:
        return DataConfig(corpus=self.corpus, toy_pairs=self.toy_pairs, max_tokens=max_tokens)


Key = tuple[str, int]
"""A placement and its blocks."""
Curves = dict[str, dict[str, Compared]]
"""By stack and quantity."""


SCALES = {
    "smoke": Scale(
        config=RealTextConfig(
            corpus=TOY, toy_pairs=200, blocks=(2, 3), seeds=2, max_tokens=256, width=64, ffn_width=128
        ),
        decides=False,
    ),
    "cpu": Scale(config=RealTextConfig()),
    "paper": Scale(config=RealTextConfig(max_tokens=4096)),
}
