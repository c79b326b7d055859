"""Which placements have a number that moves, and by what it is moved."""

from typing import Literal

from normscope.placement import named

PRE, POST = "pre-ln", "post-ln"
"""What both ends are compared with."""
FAMILIES = ("pre-to-post", "post-to-pre", "branch-norm", "branch-norm-by-depth", "deepnorm-to-post")
"""Placements with a number that goes from 0 to 1."""
CONTROLLED = ("pre-to-post", "branch-norm", "deepnorm-to-post")
"""Those of them that a controller moves too."""
BEST_FIXED = ("attn-res-inkling",)
"""The registry's best of 33 in `results/streams`, and the second best in `results/streams_translation`: chosen there,
on other text, before this study."""

Drive = Literal["fixed", "schedule", "controller"]
"""fixed: nothing moves; schedule: with every update; controller: with those that change the output little."""
_WORDS: dict[Drive, str] = {"fixed": "", "schedule": ", scheduled", "controller": ", controlled"}


def title(placement: str, drive: Drive) -> str:
    """What an arm is called."""
    return named(placement).title + _WORDS[drive]
