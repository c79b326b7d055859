"""The third law: each input is used where it is meant, asked of the output and of no operation.

An input that nothing reads, a later token that an earlier output knows, a row of the batch that
another one knows, and padding that real tokens know: whatever computes it, the output shows it.
"""

# B = sequences, T = tokens, V = classes

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from ..trace.forward import main_tensor, padding_in, tensors_in
from .answers import known_answers
from .context import ContextUses, context_uses
from .given import named_inputs, with_changed
from .meant import PlacesMeant
from .trial import OutOfTime, Trial, Untried


@dataclass(frozen=True, slots=True, kw_only=True)
class InputUses:
    """The dependence of the output on each part of the model's input."""

    unread: tuple[str, ...] = ()
    """Inputs that change nothing of the output."""
    outputs_alike: int = 0
    """Places of an output that are all the same in a row, where rows differ; 0 where some are
    not."""
    later: float = 0.0
    """The change of outputs with the tokens after them, as a share of their size."""
    rows: float = 0.0
    """The same with other rows of the batch."""
    answers: tuple[int, ...] = ()
    """The distances in places to the token that each of several parallel outputs is asked for, of
    those that know it.
    """
    order: float | None = None
    """The same of the outputs at other places once two tokens have changed theirs; None of a model
    that hides later tokens, and so knows their order, or that is given no tokens."""
    context: ContextUses = field(default_factory=ContextUses)
    """The use of places and of other tokens."""
    has_positions: bool = False
    """True where modules, weights or buffers are named after positions."""
    padding: float | None = None
    """The same of outputs at tokens with what stands at padding; None without any."""
    padding_is_asked_by: str = ""
    """The way in which padding was changed: "ids" of the batch's mask, or "row" of an embedding."""


_ROUNDED = 1e-4
"""The share of an output's size that exceeds what another order of sums leaves."""
_ROUNDED_IN_HALF = 0.02
_REORDERED = 3e-6
"""The same of one sum in another order; what positions do at first, with weights that are small,
may be a thousandth of what a token does."""


@torch.no_grad()
def input_uses(
    trial: Trial,
    *,
    predicts_next: bool,
    is_causal: bool = False,
    places: PlacesMeant | None = None,
    moved: bool = False,
) -> InputUses:
    """predicts_next: whether the targets are known to be the tokens one place later. is_causal:
    whether every attention hides later tokens. places: what the model is meant to know of them.
    moved: whether the copy was updated, so that what starts at 0 has opened.

    Raises Untried where the inputs have no names and places that could be changed one by one.
    """
    given = named_inputs(trial.model, trial.inputs)
    scores = trial.scores()
    if not given or scores is None or not bool(scores.isfinite().all()):
        raise Untried("no input is a tensor that could be changed by itself")
    asked = _Asked(trial, given, scores)
    padding, by = asked.padding()
    return InputUses(
        unread=tuple(asked.unread()),
        outputs_alike=_alike(main_tensor(trial.output)),
        later=asked.later() if predicts_next or is_causal else 0.0,
        answers=asked.answers(),
        order=None if is_causal else asked.order(),
        context=asked.context(places or PlacesMeant(), moved),
        has_positions=_has_positions(trial.model),
        rows=asked.rows(),
        padding=padding,
        padding_is_asked_by=by,
    )


