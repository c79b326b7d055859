"""The doctor's measurements at some of a training's updates, under flat names that any logger
takes.
"""

import math
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from ..doctor.find.branches import Branch
from ..doctor.find.streams import Stream
from ..doctor.identify.stacks import as_stacks, branches_of, streams_in
from ..doctor.measured import SublayerMeasurements
from ..doctor.observe.streams import mean_cosine, measured_stacks
from ..doctor.observe.sums import with_gain
from ..doctor.record import Stack, norm_over
from ..doctor.trace.forward import Inputs, main_tensor, named_in
from ..doctor.trace.graph import Graph
from ..doctor.trace.operations import SOFTMAX
from ..measure import gradient_norms

_LOGITS_OF = SOFTMAX | {"_log_softmax"}
_MASKED_BELOW = -5e3
"""Keys with a lower score are masked: libraries add -1e4 and less for it."""
_STILL = 1e-3
"""A hidden unit whose standard deviation over tokens is below this share of the layer's root mean
square is idle.
"""


def _attention_entropy(graph: Graph, branch: Branch) -> float | None:
    """Returns the mean entropy of attention's weights, over the largest that the number of keys
    allows: 0 to 1.

    1 is a plain mean of all tokens that may be seen, 0 a copy of one of them. Queries that may see
    one key say nothing and are left out. None for a branch without a softmax over scores, and
    without a query that has a choice.
    """
    # These weigh sub-layers, not tokens.
    mixing = {mixture.weights for mixture in graph.mixtures.values()}
    shares = []
    for value in (graph.values[n] for n in branch.computed if n not in mixing):
        if value.op not in SOFTMAX:
            continue
        weights, scores = value.tensor, graph.values[value.inputs[0]].tensor
        weights_QK, scores_QK = (
            one.reshape(-1, one.shape[-1]).float() for one in (weights, scores)
        )
        keys_Q = (scores_QK > _MASKED_BELOW).sum(-1)
        free_Q = keys_Q > 1
        if bool(free_Q.any()):
            entropy_Q = torch.special.entr(weights_QK).sum(-1)
            shares.append(float((entropy_Q[free_Q] / keys_Q[free_Q].log()).mean()))
    return math.fsum(shares) / len(shares) if shares else None


def _idle_units(graph: Graph, branch: Branch) -> float | None:
    """Returns the share of a feed-forward sub-layer's hidden units that are the same for every
    token: dead or saturated.

    A unit of ReLU that is never active, one of a sigmoid that is always open: neither gets a
    gradient through its activation, nor tells one token from another. Hidden are the values that
    the last weight matrix reads. None for what is no feed-forward, and where the values of a token
    do not stand in one row.
    """
    if branch.kind != "feed_forward":
        return None
    products = [n for n in branch.computed if graph.is_weight_product(graph.values[n])]
    read = graph.values[branch.reads[0]].tensor
    tokens = read.numel() // read.shape[-1]
    if len(products) < 2 or tokens < 2:
        return None
    hidden = next(
        (n for n in graph.factors(graph.values[products[-1]]) if graph.values[n].is_data), None
    )
    if (
        hidden is None
        or graph.values[hidden].tensor.numel() // graph.values[hidden].shape[-1] != tokens
    ):
        return None
    hidden_NH = graph.values[hidden].tensor.reshape(tokens, -1).float()
    size = hidden_NH.square().mean().sqrt()
    return float((hidden_NH.std(0, correction=0) <= _STILL * size).float().mean())


def _logit_deviation(graph: Graph, streams: Sequence[Stream]) -> float | None:
    """Returns the logits' standard deviation about each token's mean, root mean square over tokens.

    Logits are what a softmax is taken of behind the last stack, else what the model's output calls
    so. None where neither is there.
    """
    logits = []
    for value in graph.values:
        if value.op in _LOGITS_OF and graph.depends(value.number, streams[-1].end):
            logits.append(graph.values[value.inputs[0]].tensor.movedim(value.args[1], -1))
    if not logits and named_in(graph.trace.output, "logits") is not None:
        named = main_tensor(graph.trace.output)
        logits = [named] if named is not None else []
    # A loss may come in chunks of tokens.
    rows = [scores.reshape(-1, scores.shape[-1]).float().var(-1, correction=0) for scores in logits]
    return float(torch.cat(rows).mean().sqrt()) if rows else None


