"""How the trainings of the study of advice were made."""

from collections.abc import Sequence

from ...optim import OPTIMIZERS
from .config import AdviceConfig
from .fit import Known
from .judge import Judged
from .training import VALID_TOKENS


def conditions(
    config: AdviceConfig, calibration: Sequence[Known], evaluation: Sequence[Judged]
) -> list[tuple[str, str]]:
    corpora = ", ".join(dict.fromkeys(one.known.case.corpus.rpartition("/")[2] for one in evaluation))
    return [
        (
            "models",
            "encoder-decoders with as many blocks on either side, heads of 16, feed-forward twice the width, initial "
            "weights of the placement's source, LayerNorm unless the norm is the placement's own, no dropout",
        ),
        (
            "trainings",
            f"{config.updates} updates on the toy language, {config.corpus_updates} on another corpus, of at most "
            f"{config.max_tokens} tokens; constant rate from the first update on, nothing clipped",
        ),
        (
            "optimisers",
            f"betas (0.9, 0.98); SGD with momentum {OPTIMIZERS['sgd'].usual_momentum}, AdamW with weight decay "
            f"{OPTIMIZERS['adamw'].usual_weight_decay}, no other decay",
        ),
        ("rates", "a third of a decade apart, up until two running fail, down until one learns, and a tenth of each"),
        (
            "learned",
            "mean cross-entropy at the end, on about "
            f"{VALID_TOKENS:,} held-out target tokens, below the unigram entropy of these tokens; natural "
            "logarithm, no label smoothing",
        ),
        ("diverged", "not learned, or not finite, while a tenth of the rate ends lower"),
        ("data", corpora),
        (
            "cases",
            f"{len(calibration)} to fit constants to, {len(evaluation)} others to judge them by: other depths, widths "
            "and seeds, and placements that the first have not; one seed a case",
        ),
        ("gradient normalisation", "of the mean loss per target token"),
    ]
