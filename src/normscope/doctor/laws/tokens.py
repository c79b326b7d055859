"""Part of the third law, of a model of tokens: each token is told from every other, what stands at
one place can be known at the next, and what is hidden is asked for from both of its sides.
"""

# B = sequences, T = tokens, V = classes

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ..observe.gradients import loss_of
from ..trace.forward import main_tensor
from .given import named_inputs, with_changed
from .lookups import Lookups
from .trial import OutOfTime, Trial, Untried


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenUses:
    """The use that a model makes of single tokens. No field is filled where the law was not
    tried.
    """

    tokens: int = 0
    """Different ones of the slice ..."""
    told_apart: int = 0
    """... and those that the output tells from each other."""
    alike: tuple[int, ...] = ()
    """Tokens that are looked up as one, the most that are."""
    wall: int = 0
    """Places before one behind which no output knows anything of them; 0 without."""
    hidden: int = 0
    """Places of one token that the loss asks for others, where outputs know no later token."""
    unread: tuple[int, ...] = ()
    """Places whose token no output knows, of tokens that are known elsewhere."""
    shown: float = 0.0
    """The share of the places that count that show the token that is asked for, where others are
    hidden by one token; 0 where these are few.
    """
    fed: str = ""
    """The input that holds what each output is asked for, and knows."""
    documents: str = ""
    """The input whose numbers count places and begin anew within a sequence, where outputs behind
    that know what came before it."""


_SEVERAL = 3
"""Tokens in one row of a table that are no filling."""
_LEAST = 8
"""Places of a sequence that may have a wall."""
_CLEAR = 1e-4
"""The change, as a share of an output's size, from which on a place before a wall counts as
reached.
"""


@torch.no_grad()
def token_uses(trial: Trial, *, asks_for_others: bool) -> TokenUses:
    """asks_for_others: whether the loss is known to be a cross-entropy that does not ask for the
    next token. Raises Untried where no input holds tokens.
    """
    given = named_inputs(trial.model, trial.inputs)
    ids = next((n for n, x in given.items() if x.dtype == torch.long and x.ndim == 2), "")
    scores = trial.scores()
    if not ids or scores is None or not bool(scores.isfinite().all()):
        raise Untried("no input holds tokens")
    ids_BT = given[ids]

    def after(other_BT: Tensor) -> Tensor | None:
        try:
            found = trial.scores(with_changed(trial.model, trial.inputs, {ids: other_BT}))
        except OutOfTime:
            raise
        except Exception:  # an input that must be what it is
            return None
        return found if found is not None and found.shape == scores.shape else None

    lookups = Lookups(ids_BT)
    read_BT = _read(trial, lookups)
    alike, told_apart = _alike(lookups, ids_BT, scores, after)
    has_places = scores.ndim == 3 and scores.shape[:2] == ids_BT.shape
    # What is given beside tokens may say where one text ends and the next begins.
    by_itself = len(given) == 1 and has_places and ids_BT.shape[1] >= _LEAST
    asked = _asked(trial) if asks_for_others and has_places else None
    return TokenUses(
        tokens=len(torch.unique(ids_BT)),
        told_apart=told_apart,
        alike=alike,
        wall=_wall(ids_BT, scores, after) if by_itself else 0,
        unread=_unread(read_BT, ids_BT),
        documents=_documents(given, ids, scores, after) if has_places else "",
        hidden=_hidden(asked, ids_BT, scores, after) if asked else 0,
        shown=_shown(asked, ids_BT) if asked else 0.0,
        fed=_fed(trial, asked, given, scores) if asked and len(given) > 1 else "",
    )


def _read(trial: Trial, lookups: Lookups) -> Tensor | None:
    """Returns the places (B, T) whose looked up rows any number of the output depends on; None
    where that is not known.
    """
    with torch.enable_grad(), lookups:
        scores = main_tensor(trial.run())
    if scores is None or not scores.requires_grad or not lookups.made:
        return None
    drawn = torch.randn(scores.shape, generator=torch.Generator().manual_seed(0)).to(scores)
    try:
        gradients = torch.autograd.grad(scores, lookups.made, drawn, allow_unused=True)
    except RuntimeError:  # without a derivative, or written in place
        return None
    read_BT = None
    for gradient in gradients:
        if gradient is not None and gradient.ndim == 3:
            own_BT = gradient.detach().abs().amax(-1) > 0
            read_BT = own_BT if read_BT is None else read_BT | own_BT
    return read_BT


def _unread(read_BT: Tensor | None, ids_BT: Tensor) -> tuple[int, ...]:
    """Returns the places that are read in no sequence, and stand before others that are, though all
    of their tokens that stand elsewhere too are read there.

    What holds a place, as for a picture, is one token that is read nowhere; behind the last that is
    read nothing is asked for.
    """
    if read_BT is None or not bool(read_BT.any()):
        return ()
    last = int(read_BT.any(0).nonzero().max())
    places = [at for at in range(last) if not bool(read_BT[:, at].any())]
    if len(places) < 2 or len(places) > ids_BT.shape[1] // 2:
        return ()
    unread = torch.unique(ids_BT[:, places])
    is_known = bool(torch.isin(ids_BT[read_BT], unread).any())
    # One token in all of these places is what holds them.
    return tuple(places) if is_known and len(unread) > 1 else ()


