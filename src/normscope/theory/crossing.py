"""The part of gradients that lies along the output of a stack, where a tied projection has put it
there.

A tied output projection has a row for the token that was read. The norm at the output takes off
what of that row lies along the output y, so that −y stands in the gradient of every token. y is
made of what every F has made, and F's own matrices know each other: the transpose of a last matrix
W turns W u into its gain times u, where of a vector that is independent of W it would make a random
one.

The equations are T15 and T21 of docs/theory.md.
"""

import math
from collections.abc import Sequence

import numpy as np

from .kernels import kernel_of_own
from .mixing import NOTHING, Entry, Products, between, mean_of, root, squared
from .moments import Moments
from .places import scaled, whole_of
from .stream import Applied, MomentStack
from .sublayers import correlation


class Crossing:
    """Follows the part of gradients that lies along the output, from the last F to the first."""

    def __init__(self, stack: MomentStack, along: Entry) -> None:
        """along: what of the E‖g‖² of an output token lies along the output itself."""
        self.stack = stack
        self.size = root(along / stack.output.one)
        self.grown: Entry = 1.0
        """The factor by which what comes through Fs has made that part larger on the way down."""
        self._passes: dict[object, list[Applied]] = {}
        """The passes through each sub-layer, in their order."""
        for applied in stack.applied:
            self._passes.setdefault(applied.site, []).append(applied)

    def taken_off(self, applied: Applied) -> bool:
        """Tells whether a norm stands between F(x) and the stream, which takes off what of a
        gradient lies along F(x). Equation T15.
        """
        return applied.atom in self.stack.atoms.normed_parts

    def less_own(self, applied: Applied, later: int, g: Products) -> Products:
        """Returns the gradient at an F's output without what the norm there takes off.

        later: the atom of a later pass through F, of a covariance with the gradient there.

        Equation T15.
        """
        if not self.taken_off(applied):
            return g
        one, two, apart = g.plus(self._along_own(applied, later), -1.0)
        return Products(between(0.0, one, math.inf), two, apart)

    def at_projections(self, applied: Applied, later: int) -> Sequence[Products]:
        """Returns what gradients at the outputs of F's first matrices have beyond those of a
        gradient that is independent of the last matrix W; nothing where a norm has taken it off.

        Of d outputs, Wᵀ W u is d σ² u: as much again as a random vector of that size leaves over d
        inputs, and d over the fan-in of it over a fan-in that is larger. Gradients at logits have
        come through W_V as well, which has made what W_O read: of random tokens W_Vᵀ W_V leaves of
        an inner product a head's share of the width in addition to what it adds at random.

        Equations T15 and T21.
        """
        made = applied.map
        if applied.normed_hidden or self.taken_off(applied):
            return [NOTHING] * len(made.projections)
        # d over the fan-in of the last matrix: of Wᵀ W u beside a random vector.
        wide = self.stack.atoms.width / made.last_width
        if applied.site.kind != "feed_forward":
            own = self._along_own(applied, later).scaled(wide)
            values, *rest = (projection.back(own) for projection in made.projections)
            shape = applied.site.stack
            by_values_too = 1 + shape.width_of_head / shape.width
            # Heads that read one head of values bring back the same thing, which adds up.
            values = values.scaled(shape.heads / shape.heads_of_keys)
            return [values, *(at_logits.scaled(by_values_too) for at_logits in rest)]
        # (d σ²)² of u, times φ'(z) φ(z) of the unit itself.
        gain = mean_of(made.output.one / made.last_inputs.one)
        x = applied.input
        kernels = kernel_of_own(
            self.stack.setting.activation, made.variance, correlation(x.two, x.one)
        )
        return [self._times_shares(applied, later, own.scaled(gain**2 * wide)) for own in kernels]

    def at_input(self, applied: Applied) -> Products:
        """Returns twice the covariance, at what F reads, of gradients through F and past it.

        Equation T15.
        """
        x = applied.input
        output = self.stack.output
        # How much of what F reads stands in the output, and in F's input itself.
        of_input, input_back = output.at(x.size - 1)
        own, own_back = x.at(x.size - 1)
        reaches = np.all(own) and np.all(own_back) and np.all(of_input)
        crosses = applied.site.kind == "cross_attention"
        if crosses or not reaches or self.taken_off(applied):
            return NOTHING
        ratio = of_input / own
        # The gradient past F lies along −y, of which x is a part.
        past = self.size * input_back / own_back
        kept = self.grown * ratio
        projection = applied.map.projections[0]
        # Its own pass alone is counted: what the rest of a loop's passes put into the output is as
        # large, but with it the covariance was overstated in every loop that was drawn.
        of_branch, _ = output.at(applied.atom)
        # What lies along F(x) at F's output, sent back through F: F's transpose makes its gain
        # times x.
        at_branch = Products(self._share(applied, of_branch), 0.0 * x.two)
        back = projection.back(at_branch).scaled(projection.onward)
        # A norm between takes off what lies along its input.
        normed = applied.normed_values or (x.normed and applied.atom not in x.atoms.past_norms)
        # Of the gradient past F with x, of one token, which has its row as well, and of two.
        with_x = Products(past * (output.one / ratio - kept * x.one), -x.two * (past * kept))
        if isinstance(with_x.two, np.ndarray):
            found, whole, off = _crossed_by_place(x, back, with_x, normed)
        else:
            found, whole, off = _crossed(x, back, with_x, normed, self.stack.setting.tokens)
        # Further down both parts stand in the gradient.
        self.grown = self.grown + (whole - off) / (past * ratio)
        return found

    def _share(self, applied: Applied, of_branch: Entry) -> Entry:
        """Returns the share of F(x) that stands in the gradient at F's output, less its sign: β of
        T15.

        of_branch: the coefficient of F(x) in the stack's output.

        Equation T15.
        """
        _, branch_back = self.stack.output.at(applied.atom)
        return self.size * self.grown * branch_back * of_branch

    def _share_of_all(self, applied: Applied) -> Entry:
        """Returns β where one matrix has made F(x) of all passes, which are nearly alike. Equations
        T15 and T18.
        """
        output = self.stack.output
        passes = [output.at(one.atom)[0] for one in self._passes[applied.site]]
        return self._share(applied, sum(passes))

    def _along_own(self, applied: Applied, later: int) -> Products:
        """Returns the moments of what lies along F(x) in the gradient at F's output: β² E⟨F(x),
        F(x')⟩. Equation T15.
        """
        return self._times_shares(applied, later, applied.map.output)

    def _times_shares(self, applied: Applied, later: int, products: Products) -> Products:
        """Multiplies products of two tokens' values by the shares β of their gradients. Equation
        T15.
        """
        share = self._share_of_all(applied)
        if later == applied.atom:
            one, two = squared(share)
            return Products(products.one * one, products.two * two)
        (in_later,) = (one for one in self._passes[applied.site] if one.atom == later)
        of_both = Products(products.one, products.two)
        return scaled(of_both, share, self._share_of_all(in_later), self.stack.atoms.places)


