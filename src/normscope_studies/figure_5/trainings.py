"""Figure 5's trainings: BERT pre-trained, and checkpoints of the paper's two arms fine-tuned."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from normscope.compare.grid import Cell, Grid
from normscope.compare.state import CellState
from normscope.data.documents.pairs import SentencePair, pack_pairs
from normscope.data.opening import open_documents
from normscope.evidence.estimates import estimate
from normscope.finetune.cells import SearchSpace, TuningCell
from normscope.finetune.finetune import finetune, pair_task
from normscope.measure import Estimate
from normscope.tasks.masked_lm import MASKED_LM
from normscope.train.run_folder import RunFolder

from ..engine.ladders import train
from ..engine.pieces import Pieces
from ..translation.comparing import updates_to
from .config import ArmPair, Figure5Config, PretrainingArm


@dataclass(frozen=True, slots=True, kw_only=True)
class PretrainingCurve:
    """Validations of one pre-training; the lists are of one length."""

    folder: RunFolder
    updates: Sequence[int]
    loss_nats: Sequence[float]
    """Masked tokens and next sentences together, as BERT minimises them and the paper shows them."""
    nll_nats: Sequence[float]
    """Masked tokens alone."""
    next_sentence_accuracy: Sequence[float]
    ended: str
    """finished or non-finite."""


PretrainingCurves = dict[PretrainingArm, list[PretrainingCurve]]
"""By arm, one a seed."""


def cells_of(config: Figure5Config, pieces: Pieces) -> list[Cell]:
    """The pre-trainings, the first seed of every arm first."""
    base, folder = config.training(), pieces.folder / "pre-training"
    cells = []
    for placement, warmup_updates, peak_lr in config.arms:
        grid = Grid(
            placements_and_warmups=((placement, warmup_updates),),
            peak_lrs=(peak_lr,),
            optimizers=("adamw",),
            seeds=config.seeds,
        )
        cells += grid.cells(base, folder)
    return sorted(cells, key=lambda cell: cell.seed)


def pretrained(config: Figure5Config, cells: Sequence[Cell], pieces: Pieces) -> PretrainingCurves:
    """Train what the folder lacks, the first seed of every arm first.

    Raises UserError for a corpus that is not there, a run folder that holds something else, or a training that failed.
    """
    train(cells, "the pre-trainings", pieces)
    found: PretrainingCurves = {arm: [] for arm in config.arms}
    for cell in cells:
        arm = PretrainingArm(cell.arm.placement, cell.arm.warmup_updates, cell.arm.peak_lr)
        found[arm].append(_curve(cell))
    return found


def _curve(cell: Cell) -> PretrainingCurve:
    events = cell.folder.events()
    validations = [event for event in events if event["event"] == "validation"]
    return PretrainingCurve(
        folder=cell.folder,
        updates=[event["update"] for event in validations],
        loss_nats=[event["loss_nats"] for event in validations],
        nll_nats=[event["nll_nats"] for event in validations],
        next_sentence_accuracy=[event["next_sentence_accuracy"] for event in validations],
        ended=events[-1]["event"],
    )


def shares(pair: ArmPair, curves: PretrainingCurves) -> list[float | None]:
    """For each seed: updates after which Pre-LN is where Post-LN ends, as a part of all; None where it never is."""
    found: list[float | None] = []
    for post, pre in zip(curves[pair.post], curves[pair.pre], strict=True):
        reached = updates_to(pre.updates, pre.loss_nats, post.loss_nats[-1])
        found.append(None if reached is None else reached / post.updates[-1])
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Chance:
    """What a model that ignores its input comes to."""

    nll_nats: float
    """Entropy of the validation tokens taken one by one."""
    next_sentence_accuracy: float
    """Of always saying the same. A sequence of one sentence has a random second part always, so it is above a half."""


def chance(config: Figure5Config) -> Chance:
    """On the pairs that every pre-training is validated on."""
    corpus = open_documents(config.training().data)
    pairs = pack_pairs(corpus.splits["valid"], sequence_length=config.sequence_length, seed=0)
    share = float(pairs.rows[: config.valid_sequences, SentencePair._fields.index("is_random")].mean())
    return Chance(nll_nats=MASKED_LM.chance_nats(corpus), next_sentence_accuracy=max(share, 1 - share))


@dataclass(frozen=True, slots=True, kw_only=True)
class TunedPoint:
    """One checkpoint, fine-tuned with several seeds under one setting."""

    setting: str
    accuracies: Sequence[float]
    f1s: Sequence[float]


@dataclass(frozen=True, slots=True, kw_only=True)
class TunedTask:
    """What fine-tuning on one task came to."""

    majority: float
    """Accuracy of always saying the more frequent label."""
    conditions: str
    points: Mapping[tuple[PretrainingArm, int], TunedPoint]
    """By arm and updates of its pre-training."""
    searched: Sequence[tuple[PretrainingArm, int, str, float | None]]
    """Arm, updates, setting and accuracy of every setting that was tried with the first seed; None: not finite."""


def tuned_checkpoints(config: Figure5Config, task: str, curves: PretrainingCurves, pieces: Pieces) -> TunedTask:
    """The last checkpoint of each arm's first seed gets the whole search, the earlier ones the setting it chose.

    Raises UserError for files that are not there, and RunsFailed.
    """
    points: dict[tuple[PretrainingArm, int], TunedPoint] = {}
    searched: list[tuple[PretrainingArm, int, str, float | None]] = []
    majority, pairs, seeds = 0.0, pair_task(task, data=Path(config.glue) / task), config.tune_seeds
    *earlier, last = config.tuned_updates

    def watch(stage: str, states: Sequence[CellState[TuningCell]]) -> None:
        pieces.watch(stage, sum(state.over for state in states), len(states))

    for arm in config.arms[:2]:
        run = curves[arm][0].folder.path
        batch_sizes, rates, epochs = config.tune_batch_sizes, config.tune_rates, config.tune_epochs
        space = SearchSpace(batch_sizes=batch_sizes, rates=rates, epochs=epochs, seeds=seeds)
        for update in (last, *earlier):
            found = finetune(
                run,
                pairs,
                pieces.folder / "fine-tuning" / f"{task}_{run.name}_update-{update}",
                space=space,
                which=str(update),
                sequence_length=config.tune_sequence_length,
                watch=partial(watch, f"{task}, {arm.title}, {update}"),
            )
            summary, chosen = found.summary, found.summary.setting
            majority = summary.majority_share
            points[arm, update] = TunedPoint(setting=chosen.words, accuracies=summary.accuracies, f1s=summary.f1s)
            if update == last:
                searched += [(arm, update, cell.setting.words, _accuracy(cell)) for cell in found.searched]
                sizes, rate, length = chosen.batch_sequences, chosen.peak_lr, chosen.epochs
                space = SearchSpace(batch_sizes=(sizes,), rates=(rate,), epochs=(length,), seeds=seeds)
    ordered = {(arm, update): points[arm, update] for arm, update in sorted(points, key=lambda key: key[1])}
    return TunedTask(majority=majority, conditions=_conditions(config), points=ordered, searched=searched)


def advantages(config: Figure5Config, tuned: TunedTask) -> dict[int, Estimate]:
    """By updates: accuracy of Pre-LN less that of Post-LN, over the seeds of fine-tuning, taken in pairs."""
    own, found = config.pairs[0], {}
    for update in config.tuned_updates:
        post, pre = (tuned.points[arm, update].accuracies for arm in (own.post, own.pre))
        # A fine-tuning that did not stay finite is left out, and makes one list shorter.
        found[update] = estimate([b - a for a, b in zip(post, pre, strict=False)])
    return found


def _accuracy(cell: TuningCell) -> float | None:
    outcome = cell.outcome()
    return None if outcome is None else outcome.accuracy


def _conditions(config: Figure5Config) -> str:
    batches = " or ".join(map(str, config.tune_batch_sizes))
    rates = " or ".join(f"{rate:g}" for rate in config.tune_rates)
    epochs = " or ".join(map(str, config.tune_epochs))
    return (
        f"checkpoints of the paper's two arms, first seed; {config.tune_seeds} seeds of fine-tuning; batch {batches}, "
        f"rate {rates}, {epochs} epochs, sequences of up to {config.tune_sequence_length} tokens; the setting is "
        "chosen by the first seed's accuracy on the same development set, at the last checkpoint of each arm"
    )
