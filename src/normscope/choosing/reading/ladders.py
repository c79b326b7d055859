"""The studies that give every placement its own best rate: optimisers, and the newer residual streams."""

from collections.abc import Iterator
from typing import Any

from ..evidence import BASELINE, BestRate, EvidenceRow, EvidenceSetting
from .judged import paired
from .settings import measured_in

_KINDS = {"language-model": "decoder-only", "translation": "encoder-decoder"}


def optimizers(name: str, data: Any) -> Iterator[EvidenceSetting | EvidenceRow | BestRate]:
    """`normscope study optimizers`: seven rates a configuration, three seeds at the best."""
    asked = data["settings"]
    setting = measured_in(
        name,
        data,
        model="decoder-only",
        blocks=asked["blocks"],
        width=asked["width"],
        updates=asked["updates"],
        update_tokens=asked["batch_sequences"] * asked["sequence_length"],
        text=asked["text"],
        unigram_nats=data["unigram_nats"],
    )
    yield setting
    better = {}
    for place, pairing in enumerate(data["pairings"]):
        key, at = (pairing["placement"], pairing["optimizer"]), f"/pairings/{place}"
        cold, warm = pairing["without_warmup"], pairing["with_warmup"]
        yield paired(
            "no-warmup",
            placement=key[0],
            optimizer=key[1],
            setting=setting,
            losses=(cold["last_loss_nats"], warm["last_loss_nats"]),
            source=[f"{at}/gain_nats"],
            interval=pairing["gain_nats"],
        )
        for arm, where in ((cold, f"{at}/without_warmup"), (warm, f"{at}/with_warmup")):
            yield _rate(key, setting, arm, where, arm["peak_lrs"])
        arm, where = min(((cold, "without_warmup"), (warm, "with_warmup")), key=lambda pair: pair[0]["mean_nats"])
        better[key] = arm["last_loss_nats"], f"{at}/{where}/last_loss_nats"
    for (placement, optimizer), (losses, at) in better.items():
        theirs, baseline_at = better[BASELINE, optimizer]
        if at != baseline_at:
            yield paired(
                "lower-loss",
                placement=placement,
                optimizer=optimizer,
                setting=setting,
                losses=(losses, theirs),
                source=[at, baseline_at],
            )


def streams(name: str, data: Any) -> Iterator[EvidenceSetting | EvidenceRow | BestRate]:
    """`normscope study streams`, on one task or several: five rates, as many parameters as Pre-LN."""
    asked = data["settings"]
    for task, trial in data["trials"].items():
        decoder = _KINDS[task] == "decoder-only"
        setting = measured_in(
            name,
            data,
            part="" if len(data["trials"]) == 1 else task,
            model="decoder-only" if decoder else "encoder-decoder",
            blocks=asked["blocks" if decoder else "stack_blocks"],
            width=asked["width"],
            updates=asked["updates"],
            update_tokens=asked["batch_sequences"] * asked["sequence_length"] if decoder else asked["max_tokens"],
            text=asked["text" if decoder else "pairs"],
            unigram_nats=trial["unigram_nats"],
        )
        yield setting
        baseline = trial["placements"][BASELINE]
        for placement, one in trial["placements"].items():
            at = f"/trials/{task}/placements/{placement}"
            cold, warm = one["without_warmup"], one["with_warmup"]
            yield paired(
                "no-warmup",
                placement=placement,
                optimizer="adam",
                setting=setting,
                losses=(cold["last_loss_nats"], warm["last_loss_nats"]),
                source=[f"{at}/warmup_gain_nats"],
                interval=one["warmup_gain_nats"],
            )
            for arm, which in ((cold, "without_warmup"), (warm, "with_warmup")):
                yield _rate((placement, "adam"), setting, arm, f"{at}/{which}", asked["peak_lrs"])
            if one is not baseline:
                yield paired(
                    "lower-loss",
                    placement=placement,
                    optimizer="adam",
                    setting=setting,
                    losses=(_better(one), _better(baseline)),
                    source=[f"{at}/less_pre_ln_nats"],
                    interval=one["less_pre_ln_nats"],
                )


def _better(one: Any) -> list[float]:
    arm = min((one["without_warmup"], one["with_warmup"]), key=lambda arm: arm["mean_nats"])
    losses: list[float] = arm["last_loss_nats"]
    return losses


def _rate(key: tuple[str, str], setting: EvidenceSetting, arm: Any, at: str, ladder: list[float]) -> BestRate:
    return BestRate(
        placement=key[0],
        optimizer=key[1],
        setting=setting.name,
        warmup_updates=arm["warmup_updates"],
        peak_lr=arm["best_lr"],
        ladder=(min(ladder), max(ladder)),
        at_an_end=arm["best_at_an_end"],
        loss_nats=arm["last_loss_nats"],
        source=f"{at}/last_loss_nats",
    )