def _crossed(
    x: Moments, back: Products, with_x: Products, normed: bool, tokens: int
) -> tuple[Products, Entry, Entry]:
    """Returns twice the covariance of gradients through F and past it; how much of x comes back
    through F from all tokens, and what a norm takes off it.

    back: the part of x, of a token's own (`one`) and of each remaining token's (`two`). with_x: the
    gradient past F times x, of one token and of two.

    Equation T15.
    """
    one, two = with_x.one, with_x.two
    # Every token sends back a part of x: its own, and each of the remaining ones.
    whole = back.one + (tokens - 1) * back.two
    off = (back.one + (tokens - 1) * back.two * x.two / x.one) * normed
    # T15's two lines.
    of_one = (back.one - off) * one + (tokens - 1) * back.two * two
    of_two = (back.one - off) * two + back.two * (one + (tokens - 2) * two)
    return Products(-2 * of_one, -2 * of_two), whole, off


def _crossed_by_place(
    x: Moments, back: Products, with_x: Products, normed: bool
) -> tuple[Products, Entry, Entry]:
    """Returns the same three where places have moments of their own, as sums over places. Equations
    T15 and T17.
    """
    through, past = whole_of(back), whole_of(with_x)
    # What two tokens have of each other's x.
    share = x.two / np.sqrt(np.outer(x.one, x.one))
    np.fill_diagonal(share, 1.0)
    whole = through.sum(1)
    off = (through * share).sum(1) * normed
    found = off[:, None] * past - through @ past
    return Products(2 * found.diagonal(), found + found.T), whole, off
