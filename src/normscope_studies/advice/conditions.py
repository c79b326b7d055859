"""How the trainings of the study of advice were made."""

from collections.abc import Sequence

from normscope.optim import OPTIMIZERS

from .config import AdviceConfig
from .fit import families
from .search import REGRET_NATS, STUCK_SHARE
from .trained.tasks import MASKED, VALID_TOKENS
from .truth import Known


def conditions(config: AdviceConfig, known: Sequence[Known]) -> list[tuple[str, str]]:
    count = sum(len(one.outcomes) for one in known)
    return [
        (
            "models",
            "decoders, encoders and encoder-decoders, heads of 16, feed-forward twice the width, LayerNorm unless the "
            "norm is the placement's own, no dropout; three schemes of initial weights, with the placement's gains",
        ),
        (
            "texts",
            f"the toy language, characters and 400 pieces of {config.text_file}, Multi30k ({config.corpus}); decoders "
            f"learn the next token, encoders the text itself, of which {MASKED:.0%} is masked",
        ),
        (
            "trainings",
            f"{count} of {config.updates} updates of 256 or 512 tokens; constant rate from the first update on, "
            "nothing clipped; one seed a case",
        ),
        (
            "optimisers",
            f"betas (0.9, 0.98); SGD with momentum {OPTIMIZERS['sgd'].usual_momentum}, AdamW with weight decay "
            f"{OPTIMIZERS['adamw'].usual_weight_decay}, no other decay",
        ),
        (
            "rates",
            "factors of four up and down from the optimiser's usual, then a factor of two on both sides of the best",
        ),
        (
            "best, good, stuck",
            f"by the mean cross-entropy at the end, on about {VALID_TOKENS:,} held-out target tokens, natural "
            f"logarithm, no label smoothing; good: within {REGRET_NATS:g} nats of the lowest; stuck: gained less than "
            f"{STUCK_SHARE:.0%} of what the best gained over knowing how frequent tokens are. A named rate counts as "
            "stuck where it lies above all rungs that are not, from half-way on; it is not trained itself",
        ),
        (
            "cases",
            f"{len(known)} in {len(families(known))} families of architecture, text and initial weights, each family "
            f"judged by constants fitted to the others; {sum(not one.learned for one in known)} learned at no rate",
        ),
        ("probes", f"{config.probe_updates} updates in all, of batches in another order than the trainings"),
        ("gradient normalisation", "of the mean loss per target token"),
    ]
