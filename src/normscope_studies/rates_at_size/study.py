"""Measures what named and carried rates cost models of 6 to 42 million parameters, on a CUDA
device.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import numpy as np

from normscope.choosing.law import RateFacts
from normscope.choosing.rates import typical_rate
from normscope.report.words import learning_rate, percentage

from ..advice.cases import rate_of
from ..engine.checks import check_different, check_least
from ..engine.page import Findings, StudyFigure, StudyTable, curves, table
from ..engine.pieces import Pieces, side_by_side
from ..engine.study import Study, scales
from .training import PIECES, SizedModel, pair_nats, text_of, train_sized

_LLAMA = {
    "hidden_size": 512,
    "intermediate_size": 1408,
    "num_hidden_layers": 8,
    "num_attention_heads": 8,
}
_NARROW = {
    "hidden_size": 128,
    "intermediate_size": 352,
    "num_hidden_layers": 8,
    "num_attention_heads": 2,
}
_OPT = {
    "hidden_size": 512,
    "ffn_dim": 2048,
    "num_hidden_layers": 8,
    "num_attention_heads": 8,
    "dropout": 0.0,
}
_OPT_POST = {
    **_OPT,
    "word_embed_proj_dim": 512,
    "do_layer_norm_before": False,
    "max_position_embeddings": 512,
}
MODELS = (
    SizedModel(name="llama-8x512", made_by="LlamaForCausalLM", sizes=_LLAMA),
    SizedModel(
        name="opt-post-ln-8x512", made_by="OPTForCausalLM", sizes=_OPT_POST, normed_sums=1.0
    ),
    SizedModel(name="llama-8x128", made_by="LlamaForCausalLM", sizes=_NARROW),
    SizedModel(name="llama-8x512-mup", made_by="LlamaForCausalLM", sizes=_LLAMA, narrower=4.0),
    SizedModel(name="olmo2-8x512", made_by="Olmo2ForCausalLM", sizes=_LLAMA),
    SizedModel(
        name="llama-2x512", made_by="LlamaForCausalLM", sizes={**_LLAMA, "num_hidden_layers": 2}
    ),
)
SEED = 1
CARRIED = (
    ("four times the width", "llama-8x128", "llama-8x512"),
    ("four times the width, by µP", "llama-8x128", "llama-8x512-mup"),
    ("four times the depth", "llama-2x512", "llama-8x512"),
)
"""Cases of what grows, the model that is probed, and the one that is trained."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _SizedConfig:
    """Models, and how long they are trained at which rates."""

    models: tuple[SizedModel, ...] = MODELS
    steps: tuple[int, ...] = (0, 1, -1, 2)
    """The ladder in the order in which it is trained: 0.001 times a power of two."""
    updates: int = 1_000
    text: str = "corpora/wikipedia_en/train-0.txt.xz"
    valid: str = "corpora/wikipedia_en/valid.txt.xz"
    device: str = "auto"
    processes: int = 4
    """Trainings at a time, on the same device."""
    trained_on: str = ""
    """The place where they were trained, if the page is made elsewhere."""

    def __post_init__(self) -> None:
        check_least(self, updates=20, processes=1)
        check_different(self, "steps")
        if len({one.name for one in self.models}) < max(1, len(self.models)):
            raise ValueError("models: give one or more, each with a name of its own")


