"""Comparisons: every placement at the same rates, with warm-up and without."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from ...placement import registered
from ..evidence import BestRate, EvidenceRow, EvidenceSetting
from .arms import Arm, own_best
from .settings import measured_in


@dataclass(frozen=True, slots=True, kw_only=True)
class _Size:
    """What a comparison was trained with: its results hold this in words alone, and a test holds these to them."""

    model: Literal["decoder-only", "encoder-decoder"] = "encoder-decoder"
    blocks: int
    width: int
    updates: int
    batch_tokens: int
    """At most, in an update."""
    text: str
    left_out: Sequence[str] = ()
    """Placements that were another formula then."""


SIZES: Mapping[str, _Size] = {
    "lr_sensitivity": _Size(
        model="decoder-only", blocks=8, width=32, updates=250, batch_tokens=16 * 32, text="wikitext2_1000"
    ),
    # Admin had another first scale there than its paper's; placements_cpu_newer has the paper's.
    "placements_cpu": _Size(
        blocks=6, width=64, updates=500, batch_tokens=1024, text="multi30k_deen", left_out=("admin",)
    ),
    "placements_cpu_newer": _Size(blocks=6, width=64, updates=500, batch_tokens=1024, text="multi30k_deen"),
    "multi30k_cpu": _Size(blocks=6, width=96, updates=800, batch_tokens=2048, text="multi30k_deen"),
}


def grid(name: str, data: Any) -> Iterator[EvidenceSetting | EvidenceRow | BestRate]:
    """A comparison, each configuration at the best of its rates; where there was one rate, at that."""
    size = SIZES[name]
    setting = measured_in(
        name,
        data,
        model=size.model,
        blocks=size.blocks,
        width=size.width,
        updates=size.updates,
        update_tokens=size.batch_tokens,
        text=size.text,
        unigram_nats=data["chance_nll_nats"],
    )
    yield setting
    yield from own_best(setting, [arm for arm in _arms(data) if arm.placement not in size.left_out])


def _arms(data: Any) -> Iterator[Arm]:
    """Configurations whose every seed came to its end."""
    names = {placement.title: name for name, placement in registered().items()}
    for place, arm in enumerate(data["arms"]):
        losses = [seed["valid_loss_nats"] for seed in arm["seeds"]]
        if any(loss is None for loss in losses):
            continue
        yield Arm(
            placement=names[arm["placement"]],
            optimizer=arm["optimizer"],
            warmup_updates=arm["warmup_updates"],
            peak_lr=arm["peak_lr"],
            losses=losses,
            source=f"/arms/{place}/seeds/*/valid_loss_nats",
        )
