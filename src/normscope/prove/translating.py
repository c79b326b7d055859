"""Copying a source, for models of an encoder and a decoder: the target's first half is the source,
its second half drawn by chance.
"""

# B = sequences, S = places of the source, T = of the target

import math

import torch
from torch import Tensor, nn

from ..doctor.laws.given import named_inputs, with_changed
from ..doctor.laws.trial import Untried
from ..doctor.learned import Learner
from .asking import (
    IGNORED,
    LEAST_PLACES,
    MOST_PLACES,
    UNKNOWABLE_WEIGHT,
    LearningBatch,
    LearningTask,
    alphabet_of,
    beside,
)
from .losses import loss_from_labels
from .references import ReferenceSize, TwoStackReference

_SOURCES = ("input_ids", "src", "source")


def translating(of: Learner, tokens: list[str], classes: int) -> LearningTask:
    """Returns the task for a model with two inputs of tokens, or one and labels. Raises Untried."""
    names = named_inputs(of.model, of.inputs)
    source = next((name for name in _SOURCES if name in tokens), tokens[0])
    others = [name for name in tokens if name != source]
    if len(others) != 1 and not ("labels" in names and not others):
        raise Untried("it is given several inputs of tokens, and which is the target is not known")
    source_BS = names[source]
    target_BT = names[others[0]] if others else names["labels"]
    shortest = min(source_BS.shape[1], target_BT.shape[1] // 2)
    copied = min(MOST_PLACES // 2, shortest)
    if 2 * copied < LEAST_PLACES:
        raise Untried(f"copying takes targets of {LEAST_PLACES} tokens, and these are shorter")
    alphabet = alphabet_of(of.model, source_BS, classes)
    starts = _start_token(of.model, alphabet.spare)

    def draw(generator: torch.Generator, rows: int, trained: bool) -> LearningBatch:
        given_BS = alphabet.drawn(generator, rows, copied)
        target_BT = torch.cat([given_BS, alphabet.drawn(generator, rows, copied)], 1)
        read_BT = target_BT.roll(1, 1)
        read_BT[:, 0] = starts
        new = {source: given_BS}
        if others:
            new[others[0]] = read_BT
        if "labels" in names:
            new["labels"] = _labels(target_BT, copied, generator, trained and bool(others))
        known_T = torch.arange(2 * copied) < copied
        return LearningBatch(
            inputs=with_changed(of.model, of.inputs, _all(names, new, source, others)),
            reference_inputs=(given_BS, read_BT),
            targets=target_BT,
            known=known_T.expand(rows, -1),
            unknowable=~known_T.expand(rows, -1),
        )

    def reference(size: ReferenceSize) -> nn.Module:
        return TwoStackReference(size, places=2 * copied, classes=classes, vocabulary=classes)

    return LearningTask(
        words=f"to copy the {copied} tokens of a source",
        chance_nats=math.log(len(alphabet.tokens)),
        draw=draw,
        reference=reference,
        own_loss=loss_from_labels(of),
    )


def _labels(target_BT: Tensor, copied: int, generator: torch.Generator, trained: bool) -> Tensor:
    """Returns the targets; of a training, most that nothing tells are left out where the decoder
    does not read the labels themselves.
    """
    if not trained:
        return target_BT
    kept_B = torch.rand(len(target_BT), generator=generator) < UNKNOWABLE_WEIGHT
    last_T = torch.arange(target_BT.shape[1]) >= copied
    return target_BT.masked_fill(last_T & ~kept_B[:, None], IGNORED)


def _all(
    names: dict[str, Tensor], new: dict[str, Tensor], source: str, others: list[str]
) -> dict[str, Tensor]:
    """Returns every input: those of the decoder are as long as the target, others as the source."""
    target = others[0] if others else "labels"
    rows = len(new[source])
    made = {}
    for name, given in names.items():
        if name in new:
            made[name] = new[name].to(given.device)
            continue
        of = target if any(part in name for part in ("decoder", "tgt", "target")) else source
        made[name] = beside(name, given, rows, names[of].shape[1], new[of].shape[1])
    return made


def _start_token(model: nn.Module, spare: int) -> int:
    own = getattr(getattr(model, "config", None), "decoder_start_token_id", None)
    return own if isinstance(own, int) else spare
