"""A state and a velocity: what a sub-layer writes changes how the state moves, as a step of an
optimiser with momentum does.
"""

from ..base import End, Norms, Placement, Site, Sublayer, Value, residual_gain
from ..operations import sigmoid, softplus
from ..registry import register

_Streams = tuple[Value, Value]
_ONE_UNDER_SOFTPLUS = 0.5413248
"""ln(e - 1), so rounded in the authors' code: softplus of it is 1."""


@register
class YuriiFormer(Placement):
    """v ← LN(β v + γ F(LN(x + μ v))), x ← x + v; β, μ = σ(0), γ = softplus(0) at first; y = LN(x).

    Zimin, Polyanskiy & Rigollet 2026 (Nesterov's accelerated gradient with Lie-Trotter splitting),
    read from the code of Momentum-Streams (`formers/yurii/model.py`). Each of the three is a number
    of the sub-layer. Every norm is one of its own, without a bias there. The velocity starts at 0,
    the conventional start of momentum, as that code's `vel_init="zero"` does; by default it starts
    from an embedding of its own, which we have not. A decoder's cross-attention, of which the
    source does not speak, is as self-attention. Weights as nanoGPT's.
    """

    name = "yuriiformer"
    title = "YuriiFormer"
    gist = "F moves a normalised velocity, it moves x"
    citation = "Zimin et al. 2026, arXiv:2601.23236, formers/yurii/model.py of Momentum-Streams"
    year = 2026
    streams = ("x", "v")
    initialisation = "normal-0.02"

    def start(self, x: Value, end: End) -> _Streams:
        return x, 0.0 * x

    def join(self, x: _Streams, sublayer: Sublayer, norm: Norms) -> _Streams:
        state, velocity = x
        ahead = sigmoid(sublayer.parameter("mu", initial=0.0))
        kept = sigmoid(sublayer.parameter("beta", initial=0.0))
        pushed = softplus(sublayer.parameter("gamma", initial=0.0))
        branch = sublayer(norm(state + ahead * velocity))
        velocity = norm.velocity(kept * velocity + pushed * branch)
        return self.moved(state, velocity, sublayer), velocity

    def moved(self, state: Value, velocity: Value, sublayer: Sublayer) -> Value:
        """Returns the state after a step of the velocity."""
        return state + velocity

    def finish(self, state: _Streams, end: End) -> Value:
        return end.norm(state[0])

    def gain(self, weight: str, site: Site) -> float:
        return residual_gain(weight, self.stack)


@register
class TMMFormer(YuriiFormer):
    """A variant of `yuriiformer` with x ← x + ν v, ν = softplus of a number of the sub-layer, 1 at
    first.

    The triple momentum method (2026), read from the same code (`formers/tmm/model.py`): where the
    gradient is taken and how far the state moves are distinguished.
    """

    name = "tmmformer"
    title = "TMMFormer"
    gist = "yuriiformer, the velocity's step learned"
    citation = "arXiv:2605.24425, formers/tmm/model.py of Momentum-Streams"
    variant_of = "yuriiformer"

    def moved(self, state: Value, velocity: Value, sublayer: Sublayer) -> Value:
        step = softplus(sublayer.parameter("nu", initial=_ONE_UNDER_SOFTPLUS))
        return state + step * velocity
