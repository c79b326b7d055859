"""How tightly squared norms of hidden states lie around their mean: Theorem 1's condition, and what
follows from it.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
import torch

from normscope.measure import Estimate
from normscope.model import stack_shape
from normscope.placement import named
from normscope.placement.printing import formula
from normscope.report.chart import Panel

from ..engine.checks import settings_but
from ..engine.claims import judged
from ..engine.estimates import NORMAL, estimate, part, with_interval
from ..engine.judging import Answer, SettingGroup, all_hold, answers, between, by_place, number_of
from ..engine.page import Claim, Findings, StudyFigure, line, measured
from ..engine.pieces import Pieces
from ..engine.study import Study, scales
from ..theory import corrected, paper
from .measure import STACKS, ConcentrationConfig, Quantity, gaussians, measure_model

_Concentrations = dict[str, dict[Quantity, list[dict[str, Estimate]]]]
"""Of one placement: by stack, quantity, depth, and what `summarised` names."""
_TailSide = Literal["above", "outside"]

QUANTITIES: dict[Quantity, str] = {
    "state": "hidden state",
    "read": "what the feed-forward's norm reads",
}
PAPER_NAMES = {
    ("post-ln", "read"): "x^{post,5}",
    ("pre-ln", "read"): "x^{pre,3}",
    ("pre-ln", "state"): "x^{pre}",
}
"""Table 1's names for these."""
_SIDES: dict[_TailSide, str] = {"above": "Z > (1 + ε) EZ", "outside": "|Z − EZ| > ε EZ"}
_CONSTANT = 1e-3
"""A norm's output: its squared norm spreads by less, as a share of itself."""
_SECTION = "Xiong et al. 2020, section 3.4"


def bounded(config: ConcentrationConfig, found: Mapping[str, _Concentrations]) -> list[Claim]:
    """(ε, δ)-boundedness of each placement's quantities: as Definition 1 has it, and with both
    sides.
    """
    made = []
    for placement, stacks in found.items():
        for quantity in QUANTITIES:
            name, places = _name_of(placement, quantity), _places(stacks, quantity)
            if stacks["encoder"][quantity] and constant(stacks, quantity):
                made.append(_constant_claim(config, name, places))
            elif stacks["encoder"][quantity]:
                made += [_bounded_claim(config, name, places, side) for side in _SIDES]
    return made


def _places(
    stacks: _Concentrations, quantity: Quantity
) -> dict[tuple[str, int], dict[str, Estimate]]:
    """By stack and completed blocks, or block: without the embedding, which is no hidden state of a
    layer.
    """
    first = 0 if quantity == "state" else 1
    return {
        (stack, depth): one
        for stack in STACKS
        for depth, one in enumerate(stacks[stack][quantity], first)
        if depth
    }


def constant(stacks: _Concentrations, quantity: Quantity) -> bool:
    """Whether it is the same for all tokens behind the embedding, as a norm's output is."""
    return all(
        float(one["deviation"].mean) < _CONSTANT for one in _places(stacks, quantity).values()
    )


def _delta_of(
    config: ConcentrationConfig, one: Mapping[str, Estimate], side: _TailSide
) -> Estimate:
    """δ at the claimed ε, over models."""
    return part(one[side], config.epsilons.index(config.epsilon))


def _within_delta(
    config: ConcentrationConfig, one: Mapping[str, Estimate], side: _TailSide
) -> Answer:
    """Whether δ at the claimed ε is at most the claimed one."""
    return between(_delta_of(config, one, side), greatest=config.delta)


def _name_of(placement: str, quantity: Quantity) -> str:
    """Such as "Post-LN, what the feed-forward's norm reads (x^{post,5})"."""
    short = PAPER_NAMES.get((placement, quantity))
    return f"{named(placement).title}, {QUANTITIES[quantity]}{f' ({short})' if short else ''}"


