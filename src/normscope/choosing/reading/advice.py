"""How often the doctor's learning rates and warm-ups were right."""

from collections.abc import Iterator
from typing import Any

from ..evidence import AdviceClaim


def judged(data: Any) -> Iterator[AdviceClaim]:
    """`normscope study advice`: its claims about rates and warm-ups, in its words."""
    for place, claim in enumerate(data["claims"]):
        if claim["name"].endswith(": the best rate") or claim["name"].startswith("Warm-up"):
            yield AdviceClaim(
                result="advice",
                statement=claim["statement"],
                found=claim["found"],
                verdict=claim["verdict"],
                source=f"/claims/{place}",
            )
