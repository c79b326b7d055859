"""Simulates what theory's predictions are compared with: stacks as drawn, on random sequences or on
batches of real text.
"""

# N = packed tokens, B = sequences, T = tokens of each, D = width
# B = sentences, S = longest source, T = longest target

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from normscope.data.parallel.batches import TranslationBatch
from normscope.measure import depth_points, recording
from normscope.model import Context, Layout, ModelConfig, Stack, StackConfig, profile
from normscope.model.embedding import Embedding
from normscope.model.initialisation import initialise
from normscope.model.stack import PlacedEnd, norm_maker
from normscope.placement import StackShape, named, registered
from normscope.placement.reading import read_head
from normscope.theory.predict import ModelSetting
from normscope.theory.settings import RepeatedTokens
from normscope.train.device import seed_weights

SEQUENCES = 6
"""Sequences of each draw; their gradients are told apart."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _StackDraw:
    """One stack of one draw; each value a mean over the draw's sequences, or over several draws'
    too.
    """

    q: NDArray[np.float64]
    """‖x_l‖² / d, from the embedding on."""
    p: NDArray[np.float64]
    """⟨x_l, x'_l⟩ / d of two tokens of a sequence; NaN for sequences of one."""
    squares: dict[str, NDArray[np.float64]]
    """Squared Frobenius norm of each matrix's gradient, block by block; names as in
    `StackPrediction`.
    """

    @property
    def gradient_norm(self) -> dict[str, NDArray[np.float64]]:
        """Roots of the squares: of a mean over draws, what `predict` predicts."""
        return {name: np.sqrt(square) for name, square in self.squares.items()}


def drawn(placement: str, shape: StackShape, initialisation: str, seed: int) -> Stack:
    """Returns a stack with the weights of the seed. initialisation: one of
    `normscope.model.SCHEMES`, or as-placement.
    """
    seed_weights(seed)
    kind = named(placement)
    stack = Stack(kind(shape), StackConfig())
    initialise(stack, initialisation, kind)
    return stack


def square_encoder(blocks: int, width: int) -> StackShape:
    """Returns the shape of section 3.3: one head, and an inner width that is the outer one."""
    return StackShape(kind="encoder", width=width, ffn_width=width, heads=1, encoder_blocks=blocks)


def hidden_rms(
    placement: str,
    shape: StackShape,
    seeds: Iterable[int],
    *,
    initialisation: str,
    sentences: int,
    sentence_tokens: int,
    depths: Sequence[int],
) -> list[list[float]]:
    """√(E‖x_l‖² / D) at these depths, of x_0 from N(0, 1); a row for each seed."""
    layout = Layout(torch.full((sentences,), sentence_tokens))
    return [
        _rms_by_depth(drawn(placement, shape, initialisation, seed), layout, depths)
        for seed in seeds
    ]


@torch.no_grad()
def _rms_by_depth(stack: Stack, layout: Layout, depths: Sequence[int]) -> list[float]:
    """A number a block is kept, and no state."""
    x_ND, context = torch.randn(layout.tokens, stack.placement.stack.width), Context(layout=layout)
    profile(stack, lambda: stack(x_ND, context))
    points = depth_points(stack.blocks, pick=stack.placement.hidden)
    with recording(points, lambda x: float(x.double().square().mean().sqrt())) as found:
        stack(x_ND, context)
    return [found[f"x_{depth}"][0] for depth in depths]


def encoder_placements() -> tuple[str, ...]:
    """Returns all registered placements that are defined for an encoder alone."""
    return tuple(
        name for name, placement in registered().items() if "encoder-only" in placement.models
    )


def stacks_of(model: ModelSetting) -> tuple[Literal["encoder", "decoder"], ...]:
    """Returns the stacks of a model, in the order in which they are passed."""
    return ("encoder", "decoder") if model.stack == "encoder-decoder" else (model.stack,)


