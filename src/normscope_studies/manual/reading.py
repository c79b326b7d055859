"""The evidence as the committed results have it.

A result is read in two steps: where it was measured, from its settings, and its runs as arms, one
for each placement, optimiser, warm-up and rate. What arms say is the same for all results and
stands in `arms`.
"""

import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from normscope.choosing import evidence
from normscope.errors import UserError
from normscope.optim.optimizers import OPTIMIZERS
from normscope.placement import registered

from ..engine.estimates import estimate
from ..engine.judging import holm
from .arms import MeasuredArm, difference, measured_in, own_best, unless_at_an_end
from .grid_sizes import SIZES

_Read = evidence.EvidenceSetting | evidence.EvidenceRow | evidence.BestRate
_Kept = TypeVar("_Kept", evidence.EvidenceRow, evidence.BestRate)


def collect(results: Path) -> evidence.Evidence:
    """Returns what the results of a clone say. Raises UserError where one of them is not there."""
    found = [one for name, read in _READERS.items() for one in read(name, _load(results, name))]
    depths, advice = _load(results, "depth"), _load(results, "advice")
    return evidence.Evidence(
        settings={one.name: one for one in found if isinstance(one, evidence.EvidenceSetting)},
        # Figure 4 trains some of figure 2's runs again, word for word.
        findings=_once(
            [one for one in found if isinstance(one, evidence.EvidenceRow)],
            "mean",
            "half_width",
            "note",
        ),
        rates=_once(
            [one for one in found if isinstance(one, evidence.BestRate)],
            "warmup_updates",
            "loss_nats",
        ),
        trained=list(_trained(advice)),
        published_ladders=list(_published_ladders(_load(results, "rate_law"))),
        depths=list(_depths(depths)),
        depth_blocks=depths["settings"]["blocks"],
        advice=list(_advice(advice)),
        optimizers=list(OPTIMIZERS),
    )


def _load(results: Path, name: str) -> Any:
    file = results / name / "results.json"
    if not file.is_file():
        raise UserError(
            f"{file}: no such file; the manual's pages are made in a clone, from its folder "
            "results/"
        )
    return json.loads(file.read_text(encoding="utf-8"))


def _once(found: Sequence[_Kept], *keys: str) -> list[_Kept]:
    """The last of those that say the same of a placement and an optimiser: it is the one with the
    longer ladder.
    """

    def said(one: _Kept) -> str:
        values: list[Any] = [getattr(one, key) for key in ("placement", "optimizer", *keys)]
        return repr([getattr(one, "question", ""), *values])

    last = {said(one): one for one in found}
    return [one for one in found if last[said(one)] is one]


_WITHOUT_WARMUP: Mapping[str, evidence.Support] = {
    "needs it": "contradicted",
    "gains from it": "contradicted",
    "does not": "supported",
    "undecided": "undecided",
    "did not learn": "undecided",
}
"""The evidence on whether a placement trains without a warm-up, by the verdict of `normscope study
optimizers`.
"""


def _optimizers(name: str, data: Any) -> Iterator[_Read]:
    """`normscope study optimizers`: seven rates a configuration with each warm-up, other seeds at
    the best.
    """
    asked = data["settings"]
    setting = measured_in(
        name,
        data,
        model="decoder-only",
        updates=asked["updates"],
        update_tokens=asked["batch_sequences"] * asked["sequence_length"],
        text=asked["text"],
        unigram_nats=data["unigram_nats"],
    )
    yield setting
    better: dict[tuple[str, str], MeasuredArm] = {}
    for place, one in enumerate(data["pairings"]):
        at, ladders = (
            f"/pairings/{place}",
            {which: one[which] for which in ("without_warmup", "with_warmup")},
        )
        key = one["placement"], one["optimizer"]
        cold, warm = (
            MeasuredArm(
                placement=one["placement"],
                optimizer=one["optimizer"],
                warmup_updates=ladder["warmup_updates"],
                peak_lr=ladder["best_lr"],
                losses=ladder["last_loss_nats"],
                source=f"{at}/{which}/last_loss_nats",
                at_an_end=ladder["best_at_an_end"],
            )
            for which, ladder in ladders.items()
        )
        better[key] = min(better.get(key, cold), cold, warm, key=lambda arm: arm.mean)
        against = f"against a warm-up of {warm.warmup_updates} updates"
        row = difference(
            "no-warmup",
            setting,
            cold,
            warm,
            note=against,
            stated=(one["gain_nats"], f"{at}/gain_nats"),
        )
        # The result's own verdict is corrected for how many there are.
        row = replace(row, answer=_WITHOUT_WARMUP[one["verdict"]])
        yield unless_at_an_end(row, cold, warm)
        for ladder, arm in zip(ladders.values(), (cold, warm), strict=True):
            yield arm.best_of(setting, ladder["peak_lrs"])
    for (placement, optimizer), arm in better.items():
        if placement != evidence.BASELINE:
            yield difference("lower-loss", setting, arm, better[evidence.BASELINE, optimizer])


