"""The gradient of the loss at the output of a stack, where the way back begins.

The equations are T13 and T14 of docs/theory.md.
"""

import math
from typing import NamedTuple

import numpy as np

from .kernels import normal_nodes
from .mixing import Entry, Products, mean_of, root, softmax_square, squared
from .moments import Atoms, single
from .operations import norms_of
from .settings import InitialState, ModelSetting
from .stream import MomentEnd, MomentStack

_FEW = 1e-3
"""Of a sum over the vocabulary: where no entry has more on average, it is as good as its mean."""


def loss_gradient(stack: MomentStack, model: ModelSetting) -> tuple[Products, Entry]:
    """Returns moments of the loss's gradient at the output tokens, and what of its E‖g‖² lies along
    the output y itself.

    At an output token it is E‖Σ_v (softmax_v - target_v) E_v‖² / N², N all tokens; of two tokens it
    is the inner product of such sums. Logits are Gaussian with the variance q and the covariance p
    of the output, so that over V entries E Σ softmax² is e^q / V and E Σ softmax softmax' is
    e^p / V as long as they are small, and less beyond. Tokens that are asked for the same entry
    have its row in common. With a tied projection the output may still hold its own input row E_o,
    which then has a logit apart and a share of the softmax, and so a part of the gradient.

    A norm at the output takes off what of it lies along y: E_o (1 - α²) is left, and α y, which
    tokens have in common. (No norm further down takes anything off: F is homogeneous, so that the
    gradient stays orthogonal to the stream.) A text asks for the rows that its next places hold,
    which is the opposite sign. The second result is E‖α y‖².

    Equation T13.
    """
    output = stack.output
    vocabulary = model.vocabulary
    own_row = InitialState(model.setting, stack.placement).row if model.tied else None
    scale = _output_scale(stack, vocabulary, own_row or 1.0)
    row = scale**2 * (own_row or 1.0)
    own = _OwnRow(0.0, 0.0, 0.0) if own_row is None else _own_row(stack, model, own_row, scale)
    removed = own.along if output.normed else 0.0
    others = 1 - 2 * own.share + own.square
    asked = 1 - model.label_smoothing

    def of_one_token() -> Entry:
        targets = asked**2 * (1 - 2 / vocabulary)
        own_rows = targets + own.square * (1 - removed)
        return own_rows + others * _softmaxes(row * output.one, vocabulary, 0)

    left = squared(1 - own.share)[1]
    shared = squared(own.share)[1]
    along = squared(own.share * root(removed))[1]
    size = squared(root(output.one))[1]
    # Of two tokens, what either reads is what the other is asked for.
    reads = own.share
    if isinstance(own.share, np.ndarray):
        reads = np.add.outer(own.share, own.share) / 2

    def of_two_tokens(p: Entry, same: float, asked_of_other: float) -> Entry:
        softmaxes = left * _softmaxes(row * p, vocabulary, 1) + along * p / size
        same_row = (asked**2 + shared - along) * same
        return softmaxes + same_row - 2 * asked * reads * asked_of_other

    target = model.target
    gradient = Products(
        of_one_token(),
        of_two_tokens(output.two, target.same_within, target.asked_within),
        of_two_tokens(output.apart, target.same_apart, target.asked_apart),
    )
    size_of_all = row / (model.tokens * model.sequences) ** 2
    return gradient.scaled(size_of_all), own.share**2 * removed * size_of_all


def own_share(stack: MomentStack, model: ModelSetting) -> float:
    """Returns p(own token): how much of the softmax the row of the token itself has on average, 0
    where the output projection is not tied.

    Equation T14.
    """
    row = InitialState(model.setting, stack.placement).row if model.tied else None
    if row is None:
        return 0.0
    scale = _output_scale(stack, model.vocabulary, row)
    return mean_of(_own_row(stack, model, row, scale).share)


def _softmaxes(covariance: Entry, vocabulary: int, less: int) -> Entry:
    """Returns E Σ_v softmax_v softmax'_v of logits with that covariance.

    less: 1 where targets take away what it is without a covariance, 1 / V; else 0.

    Equation T13.
    """
    if isinstance(covariance, np.ndarray):
        by_pair = [_softmaxes(one, vocabulary, less) for one in covariance.flat]
        return np.reshape(by_pair, covariance.shape)
    grown = math.exp(min(covariance, 700.0))
    bound = 1.0
    if covariance > 0 and grown > _FEW * vocabulary:
        # Where few entries have much of the sum, each is held by it.
        bound = min(1.0, softmax_square(vocabulary, covariance) * vocabulary / grown)
    return min(1.0, (grown - less) * bound / vocabulary)


def _output_scale(stack: MomentStack, vocabulary: int, row: float) -> float:
    """Returns what the placement multiplies rows of that squared length of the output projection
    with.
    """
    atoms = Atoms(stack.placement.stack.width)
    rows = single(atoms, atoms.add(row / atoms.width, 0.0))
    end = MomentEnd(norms_of(stack.setting.norm, stack.placement.norm_epsilon))
    return float(stack.placement.output_rows(rows, end, vocabulary).coefficients[0])


class _OwnRow(NamedTuple):
    """A token's own input row at the output: its share of the softmax, mean and mean square, and of
    E‖y‖².
    """

    share: Entry
    square: Entry
    along: Entry


def _own_row(stack: MomentStack, model: ModelSetting, row: float, scale: float) -> _OwnRow:
    """Returns what a token's own input row, of that squared length, has at the output.

    Equation T14.
    """
    output = stack.output
    # What is looked up is a multiple of the row, and dropout on it leaves its mean.
    looked_up = stack.atoms.products(0).one * (1 - model.dropout)
    coefficient = output.coefficients[0]
    logit = coefficient * np.sqrt(model.width * looked_up * row) * scale
    # Against V entries whose exponentials have the mean e^(q/2); the rest of the output moves the
    # row's own logit.
    others = math.log(model.vocabulary) + scale**2 * row * output.one / 2
    spread = scale * np.sqrt(row * np.maximum(0.0, output.one - coefficient**2 * looked_up))
    nodes, weights = normal_nodes(24)
    ahead, spread = (np.asarray(part)[..., None] for part in (others - logit, spread))
    shares = 1 / (1 + np.exp(np.clip(ahead - spread * nodes, -700, 700)))
    found = (shares @ weights, shares**2 @ weights, coefficient**2 * looked_up / output.one)
    return _OwnRow(*(found if stack.atoms.places is not None else map(float, found)))
