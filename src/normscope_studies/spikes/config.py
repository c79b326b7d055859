"""How large the trainings are, and which are made."""

from dataclasses import dataclass

from .cases import BROKEN, HEALTHY, LOOPS


@dataclass(frozen=True, slots=True, kw_only=True)
class SpikesConfig:
    """Trainings of a small causal language model on a Markov chain of tokens. Raises ValueError."""

    seeds: int = 1
    loops: tuple[str, ...] = LOOPS
    """normscope is this library's own loop, trainer Hugging Face's."""
    broken: tuple[str, ...] = tuple(BROKEN)
    healthy: tuple[str, ...] = tuple(HEALTHY)
    updates: int = 130
    change_at: int = 80
    """The update at which what is broken midway breaks; the warm-up ends there too."""
    every_updates: int = 5
    """Of the monitor."""
    width: int = 32
    blocks: int = 3
    sequences: int = 8
    tokens: int = 24
    classes: int = 48

    def __post_init__(self) -> None:
        for name, given, known in (
            ("loops", self.loops, LOOPS),
            ("broken", self.broken, BROKEN),
            ("healthy", self.healthy, HEALTHY),
        ):
            if unknown := [one for one in given if one not in known]:
                raise ValueError(f"{name}: there is no {unknown[0]}; choose among {', '.join(known)}")
        if not 40 <= self.change_at < self.updates - 20:
            raise ValueError(f"change_at={self.change_at} must leave 40 updates before it and 20 after it")
        if self.seeds < 1 or self.every_updates < 1:
            raise ValueError("seeds and every_updates must be at least 1")
