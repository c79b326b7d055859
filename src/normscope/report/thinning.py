"""Which points of a long curve are drawn: few enough for a page, and never without a peak or a trough."""

import numpy as np
from numpy.typing import NDArray

# S = seeds, U = updates


def kept(values_SU: NDArray[np.float64], most: int) -> list[int]:
    """Rising indices of about `most` points: the ends and, of every stretch, where any seed is lowest and highest.

    A seed's last finite value is kept with what follows it, because there its mean and its band change; so is the
    first point of a stretch's gap, which no seed has a value in. All are kept where there are no more than `most`.
    """
    seeds, updates = values_SU.shape
    if updates <= most or not seeds:
        return list(range(updates))
    here_SU = np.isfinite(values_SU)
    found = {0, updates - 1}
    for end in (int(np.flatnonzero(row)[-1]) for row in here_SU if row.any()):
        found |= {end, min(end + 1, updates - 1)}
    low_U = np.where(here_SU, values_SU, np.inf).min(0)
    high_U = np.where(here_SU, values_SU, -np.inf).max(0)
    empty_U = np.asarray(here_SU.sum(0) == 0)
    for stretch in np.array_split(np.arange(updates), max(1, most // 2)):
        empty = empty_U[stretch]
        if empty.any():
            found.add(int(stretch[empty.argmax()]))
        if not empty.all():
            found |= {int(stretch[low_U[stretch].argmin()]), int(stretch[high_U[stretch].argmax()])}
    return sorted(found)