def trained(
    config: _SizedConfig, asked: tuple[SizedModel, float], pieces: Pieces
) -> dict[str, Any]:
    """Returns one training, from its piece or now. asked: model and rate."""
    one, rate = asked
    settings = {"updates": config.updates, "seed": SEED, "text": config.text, "valid": config.valid}
    found: dict[str, Any] = pieces.get(
        f"{one.name}/{config.updates}_rate-{rate:.3g}_seed-{SEED}",
        {**asdict(one), "rate": rate, **settings},
        train_sized,
        one,
        rate,
        **settings,
        kept=pieces.folder / "ids.bin",
        on=config.device,
    )
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class _SizedLadder:
    """The trainings of one model, by rate, rising."""

    model: SizedModel
    nats: Mapping[float, float]
    """Held out, at the end; infinite where it was not finite."""
    parameters: int
    unigram_nats: float

    @property
    def best_rate(self) -> float:
        return min(self.nats, key=lambda rate: (self.nats[rate], rate))

    @property
    def best_nats(self) -> float:
        return self.nats[self.best_rate]

    @property
    def learned(self) -> bool:
        """Returns whether any of them knows more than how frequent tokens are."""
        return self.best_nats < self.unigram_nats - 0.05

    def lost(self, rate: float) -> float | None:
        """Returns a share of the best's gain over the frequencies of tokens, at a rate on the
        ladder or between its rungs, by a straight line over the rate's logarithm; None beyond an
        end, and of a model that did not learn.
        """
        rates = sorted(self.nats)
        if not self.learned or not rates[0] <= rate <= rates[-1]:
            return None
        found = float(
            np.interp(
                math.log(rate), [math.log(one) for one in rates], [self.nats[one] for one in rates]
            )
        )
        return (found - self.best_nats) / (self.unigram_nats - self.best_nats)


def named_rate(one: SizedModel) -> float:
    """Returns what known rates name; of µP, for the narrower model, whose rates it takes."""
    narrow = round(one.width / one.narrower)
    facts = RateFacts(
        optimizer="adamw",
        width=narrow,
        sublayers=2 * one.blocks,
        normed_sums=one.normed_sums,
        batch_tokens=one.tokens,
    )
    found = typical_rate(facts)
    assert found is not None
    return found.rate


def run(config: _SizedConfig, pieces: Pieces) -> Findings:
    """One piece a training, the middle rates of all models first. Raises UserError for a text that
    is not there.
    """
    items = [(one, rate_of(step)) for step in config.steps for one in config.models]
    found = side_by_side(
        partial(trained, config),
        items,
        processes=config.processes,
        pieces=pieces,
        stage="trainings",
    )
    read = text_of(config.text, config.valid, pieces.folder / "ids.bin")
    known = {"unigram_nats": read.unigram_nats, "pair_nats": pair_nats(read)}
    ladders = []
    for one in config.models:
        own = {rate: seen for (model, rate), seen in zip(items, found, strict=True) if model == one}
        nats = {
            rate: math.inf if own[rate]["valid_nats"] is None else own[rate]["valid_nats"]
            for rate in sorted(own)
        }
        parameters = next(iter(own.values()))["parameters"]
        ladders.append(
            _SizedLadder(
                model=one, nats=nats, parameters=parameters, unigram_nats=known["unigram_nats"]
            )
        )
    return Findings(
        conditions=conditions(config, known),
        claims=[],
        figures=[_figure(ladders)],
        tables=_tables(ladders),
        data={"baselines": known, "models": {one.model.name: _data(one) for one in ladders}},
        lines=[_line(one) for one in ladders],
    )


def conditions(config: _SizedConfig, known: Mapping[str, float]) -> dict[str, str]:
    first = config.models[0]
    return {
        "models": (
            "decoders of transformers with their own initial weights, no dropout: Llama and OLMo 2 "
            "(width 512, 8 blocks; one Llama of width 128, one of 2 blocks), and OPT with Post-LN"
        ),
        "text": (
            f"English Wikipedia in {PIECES:,} pieces; who knows how frequent each is has a loss of "
            f"{known['unigram_nats']:.2f} nats, and after the one before {known['pair_nats']:.2f}"
        ),
        "trainings": (
            f"{config.updates:,} updates of AdamW (betas 0.9 and 0.98, weight decay 0.01), linear "
            "warm-up over 1 % of them (8 % with Post-LN), cosine to a tenth, nothing clipped, bf16 "
            "autocast"
        ),
        "tokens": f"{first.tokens:,} of each update, in sequences of {first.length}",
        **({"trained on": config.trained_on} if config.trained_on else {}),
        "seeds": "one, so that no verdict is drawn",
        "loss": "nats per token of held-out text at the end; what is lost is a share of the best's "
        "gain over the frequencies of tokens",
        "gradient normalisation": "of the mean loss per token",
    }


