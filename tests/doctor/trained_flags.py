"""Models of the study of flags, trained with seeds that the rule's thresholds were chosen on, each once."""

from functools import cache

from torch import Tensor

from normscope_studies.flag.measure import Language, training

DEEP = {"width": 64, "blocks": 4, "rate": 1e-3, "updates": 300, "seed": 1}
NARROW = {"width": 32, "blocks": 3, "rate": 2e-3, "updates": 300, "seed": 0}


@cache
def trained(*, pre: bool, width: int, blocks: int, rate: float, updates: int, seed: int) -> tuple[Language, Tensor]:
    """The model, and a batch that it was not trained on."""
    sizes = {"width": width, "blocks": blocks, "seed": seed}
    (made,) = training(pre=pre, rate=rate, after=(updates,), **sizes)
    return made
