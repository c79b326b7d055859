"""Norms on queries and keys beside a placement: `pre-ln+qk-norm` is `pre-ln` with them.

They stand within attention, wherever the other norms stand, so that every placement can have them:
its formula is read as it is, and every attention in it gets a norm for its queries and one for its
keys. A model of the user's gets them by `transplant/query_key`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, cast

from .base import Placement, Site, StackShape, State, Sublayer, Value

SUFFIX = "qk-norm"
"""The words after a placement's name and a plus sign."""
_KINDS = ("rms", "layer", "unit")
_WHERE = ("before", "after")
_WORDS = ("head", "whole", *_KINDS, *_WHERE)


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryKeyNorm:
    """The norm of queries and keys, its extent, and its side of rotary positions."""

    whole: bool = False
    """True for a norm over all heads together, as in OLMo 2; else each head has its own, as in Qwen
    3 and Gemma 3.
    """
    kind: Literal["as-model", "rms", "layer", "unit"] = "as-model"
    """unit: x / ‖x‖ with one trained number for all features, √(its width) at first."""
    after: bool = False
    """Where queries and keys meet, which rotary positions have turned by then, as Hunyuan; else
    before these turn them, as Qwen 3, Gemma 3 and OLMo 2. Gains of features tell the two apart."""

    @classmethod
    def named(cls, words: str) -> "QueryKeyNorm":
        """Makes the norm that words joined by hyphens, in any order, describe. Raises ValueError
        for other words.
        """
        asked = words.replace("-norm", "").split("-") if words else []
        unknown = [word for word in asked if word not in _WORDS]
        kinds = [word for word in asked if word in _KINDS]
        both = {"head", "whole"} <= {*asked} or {*_WHERE} <= {*asked}
        if unknown or both or len(kinds) > 1 or len(set(asked)) < len(asked):
            raise ValueError(
                f"norms on queries and keys are not {words!r}: say head (each head on its own, "
                "which is usual) or whole (all heads together); rms, layer or unit where the "
                "norm is to be another than the model's; and after where it is to stand after "
                "rotary positions (before is usual), such as head, whole-layer, unit or head-after"
            )
        if "after" in asked and "whole" in asked:
            raise ValueError(
                f"norms on queries and keys are not {words!r}: after rotary positions each head "
                "is normalised on its own (head-after), as in the models that have them there"
            )
        kind = cast(Literal["as-model", "rms", "layer", "unit"], (kinds or ["as-model"])[0])
        return cls(whole="whole" in asked, kind=kind, after="after" in asked)

    @property
    def name(self) -> str:
        """The name as it stands after the plus sign."""
        words = [SUFFIX]
        if self.whole:
            words.append("whole")
        if self.kind != "as-model":
            words.append(self.kind)
        if self.after:
            words.append("after")
        return "-".join(words)

    @property
    def title(self) -> str:
        """For headings and legends."""
        return self.name.replace(SUFFIX, "QK-norm", 1)


class WithQueryKeyNorm(Placement):
    """A placement whose attention norms queries and keys too; `with_query_key_norm` makes one."""

    plain: ClassVar[type[Placement]]
    """The placement without them."""
    query_key_norm: ClassVar[QueryKeyNorm]

    def __init__(self, stack: StackShape) -> None:
        super().__init__(stack)
        norm = self.query_key_norm
        if norm.kind != "as-model":
            raise ValueError(
                f"placement {self.name!r} is for a model of your own: in NormScope's models "
                "queries and keys get the norm of model.norm, as "
                f"{self.plain.name}+{SUFFIX} and {self.plain.name}+{SUFFIX}-whole have it before "
                f"rotary positions, and {self.plain.name}+{SUFFIX}-after behind them"
            )

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        # By what it is made of: pickle finds no class that was made while the program ran.
        return _blank, (self.plain, self.query_key_norm), self.__dict__

    def block(self, state: State, sublayers: Sequence[Sublayer]) -> State:
        norm = self.query_key_norm
        return super().block(state, [_NormedSublayer(one, norm, self.name) for one in sublayers])


@dataclass(frozen=True, slots=True)
class AfterPositions:
    """What a formula applies to queries or keys once rotary positions have turned them."""

    applied: Callable[[Value], Value]

    def __call__(self, x: Value) -> Value:
        return self.applied(x)


class _NormedSublayer:
    """F with norms on its queries and keys, where it is attention; else F as it is."""

    def __init__(self, sublayer: Sublayer, asked: QueryKeyNorm, placement: str) -> None:
        self._sublayer = sublayer
        self._asked = asked
        self._placement = placement

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sublayer, name)

    @property
    def site(self) -> Site:
        return self._sublayer.site

    def __call__(self, x: Value, /, **inside: Callable[[Value], Value]) -> Value:
        if self.site.kind == "feed_forward":
            return self._sublayer(x, **inside)
        if "query" in inside or "key" in inside:
            plain = self._placement.partition("+")[0]
            raise ValueError(
                f"placement {self._placement!r}: {plain} norms queries and keys by itself"
            )
        norm, stack = self._sublayer.norm, self.site.stack
        if self._asked.whole:
            return self._sublayer(x, query=norm.queries, key=norm.keys, **inside)

        def query(q: Value) -> Value:
            return norm.queries(q, groups=stack.heads)

        def key(k: Value) -> Value:
            return norm.keys(k, groups=stack.heads_of_keys)

        if self._asked.after:
            return self._sublayer(x, query=AfterPositions(query), key=AfterPositions(key), **inside)
        return self._sublayer(x, query=query, key=key, **inside)


_MADE: dict[tuple[type[Placement], QueryKeyNorm], type[Placement]] = {}


def with_query_key_norm(placement: type[Placement], norm: QueryKeyNorm) -> type[Placement]:
    """Returns the placement with such norms, made once. Raises ValueError for one that has some."""
    if issubclass(placement, WithQueryKeyNorm):
        raise ValueError(f"placement {placement.name!r} has norms on queries and keys already")
    if (placement, norm) not in _MADE:
        _MADE[placement, norm] = _made(placement, norm)
    return _MADE[placement, norm]


def _made(placement: type[Placement], norm: QueryKeyNorm) -> type[Placement]:
    return type(
        placement.__name__,
        (WithQueryKeyNorm, placement),
        {
            "__doc__": placement.__doc__,
            "__module__": placement.__module__,
            "__qualname__": placement.__qualname__,
            "name": f"{placement.name}+{norm.name}",
            "title": f"{placement.title} + {norm.title}",
            "gist": "",
            "plain": placement,
            "query_key_norm": norm,
        },
    )


def _blank(placement: type[Placement], norm: QueryKeyNorm) -> Placement:
    made = with_query_key_norm(placement, norm)
    return made.__new__(made)


def parted(placement: type[Placement]) -> tuple[type[Placement], QueryKeyNorm | None]:
    """Returns a placement without its norms on queries and keys, and these; None where it has
    none beside its formula.
    """
    if issubclass(placement, WithQueryKeyNorm):
        return placement.plain, placement.query_key_norm
    return placement, None
