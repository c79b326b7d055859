"""Look at a model once: find its stacks, and measure every sub-layer in one forward and one
backward pass.

And its loss were the stacks wired as the other of Pre-LN and Post-LN: nothing is built anew for it,
but the recorded pass is computed again piece by piece, each sub-layer and each norm as it is, and
put together the other way round.
"""

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten, tree_unflatten

from ...measure.autocast import without_autocast
from ...measure.passes import moved
from ...measure.unchanged import left_unchanged
from ..find.streams import Stream
from ..identify.stacks import as_stacks, branches_of, streams_in, wired_like
from ..measured import ModelMeasurements
from ..partly_used import PartlyUsed
from ..record import Stack, norm_over, with_measured
from ..trace.forward import Inputs, call_with, read_tokens_in, takes_more
from ..trace.graph import Graph
from ..trace.operations import UNREPEATABLE
from .around.beside import dropped_logits, large_dropouts, read_places, token_channels
from .attention import with_attention
from .conditioned import conditioned_gates
from .gradients import backward, loss_of, with_opening
from .norms import norm_gains, powers
from .parameters import (
    flat_gates,
    shut_gates,
    tables_and_outputs,
    unregistered_parameters,
    unused_parameters,
)
from .partly.growing import growing_along
from .partly.sending import sendings
from .partly.units import cut_units
from .partly.untaught import detached_products, dropped_products
from .path import added_again, altered, first_nan, random_factors, writers
from .reach import positions_of, with_reach
from .streams import measured_stacks
from .sums import branch_sums, with_gain
from .uses import with_uses

_Examination = tuple[tuple[Stack, ...], ModelMeasurements]


@without_autocast()
def examined(
    model: nn.Module,
    inputs: Inputs,
    loss: Callable[[Any], Tensor] | None = None,
    *,
    rewire: bool = False,
    known_finite: bool = False,
) -> _Examination:
    """Returns the stacks as `find_stacks` finds them, and what each of their sub-layers does to its
    stream and to the loss.

    loss: maps the model's output to one number, the mean loss per token in nats; `backward` says
    what stands in for it.
    rewire: whether to look for the loss under another wiring too, and with gains that are off by 1,
    which takes about three more forward passes. Two forward passes and one backward pass in
    evaluation mode, and some more where whole sub-layers get no gradient, to see what opens.
    known_finite: that all weights are. The model is left as it was: weights, `.grad`, buffers,
    modes, and all random number generators. Raises ValueError as `find_stacks` and `backward` do.
    """
    _refuse_meta(model)
    graph, streams, stacks, measured = _watched(model, inputs, known_finite=known_finite)
    written = [tensor for tensor, _ in graph.trace.written]
    run = partial(call_with, model, inputs)
    if rewire:
        with left_unchanged(model, written):
            rewired = rewired_loss_nats(graph, streams, stacks, loss)
            shifted = _shifted_losses(model, run, loss, measured, graph.trace.output)
        measured = replace(measured, rewired_loss_nats=rewired, shifted_loss_nats=shifted)
    del graph, streams
    # By now what was recorded is gone: it would stand beside all that the backward pass keeps.
    widths = [stack.width for stack in stacks]
    measured, places = backward(
        model,
        run,
        loss,
        measured,
        widths=widths,
        written=written,
        tokens=read_tokens_in(model, inputs),
        cause_of_nan=lambda: first_nan(streams_in(model, inputs)[0]),
    )
    stacks = tuple(_with_gradients(stack, measured.gradient_norms, places) for stack in stacks)
    return with_opening(stacks, measured, model, run, loss, written)


def _refuse_meta(model: nn.Module) -> None:
    for name, weight in [*model.named_parameters(), *model.named_buffers()]:
        if weight.is_meta:
            raise ValueError(
                f"{name} is on the meta device: give the model weights first (to_empty, then "
                "initialise), or ask find_stacks for its structure alone"
            )


