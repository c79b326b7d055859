"""Streams in tensors of their own, known by products with numbers that each token has of its own.

A branch that is added to several streams is multiplied with another number for each of them, made from the streams by
way of a matrix, or streams are mixed: several sums of the same streams, each times another number. Experts differ: each
is multiplied once. Norms differ: their numbers are made from the value alone.
"""

from collections import Counter
from collections.abc import Container

from .flow import Flow, rearranged
from .operations import TracedValue


def token_weights(flow: Flow, norms: Container[int]) -> dict[int, tuple[int, int]]:
    """For each product of a stream with numbers of each token: what is multiplied, and these numbers.

    Empty for a model in which no branch is added to several streams and none are mixed.
    norms: the numbers of the values that are norms.
    """
    products: dict[int, tuple[int, int]] = {}
    times: dict[int, set[int]] = {}
    for value in flow.values:
        pair = _product(flow, value) if value.number not in norms else None
        if pair is not None:
            products[value.number] = pair
            times.setdefault(rearranged(flow, pair[0]), set()).add(pair[1])
    shared = {root for root, weights in times.items() if len(weights) > 1}
    written = any(flow.depends(root, n) for root in shared for n in _weighed_before(flow, shared, products, root))
    if not written and not _are_mixed(flow, shared, products):
        return {}
    # What multiples of these are added to is a stream too, though it may be read once.
    found: dict[int, tuple[int, int]] = {}
    sums: set[int] = set()
    for value in flow.values:
        number = value.number
        if number in products and rearranged(flow, products[number][0]) in shared | sums:
            found[number] = products[number]
        elif value.op == "add" and any(rearranged(flow, n) in found or n in sums for n in flow.predecessors[number]):
            sums.add(number)
    return found


def _product(flow: Flow, value: TracedValue) -> tuple[int, int] | None:
    """What is multiplied with one number for each of its tokens, and these numbers, made by way of a matrix."""
    before = flow.predecessors[value.number]
    if value.op != "mul" or len(before) != 2 or not value.shape or value.shape[-1] < 2:
        return None
    for x, weight in (before, before[::-1]):
        shape = flow.values[weight].shape
        if flow.values[x].shape != value.shape or shape[-1:] != (1,) or shape[:-1] != value.shape[:-1]:
            continue
        if flow.depends(weight, x) and not flow.through_weights[weight] >> x & 1:
            return None
        return (x, weight) if flow.through_weights[weight] else None
    return None


def _weighed_before(flow: Flow, shared: set[int], products: dict[int, tuple[int, int]], root: int) -> list[int]:
    """Streams that a shared value is made from by way of a matrix, and that its numbers are made from too."""
    own = [weight for x, weight in products.values() if rearranged(flow, x) == root]
    return [
        n
        for n in shared
        if n != root
        and flow.through_weights[root] >> n & 1
        and all(flow.through_weights[weight] >> n & 1 and not flow.depends(weight, root) for weight in own)
    ]


def _are_mixed(flow: Flow, shared: set[int], products: dict[int, tuple[int, int]]) -> bool:
    """Whether the same two shared values, or one as two streams, are added up more than once, with other numbers."""
    sums: Counter[frozenset[int]] = Counter()
    for value in flow.values:
        before = flow.predecessors[value.number]
        if value.op == "add" and len(before) == 2 and all(n in products for n in before):
            sums[frozenset(rearranged(flow, products[n][0]) for n in before)] += 1
    return any(count > 1 and roots <= shared for roots, count in sums.items())
