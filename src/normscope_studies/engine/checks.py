"""What the settings of a ladder of rates must be, in every study that has one."""

from collections.abc import Sequence


def check_ladder(*, ladder_seeds: int, seeds: int, warmup_updates: int, updates: int) -> None:
    """Raise ValueError where more seeds climb than are trained, or a warm-up does not end within the training."""
    if not 1 <= ladder_seeds <= seeds:
        raise ValueError(f"ladder_seeds must lie in [1, seeds={seeds}], got {ladder_seeds}")
    if not 0 < warmup_updates < updates:
        raise ValueError(f"warmup_updates must lie between 0 and updates={updates}, got {warmup_updates}")


def check_rising(peak_lrs: Sequence[float]) -> None:
    """Raise ValueError for rates that are not positive and rising."""
    if list(peak_lrs) != sorted(peak_lrs) or peak_lrs[0] <= 0:
        raise ValueError(f"peak_lrs must be positive and rise, got {peak_lrs}")


def check_different(config: object, names: Sequence[str]) -> None:
    """Raise ValueError where one of these settings is empty or has a value twice."""
    for name in names:
        values = getattr(config, name)
        if not values or len(set(values)) < len(values):
            raise ValueError(f"{name}: give one or more different values, got {values}")