class _Asked:
    def __init__(self, trial: Trial, given: Mapping[str, Tensor], scores: Tensor) -> None:
        self._trial = trial
        self._given = given
        self._scores = scores
        self._ids = next(
            (name for name, x in given.items() if x.dtype == torch.long and x.ndim == 2), ""
        )
        """The first input that holds indices of tokens."""

    def unread(self) -> Iterator[str]:
        """Inputs that change nothing in another order, nor with other numbers."""
        for name, x in self._given.items():
            if not x.ndim or x.dtype == torch.bool or _SAYS_OF_OTHERS.search(name):
                continue
            others = [x.flip(-1)]
            if x.dtype != torch.long:
                # The second stays within what is given: other numbers may be cut off, or rounded.
                others = [x.flip(-1) + 0.5 * x.std(), x.amin() + x.amax() - x]
            for other in others:
                if not torch.equal(other, x) and self._changes_nothing({name: other}):
                    yield name
                    break

    def _changes_nothing(self, changed: Mapping[str, Tensor]) -> bool:
        """Tells whether every tensor of the output, such as a loss beside the scores, stays the
        same.
        """
        after = self._after(changed)
        if after is None or not torch.equal(after, self._scores):
            return False
        with_other = with_changed(self._trial.model, self._trial.inputs, changed)
        both = [
            [*tensors_in(output, inside_objects=False)]
            for output in (self._trial.run(), self._trial.run(with_other))
        ]
        return len(both[0]) == len(both[1]) and all(map(torch.equal, *both))

    def later(self) -> float:
        """Measures the change in the first half of the places with other tokens in the second half.

        Of several sequences of tokens that one counts at which it is least: a decoder may know all
        of an encoder's.
        """
        return min((share for name in self._given for share in self._later(name)), default=0.0)

    def _later(self, name: str) -> Iterator[float]:
        """The same of one input; nothing of what is no sequence that the output has places of, or
        is not read."""
        ids_BT = self._given[name]
        if ids_BT.dtype != torch.long or ids_BT.shape != self._scores.shape[:2]:
            return
        half = ids_BT.shape[1] // 2
        other_BT = ids_BT.clone()
        other_BT[:, half:] = ids_BT[:, half:].flip(-1).roll(1, 0)
        after = None if _NO_TOKENS.search(name) else self._after({name: other_BT})
        if after is not None and not torch.equal(after, self._scores):
            yield self._changed(after, slice(None), slice(0, half))

    def answers(self) -> tuple[int, ...]:
        """Returns, for outputs that know the token that they are asked for, how many places later
        it stands; empty for a model with a single output.
        """
        ids_BT = self._given.get(self._ids)
        if ids_BT is None or ids_BT.shape[1] < _LONG_ENOUGH or self._scores.ndim != 3:
            return ()

        def run(changed: Mapping[str, Tensor]) -> Any:
            return self._trial.run(with_changed(self._trial.model, self._trial.inputs, changed))

        return tuple(known_answers(self._trial, self._ids, ids_BT, run).values())

    def context(self, places: PlacesMeant, moved: bool) -> ContextUses:
        """Measures the use of places with tokens that are all real."""
        ids_BT = self._given.get(self._ids)
        hidden = padding_in(self._trial.inputs, crosses=False).values()
        if ids_BT is None or not all(bool(real.all()) for real in hidden):
            return ContextUses()
        name = self._ids
        return context_uses(
            ids_BT,
            self._scores,
            places,
            lambda other: self._after({name: other}),
            lambda other: self._in_double({name: other}),
            moved=moved,
        )

    def _in_double(self, changed: Mapping[str, Tensor]) -> Tensor | None:
        """The same as `_after`, with weights and sums in double precision."""
        model = self._trial.model
        tensors = [*model.parameters(), *model.buffers()]
        kept = [one.data for one in tensors]
        try:
            for one in tensors:
                one.data = one.data.double() if one.is_floating_point() else one.data
            return self._after(changed)
        finally:
            for one, data in zip(tensors, kept, strict=True):
                one.data = data

    def order(self) -> float | None:
        """Measures the change at all places but two, whose tokens are exchanged, or of an output
        without places; None where these tokens are the same.
        """
        ids_BT = self._given.get(self._ids)
        if ids_BT is None or len(self._scores) != len(ids_BT) or ids_BT.shape[1] < _LEAST:
            return None
        if self._scores.dtype != torch.float32:
            return None
        one, other = ids_BT.shape[1] // 4, ids_BT.shape[1] // 2
        differ_B = ids_BT[:, one] != ids_BT[:, other]
        swapped_BT = ids_BT.clone()
        swapped_BT[:, one], swapped_BT[:, other] = ids_BT[:, other], ids_BT[:, one]
        after = self._after({self._ids: swapped_BT})
        if after is None or not bool(differ_B.any()):
            return None
        others = [place for place in range(ids_BT.shape[1]) if place not in (one, other)]
        has_places = self._scores.shape[:2] == ids_BT.shape
        asked = (differ_B, others) if has_places else (differ_B,)
        # What tokens do not know of each other, order is nothing to.
        changed_BT = ids_BT.clone()
        changed_BT[:, one] = ids_BT[:, other]
        elsewhere = self._after({self._ids: changed_BT})
        if elsewhere is None or self._changed_in(elsewhere, *asked) < _ROUNDED:
            return None
        share = self._changed_in(after, *asked)
        return share if share > _REORDERED else 0.0

    def _changed_in(
        self, after: Tensor, rows_B: Tensor, places: Sequence[int] | None = None
    ) -> float:
        before, after = self._scores[rows_B], after[rows_B]
        if places is not None:
            before, after = before[:, places], after[:, places]
        return _size_of_change(before, after)

    def rows(self) -> float:
        """Measures the change in the first sequence with other numbers in all others, or in these
        with others in the first; returns the larger.
        """
        sizes = {x.shape[0] for x in self._given.values() if x.ndim}
        rows = len(self._scores)
        if sizes != {rows} or rows < 2 or self._scores.ndim != 3:
            return 0.0
        first, others = slice(0, 1), slice(1, None)
        return max(
            self._changed(self._after(self._changed_rows(others)), first, slice(None)),
            self._changed(self._after(self._changed_rows(first)), others, slice(None)),
        )

    def _changed_rows(self, which: slice) -> dict[str, Tensor]:
        """Returns the inputs with other numbers in some rows: what each holds in another order, and
        of one number a row what the next row has.
        """
        changed = {}
        for name, x in self._given.items():
            if _SAYS_OF_OTHERS.search(name) or x.dtype == torch.bool:
                continue
            changed[name] = x.clone()
            changed[name][which] = (x.flip(-1) if x.ndim > 1 else x.roll(1))[which]
        return changed

    def padding(self) -> tuple[float | None, str]:
        ids_BT = self._given.get(self._ids)
        if ids_BT is None:
            return None, ""
        masks = padding_in(self._trial.inputs, crosses=False)
        real_BT = masks.get("attention")
        if real_BT is not None and real_BT.shape == ids_BT.shape:
            some = int(ids_BT[real_BT][0])
            other_BT = torch.where(real_BT, ids_BT, torch.full_like(ids_BT, some))
            after = self._after({self._ids: other_BT})
            return self._changed_at(after, real_BT, -1), "ids"
        for module in self._trial.model.modules():
            if isinstance(module, nn.Embedding) and module.padding_idx is not None:
                real_BT = ids_BT != module.padding_idx
                if _is_padded(real_BT):
                    return self._with_other_row(module, real_BT), "row"
        return None, ""

    def _with_other_row(self, table: nn.Embedding, real_BT: Tensor) -> float:
        """Measures the change with another row for padding in the table, which no other token
        reads.
        """
        at = int(table.padding_idx or 0)
        row = table.weight[at].clone()
        drawn = torch.randn(row.shape, generator=torch.Generator().manual_seed(0))
        table.weight[at] = row + table.weight.std() * drawn.to(row)
        after = self._after({})
        table.weight[at] = row
        # The table may be the output's too, with a logit of its own for padding.
        return self._changed_at(after, real_BT, at)

    def _changed_at(self, after: Tensor | None, real_BT: Tensor, but: int) -> float:
        """Measures the change at real places, or of the whole output where it has no places,
        without one class.
        """
        if after is None:
            return 0.0
        before = self._scores
        if 0 <= but < before.shape[-1]:
            classes = [n for n in range(before.shape[-1]) if n != but]
            before, after = before[..., classes], after[..., classes]
        if before.shape[:2] == real_BT.shape and before.ndim > 2:
            before, after = before[real_BT], after[real_BT]
        return _share(before, after)

    def _changed(self, after: Tensor | None, rows: slice, places: slice) -> float:
        if after is None:
            return 0.0
        return _share(self._scores[rows, places], after[rows, places])

    def _after(self, changed: Mapping[str, Tensor]) -> Tensor | None:
        """Returns the scores with other inputs; None where these are refused, or of another
        shape.
        """
        try:
            scores = self._trial.scores(
                with_changed(self._trial.model, self._trial.inputs, changed)
            )
        except OutOfTime:
            raise
        except Exception:  # an input that must be what it is, as a count of another one
            return None
        return scores if scores is not None and scores.shape == self._scores.shape else None