def _norms(tensors: Mapping[str, Tensor]) -> dict[str, float]:
    found = [torch.linalg.vector_norm(tensor, dtype=torch.float32) for tensor in tensors.values()]
    # One transfer for all of them.
    values = torch.stack([norm.cpu() for norm in found]).tolist() if found else []
    return dict(zip(tensors, values, strict=True))


DEAD_SHARE = 1e-6
"""Energy ratio below which a branch changes the stream by less than a thousandth of it: as good as
nothing.
"""
SATURATED = 0.98
"""Share of hidden units that stand still, and 1 less attention's relative entropy, from which a
sub-layer counts as saturated."""


@torch.no_grad()
def _named_measurements(
    graph: Graph, streams: Sequence[Stream], stacks: Sequence[Stack], gradients: Mapping[str, float]
) -> dict[str, float]:
    """Returns the measurements as `normscope/<stack>/block_<number>/<kind>/<quantity>`, and
    `normscope/<stack>/<quantity>`.

    Quantities of a sub-layer are `stream_square`, `share`, `correlation` and `gradient_norm`, as
    the record has them, `attention_entropy` and `idle_units`; of a stack `source_square`,
    `end_square`, `end_correlation`, `dead_sublayers` and `saturated_sublayers`, the last two being
    counts. Gradient norms are taken of `gradients`, by parameter, over the sub-layer's matrices
    that have one. What is not known has no name.
    """
    found: dict[str, float | None] = {}
    for name, stream, stack in zip(_stack_names(stacks), streams, stacks, strict=True):
        found[f"normscope/{name}/source_square"] = stack.source_square
        found[f"normscope/{name}/end_square"] = stack.end_square
        found[f"normscope/{name}/end_correlation"] = mean_cosine(
            graph.values[with_gain(graph, stream.end)].tensor
        )
        dead = saturated = 0
        for (at, sublayer), branch in zip(
            _sublayers(name, stack), branches_of(stack, stream), strict=True
        ):
            entropy, idle = _attention_entropy(graph, branch), _idle_units(graph, branch)
            gradient = norm_over(sublayer.matrices, gradients)
            found[f"{at}/stream_square"] = sublayer.stream_square
            found[f"{at}/share"] = sublayer.share
            found[f"{at}/correlation"] = sublayer.correlation
            found[f"{at}/gradient_norm"] = gradient
            found[f"{at}/attention_entropy"] = entropy
            found[f"{at}/idle_units"] = idle
            dead += sublayer.share < DEAD_SHARE or gradient == 0
            saturated += (entropy is not None and 1 - entropy >= SATURATED) or (
                idle or 0.0
            ) >= SATURATED
        found[f"normscope/{name}/dead_sublayers"] = float(dead)
        found[f"normscope/{name}/saturated_sublayers"] = float(saturated)
    found["normscope/logit_deviation"] = _logit_deviation(graph, streams)
    return {name: value for name, value in found.items() if value is not None}


def _stack_names(stacks: Sequence[Stack]) -> list[str]:
    """Returns the stack's path in the model, `stack` for the model itself; several of one name are
    numbered.
    """
    return _numbered([stack.name or "stack" for stack in stacks])


def _sublayers(name: str, stack: Stack) -> Iterator[tuple[str, SublayerMeasurements]]:
    """`normscope/<stack>/block_03/attention` and what was measured of it, for each in order."""
    digits = max(2, len(str(stack.blocks)))
    names = _numbered([f"block_{sub.block:0{digits}}/{sub.kind}" for sub in stack.sublayers])
    for place, sublayer in zip(names, stack.sublayers, strict=True):
        yield f"normscope/{name}/{place}", sublayer.measured


def _numbered(names: Sequence[str]) -> list[str]:
    """The second `a` is `a_2`, and so on."""
    seen: Counter[str] = Counter()
    found = []
    for name in names:
        seen[name] += 1
        found.append(name if seen[name] == 1 else f"{name}_{seen[name]}")
    return found


