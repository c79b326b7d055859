"""BERT's encoder as a judge of sentence pairs (Devlin et al. 2018, section 4.1), with any placement."""

# N = packed tokens, B = sequences, D = width, C = classes
import torch
from torch import Tensor

from ..placement import named
from .attention import Layout
from .dropout import Dropout
from .encoder import EncoderConfig, MaskedEncoder, PooledEncoder
from .initialisation import initialise
from .linear.layer import HeadLinear

_HEAD = ("classifier.weight", "classifier.bias")


class PairClassifier(PooledEncoder):
    """The pooled first token, dropout, and a linear layer to the classes."""

    def __init__(self, config: EncoderConfig, vocabulary: int, classes: int, *, dropout: float) -> None:
        super().__init__(config, vocabulary)
        self.dropout = Dropout(dropout)
        self.classifier = HeadLinear(config.width, classes)
        initialise(self, config.initialisation, named(config.placement))

    def logits(self, hidden_ND: Tensor, layout: Layout) -> Tensor:
        """Hidden states -> (B, C)."""
        return self.classifier(self.dropout(self.pooled(hidden_ND, layout)))  # type: ignore[no-any-return]

    @torch.no_grad()
    def start_from(self, pretrained: MaskedEncoder) -> None:
        """Take every weight and scheduled number but the classifier's, which stays as it was drawn.

        Raises RuntimeError where the two are not of the same sizes and placement.
        """
        shared = self.state_dict().keys() - set(_HEAD)
        theirs = pretrained.state_dict()
        self.load_state_dict({name: theirs[name] for name in theirs.keys() & shared}, strict=False)
        missing = shared - theirs.keys()
        if missing:
            raise RuntimeError(f"the pre-trained encoder has no {', '.join(sorted(missing))}")