def _line(one: _SizedLadder) -> str:
    if not one.learned:
        return f"{one.model.name}: learned at no rate from {min(one.nats):g} to {max(one.nats):g}"
    return (
        f"{one.model.name}: best {one.best_rate:g} ({one.best_nats:.3f} nats); known rates name "
        f"{learning_rate(named_rate(one.model))}, which loses "
        f"{percentage(one.lost(named_rate(one.model)))}"
    )


def _percent(share: float | None) -> float | None:
    return None if share is None else 100 * share


def _tables(ladders: Sequence[_SizedLadder]) -> list[StudyTable]:
    by_name = {one.model.name: one for one in ladders}
    carried = [
        (words, by_name[small], by_name[large])
        for words, small, large in CARRIED
        if {small, large} <= set(by_name)
    ]
    return [
        table(
            "What known rates lose, in % of the best's gain",
            ladders,
            [
                ("model", lambda one: one.model.name),
                ("parameters", lambda one: one.parameters),
                ("best rate", lambda one: one.best_rate if one.learned else None),
                ("its loss, nats", lambda one: one.best_nats),
                ("named", lambda one: named_rate(one.model)),
                ("lost at it", lambda one: _percent(one.lost(named_rate(one.model)))),
                ("lost at 1e-3", lambda one: _percent(one.lost(1e-3))),
                ("lost at 5e-4", lambda one: _percent(one.lost(5e-4))),
            ],
        ),
        table(
            "What the best rate of a smaller model loses, in % of the best's gain",
            carried,
            [
                ("grows", lambda one: one[0]),
                ("from", lambda one: one[1].model.name),
                ("its best rate", lambda one: one[1].best_rate),
                ("best rate", lambda one: one[2].best_rate),
                ("lost", lambda one: _percent(one[2].lost(one[1].best_rate))),
            ],
        ),
    ]


def _figure(ladders: Sequence[_SizedLadder]) -> StudyFigure:
    rates = sorted(ladders[0].nats)
    losses = {}
    for one in ladders:
        losses[one.model.name] = [[one.nats[rate] for rate in rates]]
    panel = curves(
        "held-out loss",
        losses,
        x=rates,
        xlabel="peak rate",
        ylabel="nats per token",
        log_x=True,
    )
    return StudyFigure.of_panels(
        name="ladders",
        title="Loss by peak rate",
        caption="One training a point.",
        panels=[panel],
        wide=False,
    )


def _data(one: _SizedLadder) -> dict[str, Any]:
    return {
        "parameters": one.parameters,
        "nats": {f"{rate:g}": nats for rate, nats in one.nats.items()},
        "best_rate": one.best_rate if one.learned else None,
        "named_rate": named_rate(one.model),
        "lost_at_named": one.lost(named_rate(one.model)),
    }


_TINY = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
}
_SMALL = (
    SizedModel(name="llama-1x32", made_by="LlamaForCausalLM", sizes=_TINY, tokens=128, length=64),
)
SCALES = scales(
    _SizedConfig,
    smoke={"models": _SMALL, "steps": (0, 1), "updates": 20, "processes": 1},
    paper={"updates": 10_000, "steps": (0, 1, -1, 2, -2, 3)},
)
STUDY = Study(
    title="Rates of larger models: named, carried from a smaller one, and best",
    question=(
        "What does a training of a model of 6 to 42 million parameters lose at the rate that known "
        "rates name, and at the best rate of a narrower or shallower model?"
    ),
    help="What do named rates cost larger models?",
    scales=SCALES,
    run=run,
)
