"""NormScope: what the placement of normalisation does to a Transformer, and whether it needs learning-rate warm-up."""

from typing import Any

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    # torch takes seconds to import; `import normscope` alone needs none of it.
    if name == "diagnose":
        from .doctor.diagnose import diagnose

        return diagnose
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
