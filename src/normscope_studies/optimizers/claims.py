"""What the paper and its successors say of warm-up, asked of every optimiser."""

from normscope.evidence.estimates import estimate, with_interval
from normscope.evidence.judging import Answer, between
from normscope.placement import named

from ..engine.claims import judged
from ..engine.page import Claim
from .config import OptimizersConfig
from .verdicts import Pairings

TITLES = {"adamw": "AdamW", "muon": "Muon", "lion": "Lion", "sgd": "SGD with momentum"}
_SAID = (
    ("post-ln", True, "Xiong et al. 2020, section 3.2, of Adam and SGD"),
    ("pre-ln", False, "Xiong et al. 2020, section 4.2, of Adam and SGD"),
    ("deepnorm", False, "Wang et al. 2022, arXiv:2203.00555, which trains with warm-up and promises stability"),
    ("rezero", False, "Bachlechner et al. 2020, arXiv:2003.04887, section 5: without warm-up"),
)


def claims(config: OptimizersConfig, found: Pairings) -> list[Claim]:
    """One for each placement of which a source speaks, and one for the order of placements under two optimisers."""
    made = [
        _need(config, placement, needs, source, found)
        for placement, needs, source in _SAID
        if placement in config.placements
    ]
    if {"adamw", "muon"} <= set(config.optimizers):
        made.append(_muon(config, found))
    return made


def _need(config: OptimizersConfig, placement: str, needs: bool, source: str, found: Pairings) -> Claim:
    holds: dict[str, Answer] = {}
    parts = []
    for optimizer in config.optimizers:
        gain = found[placement, optimizer].gain
        edge = config.needs_nats
        holds[TITLES[optimizer]] = between(gain, least=edge) if needs else between(gain, greatest=edge)
        parts.append(f"{TITLES[optimizer]}: {with_interval(gain)}")
    title = named(placement).title
    more, less = f"ends more than {config.needs_nats:g} nats above", f"ends at most {config.needs_nats:g} nats above"
    return judged(
        name=f"{title} {'needs' if needs else 'does without'} warm-up",
        statement=f"{title} without warm-up {more if needs else less} its runs with it, each at its own best rate.",
        source=source,
        found=f"the loss without less that with warm-up, in nats: {'; '.join(parts)}",
        holds=holds,
    )


def _muon(config: OptimizersConfig, found: Pairings) -> Claim:
    holds, parts = {}, []
    for placement in config.placements:
        both = (found[placement, name].better.finals for name in ("adamw", "muon"))
        less = estimate([adamw - muon for adamw, muon in zip(*both, strict=True)])
        holds[named(placement).title] = between(less, least=0.0)
        parts.append(f"{named(placement).title} {with_interval(less)}")
    return judged(
        name="Muon ends lower than AdamW",
        statement="Under Muon a placement ends lower than under AdamW, each at its own best rate and warm-up.",
        source="Jordan 2024, Muon; Liu et al. 2025, arXiv:2502.16982, section 3, of larger models",
        found=f"AdamW's last loss less Muon's, in nats: {'; '.join(parts)}",
        holds=holds,
    )
