"""Stacks whose blocks are run several times: what one matrix makes of several passes has a
covariance.

As widths grow, W u and W u' of two passes are Gaussian with the covariance of u and u', whatever W
made of u came into u' on the way, and on the way back the transpose of W is as good as independent
of it (Yang 2020, arXiv:2006.14548, for a last matrix that stands nowhere else). So a sub-layer maps
covariances of two passes as it maps moments of one, and all that is new is that squares of sums
have their products.

The equation is T18 of docs/theory.md.
"""

from typing import Any

import numpy as np

from ..placement import Placement, Site
from ..placement.reading import read
from .mixing import LinearMap, Products, root
from .moments import Moments, Unpredictable
from .places import Factors
from .stream import Applied, MomentStack, StreamSetting
from .sublayers import NOTHING_INSIDE, Map, _InsideF


def stack_of(placement: Placement, setting: StreamSetting) -> MomentStack:
    """Returns a stack to run forward. Raises Unpredictable for loops of a formula that no model of
    this package loops. Equation T18.
    """
    if placement.stack.loops == 1:
        return MomentStack(placement, setting)
    try:
        read(placement)
    except ValueError as error:
        raise Unpredictable(str(error)) from error
    return _LoopedStack(placement, setting)


class _LoopedStack(MomentStack):
    """Runs blocks several times, and keeps what passes through one sub-layer have in common."""

    def __init__(self, placement: Placement, setting: StreamSetting) -> None:
        super().__init__(placement, setting)
        self.common: dict[tuple[int, int], Map] = {}
        """Maps of the covariance of a sub-layer's inputs in two passes, by the atoms of its outputs
        there.
        """

    def maps(self, applied: Applied) -> list[tuple[int, Map]]:
        """Returns an F's own map and those of its covariances with later passes. Equation T18."""
        later = [
            (atom, made) for (first, atom), made in self.common.items() if first == applied.atom
        ]
        return [*super().maps(applied), *later]

    def apply(self, site: Site, x: Moments, inside: _InsideF) -> Moments:
        """Applies F to x. Raises Unpredictable for what is followed through one pass alone.
        Equation T18.
        """
        if inside or self.atoms.remainders:
            which = (
                "the formula acts within its sub-layers"
                if inside
                else "norms squash what they read"
            )
            raise Unpredictable(
                f"{which}, which is followed through blocks that are run once: loops must be 1"
            )
        made = super().apply(site, x, inside)
        # Every earlier pass through these matrices has a covariance with this one.
        *earlier, last = [one for one in self.applied if one.site is site]
        for before in earlier:
            self.common[before.atom, last.atom] = common = self._between(site, before.input, x)
            self.atoms.relate(before.atom, last.atom, common.output)
        return made

    def _between(self, site: Site, first: Moments, second: Moments) -> Map:
        """Returns F's map of the covariance of two inputs: F's map of two tokens, since to an
        activation one token in two passes is as two tokens are. Equation T18.
        """
        # F's map, asked for a covariance in the place of moments.
        x = first.covariance(second)
        if site.kind == "attention":
            return self.map(site, x, first.differing, NOTHING_INSIDE)
        if self.setting.activation != "relu" and not np.allclose(first.one, second.one, rtol=0.01):
            raise Unpredictable(
                "feed-forwards read what grows from pass to pass: only relu is followed through "
                "loops"
            )
        # To an activation one token in two passes is as two tokens are.
        size, alone = (
            root(first.one * second.one),
            x.one if self.atoms.places is None else np.diag(x.one),
        )
        own, two = (
            self.map(site, Products(size, of, x.apart), first.differing, NOTHING_INSIDE)
            for of in (alone, x.two)
        )
        parts = zip(own.projections, two.projections, strict=True)
        projections = tuple(
            part._replace(inputs=x, back=_joined_back(one.back, part.back)) for one, part in parts
        )
        last = _joined(own.last_inputs, two.last_inputs)
        return two._replace(
            output=_joined(own.output, two.output), last_inputs=last, projections=projections
        )


def _joined(own: Products, two: Products) -> Products:
    """Joins the map's product of one token in two passes with that of two tokens in two passes.
    Equation T18.
    """
    one = own.two
    return Products(one.diagonal() if isinstance(one, np.ndarray) else one, two.two, two.apart)


def _joined_back(own: Any, two: Any) -> LinearMap | Factors:
    """Joins the same two of the way back. Equation T18."""
    if isinstance(two, Factors):
        return Factors(own.two.diagonal(), two.two, two.apart)
    return LinearMap(own.two_two, 0.0, 0.0, two.two_two, two.apart)