def _documents(
    given: Mapping[str, Tensor],
    ids: str,
    scores: Tensor,
    after: Callable[[Tensor], Tensor | None],
) -> str:
    """Returns the name of an input that counts places and begins anew, where what stands before
    that changes outputs behind it.
    """
    ids_BT = given[ids]
    for name, x_BT in given.items():
        if name == ids or x_BT.shape != ids_BT.shape or x_BT.dtype != torch.long:
            continue
        start = _begins_anew(x_BT)
        if not start:
            continue
        other_BT = ids_BT.clone()
        other_BT[:, :start] = ids_BT[:, :start].flip(-1).roll(1, 0)
        changed = after(other_BT)
        if changed is not None and not torch.equal(changed[:, start:], scores[:, start:]):
            return name
    return ""


def _begins_anew(places_BT: Tensor) -> int:
    """Returns the first place where the numbers of all sequences begin again at their first, after
    they rose by one from place to place; 0 without any.
    """
    first_T = places_BT[0]
    if not bool((places_BT == first_T).all()) or int(first_T[0]) not in (0, 1):
        return 0
    steps = first_T.diff()
    rises = steps == 1
    anew = (~rises & (first_T[1:] == first_T[0])).nonzero().flatten().tolist()
    if not anew or not bool((rises | (first_T[1:] == first_T[0])).all()):
        return 0
    # Padding has one number over and over.
    start = int(anew[0]) + 1
    return start if start > 1 and start + 1 < len(first_T) and bool(rises[start]) else 0


def _alike(
    seen: Lookups, ids_BT: Tensor, scores: Tensor, after: Callable[[Tensor], Tensor | None]
) -> tuple[tuple[int, ...], int]:
    """Returns the largest group of tokens that every table has one row for, and with which the
    output is the same; and how many tokens are told apart.
    """
    tokens = [int(one) for one in torch.unique(ids_BT)]
    by_token = [found for rows in seen.rows if (found := _by_token(rows, ids_BT, tokens))]
    if not by_token or len(tokens) < _SEVERAL:
        return (), len(tokens)
    groups: dict[tuple[int, ...], list[int]] = {}
    for token in tokens:
        groups.setdefault(tuple(rows[token] for rows in by_token), []).append(token)
    largest = max(groups.values(), key=len)
    # Numbers below 0 mark places, and are no tokens.
    if len(largest) < _SEVERAL or min(largest) < 0:
        return (), len(tokens)
    merged_BT = ids_BT.clone()
    for group in groups.values():
        merged_BT[torch.isin(ids_BT, torch.tensor(group).to(ids_BT))] = group[0]
    same = after(merged_BT)
    if same is None or not torch.equal(same, scores):
        return (), len(tokens)
    return tuple(largest), len(groups)


def _by_token(rows_BT: Tensor, ids_BT: Tensor, tokens: Sequence[int]) -> dict[int, int]:
    """Returns the row that is read for each token; none where that depends on the place too."""
    found = {}
    for token in tokens:
        rows = rows_BT[ids_BT == token]
        if bool((rows != rows[0]).any()):
            return {}
        found[token] = int(rows[0])
    return found


def _reached(
    at: int, ids_BT: Tensor, scores: Tensor, after: Callable[[Tensor], Tensor | None]
) -> Tensor | None:
    """Measures, by place, the change of outputs with the token at one place, as a share of their
    size; None where no sequence has another token there to exchange.
    """
    other_BT = ids_BT.clone()
    other_BT[:, at] = ids_BT[:, at].roll(1, 0)
    same_B = other_BT[:, at] == ids_BT[:, at]
    other_BT[same_B, at] = ids_BT[same_B, at - 1]
    if torch.equal(other_BT, ids_BT) or (changed := after(other_BT)) is None:
        return None
    sizes_BT = scores.norm(dim=-1).clamp(min=torch.finfo(scores.dtype).tiny)
    shares_BT: Tensor = (changed - scores).norm(dim=-1) / sizes_BT
    return shares_BT.amax(0)


def _wall(ids_BT: Tensor, scores: Tensor, after: Callable[[Tensor], Tensor | None]) -> int:
    """Returns the number of places before a wall, behind which nothing is known of them; 0 without
    a wall.

    What is changed in the middle shows up to there and no farther, and so does what stands next to
    it: the end of a window would move along.
    """
    places = ids_BT.shape[1]
    at = places // 2
    shares_T = _reached(at, ids_BT, scores, after)
    if shares_T is None:
        return 0
    last = _last(shares_T, at)
    if last >= places - 1 or float(shares_T[last]) < _CLEAR:
        return 0
    beside = last if last > at else at - 1
    beside_T = _reached(beside, ids_BT, scores, after)
    if beside_T is None or float(beside_T[last]) < _CLEAR or _last(beside_T, last) != last:
        return 0
    return last + 1