def examined_without_gradients(model: nn.Module, inputs: Inputs) -> _Examination:
    """Returns the stacks and the measurements of one forward pass, without a loss. Raises
    ValueError as `find_stacks` does.
    """
    _refuse_meta(model)
    _, _, stacks, measured = _watched(model, inputs)
    return stacks, measured


def examined_for_drawing(model: nn.Module, inputs: Inputs) -> tuple[Stack, ...]:
    """The same stacks, with what the matrices of each sub-layer are for. Raises ValueError as
    `find_stacks` does.
    """
    _refuse_meta(model)
    graph, streams, stacks, _ = _watched(model, inputs)
    return with_uses(graph, streams, stacks)


def _watched(
    model: nn.Module, inputs: Inputs, *, known_finite: bool = False
) -> tuple[Graph, Sequence[Stream], tuple[Stack, ...], ModelMeasurements]:
    """Returns one forward pass with all of its values and the streams in it, and what both show
    without gradients.
    """
    graph, streams = streams_in(model, inputs, known_finite=known_finite)
    tables, output_matrices = tables_and_outputs(graph)
    stacks = measured_stacks(graph, streams, as_stacks(streams))
    stacks = with_reach(graph, streams, with_attention(graph, streams, stacks, inputs))
    measured = ModelMeasurements(
        unused_parameters=_idle(model, inputs, graph),
        takes_more=takes_more(model, inputs),
        unregistered=unregistered_parameters(model, graph.trace),
        flat_gates=flat_gates(graph.trace),
        shut_gates=shut_gates(graph.trace),
        conditioned_gates=conditioned_gates(graph, stacks),
        partly=PartlyUsed(
            sendings=sendings(graph),
            cut_units=cut_units(graph, streams, stacks),
            detached_products=detached_products(model, graph),
            dropped_products=dropped_products(model, graph),
            growing_along=growing_along(graph, stacks),
        ),
        norm_gains=norm_gains(graph),
        powers=powers(graph),
        tables=tables,
        output_matrices=output_matrices,
        dropped_logits=dropped_logits(graph),
        large_dropouts=large_dropouts(graph),
        token_channels=token_channels(graph, streams),
        read_places=read_places(graph, streams),
        added_again=tuple(found for stream in streams for found in added_again(graph, stream)),
        altered=altered(graph, streams),
        random_factors=random_factors(graph),
        writers=writers(graph),
        **positions_of(graph, stacks[0]),
    )
    return graph, streams, stacks, measured


def _idle(model: nn.Module, inputs: Inputs, graph: Graph) -> tuple[str, ...]:
    """Names of the parameters that the pass read none of, but for those of modules that training
    alone goes through.
    """
    if not (names := unused_parameters(model, graph.trace)):
        return ()
    went_through = {path for value in graph.trace.values for path in value.modules}
    resting = {path for name in names if (path := name.rpartition(".")[0]) not in went_through}
    written = [*model.buffers(), *(tensor for tensor, _ in graph.trace.written)]
    called: dict[str, set[bool]] = {path: set() for path in resting}
    """The modes in which each resting module runs; one that runs in both, and reads nothing, is
    idle all the same.
    """
    with left_unchanged(model, written), torch.no_grad():
        for path in resting:
            model.get_submodule(path).register_forward_pre_hook(
                lambda module, _, path=path: called[path].add(module.training)
            )
        for training in (False, True) if resting else ():
            model.train(training)
            # What asks for labels in training cannot be run, and then nothing is known of it.
            with contextlib.suppress(Exception):
                call_with(model, inputs)
    trained = {path for path, modes in called.items() if modes == {True}}
    return tuple(name for name in names if name.rpartition(".")[0] not in trained)


def _with_gradients(stack: Stack, norms: Mapping[str, float], places: int) -> Stack:
    """places: at how many the output says something."""
    recipe = stack.recipe and replace(stack.recipe, asked_everywhere=places == stack.recipe.rows)
    found = [{"gradient_norm": norm_over(one.measured.matrices, norms)} for one in stack.sublayers]
    return with_measured(replace(stack, recipe=recipe), found)


