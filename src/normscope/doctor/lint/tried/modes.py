"""Training mode beside evaluation mode: what of the two is computed in one alone."""

from collections.abc import Iterator

from ...result import Severity
from ..patient import Patient, a_law, listed
from ..rule import Fault, rule

_SMALL = 0.02
"""The share of the output below which a difference is small; models of libraries that skip a step
in training differ by less.
"""


@rule("modes-differ", a_law("modes"))
def modes_differ(patient: Patient) -> Iterator[Fault]:
    """Outputs of the two modes that differ by more than rounding."""
    seen = patient.tried.modes
    if seen is None or not seen.difference:
        return
    message = (
        f"with dropout at 0 training mode and evaluation mode give outputs that differ by "
        f"{_percent(seen.difference)} on the same batch"
    )
    alone = [
        f"{listed(paths)} runs in {mode} alone"
        for paths, mode in (
            (seen.in_training_alone, "training"),
            (seen.in_evaluation_alone, "evaluation"),
        )
        if paths
    ]
    where = seen.where or type(patient.model).__name__
    if alone:
        message += f": {' and '.join(alone)}"
    else:
        message += f": {where} is given the same in both and makes another output"
    # Heads that training has beside the one in use, as for more tokens or classes.
    beside = seen.in_training_alone and not seen.in_evaluation_alone and not seen.inside
    small = seen.difference < _SMALL or beside
    yield Fault(severity=Severity.INFO if small else Severity.WARNING, where=where, message=message)


def _percent(share: float) -> str:
    """Writes a share as "2.4 %", or "310 %"."""
    return f"{100 * share:.2g} %" if share < 1 else f"{100 * share:.0f} %"
