"""Parallel block: attention and feed-forward read the same stream, and their branches are added at once."""

from collections.abc import Sequence

from ..base import End, Placement, Sublayer, Value
from ..registry import register


class _Parallel(Placement):
    """What both have in common."""

    initialisation = "normal-0.02"

    def finish(self, state: Value, end: End) -> Value:
        return end.norm(state)


@register
class ParallelBlock(_Parallel):
    """n = LN(x); x ← x + A(n) + F(n); y = LN(x): one norm a block, read by attention A and feed-forward F.

    GPT-J (Wang & Komatsuzaki 2021), which has no paper; PaLM (Chowdhery et al. 2022, section 2) writes it down. Phi,
    Cohere and Falcon 7B do the same (Hugging Face transformers 5.23). In a decoder that attends to an encoder, which
    none of them is, cross-attention is one branch more that reads the same n. Weights from N(0, 0.02²), as in GPT-J's
    configuration.
    """

    name = "parallel"
    title = "Parallel block"
    gist = "attention and feed-forward read one norm(x)"
    citation = "Wang & Komatsuzaki 2021, GPT-J-6B, mesh-transformer-jax"
    year = 2021

    def block(self, state: Value, sublayers: Sequence[Sublayer]) -> Value:
        normed = sublayers[0].norm(state)
        for sublayer in sublayers:
            state = state + sublayer(normed)
        return state


@register
class ParallelTwoNorms(_Parallel):
    """As `parallel`, every sub-layer with a norm of its own: x ← x + A(LN(x)) + F(LN(x)).

    GPT-NeoX (Black et al. 2022, section 2.1): one norm was meant, two were trained.
    """

    name = "parallel-two-norms"
    title = "Parallel block, two norms"
    gist = "parallel, each sub-layer with its own norm"
    citation = "Black et al. 2022, arXiv:2204.06745, section 2.1"
    year = 2022
    variant_of = "parallel"

    def block(self, state: Value, sublayers: Sequence[Sublayer]) -> Value:
        branches = [sublayer(sublayer.norm(state)) for sublayer in sublayers]
        for branch in branches:
            state = state + branch
        return state
