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
"""The share of a sum over the vocabulary below which the largest entry does not matter: where no
entry has more on average, the sum is as good as its mean. Equation T13.
"""
_LARGEST_EXPONENT = 700.0
"""The largest x of which e^x is finite in float64."""
_NODES = 24
"""Nodes of the quadrature over a token's own logit, the same for every token. Equation T14."""


def loss_gradient(stack: MomentStack, model: ModelSetting) -> tuple[Products, Entry]:
    """Returns moments of the loss's gradient at the output tokens, and the part of its E‖g‖² that
    lies along the output y itself.

    A token's gradient is g = Σ_v (softmax_v − target_v) E_v / N over all N tokens, with rows E_v of
    squared length r. Rows are independent, so that

        E‖g‖² = (r / N²) E Σ_v (softmax_v − target_v)²

    and of two tokens the same with a factor of each. Logits are Gaussian, with the variance r q and
    the covariance r p of the output: over V entries E Σ softmax² is e^(r q) / V, and
    E Σ softmax softmax' is e^(r p) / V, as long as they are small, and less beyond. Tokens that are
    asked for the same entry have its row in common.

    With a tied projection the output may still hold its own input row E_o, which then has a logit
    apart and a share of the softmax, and so a part of the gradient. A norm at the output takes off
    what of E_o lies along y: (1 − α²) of its square is left, and α y, which tokens have in common.
    No norm further down takes anything off: F is homogeneous, so that the gradient stays orthogonal
    to the stream. A text asks for the rows that its next places hold, which is the opposite sign.

    Equations T13 and T14.
    """
    output = stack.output
    vocabulary = model.vocabulary
    row_of_embedding = InitialState(model.setting, stack.placement).row if model.tied else None
    scale = _output_scale(stack, vocabulary, row_of_embedding or 1.0)
    # r: of the rows as the placement multiplies them.
    row = scale**2 * (row_of_embedding or 1.0)
    own = _NO_ROW
    if row_of_embedding is not None:
        own = _own_row(stack, model, row_of_embedding, scale)
    # α²: nothing is taken off where no norm stands at the output.
    removed = own.along if output.normed else 0.0
    target = model.target
    at_one = _sum_over_one(own, removed, row * output.one, model)
    of_two = _OverTwo(own, removed, output.one, row, model)
    gradient = Products(
        at_one,
        of_two.sum(output.two, target.same_within, target.asked_within),
        of_two.sum(output.apart, target.same_apart, target.asked_apart),
    )
    every_token = model.tokens * model.sequences
    size_of_all = row / every_token**2
    along_output = own.share**2 * removed * size_of_all
    return gradient.scaled(size_of_all), along_output


def _sum_over_one(own: "_OwnRow", removed: Entry, variance: Entry, model: ModelSetting) -> Entry:
    """Returns E Σ_v (softmax_v − target_v)² of one token, over entries that are not its own and
    the token's own row.

    With share s of the own row, the rest of the softmax is (1 − s) of what it would be, whose
    square is on average 1 − 2 E s + E s². Equations T13 and T14.

    variance: r q, of the logits.
    """
    asked = 1 - model.label_smoothing
    # A random target: 1 − 2 softmax at its entry, of which 1/V is asked for on average.
    targets = asked**2 * (1 - 2 / model.vocabulary)
    own_row = own.square * (1 - removed)
    rest_of_softmax = 1 - 2 * own.share + own.square
    return targets + own_row + rest_of_softmax * _softmaxes(variance, model.vocabulary, 0)


class _OverTwo:
    """Sums Σ_v (softmax_v − target_v) (softmax'_v − target'_v) of two tokens.

    Of places with moments of their own, all of it is (K, K).
    """

    def __init__(
        self, own: "_OwnRow", removed: Entry, q: Entry, row: float, model: ModelSetting
    ) -> None:
        self.row = row
        self.vocabulary = model.vocabulary
        self.asked = 1 - model.label_smoothing
        self.rest = squared(1 - own.share)[1]
        self.shared = squared(own.share)[1]
        """s s': what both give to an own row that they have in common."""
        self.along = squared(own.share * root(removed))[1]
        """α s α' s': along the outputs, of which two tokens have p / q in common."""
        self.q = squared(root(q))[1]
        # Of two tokens, what either reads is what the other may be asked for.
        self.reads = own.share
        if isinstance(own.share, np.ndarray):
            self.reads = np.add.outer(own.share, own.share) / 2

    def sum(self, p: Entry, same: float, asked_of_the_next: float) -> Entry:
        """Returns the sum for outputs of the product p. Equations T13 and T14.

        same: how often both are asked for one entry. asked_of_the_next: how often one reads what
        the next is asked for.
        """
        softmaxes = self.rest * _softmaxes(self.row * p, self.vocabulary, 1)
        along = self.along * p / self.q
        same_row = (self.asked**2 + self.shared - self.along) * same
        crossed = 2 * self.asked * self.reads * asked_of_the_next
        return softmaxes + along + same_row - crossed