class Simulation:
    """The model of a setting, to be drawn again and again.

    Raises ValueError for an unknown placement, or one that is not defined for such a model, and for
    loops.
    """

    def __init__(self, placement: str, model: ModelSetting) -> None:
        if model.loops > 1:
            raise ValueError(
                "gradients are taken of matrices that are used once: loops must be 1, got "
                f"{model.loops}"
            )
        self.model, self.placement = model, named(placement)
        kinds = stacks_of(model)
        placements = {kind: self.placement(model.shape(kind)) for kind in kinds}
        norm = "as-placement" if model.norm == "layer-norm" else model.norm
        self.stacks = {
            kind: Stack(placed, StackConfig(norm=norm)) for kind, placed in placements.items()
        }
        self.layout = Layout(torch.full((SEQUENCES,), model.tokens))
        self.embedding = Embedding(model.vocabulary, model.width, placements[kinds[-1]])
        last = self.stacks[kinds[-1]]
        asked, make = read_head(last.placement, model.vocabulary), norm_maker(last.placement, norm)
        self.head = PlacedEnd(asked, make, last.schedules.value)
        # Gradients of weights are made of those of activations, so that sequences can be told
        # apart.
        self.modules = nn.ModuleList([*self.stacks.values(), self.embedding]).requires_grad_(False)
        self._forget()
        for kind, stack in self.stacks.items():
            _record_stream(stack, partial(self._add_moments, kind))
            for sublayer in stack.sublayers():
                crosses = "cross_" if sublayer.site.kind == "cross_attention" else ""
                for name, linear in sublayer.f.matrices():
                    _record_gradient(linear, partial(self._add_square, kind, crosses + name))

    def draw(self, seed: int) -> dict[str, _StackDraw]:
        """Draws weights, sequences, targets and, where it is not tied, the output projection, all
        of that seed.
        """
        seed_weights(seed)
        initialise(self.modules, self.model.setting, self.placement)
        inputs = [self._input() for _ in self.stacks]
        self._forget()
        profile(self.modules, lambda: self._output(inputs))
        self._forget()
        vocabulary, width = self.model.vocabulary, self.model.width
        own = self.model.setting == "theory" or not self.model.tied
        rows = torch.randn(vocabulary, width) / width**0.5 if own else self.embedding.weight
        rows = self.embedding.placement.output_rows(rows, self.head, vocabulary)
        targets = torch.randint(vocabulary, (self.layout.tokens,))
        logits = self._output(inputs) @ rows.T
        (
            nn.functional.cross_entropy(logits, targets, reduction="sum") / self.model.tokens
        ).backward()  # type: ignore[no-untyped-call]
        return {kind: _drawn(*found) for kind, found in self.found.items()}

    def _add_moments(self, kind: str, moments: tuple[float, float]) -> None:
        self.found[kind][0].append(moments)

    def _add_square(self, kind: str, name: str, square: float) -> None:
        self.found[kind][1].setdefault(name, []).append(square)

    def _forget(self) -> None:
        self.found: dict[str, tuple[list[Any], dict[str, list[float]]]] = {
            kind: ([], {}) for kind in self.stacks
        }

    def _input(self) -> Tensor:
        """Draws in the theory's setting independent tokens; in the paper's no token twice in a
        sequence, and positions.
        """
        if self.model.setting == "theory":
            return torch.randn(self.layout.tokens, self.model.width, requires_grad=True)
        ids = [
            2 + torch.randperm(self.model.vocabulary - 2)[: self.model.tokens]
            for _ in range(SEQUENCES)
        ]
        embedded: Tensor = self.embedding(
            torch.cat(ids), self.layout.positions_N, self.layout.longest
        )
        embedded.requires_grad_()
        return embedded

    def _output(self, inputs: list[Tensor]) -> Tensor:
        x = inputs[0]
        memory: dict[str, Any] = {}
        for (kind, stack), embedded in zip(self.stacks.items(), inputs, strict=True):
            x = stack(embedded, Context(layout=self.layout, causal=kind == "decoder", **memory))
            memory = {"memory_MD": x, "memory_layout": self.layout}
        return x


def draws_of(placement: str, model: ModelSetting, draws: int) -> list[dict[str, Any]]:
    """For each draw, seeds counted from 1, and each stack: q, and the squared gradient norms of
    each matrix.
    """
    simulation = Simulation(placement, model)
    found = []
    for seed in range(1, draws + 1):
        draw = simulation.draw(seed)
        found.append({kind: {"q": one.q, **one.squares} for kind, one in draw.items()})
    return found


def _record_stream(stack: Stack, record: Callable[[tuple[float, float]], None]) -> None:
    hidden = stack.placement.hidden
    stack.blocks[0].register_forward_pre_hook(lambda _, inputs: record(_moments(hidden(inputs[0]))))
    for block in stack.blocks:
        block.register_forward_hook(lambda _, __, state: record(_moments(hidden(state))))


