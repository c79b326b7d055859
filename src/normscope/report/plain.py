"""Results as JSON has them."""

from collections.abc import Collection, Mapping
from typing import Any

from pydantic_core import to_jsonable_python


def plain_values(value: Any, *, without: Collection[str] = ()) -> Any:
    """Returns records as dictionaries, tuples and arrays as lists and enumerations as their values;
    None stands for numbers that are not finite, which JSON does not have.

    without: fields of the record that are left out. Raises TypeError for what JSON cannot hold.
    """
    return to_jsonable_python(
        value,
        exclude=set(without) or None,
        inf_nan_mode="null",
        fallback=_known_to_json,
    )


def _known_to_json(value: Any) -> Any:
    if isinstance(value, Mapping):
        return dict(value)
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"JSON holds no {type(value).__name__}")