def _constant_claim(
    config: ConcentrationConfig, name: str, found: Mapping[tuple[str, int], dict[str, Estimate]]
) -> Claim:
    deviation = max(float(one["deviation"].mean) for one in found.values())
    return judged(
        name=f"Bounded: {name}",
        statement=f"‖x‖² is ({config.epsilon:g}, {config.delta:g})-bounded.",
        source=_SECTION,
        found=(
            "Trivially: a norm's output has the same squared norm in every token, up to a standard "
            f"deviation of {deviation:.1e} of it. What Theorem 1 needs is asked of what norms read."
        ),
        holds={
            "every depth": all_hold(
                [_within_delta(config, one, "outside") for one in found.values()]
            )
        },
    )


def _bounded_claim(
    config: ConcentrationConfig,
    name: str,
    found: Mapping[tuple[str, int], dict[str, Estimate]],
    side: _TailSide,
) -> Claim:
    deltas = {place: _delta_of(config, one, side) for place, one in found.items()}
    means = {place: float(delta.mean) for place, delta in deltas.items()}
    worst = max(means, key=lambda place: means[place])
    needed = max(float(one[f"epsilon_{side}"].mean) for one in found.values())
    sign, sides = (
        ("Z > (1 + ε) EZ", "one-sided") if side == "above" else ("|Z - EZ| > ε EZ", "two-sided")
    )
    return judged(
        name=f"Bounded, {sides}: {name}",
        statement=f"‖x‖² is ({config.epsilon:g}, {config.delta:g})-bounded: Pr[{sign}] ≤ δ.",
        source=f"{_SECTION}, definition 1"
        if side == "above"
        else f"{_SECTION}, with both sides: corrected",
        found=f"δ at ε = {config.epsilon:g} lies between {min(means.values()):.3f} and "
        f"{with_interval(deltas[worst])} ({worst[0]}, l = {worst[1]}); "
        f"{sum(delta <= config.delta for delta in means.values())} of {len(means)} depths have "
        f"a mean of at most {config.delta:g}, all would at ε = {needed:.3f}. A Gaussian vector "
        f"of that width has δ = {_gaussian_delta(config, config.epsilon, side):.3f}.",
        holds=_by_stack(
            {place: between(delta, greatest=config.delta) for place, delta in deltas.items()}
        ),
    )


def _gaussian_delta(config: ConcentrationConfig, epsilon: float, side: _TailSide) -> float:
    """Of ‖Y‖², Y ~ N(0, I_d), exactly."""
    lower, upper = corrected.chi_square_tails(width=config.width, epsilon=epsilon)
    return upper if side == "above" else lower + upper


def _by_stack(holds: Mapping[tuple[str, int], Answer]) -> dict[str, Answer]:
    """By (stack, depth): one entry for the depths of a stack that agree."""
    found: dict[str, Answer] = {}
    for stack in STACKS:
        own = [answer for (name, _), answer in holds.items() if name == stack]
        agree = len(set(own)) == 1
        for depths, answer in by_place(own, "depth").items():
            words = f"in the {stack}" if agree else f"in the {stack} at {depths}"
            found[SettingGroup(words, number_of(depths))] = answer
    return found


def chi_square(config: ConcentrationConfig, gaussian: Mapping[str, Any]) -> Claim:
    """Eq. (66) against the exact tail, and both against samples."""
    claimed = np.array(
        [paper.chi_square_delta(width=config.width, epsilon=epsilon) for epsilon in config.epsilons]
    )
    upper, both = (
        np.array([_gaussian_delta(config, epsilon, side) for epsilon in config.epsilons])
        for side in _SIDES
    )
    found, error = np.array(gaussian["above"]), np.array(gaussian["above_error"])
    sampled = answers(found - NORMAL * error, found + NORMAL * error, -math.inf, claimed)
    at = config.epsilons.index(config.epsilon)
    return judged(
        name="χ²: eq. (66)",
        statement="‖Y‖², Y ~ N(0, I_d), is (ε, δ)-bounded with δ = exp(-d ε² / 8).",
        source="Xiong et al. 2020, section 3.3 and appendix G",
        found=f"At d = {config.width}, ε = {config.epsilon:g} it allows δ = {claimed[at]:.3f}; "
        f"exactly it is {upper[at]:.4f}, among {config.vectors:,} vectors {found[at]:.4f} ± "
        f"{error[at]:.4f} (standard error), and both sides together {both[at]:.4f}.",
        holds={"every ε": all_hold([bool((claimed >= upper).all()), *sampled])},
    )


