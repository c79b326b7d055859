"""What every norm's output is multiplied with: by which parameter, and whether the forward pass adds 1 to it."""

# D = width of what is normed
from torch import Tensor, nn

from ..record import NormGain
from ..trace.graph import Graph
from ..trace.operations import Origin, Ref, TracedValue, memory_of, names_by_memory


def norm_gains(model: nn.Module, graph: Graph) -> tuple[NormGain, ...]:
    """Of every norm with a trained gain a feature, in the order in which they are computed; each parameter once."""
    names = names_by_memory(model.named_parameters())
    found: dict[str, NormGain] = {}
    for number, norm in graph.norms.items():
        if norm.is_curve:
            continue
        for factor in (*_within(graph, number), *_after(graph, number)):
            gain = _gain(graph, factor, names)
            if gain is not None:
                found.setdefault(gain.name, gain)
    return tuple(found.values())


def _gain(graph: Graph, number: int, names: dict[int, str]) -> NormGain | None:
    value = graph.values[number]
    leaves = [leaf for leaf in graph.trace.leaves(number) if leaf.origin == Origin.TRAINABLE]
    if len(leaves) != 1 or leaves[0].tensor.numel() != value.tensor.numel() or value.tensor.is_meta:
        return None
    name = names.get(memory_of(leaves[0].tensor))
    if name is None:
        return None
    total, own = (tensor.detach().double().flatten() for tensor in (value.tensor, leaves[0].tensor))
    return NormGain(
        name=name,
        total=float(total.mean()),
        own=float(own.mean()),
        own_size=float(own.square().mean().sqrt()),
        negative=float((own < 0).double().mean()),
        constant=bool((own == own[0]).all()),
        adds_one=_near(total, own + 1),
    )


def _near(one: Tensor, other: Tensor) -> bool:
    # In bfloat16, 1 + w keeps three digits.
    return float((one - other).abs().max()) < 0.01


def _within(graph: Graph, number: int) -> list[int]:
    """Vectors that the norm's own arithmetic multiplies with, as in w · x / ‖x‖."""
    value = graph.values[number]
    if value.op == "native_layer_norm" and value.call is not None:
        weight = value.call.args[2]
        return [weight.number] if isinstance(weight, Ref) else []
    inside = graph.between(graph.norms[number].source, number)[1:]
    return [n for at in inside for n in _vectors(graph, graph.values[at])]


def _after(graph: Graph, number: int) -> list[int]:
    """The vector that alone reads the norm's value."""
    while len(consumers := set(graph.consumers[number])) == 1:
        (number,) = consumers
        step = graph.step(number)
        if step is None or step.kind not in ("same", "scale"):
            return []
        if vectors := _vectors(graph, graph.values[number]):
            return vectors
    return []


def _vectors(graph: Graph, value: TracedValue) -> list[int]:
    if value.op != "mul":
        return []
    given = [n for n in value.inputs if not graph.values[n].is_data]
    return [
        n
        for n in given
        if graph.values[n].origin == Origin.TRAINABLE
        and graph.values[n].shape[-1:] == value.shape[-1:] > (1,)
        and graph.values[n].tensor.numel() == value.shape[-1]
    ]
