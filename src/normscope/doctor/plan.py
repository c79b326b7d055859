"""How much work each stage of a diagnosis is, before it begins, so that its whole duration can be told."""

from .advise.first_update import RATES_AT_LEAST

_DIAGNOSIS_PASSES = 8
"""A recorded pass, what is computed of it again, and a forward and a backward pass, as `benchmarks/doctor.py` times."""
_UPDATE_PASSES = 3
"""A backward pass is about two forward passes."""


def forward_passes(*, advise: bool, probe_updates: int = 0, warmups: bool = False) -> dict[str, int]:
    """About how many forward passes each stage that `diagnose` tells of takes the time of.

    probe_updates: of the short trainings; 0 without any. warmups: whether warm-ups for a wanted rate may be tried too.
    """
    passes = {"streams and gradients": _DIAGNOSIS_PASSES}
    if advise:
        passes["rates"] = RATES_AT_LEAST
    if probe_updates:
        passes["short trainings"] = _UPDATE_PASSES * probe_updates
        if warmups:
            passes["warm-ups"] = _UPDATE_PASSES * probe_updates
    return passes
