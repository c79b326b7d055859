"""The paper's Figures 2 and 4, small: warm-up and placement with the decay of the rate held fixed."""

from collections.abc import Iterator
from typing import Any

from ..evidence import BestRate, EvidenceRow, EvidenceSetting
from .arms import Arm, own_best
from .settings import measured_in


def translation(name: str, data: Any) -> Iterator[EvidenceSetting | EvidenceRow | BestRate]:
    """Runs with warm-up beside those without that have the same decay, under Adam and under each placement."""
    asked = data["settings"]
    texts = {"de-en": asked["corpus"], "en-de": asked["en_de_corpus"]}
    for pair in dict.fromkeys(one["text"] for one in data["configurations"]):
        setting = measured_in(
            name,
            data,
            part=pair,
            model="encoder-decoder",
            blocks=asked["blocks"],
            width=asked["width"],
            updates=asked["epochs"] * asked["epoch_updates"],
            update_tokens=asked["max_tokens"],
            text=texts[pair],
            unigram_nats=data["unigram_nats"][pair],
        )
        yield setting
        yield from own_best(setting, list(_arms(data, pair, asked["long_warmup_updates"])), "the same decay for both")


def _arms(data: Any, pair: str, warmup_updates: int) -> Iterator[Arm]:
    """The paper's decay begins where its warm-up ends: those without one whose decay begins at the same update."""
    schedules = {
        f"warm-up {warmup_updates}, coupled decay": warmup_updates,
        f"no warm-up, decay from {warmup_updates}": 0,
    }
    for place, one in enumerate(data["configurations"]):
        if one["text"] == pair and one["schedule"] in schedules:
            yield Arm(
                placement=one["placement"],
                optimizer=one["optimizer"],
                warmup_updates=schedules[one["schedule"]],
                peak_lr=one["peak_lr"],
                losses=one["last_loss_nats"],
                source=f"/configurations/{place}/last_loss_nats",
            )