@torch.no_grad()
def _shifted_losses(
    model: nn.Module,
    run: Callable[[], Any],
    loss: Callable[[Any], Tensor] | None,
    measured: ModelMeasurements,
    output: Any,
) -> dict[int, float]:
    """Returns the losses with gains off by 1, as `shifted_loss_nats` has them; none without gains,
    or where a loss on random targets would have to stand in.
    """
    named = dict(model.named_parameters(remove_duplicate=False))
    gains = {id(weight): name for name, weight in named.items() if name in measured.gain_names}
    if not gains or loss_of(output, loss)[1]:
        return {}
    up = {name: torch.ones_like(named[name]) for name in gains.values()}
    found = {}
    for by in (1, -1):
        with moved(named, up, by):
            found[by] = float(loss_of(run(), loss)[0])
    return found


def rewired_loss_nats(
    graph: Graph,
    streams: Sequence[Stream],
    stacks: Sequence[Stack],
    loss: Callable[[Any], Tensor] | None,
) -> float | None:
    """Returns the loss on the same batch with x + F(norm(x)) in the place of norm(x + F(x)), or the
    other way round.

    Of several stacks all that are wired as the first are rewired. A norm at the end stays. None
    where the first is like neither, where a loss on random targets would have to stand in, and
    where the pass cannot be computed in pieces.
    """
    wired = wired_like(stacks[0])
    with torch.no_grad():
        if not wired or loss_of(graph.trace.output, loss)[1]:
            return None
        ends: dict[int, Tensor] = {}
        try:
            for stream, stack in zip(streams, stacks, strict=True):
                if wired_like(stack) == wired:
                    ends |= _rewired(graph, stream, stack, ends, pre=wired == "Pre-LN")
            return float(loss_of(_output(graph, ends), loss)[0])
        except UNREPEATABLE:
            return None


def _rewired(
    graph: Graph, stream: Stream, stack: Stack, others: dict[int, Tensor], *, pre: bool
) -> dict[int, Tensor]:
    """Returns the value that the rest of the model reads, by its number. pre: whether the stack is
    wired as Pre-LN now.

    others: the same of earlier stacks, whose values cross-attention reads. Raises ValueError where
    a sub-layer has no norm of its own.
    """
    inside = [
        branch
        for branch, one in zip(branches_of(stack, stream), stack.sublayers, strict=True)
        if one.block > 0
    ]
    places = branch_sums(graph, stream, inside)
    again, x = graph.trace.again, graph.values[places[0].stream].tensor
    for branch, place in zip(inside, places, strict=True):
        if pre:
            norm = graph.under(branch.reads[0], "same", "scale")
            if norm not in graph.norms:
                raise ValueError("a sub-layer reads no norm")
            into, normed = graph.norms[norm].source, with_gain(graph, norm)
        else:
            (norm,) = graph.norms_of.get(place.sum, [])
            into, normed = place.sum, with_gain(graph, norm)
        read = x if pre else again({into: x}, normed)
        made = again({**others, (normed if pre else place.stream): read}, place.addend)
        given = {n: torch.zeros_like(graph.values[n].tensor) for n in place.addends}
        total = x + again({**given, place.addend: made}, place.sum)
        x = again({into: total}, normed) if pre else total
    return {place.sum if pre else normed: x}


def _output(graph: Graph, ends: dict[int, Tensor]) -> Any:
    """Returns the model's output with other values at the ends of its stacks. Raises ValueError for
    what is not understood.
    """
    leaves, form = tree_flatten(graph.trace.output)
    results = iter(graph.trace.results)
    made = [
        graph.trace.again(ends, next(results)) if isinstance(leaf, Tensor) else leaf
        for leaf in leaves
    ]
    if next(results, None) is not None:
        raise ValueError("the output holds tensors in objects")
    return tree_unflatten(made, form)