def own_share(stack: MomentStack, model: ModelSetting) -> float:
    """Returns p(own token): how much of the softmax the row of the token itself has on average, 0
    where the output projection is not tied. Equation T14.
    """
    row = InitialState(model.setting, stack.placement).row if model.tied else None
    if row is None:
        return 0.0
    scale = _output_scale(stack, model.vocabulary, row)
    return mean_of(_own_row(stack, model, row, scale).share)


def _softmaxes(covariance: Entry, vocabulary: int, less: int) -> Entry:
    """Returns E Σ_v softmax_v softmax'_v of logits with that covariance: e^covariance / V where
    all entries are small.

    less: 1 where targets take away what it is without a covariance, 1 / V; else 0.

    Over 1,000 entries a variance of 1 gives e / 1,000 = 0.0027.

    Equation T13.
    """
    if isinstance(covariance, np.ndarray):
        by_pair = [_softmaxes(one, vocabulary, less) for one in covariance.flat]
        return np.reshape(by_pair, covariance.shape)
    grown = math.exp(min(covariance, _LARGEST_EXPONENT))
    bound = 1.0
    if covariance > 0 and grown > _FEW * vocabulary:
        # Where few entries have much of the sum, each is held by it: T8 of V keys bounds the mean.
        bound = min(1.0, softmax_square(vocabulary, covariance) * vocabulary / grown)
    return min(1.0, (grown - less) * bound / vocabulary)


def _output_scale(stack: MomentStack, vocabulary: int, row: float) -> float:
    """Returns the number by which a placement multiplies rows of that squared length of the output
    projection. Equation T13.
    """
    atoms = Atoms(stack.placement.stack.width)
    rows = single(atoms, atoms.add(row / atoms.width, 0.0))
    end = MomentEnd(norms_of(stack.setting.norm, stack.placement.norm_epsilon))
    return float(stack.placement.output_rows(rows, end, vocabulary).coefficients[0])


class _OwnRow(NamedTuple):
    """Holds what a token's own input row has at the output."""

    share: Entry
    """E s, of the softmax."""
    square: Entry
    """E s²."""
    along: Entry
    """α²: of E‖y‖², what lies along the row."""


_NO_ROW = _OwnRow(0.0, 0.0, 0.0)


def _own_row(stack: MomentStack, model: ModelSetting, row: float, scale: float) -> _OwnRow:
    """Returns what a token's own input row, of that squared length, has at the output.

    The own logit is c √(d q_0 r) on average, with the variance r (q − c² q_0), against V
    entries whose exponentials have the mean e^(r q / 2). c is the coefficient of the embedding in
    the output and q_0 the square of what was looked up. Equation T14.
    """
    output = stack.output
    # What is looked up is a multiple of the row, and dropout on it leaves its mean.
    looked_up = stack.atoms.products(0).one * (1 - model.dropout)
    coefficient = output.coefficients[0]
    own_logit = coefficient * np.sqrt(model.width * looked_up * row) * scale
    log_of_rest = math.log(model.vocabulary) + scale**2 * row * output.one / 2
    # The rest of the output moves the row's own logit.
    rest = np.maximum(0.0, output.one - coefficient**2 * looked_up)
    deviation = scale * np.sqrt(row * rest)
    nodes, weights = normal_nodes(_NODES)
    behind = np.asarray(log_of_rest - own_logit)[..., None]
    exponents = behind - np.asarray(deviation)[..., None] * nodes
    shares = 1 / (1 + np.exp(np.clip(exponents, -_LARGEST_EXPONENT, _LARGEST_EXPONENT)))
    share = shares @ weights
    square = shares**2 @ weights
    along = coefficient**2 * looked_up / output.one
    if stack.atoms.places is None:
        return _OwnRow(float(share), float(square), float(along))
    return _OwnRow(share, square, along)
