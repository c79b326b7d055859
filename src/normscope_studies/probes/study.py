"""Linear probes of trained and untrained models: what is measured, and the page."""

from collections.abc import Mapping
from typing import Any

from normscope.data.opening import TOY, open_corpus
from normscope.report.chart import Panel
from normscope.runs.config import replaced
from normscope.settings.tables import to_toml
from normscope.tasks.translation import TRANSLATION

from ..converged.endings import PlacementEnding, trained
from ..converged.study import conditions as conditions_of_trainings
from ..engine.estimates import Floats, estimate, plain_estimate
from ..engine.judging import bigram_nats
from ..engine.ladders import LadderRun, machines, sources
from ..engine.page import Findings, StudyFigure, StudyTable, curves, line, table
from ..engine.pieces import Pieces
from ..engine.study import Study
from .claims import PlacementReading, claims, over_blocks
from .config import SCALES, ProbesConfig
from .measure import UNCONTROLLED, probed

_Readings = Mapping[str, PlacementReading]


def run(config: ProbesConfig, pieces: Pieces) -> Findings:
    """Runs the study. Raises UserError for a training that fails, and where scikit-learn is not
    installed.
    """
    trainings = config.trainings
    corpus = open_corpus(trainings.training(config.updates, 0.0).data)
    endings, cells = trained(trainings, pieces, pieces.folder)
    found = {one.placement: _reading(config, one, corpus.fingerprint, pieces) for one in endings}
    unigram = TRANSLATION.chance_nats(corpus)
    bigram = bigram_nats(*(corpus.splits[name].target.tokens for name in ("train", "valid")))
    runs = sources(cells)
    return Findings(
        conditions=conditions(config, (unigram, bigram), runs) | {"machine": machines(cells)},
        claims=claims(config, found, unigram),
        figures=figures(found),
        tables=[ends(endings), *tables(found)],
        data={
            "unigram_nats": unigram,
            "bigram_nats": bigram,
            "placements": [_data(found[one.placement], one) for one in endings],
            "runs": runs,
        },
    )


def _reading(
    config: ProbesConfig, one: PlacementEnding, fingerprint: str, pieces: Pieces
) -> PlacementReading:
    """The pieces are of each model trained, and as it was drawn."""
    runs = list(one.runs)
    return PlacementReading(
        placement=one.placement,
        trained=[
            _probed(config, each, fingerprint, pieces, trained=True)
            for each in pieces.each(f"probes of {one.title}", runs)
        ],
        untrained=[
            _probed(config, each, fingerprint, pieces, trained=False)
            for each in pieces.each(f"probes of {one.title}, untrained", runs)
        ],
        nats=one.nats,
    )


def _probed(
    config: ProbesConfig, run: LadderRun, fingerprint: str, pieces: Pieces, *, trained: bool
) -> dict[str, Any]:
    settings = {"sentences": config.probe_sentences, "frequent": config.frequent}
    words = "trained" if trained else "untrained"
    found: dict[str, Any] = pieces.get(
        f"{words}/{run.cell.name}",
        {
            "run": to_toml(replaced(run.cell.config, data__corpus=TOY)),
            "text": fingerprint,
            "trained": trained,
            **settings,
        },
        probed,
        run.cell.folder.path,
        trained=trained,
        **settings,
    )
    return found


def figures(found: _Readings) -> list[StudyFigure]:
    """Draws what probes read over depth, trained and untrained; and what a block changes of it."""
    first = next(iter(found.values()))
    return [
        StudyFigure.of_panels(
            name="probes",
            title="What probes read after every block",
            caption="Accuracy on words that the probes were not fitted to: mean over the seeds in "
            "their range. 0 completed blocks is the embedding; dots are the share of the commonest "
            "class.",
            panels=[_accuracies(found, name, untrained=False) for name in first.properties],
        ),
        StudyFigure.of_panels(
            name="untrained",
            title="What probes read of the same models as they were drawn",
            caption="As the figure before, without any training.",
            panels=[_accuracies(found, name, untrained=True) for name in first.properties],
        ),
        StudyFigure.of_panels(
            name="changed",
            title="How much each block changes what a probe reads",
            caption="By how much the probe of the depth before, which is not fitted again, falls "
            "short of one that is: mean over the seeds in their range.",
            panels=[_changes(found, name) for name in first.properties],
        ),
    ]


def _changes(found: _Readings, name: str) -> Panel:
    """Draws over the blocks how much each of them changes of one property."""
    changed_SL = {one.title: one.changed(name) for one in found.values()}
    blocks = next(iter(changed_SL.values())).shape[1]
    return curves(
        _headed(name),
        {title: shortfalls.tolist() for title, shortfalls in changed_SL.items()},
        x=range(1, blocks + 1),
        xlabel="block",
        ylabel="shortfall of accuracy",
    )


