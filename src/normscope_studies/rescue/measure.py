"""One training of a model with a fault or a remedy, and what the doctor says of one that failed."""

# B = sequences, T = tokens
import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

import normscope
from normscope.errors import UserError
from normscope.history.explain import explain
from normscope.history.joined import lasting, ways_on
from normscope.history.little import beside_rate
from normscope.history.record import History, LoggedSeries, TrainingRecipe
from normscope.history.remedies import Remedy, situation_of, skip_fault
from normscope.tasks.loss import unigram_entropy_nats

from ..advice.texts import running
from ..engine.checks import check_choices, check_different, check_least
from .models import FAMILIES, RescueModel

RATES: dict[str, tuple[float, float]] = {
    "post-ln": (1e-2, 3e-2),
    "deepnorm": (3e-2, 1e-1),
    "pre-ln": (1e-1, 3e-1),
    "no-norms": (3e-2, 1e-1),
    "skip-behind-norm": (1e-2, 3e-2),
    "attention-without-skip": (3e-3, 1e-2),
}
"""The two rates at which each fails: looked for on the first seed before the study was run."""
SOUND = "pre-ln"
SOUND_RATES = (1e-3, 3e-3, 1e-2)
"""The rates whose best loss is that of a sound training of the same length."""
FAILED_SHARE, CURED_SHARE = 0.25, 0.5
"""The shares of the way from the entropy of single tokens down to the sound training's loss: a
training that went less than a quarter of it has failed, one that went half of it is cured.
"""
LAST = 20
"""Updates whose mean loss is where a training ended."""
_CLIP_NORM = 1.0
_TEXT = "markov"


@dataclass(frozen=True, slots=True, kw_only=True)
class RescueConfig:
    """Decoders of 8 blocks on a chain of tokens in which the two before tell the next. Raises
    ValueError."""

    families: tuple[str, ...] = tuple(FAMILIES)
    wirings: tuple[str, ...] = tuple(RATES)
    seeds: int = 1
    updates: int = 200
    width: int = 32
    heads: int = 4
    tokens: int = 16
    sequences: int = 16

    def __post_init__(self) -> None:
        check_choices(self, "families", tuple(FAMILIES))
        check_choices(self, "wirings", tuple(RATES))
        check_different(self, "families", "wirings")
        check_least(self, seeds=1, updates=2 * LAST, tokens=2, sequences=1, width=8)


@dataclass(frozen=True, slots=True, kw_only=True)
class RescueTraining:
    """One training."""

    family: str
    wiring: str
    rate: float
    seed: int
    warmup_updates: int = 0
    to: str = ""
    """The placement that the model is transplanted to first; "" for none."""


def trained(asked: RescueTraining, config: RescueConfig) -> dict[str, Any]:
    """Trains, and returns its losses and the norms of its gradients, update by update, up to the
    first that is not finite; and why it was not begun, where a transplant is refused.
    """
    text = running(_TEXT, "")
    torch.manual_seed(asked.seed)
    model: nn.Module = _model(asked, config)
    draw = torch.Generator().manual_seed(asked.seed)
    if asked.to:
        try:
            normscope.transplant(
                model, asked.to, inputs=(_batch(text.train, config, draw)[:, :-1],)
            )
        except UserError as error:
            return {"losses": [], "norms": [], "refused": str(error)}
    optimizer = torch.optim.AdamW(model.parameters(), lr=asked.rate)
    losses: list[float] = []
    norms: list[float] = []
    for update in range(1, config.updates + 1):
        rate = asked.rate * min(1.0, update / max(1, asked.warmup_updates))
        for group in optimizer.param_groups:
            group["lr"] = rate
        loss = _loss(model, _batch(text.train, config, draw))
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        norms.append(float(nn.utils.clip_grad_norm_(model.parameters(), _CLIP_NORM)))
        optimizer.step()
        losses.append(loss.item())
        if not math.isfinite(losses[-1]):
            break
    return {"losses": losses, "norms": norms, "refused": ""}


def answered(
    asked: RescueTraining,
    config: RescueConfig,
    losses: list[float | None],
    norms: list[float | None],
) -> dict[str, Any]:
    """Returns what the doctor says of a training by its model and its log: the situation, what is
    to be fixed, and the values of each remedy. losses, norms: None where one was not finite.
    """
    text = running(_TEXT, "")
    torch.manual_seed(asked.seed)
    model = _model(asked, config)
    batch = _batch(text.train, config, torch.Generator().manual_seed(asked.seed))
    diagnosis = normscope.diagnose(
        model,
        (batch[:, :-1],),
        loss=lambda output: _cross_entropy(output, batch),
        optimizer=torch.optim.AdamW(model.parameters(), lr=asked.rate),
        wanted_warmup_updates=0,
        batch_tokens=batch[:, :-1].numel(),
    )
    updates = tuple(range(1, len(losses) + 1))
    history = History(
        source="the training's log",
        loss=LoggedSeries(updates, _numbers(losses)),
        rate=LoggedSeries(updates, (asked.rate,) * len(updates)),
        gradient_norm=LoggedSeries(updates, _numbers(norms)),
        recipe=TrainingRecipe(unigram_nats=unigram_nats()),
    )
    episode = lasting(beside_rate(explain(history), diagnosis))
    fault = skip_fault(diagnosis)
    found = {
        "situation": str(situation_of(diagnosis)),
        "finding": "" if fault is None else fault.id,
        "episode": "" if episode is None else str(episode.kind),
        "cause": "" if episode is None else episode.cause,
    }
    if episode is None:
        return found | {"remedies": [], "rate": None, "warmup_updates": None, "to": ""}
    ways = ways_on(diagnosis, episode, history)
    named = [Remedy.MEND] if fault is not None else []
    return found | {
        "remedies": [str(one) for one in (*named, *ways.order)],
        "rate": ways.other_rate,
        "warmup_updates": ways.longer_warmup_updates,
        "to": ways.to,
    }


def unigram_nats() -> float:
    """Returns the entropy of the text's tokens."""
    return unigram_entropy_nats(running(_TEXT, "").train.numpy())


def _model(asked: RescueTraining, config: RescueConfig) -> RescueModel:
    return RescueModel(
        asked.family,
        asked.wiring,
        vocabulary=running(_TEXT, "").vocabulary,
        width=config.width,
        heads=config.heads,
        tokens=config.tokens,
    )


def _batch(text: Tensor, config: RescueConfig, draw: torch.Generator) -> Tensor:
    """(B, T + 1) ids."""
    starts = torch.randint(len(text) - config.tokens - 1, (config.sequences,), generator=draw)
    return torch.stack([text[start : start + config.tokens + 1] for start in starts.tolist()])


def _loss(model: nn.Module, batch: Tensor) -> Tensor:
    return _cross_entropy(model(batch[:, :-1]), batch)


def _cross_entropy(logits: Tensor, batch: Tensor) -> Tensor:
    return functional.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())


def _numbers(values: list[float | None]) -> tuple[float, ...]:
    return tuple(math.nan if value is None else value for value in values)
