"""The findings of the laws: each is tried in turn on one copy, or has the reason why it was not."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from ..measured import ModelMeasurements
from ..trace.forward import Inputs
from .lost_rows import LostRows, lost_rows
from .meant import PlacesMeant
from .modes import ModesApart, modes_apart
from .movement import Movement, movement
from .pictures import PictureUses, picture_uses
from .reach import LogitReach, logit_reach
from .tokens import TokenUses, token_uses
from .trial import LossFunction, Trial, TrialLimits, Untried, said, trial_of
from .uses import InputUses, input_uses

NO_TRIAL = "the model was not tried"


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """The outcome of trying a model."""

    movement: Movement | None = None
    modes: ModesApart | None = None
    reach: LogitReach | None = None
    uses: InputUses | None = None
    tokens: TokenUses | None = None
    pictures: PictureUses | None = None
    rows: LostRows | None = None
    reasons: Mapping[str, str] = field(default_factory=dict)
    """The reasons why laws were not tried, by the names of these fields, as clauses."""
    reason: str = NO_TRIAL
    """The reason why none of the others was tried."""

    def lacking(self, law: str) -> str:
        """Returns why a law was not tried; "" where it was."""
        if getattr(self, law) is not None:
            return ""
        return self.reasons.get(law, self.reason)


LEAST_PASSES = {
    "reach": 3,
    "modes": 1,
    "movement": 4,
    "uses": 6,
    "tokens": 6,
    "pictures": 3,
    "rows": 12,
}
"""The fewest forward passes with which a law has an answer."""
UNTRIED = Tried()
LEFT_OUT = Tried(reason="the trial on a copy was left out")


def tried(
    model: nn.Module,
    inputs: Inputs,
    loss: LossFunction | None,
    *,
    optimizer: torch.optim.Optimizer | str,
    rate: float | None,
    peaks: Sequence[float] = (),
    seen: ModelMeasurements | None = None,
    is_causal: bool = False,
    places: PlacesMeant | None = None,
    limits: TrialLimits | None = None,
    watch: Callable[[str, int, int], None] = lambda stage, done, total: None,
) -> Tried:
    """Tries every law on a model that runs and has finite weights and a loss. The model is only
    read.

    peaks: the largest rates of the optimiser's groups, where its scheduler told them. seen: what
    one pass showed. is_causal: whether every attention hides later tokens. places: what the model
    is meant to know of them. watch: told what the trial costs before it starts.
    """
    found: dict[str, Any] = {}
    reasons: dict[str, str] = {}
    try:
        with trial_of(model, inputs, loss, limits or TrialLimits()) as trial:
            watch(f"a trial on a copy of the model ({trial.expected})", 0, 1)
            next_token = seen is not None and seen.predicts_next
            # Once the copy is updated, gates that start at 0 are open.
            asked: tuple[tuple[str, Callable[[], Any]], ...] = (
                ("reach", lambda: _reach(trial, seen or ModelMeasurements())),
                ("modes", lambda: modes_apart(trial)),
                ("movement", lambda: movement(trial, optimizer, rate, peaks)),
                (
                    "uses",
                    lambda: input_uses(
                        trial,
                        predicts_next=next_token,
                        is_causal=is_causal,
                        places=places,
                        moved="movement" in found,
                    ),
                ),
                ("pictures", lambda: picture_uses(trial)),
                ("rows", lambda: lost_rows(trial)),
                ("tokens", lambda: token_uses(trial, asks_for_others=_asks_for_others(seen))),
            )
            for name, ask in asked:
                try:
                    trial.refuse_beyond(LEAST_PASSES[name])
                    found[name] = ask()
                except Untried as error:
                    reasons[name] = str(error)
                except Exception as error:  # of the copy's own code, on what only the laws ask
                    reasons[name] = f"the copy failed ({said(error)})"
    except Untried as error:
        return Tried(reason=str(error))
    return Tried(**found, reasons=reasons)


def _reach(trial: Trial, seen: ModelMeasurements) -> LogitReach:
    if seen.classes is None:
        raise Untried("the output is not known to be logits")
    return logit_reach(trial, [one.name for one in seen.output_matrices], seen.classes)


def _asks_for_others(seen: ModelMeasurements | None) -> bool:
    """Tells whether the user's loss is a cross-entropy of other tokens than the next one's."""
    return seen is not None and seen.targets is not None and not seen.predicts_next