RARE, HUGE = 0.001, 1e6
"""Z is 1, or with this probability a million."""


def lower_tail(config: ConcentrationConfig) -> Claim:
    """Eq. (43) for a Z that meets Definition 1."""
    values, probabilities = [1.0, HUGE], [1 - RARE, RARE]
    mean = 1 - RARE + HUGE * RARE
    one_sided, two_sided = (
        kind.is_bounded(values, probabilities, epsilon=config.epsilon, delta=RARE)
        for kind in (paper, corrected)
    )
    shrunk = sum(p for z, p in zip(values, probabilities, strict=True) if z <= paper.ALPHA_0 * mean)
    sample = torch.rand(100_000, generator=torch.Generator().manual_seed(1)) < RARE
    sampled = float(
        torch.where(sample, HUGE, 1.0).double().le(paper.ALPHA_0 * mean).double().mean()
    )
    limit = paper.shrink_probability(epsilon=config.epsilon)
    return judged(
        name="Lower tail: eq. (43)",
        statement=(
            "An (ε, δ)-bounded Z is at most α₀ EZ with probability at most ε / (1 + ε - α₀) = "
            f"{limit:.3g}."
        ),
        source="Xiong et al. 2020, appendix E, eq. (41) to (44)",
        found="Z = 1, or a million once in a thousand, is "
        f"{'' if one_sided else 'not '}({config.epsilon:g}, {RARE:g})-bounded, and at most EZ "
        f"/ 10 with probability {shrunk:.3f} ({sampled:.4f} of 100,000 samples). Definition 1 "
        "looks upwards only, and Lemma 5 needs a ceiling that is never exceeded; with both "
        f"sides in the definition this Z is {'' if two_sided else 'not '}bounded.",
        holds={"this Z": not (one_sided and shrunk > limit)},
    )


def shrinking(config: ConcentrationConfig, found: Mapping[str, _Concentrations]) -> Claim:
    """What eq. (44) is used for, on the squared norms themselves."""
    every = [
        one["shrunk"]
        for stacks in found.values()
        for name in QUANTITIES
        for one in _places(stacks, name).values()
    ]
    most = max(float(one.mean) for one in every)
    limit = paper.shrink_probability(epsilon=config.epsilon)
    return judged(
        name="Lower tail: hidden states",
        statement=f"‖x‖² ≥ α₀ E‖x‖², α₀ = {paper.ALPHA_0:g}, with probability at least {1 - limit:.3g}.",
        source="Xiong et al. 2020, eq. (44)",
        found=(
            f"So are {'all' if most == 0 else f'at least {100 * (1 - most):.2f} % of the'} tokens "
            "at any depth. What the step is used for holds here, though it does not follow from "
            "Definition 1."
        ),
        holds={"every depth": all_hold([between(one, greatest=limit) for one in every])},
    )


def theorem_1(config: ConcentrationConfig, found: Mapping[str, _Concentrations]) -> list[Claim]:
    """The theorem's probability from the δ of what the last norm of the decoder reads; no claim
    where none reads.
    """
    lasts = {named(name).title: one for name, one in _lasts(found).items()}
    if not lasts:
        return []
    stated = paper.theorem_1_probability(epsilon=config.epsilon, delta=config.delta)
    texts = []
    for title, one in lasts.items():
        above, both = (float(_delta_of(config, one, side).mean) for side in _SIDES)
        own = paper.theorem_1_probability(epsilon=config.epsilon, delta=above)
        single, mean = (
            corrected.theorem_1_probability(delta=both, positions=count) for count in (1, 16)
        )
        texts.append(
            f"{title}: δ = {above:.3f} gives {own:.3f}; with both sides, δ = {both:.3f} gives "
            f"{single:.3f} for one position and {mean:.3f} for the mean over 16"
        )
    return [
        judged(
            name="Theorem 1: its probability, by its own formula",
            statement=f"0.99 - δ - ε / (0.9 + ε) is at least {stated:.3f}, its value at "
            f"({config.epsilon:g}, {config.delta:g}).",
            source="Xiong et al. 2020, theorem 1 with section 3.4",
            found=f"From what the decoder's last norm reads. {'. '.join(texts)}.",
            # The formula falls with δ, so it reaches its value where δ is no larger than the
            # reported one.
            holds={title: _within_delta(config, one, "above") for title, one in lasts.items()},
        )
    ]