def _record_gradient(linear: nn.Linear, record: Callable[[float], None]) -> None:
    """Records a matrix's mean squared Frobenius norm of the gradient for one sequence: of Σ_i g_i
    x_iᵀ that is Σ_ij ⟨g_i, g_j⟩ ⟨x_i, x_j⟩.
    """

    def forward(_: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        x = _products(inputs[0].detach())
        if output.requires_grad:  # not while a placement takes its profile
            output.register_hook(lambda g: record(float((_products(g) * x).sum()) / SEQUENCES))  # type: ignore[no-untyped-call]

    linear.register_forward_hook(forward)


def _products(x_ND: Tensor) -> Tensor:
    """Returns those of all pairs of tokens, sequence by sequence."""
    x_BTD = x_ND.view(SEQUENCES, -1, x_ND.shape[-1])
    return x_BTD @ x_BTD.mT


@torch.no_grad()
def _moments(x_ND: Tensor) -> tuple[float, float]:
    products = _products(x_ND).mean(0).double() / x_ND.shape[1]
    one, tokens = float(products.trace()), len(products)
    pairs = tokens * (tokens - 1)
    return one / tokens, (float(products.sum()) - one) / pairs if pairs else math.nan


def _drawn(stream: list[tuple[float, float]], squares: dict[str, list[float]]) -> _StackDraw:
    moments = np.array(stream)
    # Gradients were recorded from the last block to the first.
    return _StackDraw(
        q=moments[:, 0],
        p=moments[:, 1],
        squares={name: np.array(found[::-1]) for name, found in squares.items()},
    )


_Ids = NDArray[np.int64]


def setting_of(
    batches: Sequence[TranslationBatch],
    model: ModelConfig,
    *,
    vocabulary: int,
    label_smoothing: float,
) -> ModelSetting:
    """Returns the prediction's setting for the mean loss over all target tokens of these batches.

    vocabulary: rows of the output projection. Sentences are taken to be of their mean length.
    """
    sources = [row for batch in batches for row in _rows(batch.source_BS, batch.source_lengths_B)]
    read = [row for batch in batches for row in _rows(batch.target_in_BT, batch.target_lengths_B)]
    asked = [row for batch in batches for row in _rows(batch.target_out_BT, batch.target_lengths_B)]
    same_within, same_apart = repeats(asked, asked)
    asked_within, asked_apart = repeats(read, asked)
    read_within, read_apart = repeats(sources, sources)
    return ModelSetting(
        stack="encoder-decoder",
        blocks=model.decoder_blocks,
        width=model.width,
        ffn_width=model.ffn_width,
        heads=model.heads,
        tokens=round(np.mean([len(row) for row in asked])),
        source_tokens=round(np.mean([len(row) for row in sources])),
        sequences=len(asked),
        vocabulary=vocabulary,
        setting="paper",
        dropout=model.dropout,
        label_smoothing=label_smoothing,
        source=RepeatedTokens(same_within=read_within, same_apart=read_apart),
        target=RepeatedTokens(
            same_within=same_within,
            same_apart=same_apart,
            asked_within=asked_within,
            asked_apart=asked_apart,
        ),
    )


def repeats(firsts: Sequence[_Ids], seconds: Sequence[_Ids]) -> tuple[float, float]:
    """Shares of pairs of places that hold the same entry: two places of one sentence, and of two. 0
    without a pair.

    Of the same sentences twice: with what stands at one place of a pair, and at the other. A place
    and itself are no pair.
    """
    size = 1 + max(int(ids.max()) for ids in (*firsts, *seconds))

    def meetings(first: _Ids, second: _Ids) -> int:
        return int(np.bincount(first, minlength=size) @ np.bincount(second, minlength=size))

    sentences = list(zip(firsts, seconds, strict=True))
    at_home = sum(int((first == second).sum()) for first, second in sentences)
    own = sum(meetings(first, second) for first, second in sentences)
    every = meetings(np.concatenate(firsts), np.concatenate(seconds))
    places = sum(map(len, firsts))
    own_places = sum(len(first) ** 2 for first in firsts)
    own_pairs, far_pairs = own_places - places, places**2 - own_places
    return (own - at_home) / own_pairs if own_pairs else 0.0, (
        every - own
    ) / far_pairs if far_pairs else 0.0


def _rows(ids_BT: Tensor, lengths_B: Tensor) -> list[_Ids]:
    """Returns the real tokens of each sentence."""
    return [
        row[:length].cpu().numpy() for row, length in zip(ids_BT, lengths_B.tolist(), strict=True)
    ]
