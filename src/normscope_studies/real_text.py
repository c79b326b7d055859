"""The paper's models on real text, every layer: what formulas predict from the text's statistics, and what is there."""

# S = seeds, L = layers of a stack
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import product
from typing import Any, Literal

import numpy as np
import torch

from normscope.data.opening import TOY
from normscope.data.parallel.corpus import Corpus
from normscope.model import ModelConfig
from normscope.model.linear import fast_matmul
from normscope.placement import named
from normscope.report.chart import Panel
from normscope.report.words import counted
from normscope.tasks.translation import TranslationConfig, TranslationObjective
from normscope.theory.predict import ModelSetting, predict
from normscope.train.device import keep_freed_memory

from .engine.checks import check_different, check_least
from .engine.claims import foretold
from .engine.deviation import Compared, as_data, mean_over_draws, spread_of
from .engine.discovery import About
from .engine.figures import beside_prediction
from .engine.page import Claim, StudyFigure, StudyTable, table
from .engine.pieces import Pieces
from .engine.study import Findings, Study, scales
from .figure_3.config import corpus_of, corpus_title
from .figure_3.measure import STACKS, measured_norms
from .theory.simulation import setting_of

ABOUT = About(
    title="Real text: predicted and measured, every layer",
    question="Do the formulas predict the hidden states and the gradients of the paper's own models on real text?",
    help="Do formulas predict models that read real text?",
)
QUANTITIES = {"q": "E‖x_l‖² / d of the hidden state", "ffn_out": "gradient norm of W2, by layer"}
"""What is compared."""
LIMIT_PERCENT = 15.0
"""Within which a prediction counts as met."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _RealTextConfig:
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
        check_least(self, seeds=2, max_tokens=1)
        check_different(self, "placements", "blocks")
        for placement, blocks in self.models:
            self.model(placement, blocks)
        TranslationConfig(label_smoothing=self.label_smoothing)

    @property
    def models(self) -> list[tuple[str, int]]:
        """Placement and blocks of each."""
        return [(placement, blocks) for placement in self.placements for blocks in self.blocks]

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


_ComparedModels = dict[tuple[str, int], dict[str, dict[str, Compared]]]
"""By placement and blocks, then stack, then quantity."""


def run(config: _RealTextConfig, pieces: Pieces) -> Findings:
    """One piece a model. Raises UserError for a corpus that is not there."""
    corpus, cpu = corpus_of(config.corpus, config.toy_pairs), torch.device("cpu")
    keep_freed_memory()
    fast = fast_matmul(cpu).on
    drawn: dict[tuple[str, int], list[dict[str, Any]]] = {key: [] for key in config.models}
    predicted: dict[tuple[str, int], list[dict[str, Any]]] = {key: [] for key in config.models}
    smoothing = config.label_smoothing
    for seed in pieces.each("seeds", range(1, config.seeds + 1)):
        loss = TranslationConfig(label_smoothing=smoothing)
        task = TranslationObjective(corpus, loss, max_tokens=config.max_tokens, seed=seed, device=cpu)
        batch, vocabulary = task.micro_batch(0), len(corpus.target.vocabulary)
        for placement, blocks in config.models:
            model = config.model(placement, blocks)
            setting = setting_of([batch], model, vocabulary=vocabulary, label_smoothing=smoothing)
            asked = {
                "model": asdict(model),
                "seed": seed,
                "max_tokens": config.max_tokens,
                "label_smoothing": smoothing,
                "corpus": corpus.fingerprint,
                "fast_matmul": fast,
            }
            name = f"{placement}_{blocks}-{blocks}_seed-{seed}"
            drawn[placement, blocks].append(pieces.get(name, asked, measured_norms, model, seed, task, batch))
            predicted[placement, blocks].append(_predicted(placement, setting))
    return findings(config, corpus, {key: _compared(drawn[key], predicted[key]) for key in config.models}, fast)


def _predicted(placement: str, setting: ModelSetting) -> dict[str, Any]:
    """As it is measured, from what the batch repeats."""
    found = predict(placement, setting)
    return {kind: {"q": found[kind].q, "ffn_out": found[kind].gradient_norm["ffn_out"]} for kind in STACKS}


def _compared(
    drawn: Sequence[Mapping[str, Any]], predicted: Sequence[Mapping[str, Any]]
) -> dict[str, dict[str, Compared]]:
    """Means over seeds of both: every seed has a batch of its own, and a prediction for it."""
    return {
        kind: {
            what: mean_over_draws(
                [one[kind][what] for one in drawn], np.mean([one[kind][what] for one in predicted], axis=0)
            )
            for what in QUANTITIES
        }
        for kind in STACKS
    }


def findings(config: _RealTextConfig, corpus: Corpus, found: _ComparedModels, fast: bool) -> Findings:
    """The page and the data of what was compared; fast: whether products went through oneDNN."""
    stacks = {_name(key, kind): curves[kind] for key, curves in found.items() for kind in STACKS}
    return Findings(
        conditions=_conditions(config, corpus, fast),
        claims=[_claim(what, stacks) for what in QUANTITIES],
        figures=[_figure(config, found, what) for what in QUANTITIES],
        tables=[_table(stacks)],
        data={
            "curves": {
                f"{placement} {blocks}-{blocks}": {
                    kind: {what: as_data(curve) for what, curve in by_kind[kind].items()} for kind in STACKS
                }
                for (placement, blocks), by_kind in found.items()
            },
            "deviations_percent": {
                what: {name: curves[what].largest_off[0] for name, curves in stacks.items()} for what in QUANTITIES
            },
        },
    )


def _name(key: tuple[str, int], kind: str) -> str:
    return f"{named(key[0]).title} {key[1]}-{key[1]} {kind}"


def _conditions(config: _RealTextConfig, corpus: Corpus, fast: bool) -> dict[str, str]:
    sizes = ", ".join(f"{blocks}-{blocks}" for blocks in config.blocks)
    return {
        "gradients": f"of the mean loss per target token, label smoothing {config.label_smoothing:g}, in nats (natural "
        "logarithm); Frobenius norms",
        "text": corpus_title(corpus),
        "tokens": f"one batch of up to {config.max_tokens:,} tokens a model, dropout {config.dropout:g}",
        "seeds": f"{config.seeds}: weights, batch and dropout masks; bands are two standard errors over seeds",
        "models": f"{sizes}, width {config.width}, feed-forward {config.ffn_width}, {config.heads} heads, initial "
        "weights as the paper's (fairseq 0.7 to 0.8)",
        "prediction": "from widths, depths and, of each batch, mean lengths and how often entries repeat; nothing is "
        "fitted",
        "arithmetic": "float32" + (", products through oneDNN" if fast else ""),
    }


def _claim(what: str, stacks: Mapping[str, Mapping[str, Compared]]) -> Claim:
    curves = {name: [one[what]] for name, one in stacks.items()}
    return foretold(
        name=f"Predicted {QUANTITIES[what]}",
        statement=f"The prediction is within {LIMIT_PERCENT:g} % at every depth, encoder and decoder.",
        source="mean field, NormScope",
        of=counted(len(curves), "stack"),
        spread=spread_of(curves, limit_percent=LIMIT_PERCENT, first=0 if what == "q" else 1),
        place="depth",
    )


def _figure(config: _RealTextConfig, found: _ComparedModels, what: str) -> StudyFigure:
    """The shallowest models, the deepest and those between, each stack of each placement in a panel."""
    shown = sorted({config.blocks[0], config.blocks[len(config.blocks) // 2], config.blocks[-1]})
    name, first, xlabel, ylabel = {
        "q": ("hidden_state", 0, "completed blocks", "E‖x‖² / d"),
        "ffn_out": ("w2_gradients", 1, "layer", "gradient norm of W2"),
    }[what]
    panels = []
    for placement, kind in product(config.placements, STACKS):
        series = []
        for hue, blocks in enumerate(shown):
            curve = found[placement, blocks][kind][what]
            series += beside_prediction(f"{blocks}-{blocks}", hue, curve, first=first)
        title = f"{named(placement).title}, {kind}"
        panels.append(Panel(title=title, xlabel=xlabel, ylabel=ylabel, series=series, from_zero=True))
    return StudyFigure.of_panels(
        name=name,
        title=QUANTITIES[what],
        caption="Measured on real text, mean over seeds with a band of two standard errors, and predicted from how "
        "often the text's entries repeat.",
        panels=panels,
        told=f"{QUANTITIES[what]}: measured and predicted",
        wide=True,
    )


def _table(stacks: Mapping[str, Mapping[str, Compared]]) -> StudyTable:
    def end(what: str, place: int, of: Literal["measured", "predicted"]) -> Callable[[str], float]:
        return lambda name: float(getattr(stacks[name][what], of)[place])

    return table(
        "Ends of every curve, and the largest deviation along it",
        stacks,
        [
            ("stack", str),
            ("last q", end("q", -1, "measured")),
            ("predicted", end("q", -1, "predicted")),
            ("deviation, %", lambda name: stacks[name]["q"].largest_off[0]),
            ("first W2", end("ffn_out", 0, "measured")),
            ("predicted", end("ffn_out", 0, "predicted")),
            ("last W2", end("ffn_out", -1, "measured")),
            ("predicted", end("ffn_out", -1, "predicted")),
            ("deviation, %", lambda name: stacks[name]["ffn_out"].largest_off[0]),
        ],
    )


_SMOKE = {
    **{"corpus": TOY, "toy_pairs": 200, "max_tokens": 256},
    **{"blocks": (2, 3), "seeds": 2, "width": 64, "ffn_width": 128},
}
STUDY = Study(about=ABOUT, scales=scales(_RealTextConfig, smoke=_SMOKE, paper={"max_tokens": 4096}), run=run)