def _by_depth(name: str, data: Any) -> Iterator[_Read]:
    """`normscope study rate-transfer`: placements at each depth. The two seeds chose the rates that
    they are judged at, so that their differences decide nothing, and lean all the same; what
    learned at no rate, where the baseline did, is decided against.
    """
    asked, first = data["settings"], data["ladders"][0]
    update_tokens = _batch_tokens_of(first["case"])
    for blocks in asked["blocks"]:
        setting = measured_in(
            name,
            data,
            part=f"{blocks} blocks",
            model="decoder-only",
            size=(blocks, asked["width"]),
            updates=asked["updates"],
            update_tokens=update_tokens,
            text=asked["text_file"],
            unigram_nats=first["unigram_nats"],
        )
        yield setting
        arms = {}
        learned_at_none = {}
        for place, one in enumerate(data["ladders"]):
            model, _, _, placement, size, _, optimizer, *_ = one["case"].split("_")
            if (model, size) == ("decoder", f"{blocks}x{asked['width']}"):
                arms[placement] = MeasuredArm(
                    placement=placement,
                    optimizer=optimizer,
                    warmup_updates=0,
                    peak_lr=one["best_rate"],
                    losses=one["best_nats"],
                    source=f"/ladders/{place}/best_nats",
                )
                if not one["learned"]:
                    learned_at_none[placement] = len(one["trainings"])
        baseline = arms.pop(evidence.BASELINE)
        for placement, arm in arms.items():
            found = difference(
                "lower-loss", setting, arm, baseline, note="its seeds chose its rate"
            )
            rates = learned_at_none.get(placement)
            if rates is None or evidence.BASELINE in learned_at_none:
                yield replace(found, answer="undecided")
            else:
                # No choice of a rate makes up for that.
                told = f"it learned at none of {rates} rates, where Pre-LN learned"
                yield replace(found, answer="contradicted", note=told)


def _converged(name: str, data: Any) -> Iterator[_Read]:
    """`normscope study converged`: each placement at its best warm-up and rate, which another seed
    chose; all of them judged together, by Holm, as the study does."""
    asked = data["settings"]
    setting = measured_in(
        name,
        data,
        model="encoder-decoder",
        updates=asked["updates"],
        update_tokens=asked["max_tokens"],
        text=asked["corpus"],
        unigram_nats=data["unigram_nats"],
    )
    yield setting
    arms = {}
    for place, one in enumerate(data["endings"]):
        arms[one["placement"]] = arm = MeasuredArm(
            **{key: one[key] for key in ("placement", "optimizer", "warmup_updates")},
            peak_lr=one["best_lr"],
            losses=one["last_loss_nats"],
            source=f"/endings/{place}/last_loss_nats",
            at_an_end=one["best_at_an_end"],
        )
        yield arm.best_of(setting, one["peak_lrs"])
    baseline = arms.pop(evidence.BASELINE)
    family = {}
    for placement, arm in arms.items():
        less = [a - b for a, b in zip(arm.losses, baseline.losses, strict=True)]
        family[placement] = (estimate(less), -math.inf, 0.0)
    together = holm(family)
    for placement, arm in arms.items():
        if placement not in _FAILED.get(name, ()):
            row = difference("lower-loss", setting, arm, baseline)
            if row.learned:
                row = replace(row, answer=_HOLDS[together[placement]])
            yield unless_at_an_end(row, arm, baseline)


_HOLDS: Mapping[bool | None, evidence.Support] = {
    True: "supported",
    False: "contradicted",
    None: "undecided",
}
_FAILED: Mapping[str, Sequence[str]] = {"streams": ("hyper-connections",)}
"""The placements whose rate, chosen by trainings a fifth as long, may have been too large for whole
ones, by result.
"""


def _grid(name: str, data: Any) -> Iterator[_Read]:
    """A comparison of encoder-decoders, each configuration at the best of its rates; where there
    was one, at that.
    """
    size = SIZES[name]
    setting = measured_in(
        name,
        data,
        model="encoder-decoder",
        size=(size.blocks, size.width),
        updates=size.updates,
        update_tokens=size.batch_tokens,
        text=size.text,
        unigram_nats=data["chance_nll_nats"],
    )
    yield setting
    names = {placement.title: name for name, placement in registered().items()}
    arms = []
    for place, arm in enumerate(data["arms"]):
        losses = [seed["valid_loss_nats"] for seed in arm["seeds"]]
        # A configuration counts whose every seed came to its end.
        if None in losses:
            continue
        arms.append(
            MeasuredArm(
                placement=names[arm["placement"]],
                optimizer=arm["optimizer"],
                warmup_updates=arm["warmup_updates"],
                peak_lr=arm["peak_lr"],
                losses=losses,
                source=f"/arms/{place}/seeds/*/valid_loss_nats",
            )
        )
    yield from own_best(setting, arms)