def _alike(scores: Tensor | None) -> int:
    """Returns N for scores (B, N, V) where all N are the same in each row, and rows differ; 0
    otherwise.
    """
    if scores is None or scores.ndim != 3 or min(scores.shape[:2]) < 2:
        return 0
    size = float(scores.double().norm())
    apart = float((scores - scores[:, :1]).double().norm())
    between = float((scores - scores[:1]).double().norm())
    is_one = size > 0 and apart < _REORDERED * size < between
    return scores.shape[1] if is_one else 0


_LONG_ENOUGH = 12
"""Tokens, in the middle of which one is changed that outputs some places before are asked for."""
_LEAST = 4
"""Tokens, of which two are exchanged and others look on."""
_POSITIONS = re.compile(r"pos(?!t)|rotary|rope|inv_freq|alibi|relative", re.IGNORECASE)


def _has_positions(model: nn.Module) -> bool:
    modules = [f"{path} {type(module).__name__}" for path, module in model.named_modules()]
    tensors = [name for name, _ in (*model.named_parameters(), *model.named_buffers())]
    return any(_POSITIONS.search(name) for name in (*modules, *tensors))


_SAYS_OF_OTHERS = re.compile(r"mask|label|target|cache|past|position|length|^y$")
"""The names of inputs that describe other inputs, or that the loss alone reads."""
_NO_TOKENS = re.compile(r"mask|cache|past|position|length|type")
"""The names of inputs that hold whole numbers and no tokens; a decoder's may be targets."""


def _size_of_change(before: Tensor, after: Tensor) -> float:
    """Returns the norm of the change over that of what changes."""
    size = float(before.double().norm())
    return float((after.double() - before.double()).norm()) / size if size > 0 else 0.0


def _share(before: Tensor, after: Tensor) -> float:
    """The same; 0 where it is rounding."""
    share = _size_of_change(before, after)
    half = before.dtype in (torch.float16, torch.bfloat16)
    return share if share > (_ROUNDED_IN_HALF if half else _ROUNDED) else 0.0


_RUN = 2
"""Places in a row that are padding and no token that happens to have its index."""


def _is_padded(real_BT: Tensor) -> bool:
    """Tells whether all padding stands at the ends of rows, or all at their beginnings, and several
    times in one of them.
    """
    if bool(real_BT.all()) or not bool(real_BT.any(1).all()):
        return False
    steps_BT = real_BT.int().diff(dim=1)
    at_end, at_start = bool((steps_BT <= 0).all()), bool((steps_BT >= 0).all())
    most = int((~real_BT).sum(1).max())
    return (at_end or at_start) and most >= _RUN and math.isfinite(most)
