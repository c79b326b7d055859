"""The paper's models on real text, every layer: what formulas predict from the text's statistics, and what is there."""

# S = seeds, L = layers of a stack
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import torch

from normscope.data.opening import TOY
from normscope.data.parallel.corpus import Corpus
from normscope.model import ModelConfig
from normscope.model.linear import fast_matmul
from normscope.placement import named
from normscope.report.chart import Panel
from normscope.tasks.translation import TranslationConfig, TranslationObjective
from normscope.theory.predict import ModelSetting, predict
from normscope.train.device import keep_freed_memory

from ..engine.checks import check_different
from ..engine.claims import judged
from ..engine.deviation import Compared, as_data, mean_over_draws, spread_of
from ..engine.figures import line, measured
from ..engine.page import Claim, StudyFigure, StudyTable
from ..engine.pieces import Pieces
from ..engine.study import Findings, Scale, Study
from ..figure_3.config import corpus_of, corpus_title
from ..figure_3.measure import STACKS
from ..theory.batches import setting_of
from . import ABOUT
from .measure import measured_norms

QUANTITIES = {"q": "E‖x_l‖² / d of the hidden state", "ffn_out": "gradient norm of W2, by layer"}
"""What is compared."""
LIMIT_PERCENT = 15.0
"""Within which a prediction counts as met."""


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
        check_different(self, "placements", "blocks")
        if self.max_tokens < 1:
            raise ValueError(f"max_tokens must be at least 1, got {self.max_tokens}")
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


def run(config: RealTextConfig, pieces: Pieces) -> Findings:
    """One piece a model. Raises UserError for a corpus that is not there."""
    corpus, cpu = corpus_of(config.corpus, config.toy_pairs), torch.device("cpu")
    keep_freed_memory()
    fast = fast_matmul(cpu).on
    drawn: dict[tuple[str, int], list[dict[str, Any]]] = {key: [] for key in config.models}
    predicted: dict[tuple[str, int], list[dict[str, Any]]] = {key: [] for key in config.models}
    loss = TranslationConfig(label_smoothing=config.label_smoothing)
    for seed in range(1, config.seeds + 1):
        pieces.watch("seeds", seed - 1, config.seeds)
        task = TranslationObjective(corpus, loss, max_tokens=config.max_tokens, seed=seed, device=cpu)
        batch = task.micro_batch(0)
        setting = setting_of(
            [batch],
            config.model(*config.models[0]),
            vocabulary=len(corpus.target.vocabulary),
            label_smoothing=config.label_smoothing,
        )
        for key in config.models:
            placement, blocks = key
            model = config.model(placement, blocks)
            asked = {
                "model": asdict(model),
                "seed": seed,
                "max_tokens": config.max_tokens,
                "label_smoothing": config.label_smoothing,
                "corpus": corpus.fingerprint,
                "fast_matmul": fast,
            }
            name = f"{placement}_{blocks}-{blocks}_seed-{seed}"
            drawn[key].append(pieces.get(name, asked, measured_norms, model, seed, task, batch))
            predicted[key].append(_predicted(placement, replace(setting, blocks=blocks)))
    pieces.watch("seeds", config.seeds, config.seeds)
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