def _translation(name: str, data: Any) -> Iterator[_Read]:
    """The paper's Figures 2 and 4, small: runs with warm-up beside those without that have the same
    decay.

    The paper's decay begins where its warm-up ends: those without one whose decay begins at the
    same update.
    """
    asked = data["settings"]
    texts = {"de-en": asked["corpus"], "en-de": asked["en_de_corpus"]}
    warmup = asked["long_warmup_updates"]
    schedules = {f"warm-up {warmup}, coupled decay": warmup, f"no warm-up, decay from {warmup}": 0}
    for pair in dict.fromkeys(one["text"] for one in data["configurations"]):
        setting = measured_in(
            name,
            data,
            part=pair,
            model="encoder-decoder",
            updates=asked["epochs"] * asked["epoch_updates"],
            update_tokens=asked["max_tokens"],
            text=texts[pair],
            unigram_nats=data["unigram_nats"][pair],
        )
        yield setting
        arms = [
            MeasuredArm(
                placement=one["placement"],
                optimizer=one["optimizer"],
                warmup_updates=schedules[one["schedule"]],
                peak_lr=one["peak_lr"],
                losses=one["last_loss_nats"],
                source=f"/configurations/{place}/last_loss_nats",
            )
            for place, one in enumerate(data["configurations"])
            if one["text"] == pair and one["schedule"] in schedules
        ]
        yield from own_best(setting, arms, "the same decay for both")


def _depths(data: Any) -> Iterator[evidence.Depth]:
    """`normscope study depth`: what each placement's hidden state did over all blocks."""
    for place, one in enumerate(data["placements"]):
        yield evidence.Depth(
            placement=one["name"],
            behaviour=one["behaviour"],
            exponent=one["exponent"],
            source=f"/placements/{place}/exponent",
        )


def _advice(data: Any) -> Iterator[evidence.AdviceClaim]:
    """`normscope study advice`: its claims about the doctor's rates and warm-ups, in its words."""
    for place, claim in enumerate(data["claims"]):
        if claim["name"].startswith(("Known rates", "Warm-up")):
            said = {key: claim[key] for key in ("statement", "found", "verdict")}
            yield evidence.AdviceClaim(result="advice", source=f"/claims/{place}", **said)


def _trained(data: Any) -> Iterator[evidence.TrainedRate]:
    """The best rate of every case of `normscope study advice` that learned at any, of its first
    horizon.
    """
    for name, case in data["cases"].items():
        if facts := case["facts"]:
            yield evidence.TrainedRate(
                family=case["family"],
                **{key: facts[key] for key in ("optimizer", "width", "sublayers", "normed_sums")},
                batch_tokens=_batch_tokens_of(name),
                updates=case["ladders"][0]["updates"],
                best_rate=case["ladders"][0]["best_rate"],
                source=f"advice#/cases/{name}/ladders/0/best_rate",
            )


def _batch_tokens_of(case: str) -> int:
    """Returns the tokens of a batch, which the name of a case tells: those of
    "llama_toy_2x48_256-32_adamw_cosine" are 256.
    """
    found = re.search(r"_(\d+)-\d+_", case)
    if found is None:
        raise ValueError(f"the name of the case {case!r} tells no batch")
    return int(found[1])


def _published_ladders(data: Any) -> Iterator[evidence.PublishedLadder]:
    """Reads `normscope study rate-law`: the best rate of every published ladder."""
    for place, one in enumerate(data["ladders"]):
        sizes = {key: one[key] for key in ("width", "blocks", "batch_tokens", "tokens")}
        yield evidence.PublishedLadder(
            family=one["family"],
            best_rate=one["best_rate"],
            source=f"rate_law#/ladders/{place}/best_rate",
            **sizes,
        )


_READERS: Mapping[str, Callable[[str, Any], Iterable[_Read]]] = {
    "optimizers_long": _optimizers,
    "converged": _converged,
    "streams": _converged,
    "rate_transfer": _by_depth,
    **dict.fromkeys(SIZES, _grid),
    "figure2": _translation,
    "figure4": _translation,
}
"""The reader of each folder of results/. The others compare no placements or warm-ups, or have them
at one seed.
"""