def _last(shares_T: Tensor, at: int) -> int:
    """Returns the last place whose output changed at all; `at` where none did."""
    changed = (shares_T > 0).nonzero().flatten().tolist()
    return max(changed, default=at)


_MOSTLY = 0.7
_FEW = 0.3
"""The share of the places that count that may be left unhidden on purpose."""


@dataclass(frozen=True, slots=True)
class _Asked:
    """The places that a cross-entropy counts and the classes that it wants, by its gradient at the
    scores (B, T, V).
    """

    counted_BT: Tensor
    wanted_BT: Tensor

    def is_given_in(self, ids_BT: Tensor) -> float:
        """Returns the share of what is asked for that stands in an input at its own place."""
        same_BT = (self.wanted_BT == ids_BT) & self.counted_BT
        return int(same_BT.sum()) / max(1, int(self.counted_BT.sum()))


def _asked(trial: Trial) -> _Asked | None:
    """Reads what the loss asks for; None where it pulls nothing up, or does not depend on the
    scores.
    """
    with torch.enable_grad():
        output = trial.run()
        scores = main_tensor(output)
        value = loss_of(output, trial.loss)[0]
        if scores is None or not scores.requires_grad or not value.requires_grad:
            return None
        (gradient,) = torch.autograd.grad(value, [scores], allow_unused=True)
    if gradient is None or gradient.ndim != 3:
        return None
    least_BT, wanted_BT = gradient.detach().min(-1)
    return _Asked(least_BT < 0, wanted_BT) if bool((least_BT < 0).any()) else None


def _hides(asked: _Asked, ids_BT: Tensor) -> Tensor:
    """Places (B, T) of the one token that stands for most that is asked for and not shown; none
    where several do, or where it stands elsewhere too."""
    unknown_BT = asked.counted_BT & (asked.wanted_BT != ids_BT)
    nowhere_BT = torch.zeros_like(unknown_BT)
    if int(unknown_BT.sum()) < _SEVERAL:
        return nowhere_BT
    token = ids_BT[unknown_BT].mode().values
    hidden_BT = (ids_BT == token) & unknown_BT
    # Some of the tokens that are hidden may be others instead.
    most = max(int(unknown_BT.sum()), int((ids_BT == token).sum()))
    return hidden_BT if int(hidden_BT.sum()) >= _MOSTLY * most else nowhere_BT


def _hidden(
    asked: _Asked, ids_BT: Tensor, scores: Tensor, after: Callable[[Tensor], Tensor | None]
) -> int:
    """Places of the token that stands for hidden ones, where the loss asks for others, of a model
    whose outputs know no later token; 0 where there are none, or where outputs do.
    """
    half = ids_BT.shape[1] // 2
    hidden_BT = _hides(asked, ids_BT)
    if not bool(hidden_BT[:, :half].any()):
        return 0
    other_BT = ids_BT.clone()
    other_BT[:, half:] = ids_BT[:, half:].flip(-1).roll(1, 0)
    changed = after(other_BT)
    is_same = changed is not None and torch.equal(changed[:, :half], scores[:, :half])
    return int(hidden_BT.sum()) if is_same and not torch.equal(other_BT, ids_BT) else 0


def _shown(asked: _Asked, ids_BT: Tensor) -> float:
    """Returns the share of what counts that is no hidden token, beside some that are."""
    share = asked.is_given_in(ids_BT)
    return share if share > _FEW and bool(_hides(asked, ids_BT).any()) else 0.0


_ALL = 0.95
_GIVEN_LATER = re.compile("label|^target$|^y$")


def _fed(trial: Trial, asked: _Asked, given: Mapping[str, Tensor], scores: Tensor) -> str:
    """Returns the name of an input that holds what the loss asks for at its own places, where
    outputs know it there and none before does: a decoder's, which is to be given the token before.
    """
    names = [
        name
        for name, x_BT in given.items()
        if x_BT.dtype == torch.long
        and x_BT.shape == asked.counted_BT.shape
        and not _GIVEN_LATER.search(name)
        and asked.is_given_in(x_BT) >= _ALL
    ]
    at = scores.shape[1] // 2
    for name in names:
        other_BT = given[name].clone()
        other_BT[:, at] = given[name][:, at - 1]
        after = trial.scores(with_changed(trial.model, trial.inputs, {name: other_BT}))
        if after is None or torch.equal(other_BT, given[name]):
            continue
        is_known = not torch.equal(after[:, at], scores[:, at])
        if is_known and torch.equal(after[:, :at], scores[:, :at]):
            return name
    return ""
