"""TensorBoard's event files, read by TensorBoard's own reader."""

from pathlib import Path

from ..record import History
from .rows import Row, history_of

PREFIX = "events.out.tfevents."
_ALL = 0
"""Of TensorBoard's reader: keep every value, where it would keep a sample."""


def of_event_files(path: Path) -> History:
    """An event file, or a folder with some. Raises ValueError as `history_of` does, and where there is no scalar.

    TensorBoard leaves what was torn at the end out, and hides what a resumed training wrote beyond its checkpoint.
    """
    from tensorboard.backend.event_processing.event_accumulator import SCALARS, TENSORS, EventAccumulator
    from tensorboard.util.tensor_util import make_ndarray

    reader = EventAccumulator(str(path), size_guidance={SCALARS: _ALL, TENSORS: _ALL})
    reader.Reload()
    rows: list[Row] = []
    for tag in reader.Tags()["scalars"]:
        rows += [(int(one.step), {tag: float(one.value)}) for one in reader.Scalars(tag)]
    for tag in reader.Tags()["tensors"]:
        # Newer writers keep scalars as tensors without a dimension.
        for one in reader.Tensors(tag):
            array = make_ndarray(one.tensor_proto)
            if array.ndim == 0 and array.dtype.kind in "fi":
                rows.append((int(one.step), {tag: float(array)}))
    if not rows:
        raise ValueError(f"{path} holds no scalar")
    return history_of(str(path), rows)