def _accuracies(found: _Readings, name: str, *, untrained: bool) -> Panel:
    rows = {
        one.title: (one.untrained_accuracy(name) if untrained else one.accuracy(name)).tolist()
        for one in found.values()
    }
    first = next(iter(found.values()))
    x = range(first.accuracy(name).shape[1])
    commonest = first.trained[0][name]["majority"]
    return curves(
        _headed(name),
        rows,
        x=x,
        xlabel="completed blocks",
        ylabel="accuracy",
        beside=[line("commonest class", "claimed", -1, x, commonest)],
    )


def _headed(name: str) -> str:
    return name[0].upper() + name[1:]


def ends(endings: list[PlacementEnding]) -> StudyTable:
    """The models that are probed."""
    return table(
        "The models that are probed, at the best rate (* the least or the largest that was tried)",
        endings,
        [
            ("placement", lambda one: one.title),
            ("rate", lambda one: f"{one.chosen[1]:g}{'*' if one.at_an_end else ''}"),
            ("last loss, nats", lambda one: estimate(one.nats)),
        ],
    )


def tables(found: _Readings) -> list[StudyTable]:
    """A row a placement and property: means over the blocks."""
    rows = [(one, name) for one in found.values() for name in one.properties]
    return [
        table(
            "What probes read, as shares of the words: means over the blocks, with intervals over "
            "the seeds",
            rows,
            [
                ("placement", lambda row: row[0].title),
                ("property", lambda row: row[1]),
                ("words", lambda row: row[0].trained[0][row[1]]["words"]),
                ("commonest class", lambda row: row[0].trained[0][row[1]]["majority"]),
                ("accuracy", lambda row: estimate(over_blocks(row[0].accuracy(row[1])))),
                ("untrained", lambda row: estimate(over_blocks(row[0].untrained_accuracy(row[1])))),
                ("control task", lambda row: _control(*row)),
                ("changed by a deep block", lambda row: estimate(row[0].changed_deep(row[1]))),
            ],
        )
    ]


def _control(one: PlacementReading, name: str) -> Any:
    return "none" if name == UNCONTROLLED else estimate(over_blocks(one.control(name)))


def conditions(
    config: ProbesConfig, baselines: tuple[float, float], runs: Mapping[str, Any]
) -> dict[str, str]:
    """Says how the models were trained and probed."""
    shared = conditions_of_trainings(config.trainings, baselines, runs)
    del shared["BLEU"]
    return {
        **shared,
        "text": "German to English of the toy language, whose grammar is known, a word a token",
        "probes": (
            "multinomial logistic regression with an L2 penalty of 1 on features of mean 0 and "
            "deviation 1, of the encoder's stream as a norm without gain reads it; fitted to the "
            f"words of two thirds of {config.probe_sentences:,} sentences of the test split, and "
            "asked of the others"
        ),
        "properties": (
            f"the word and the word before, where it is one of the {config.frequent} most "
            "frequent; the position, up to the tenth; the case of masculine nouns, which the words "
            "around them tell and their form does not"
        ),
        "control": (
            "classes that each word has at random, as often as the property has them; none of the "
            "word itself, whose control task would be the same"
        ),
        "untrained": "the same models as they were drawn, by the same seeds",
    }


def _data(one: PlacementReading, ending: PlacementEnding) -> dict[str, Any]:
    return {
        "placement": one.placement,
        "title": one.title,
        "best_lr": ending.chosen[1],
        "last_loss_nats": one.nats,
        "properties": {
            name: {
                "majority": one.trained[0][name]["majority"],
                "words": one.trained[0][name]["words"],
                "accuracy": one.accuracy(name),
                "untrained": one.untrained_accuracy(name),
                "control": None if name == UNCONTROLLED else one.control(name),
                "changed": one.changed(name),
                "mean_accuracy": _mean(over_blocks(one.accuracy(name))),
                "mean_untrained": _mean(over_blocks(one.untrained_accuracy(name))),
                "changed_by_deep_blocks": _mean(one.changed_deep(name)),
            }
            for name in one.properties
        },
    }


def _mean(values_S: Floats) -> dict[str, Any]:
    return plain_estimate(estimate(values_S))


STUDY = Study(
    title="What linear probes read from the stream, by placement",
    question=(
        "Does the placement change what a linear probe reads from the residual stream over depth: "
        "the word, the word before, the position, a noun's case; and do Pre-LN's deep blocks "
        "change it less?"
    ),
    help="What do linear probes read from the stream?",
    scales=SCALES,
    run=run,
    reads_checkpoints=True,
)
