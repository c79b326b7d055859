"""What `normscope train --dry-run` prints."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..runs.plan import Plan
    from ..tasks.run_config import RunConfig


def plan_lines(plan: "Plan", config: "RunConfig", devices: int) -> Iterator[str]:
    """A table of memory by part in each process: with the whole model, and sharded over several processes."""
    batches = config.train.accumulation
    yield f"parameters: {plan.parameters:,}"
    yield (
        f"an update: {plan.flops_per_update:.3g} floating-point operations in {batches} "
        f"batch{'es' if batches > 1 else ''}"
    )
    over = [devices] if devices > 1 else [2, 4, 8]
    parts = {"whole": plan} | {f"sharded over {count}": plan.sharded(count) for count in over}
    rows = {
        "weights": [one.weights for one in parts.values()],
        "gradients": [one.gradients for one in parts.values()],
        f"optimiser ({config.optimizer.name})": [one.optimizer for one in parts.values()],
        "activations of one batch": [one.activations for one in parts.values()],
        "blocks put together": [0, *(plan.put_together for _ in over)],
    }
    rows["sum"] = [sum(column) for column in zip(*rows.values(), strict=True)]
    width = max(map(len, rows))
    yield f"{'memory of each process, MB':{width}}  " + "  ".join(f"{name:>15}" for name in parts)
    for name, row in rows.items():
        yield f"{name:{width}}  " + "  ".join(f"{number / 1e6:15,.1f}" for number in row)