@dataclass(slots=True, kw_only=True)
class Monitor:
    """Measures a model at its first update and at every `every_updates`-th after it: 1, 1 + N, 1 +
    2N, …

    In a loop of one's own, after the backward pass and before gradients are clipped:

        monitor = Monitor(model=model, inputs=batch, every_updates=100)
        ...
        loss.backward()
        log(monitor(update))            # {} at updates that are not measured
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        log(monitor.stepped(update))    # how far the step moved each sub-layer

    The stream is measured in evaluation mode with the weights before the update, in a forward pass
    of its own; modes, gradients, buffers and random numbers stay as they are, so a training is the
    same with a monitor and without. Gradients are those of the training. From a measurement to
    `stepped`, or to the next call, it holds a copy of the sub-layers' matrices. Models whose
    parameters are sharded over processes are refused: a forward pass of one process alone would
    wait for the others.
    """

    model: nn.Module
    inputs: Inputs | None = None
    """The inputs that the model is called with, as `find_stacks` takes them; None: every
    measurement brings its own.
    """
    every_updates: int = 100
    _stacks: tuple[Stack, ...] = field(default=(), init=False)
    """Found at the first measurement: training changes weights, not wiring."""
    _before_step: "_BeforeStep | None" = field(default=None, init=False)

    def __post_init__(self) -> None:
        check_every(self.every_updates)
        if sharded := [name for name, p in self.model.named_parameters() if isinstance(p, DTensor)]:
            raise ValueError(
                f"{sharded[0]} is sharded over processes; measure such a model before it is sharded"
            )

    def __call__(
        self,
        update: int,
        inputs: Inputs | None = None,
        gradients: Mapping[str, float] | None = None,
    ) -> dict[str, float]:
        """Returns the measurements at this update, counted from 1, by name; {} where it is not due.

        inputs: in place of those of the monitor. gradients: norms by parameter; None takes them of
        `.grad`. Raises ValueError as `find_stacks` does at the first measurement. A training is not
        ended by one that fails later, as with weights that are no longer finite: it is left out
        with a warning.
        """
        self._before_step = None
        if not is_due(update, self.every_updates):
            return {}
        given = self.inputs if inputs is None else inputs
        if given is None:
            raise ValueError(
                "nothing to measure the model with: give the monitor inputs, or each measurement "
                "its own"
            )
        norms = gradient_norms(self.model) if gradients is None else gradients
        try:
            graph, streams = streams_in(self.model, given)
            if [len(stream.branches) for stream in streams] != [
                len(stack.sublayers) for stack in self._stacks
            ]:
                self._stacks = tuple(as_stacks(streams))
            stacks = measured_stacks(graph, streams, self._stacks)
            found = _named_measurements(graph, streams, stacks, norms)
        except ValueError as error:
            if not self._stacks:
                raise
            warnings.warn(
                f"no measurement at update {update}: {error}", RuntimeWarning, stacklevel=2
            )
            return {}
        names = {
            name
            for stack in stacks
            for sublayer in stack.sublayers
            for name in sublayer.measured.matrices
        }
        weights = {
            name: p.detach().clone() for name, p in self.model.named_parameters() if name in names
        }
        self._before_step = _BeforeStep(update, stacks, weights)
        return found

    def stepped(self, update: int) -> dict[str, float]:
        """Measures how far the optimiser's step moved the matrices of each sub-layer; {} where the
        update was not measured.

        To be called after the step of the same update: `…/update_norm` is the norm of what was
        added, `…/update_ratio` that norm over the weights' own before, which matrices that are 0
        have not. A ratio that jumps shows a spike before the loss does.
        """
        before, self._before_step = self._before_step, None
        if before is None or before.update != update:
            return {}
        parameters = dict(self.model.named_parameters())
        moved = _norms(
            {name: parameters[name].detach() - weight for name, weight in before.weights.items()}
        )
        norms, found = _norms(before.weights), dict[str, float]()
        for name, stack in zip(_stack_names(before.stacks), before.stacks, strict=True):
            for at, sublayer in _sublayers(name, stack):
                update_norm, norm = (
                    norm_over(sublayer.matrices, moved),
                    norm_over(sublayer.matrices, norms),
                )
                if update_norm is not None:
                    found[f"{at}/update_norm"] = update_norm
                if update_norm is not None and norm:
                    found[f"{at}/update_ratio"] = update_norm / norm
        return found


@dataclass(frozen=True, slots=True)
class _BeforeStep:
    """A measured update whose step has not been taken."""

    update: int
    stacks: tuple[Stack, ...]
    weights: Mapping[str, Tensor]
    """The sub-layers' matrices as they were."""


def check_every(every_updates: int) -> None:
    """Checks the interval of measurements. Raises ValueError unless it is at least 1."""
    if every_updates < 1:
        raise ValueError(
            f"every_updates={every_updates}: measure every 1st, 2nd, … update; leave the monitor "
            "out for none"
        )


def is_due(update: int, every_updates: int) -> bool:
    """Tells whether an update, counted from 1, is measured: the first, and every so many after
    it.
    """
    return (update - 1) % every_updates == 0