def findings(config: RealTextConfig, corpus: Corpus, found: _ComparedModels, fast: bool) -> Findings:
    """The page and the data of what was compared; fast: whether products went through oneDNN."""
    sizes = ", ".join(f"{blocks}-{blocks}" for blocks in config.blocks)
    deviations = {
        what: {_name(key, kind): percent(curves[kind][what]) for key, curves in found.items() for kind in STACKS}
        for what in QUANTITIES
    }
    curves = {
        f"{placement} {blocks}-{blocks}": {
            kind: {what: as_data(curve) for what, curve in by_kind[kind].items()} for kind in STACKS
        }
        for (placement, blocks), by_kind in found.items()
    }
    return Findings(
        conditions=[
            (
                "gradients",
                f"of the mean loss per target token, label smoothing {config.label_smoothing:g}, in nats (natural "
                "logarithm); Frobenius norms",
            ),
            ("text", corpus_title(corpus)),
            ("tokens", f"one batch of up to {config.max_tokens:,} tokens a model, dropout {config.dropout:g}"),
            ("seeds", f"{config.seeds}: weights, batch and dropout masks; bands are two standard errors over seeds"),
            (
                "models",
                f"{sizes}, width {config.width}, feed-forward {config.ffn_width}, {config.heads} heads, initial "
                "weights as the paper's (fairseq 0.7 to 0.8)",
            ),
            (
                "prediction",
                "from widths, depths and, of each batch, mean lengths and how often entries repeat; nothing is fitted",
            ),
            ("arithmetic", "float32" + (", products through oneDNN" if fast else "")),
        ],
        claims=[_claim(what, found) for what in QUANTITIES],
        figures=[_figure(config, found, what) for what in QUANTITIES],
        tables=[_table(found)],
        data={"curves": curves, "deviations_percent": deviations},
    )


def percent(curve: Compared) -> float:
    """Largest deviation at any depth."""
    return 100 * float(np.abs(curve.deviation).max())


def _claim(what: str, found: _ComparedModels) -> Claim:
    curves = {_name(key, kind): [one[kind][what]] for key, one in found.items() for kind in STACKS}
    spread = spread_of(curves, limit_percent=LIMIT_PERCENT, first=0 if what == "q" else 1)
    return judged(
        name=f"Predicted {QUANTITIES[what]}",
        statement=f"The prediction is within {LIMIT_PERCENT:g} % at every depth, encoder and decoder.",
        source="mean field, NormScope",
        found=f"largest deviation {spread.largest:.3g} % ({spread.where}, depth {spread.place}; standard error "
        f"{spread.standard_error:.2g} %), root mean square {spread.root_mean_square:.3g} %",
        holds=spread.holds,
    )


def _name(key: tuple[str, int], kind: str) -> str:
    return f"{named(key[0]).title} {key[1]}-{key[1]} {kind}"


def _figure(config: RealTextConfig, found: _ComparedModels, what: str) -> StudyFigure:
    """The shallowest models, the deepest and those between, each stack of each placement in a panel."""
    shown = sorted({config.blocks[0], config.blocks[len(config.blocks) // 2], config.blocks[-1]})
    name, first, xlabel, ylabel = {
        "q": ("hidden_state", 0, "completed blocks", "E‖x‖² / d"),
        "ffn_out": ("w2_gradients", 1, "layer", "gradient norm of W2"),
    }[what]
    panels = []
    for placement in config.placements:
        for kind in STACKS:
            series = []
            for hue, blocks in enumerate(shown):
                curve, x, label = found[placement, blocks][kind][what], range(first, blocks + 1), f"{blocks}-{blocks}"
                series.append(measured(label, hue, x, curve.measured, 2 * curve.error))
                series.append(line(f"{label}, predicted", "predicted", hue, x, curve.predicted))
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


def _table(found: _ComparedModels) -> StudyTable:
    rows: list[list[str | float | None]] = []
    for key, curves in found.items():
        for kind in STACKS:
            stream, gradient = curves[kind]["q"], curves[kind]["ffn_out"]
            ends = [end for place in (0, -1) for end in (gradient.measured[place], gradient.predicted[place])]
            last_q = [stream.measured[-1], stream.predicted[-1], percent(stream)]
            rows.append([_name(key, kind), *last_q, *ends, percent(gradient)])
    off = "deviation, %"
    return StudyTable(
        title="Ends of every curve, and the largest deviation along it",
        columns=["stack", "last q", "predicted", off, "first W2", "predicted", "last W2", "predicted", off],
        rows=rows,
    )


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
STUDY = Study(about=ABOUT, scales=SCALES, run=run)