def _lasts(found: Mapping[str, _Concentrations]) -> dict[str, dict[str, Estimate]]:
    """What the decoder's last norm reads, by placement, where there is one."""
    return {name: one for name, stacks in found.items() for one in stacks["decoder"]["last"]}


def figures(config: ConcentrationConfig, found: Mapping[str, _Concentrations]) -> list[StudyFigure]:
    """δ over depth, and over ε for what the last norm reads."""
    # The hidden state, or where that is a norm's output what norms read.
    shown: dict[str, Quantity] = {
        name: "read" if stacks["encoder"]["read"] and constant(stacks, "state") else "state"
        for name, stacks in found.items()
    }
    drawn = "; ".join(_name_of(name, quantity) for name, quantity in shown.items())
    made = [
        StudyFigure.of_panels(
            name="delta",
            title=f"Share of tokens beyond ε = {config.epsilon:g}, over depth",
            caption=f"Mean over models with a 95 % interval. Shown are: {drawn}. χ² is that of a "
            "Gaussian vector.",
            panels=[
                _depth_panel(config, name, found[name], stack, shown[name])
                for name in found
                for stack in STACKS
            ],
            told="Share of tokens whose squared norm leaves its mean, over depth",
        )
    ]
    if lasts := _lasts(found):
        made.append(
            StudyFigure.of_panels(
                name="epsilon",
                title="Share of tokens beyond ε, for what the decoder's last norm reads",
                caption="Mean over models with a 95 % interval, the exact χ² of d degrees, and eq. "
                "(66).",
                panels=[_epsilon_panel(config, name, last) for name, last in lasts.items()],
                told="Share of tokens whose squared norm leaves its mean, over epsilon",
            )
        )
    return made


def _depth_panel(
    config: ConcentrationConfig,
    placement: str,
    stacks: _Concentrations,
    stack: str,
    quantity: Quantity,
) -> Panel:
    depths = range(0 if quantity == "state" else 1, config.blocks + 1)
    series = []
    for hue, (side, label) in enumerate(_SIDES.items()):
        deltas = [_delta_of(config, one, side) for one in stacks[stack][quantity]]
        half_widths = [delta.half_width for delta in deltas]
        series += [
            measured(
                f"{label}, measured", hue, depths, [delta.mean for delta in deltas], half_widths
            ),
            line(
                f"{label}, χ²",
                "predicted",
                hue,
                depths,
                _gaussian_delta(config, config.epsilon, side),
            ),
        ]
    return Panel(
        title=f"{named(placement).title}, {stack}",
        xlabel="completed blocks" if quantity == "state" else "block",
        ylabel="share of tokens",
        series=[*series, line(f"claimed: {config.delta:g}", "claimed", -1, depths, config.delta)],
        from_zero=True,
    )


def _epsilon_panel(
    config: ConcentrationConfig, placement: str, last: Mapping[str, Estimate]
) -> Panel:
    epsilons, series = config.epsilons, []
    for hue, (side, label) in enumerate(_SIDES.items()):
        expected = [_gaussian_delta(config, epsilon, side) for epsilon in epsilons]
        series += [
            measured(f"{label}, measured", hue, epsilons, last[side].mean, last[side].half_width),
            line(f"{label}, χ²", "predicted", hue, epsilons, expected),
        ]
    bound = [paper.chi_square_delta(width=config.width, epsilon=epsilon) for epsilon in epsilons]
    series.append(line("eq. (66): exp(−d ε² / 8)", "claimed", 0, epsilons, bound))
    return Panel(
        title=named(placement).title,
        xlabel="ε",
        ylabel="share of tokens",
        series=series,
        from_zero=True,
    )


