"""Conditioning throughout training: the trainings, what was seen of them, and the page."""

from dataclasses import dataclass

from normscope.data.documents.corpus import DocumentCorpus
from normscope.settings.tables import to_toml
from normscope.tasks.language_model import LANGUAGE_MODEL

from ..engine.pieces import Pieces
from ..engine.study import Findings, Study
from . import ABOUT
from .claims import claims
from .config import SCALES, ConditioningConfig
from .courses import Course, Placed, course_of
from .measure import followed
from .models import run_config, stated_spread
from .page import conditions, data, figures, tables


def run(config: ConditioningConfig, pieces: Pieces) -> Findings:
    """Raises UserError for text that is not there."""
    corpus = LANGUAGE_MODEL.open(run_config(config, config.telling[0], config.common_lr, 1))
    trained = _Trained(config, corpus, pieces)
    telling = {name: [trained.placed(name, lr, config.seeds) for lr in config.peak_lrs] for name in config.telling}
    registry = [
        telling[name][0] if name in telling else trained.placed(name, config.common_lr, 1)
        for name in config.all_placements
    ]
    return Findings(
        conditions=conditions(config, LANGUAGE_MODEL.chance_nats(corpus), len(corpus.tokeniser)),
        claims=claims(config, telling, registry),
        figures=figures(config, telling, registry),
        tables=tables(config, telling, registry),
        data=data(config, telling, registry),
    )


@dataclass(slots=True)
class _Trained:
    """The trainings, each a piece."""

    config: ConditioningConfig
    corpus: DocumentCorpus
    pieces: Pieces
    done: int = 0

    @property
    def total(self) -> int:
        telling = len(self.config.telling)
        others = len(self.config.all_placements) - telling
        return telling * self.config.seeds * len(self.config.peak_lrs) + others

    def placed(self, placement: str, lr: float, seeds: int) -> Placed:
        return Placed(
            placement=placement,
            lr=lr,
            stated=stated_spread(self.config, placement, len(self.corpus.tokeniser)),
            looks=self.config.looks,
            courses=[self.course(placement, lr, seed) for seed in range(1, seeds + 1)],
        )

    def course(self, placement: str, lr: float, seed: int) -> Course:
        config = self.config
        self.pieces.watch("trainings", self.done, self.total)
        of_run = run_config(config, placement, lr, seed)
        settings = {
            "looks": list(config.looks),
            "products": config.products,
            "sequences": config.jacobian_sequences,
        }
        asked = {"run": to_toml(of_run), "text": self.corpus.fingerprint, **settings}
        found = self.pieces.get(f"{placement}/{lr:g}-seed-{seed}", asked, followed, of_run, self.corpus, **settings)
        self.done += 1
        self.pieces.watch("trainings", self.done, self.total)
        return course_of(found)


STUDY = Study(about=ABOUT, scales=SCALES, run=run)
