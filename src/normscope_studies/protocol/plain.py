"""Measurements as JSON: built-in types, six digits, null for what is not finite."""

import json
import math
import re
from collections.abc import Mapping
from typing import Any


def as_json(value: Any) -> str:
    """Indented text, with a list of numbers on one line; JSON has neither infinity nor NaN, so these are null."""
    text = json.dumps(plain(value), indent=1, ensure_ascii=False)
    return re.sub(r"\[\s+([-\d.e+,\snul]+?)\s+\]", lambda m: "[" + " ".join(m[1].split()) + "]", text) + "\n"


def plain(value: Any) -> Any:
    """Built-in types alone: arrays become lists, floats get six digits, what is not finite becomes None."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if hasattr(value, "tolist"):
        return plain(value.tolist())
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, float):
        return float(f"{value:.6g}") if math.isfinite(value) else None
    return value