def run(config: ConcentrationConfig, pieces: Pieces) -> Findings:
    """One piece a placement and seed."""
    corpus = config.open_corpus()
    asked = settings_but(config, "placements", "seeds") | {"corpus": corpus.fingerprint}
    models: dict[str, list[dict[str, Any]]] = {placement: [] for placement in config.placements}
    each = [
        (placement, seed) for placement in config.placements for seed in range(1, config.seeds + 1)
    ]
    for placement, seed in pieces.each("models", each):
        shape = stack_shape(config.model(placement, shared=True), "decoder")
        wanted = {
            **asked,
            "placement": placement,
            "formula": formula(named(placement), shape),
            "seed": seed,
        }
        one = pieces.get(
            f"{placement}/seed-{seed}", wanted, measure_model, config, placement, corpus, seed
        )
        models[placement].append(one)
    gaussian = pieces.get(
        "gaussian", {key: asked[key] for key in ("width", "vectors", "epsilon")}, gaussians, config
    )
    found = {placement: estimated(several) for placement, several in models.items()}
    return Findings(
        conditions=_conditions(
            config, [one["tokens"] for several in models.values() for one in several]
        ),
        claims=[
            *bounded(config, found),
            chi_square(config, gaussian),
            lower_tail(config),
            shrinking(config, found),
            *theorem_1(config, found),
        ],
        figures=figures(config, found),
        data={
            "epsilons": config.epsilons,
            "gaussian": gaussian,
            "found": {name: _data(stacks) for name, stacks in found.items()},
        },
    )


def estimated(models: Sequence[Mapping[str, Any]]) -> _Concentrations:
    """Means over models with 95 % intervals: by stack, quantity, depth and number."""
    return {
        stack: {
            quantity: [
                {
                    name: estimate([model[stack][quantity][depth][name] for model in models])
                    for name in numbers
                }
                for depth, numbers in enumerate(depths)
            ]
            for quantity, depths in models[0][stack].items()
        }
        for stack in STACKS
    }


def _data(stacks: _Concentrations) -> dict[str, Any]:
    return {
        stack: {
            quantity: [
                {
                    name: {"mean": one.mean, "half_width": one.half_width}
                    for name, one in numbers.items()
                }
                for numbers in depths
            ]
            for quantity, depths in of.items()
        }
        for stack, of in stacks.items()
    }


def _conditions(config: ConcentrationConfig, tokens: Sequence[Mapping[str, int]]) -> dict[str, str]:
    source, target = (np.mean([one[stack] for one in tokens]) for stack in STACKS)
    return {
        "Corpus": "the embedded toy language" if config.corpus == "toy" else config.corpus,
        "Model": f"{config.blocks} encoder and {config.blocks} decoder blocks, d = {config.width}, "
        f"feed-forward {config.ffn_width}, {config.heads} heads, weights as each placement's "
        "source draws them",
        "Z": "‖x‖² of a token that is no padding; EZ its mean over all batches, within one model "
        "and depth",
        "Tokens": (
            f"{config.batches} batches a model: {source:,.0f} source and {target:,.0f} target "
            "tokens on average"
        ),
        "Seeds": f"{config.seeds} models of each placement, counted from 1",
        "Spread": "δ is a mean over models ± 95 % intervals (Student's t), which decide the verdicts",
        "Dropout": f"{config.dropout:g}" if config.dropout else "none",
        "Gradient normalisation": "none: no loss and no gradient of one is taken",
        "Logarithm": "natural, in eq. (66) alone",
    }


_SMOKE = {
    **{
        "toy_pairs": 100,
        "blocks": 2,
        "width": 64,
        "ffn_width": 128,
        "max_tokens": 300,
        "batches": 2,
    },
    **{"seeds": 2, "vectors": 500},
}
_PAPER = {"toy_pairs": 50_000, "batches": 100, "seeds": 10, "vectors": 200_000}
STUDY = Study(
    title="Concentration of squared norms",
    question="The paper reports that the norm of hidden states at initialisation is (0.1, "
    "0.125)-bounded, and builds Theorem 1 on it. Is it, and does the theorem's probability "
    "follow?",
    help="Are squared norms of hidden states near their mean?",
    scales=scales(ConcentrationConfig, smoke=_SMOKE, paper=_PAPER),
    run=run,
)
