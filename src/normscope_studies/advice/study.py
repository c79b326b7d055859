"""The doctor's advice: judged by short trainings of families of models that it was not fitted to."""

from collections.abc import Sequence
from functools import partial

from normscope.optim import OPTIMIZERS

from ..engine.pieces import Pieces
from ..engine.study import Findings, Study, scales
from . import ABOUT
from .cases import AdviceCase, AdviceConfig, cases
from .claims import claims
from .fit import families, fitted_probe, law_without, left_out
from .judge import partly
from .ladder import REGRET_NATS, STUCK_SHARE, TrainedCase
from .measuring import judged_of, known_of, probed_of, side_by_side, warmup_cases, warmup_of
from .page import data, figures, tables
from .tasks import MASKED, VALID_TOKENS, task_of


def conditions(config: AdviceConfig, known: Sequence[TrainedCase]) -> dict[str, str]:
    count = sum(len(one.outcomes) for one in known)
    return {
        "models": "decoders, encoders and encoder-decoders, heads of 16, feed-forward twice the width, LayerNorm "
        "unless the norm is the placement's own, no dropout; three schemes of initial weights, with the placement's "
        "gains",
        "texts": f"the toy language, characters and 400 pieces of {config.text_file}, Multi30k ({config.corpus}); "
        f"decoders learn the next token, encoders the text itself, of which {MASKED:.0%} is masked",
        "trainings": f"{count} of {config.updates} updates of 256 or 512 tokens; constant rate from the first update "
        "on, nothing clipped; one seed a case",
        "optimisers": f"betas (0.9, 0.98); SGD with momentum {OPTIMIZERS['sgd'].usual_momentum}, AdamW with weight "
        f"decay {OPTIMIZERS['adamw'].usual_weight_decay}, no other decay",
        "rates": "factors of four up and down from the optimiser's usual, then a factor of two on both sides of the "
        "best",
        "best, good, stuck": f"by the mean cross-entropy at the end, on about {VALID_TOKENS:,} held-out target tokens, "
        f"natural logarithm, no label smoothing; good: within {REGRET_NATS:g} nats of the lowest; stuck: gained less "
        f"than {STUCK_SHARE:.0%} of what the best gained over knowing how frequent tokens are. A named rate counts as "
        "stuck where it lies above all rungs that are not, from half-way on; it is not trained itself",
        "cases": f"{len(known)} in {len(families(known))} families of architecture, text and initial weights, each "
        f"family judged by constants fitted to the others; {sum(not one.learned for one in known)} learned at no rate",
        "probes": f"{config.probe_updates} updates in all, of batches in another order than the trainings",
        "gradient normalisation": "of the mean loss per target token",
    }


def run(config: AdviceConfig, pieces: Pieces) -> Findings:
    """One piece a training. Raises UserError for a text or a corpus that is not there."""
    for case in {(case.architecture, case.text): case for case in config.cases}.values():
        task_of(case, config.text_file, config.corpus)
    make = partial(side_by_side, processes=config.processes, pieces=pieces)
    known = make(partial(known_of, config), config.cases, stage="cases")
    usable = [one for one in known if one.learned]
    laws = {left[0].case.family: law_without(rest) for rest, left in left_out(usable)}
    found = make(partial(probed_of, config), [(one, laws[one.case.family]) for one in usable], stage="probes")
    rules = {
        family: fitted_probe([one for one in found if one.family != family], config.probe_updates, config.updates)
        for family in families(usable)
    }
    judged = make(partial(judged_of, config), [(one, rules[one.family]) for one in found], stage="range tests")
    warmups = make(partial(warmup_of, config), warmup_cases(usable), stage="warm-ups")
    rule = fitted_probe(found, config.probe_updates, config.updates)
    early = partly(usable, config.updates)
    return Findings(
        conditions=conditions(config, known),
        claims=claims(judged, warmups),
        figures=figures(judged),
        tables=tables(known, judged, warmups, early),
        data=data(rule, known, judged, warmups, early),
    )


def _small(placement: str, initialisation: str) -> AdviceCase:
    return AdviceCase(
        architecture="decoder",
        text="toy",
        initialisation=initialisation,
        placement=placement,
        blocks=1,
        width=32,
        tokens=128,
        length=32,
    )


SCALES = scales(
    AdviceConfig,
    every={"cases": tuple(cases())},
    smoke={
        "cases": tuple(
            _small(placement, scheme)
            for scheme in ("xavier-uniform", "normal-0.02", "megatron")
            for placement in ("post-ln", "pre-ln")
        ),
        "updates": 40,
        "probe_updates": 30,
        "warmup_ladder": (8,),
    },
    paper={"updates": 2000, "warmup_ladder": (100, 400, 1000)},
)
STUDY = Study(about=ABOUT, scales=SCALES, run=run)
