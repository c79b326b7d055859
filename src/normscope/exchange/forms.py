"""The correspondence of another library's model with ours: the same formula, and other names for
the same weights.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import UserError
from ..model import EncoderDecoder, LanguageModel, MaskedEncoder, Stack
from ..model.placed import NormGroup, RMSNorm
from ..placement import Placement, named, registered
from ..placement.reading import named_parts, walk
from ..placement.symbol import Symbol, SymbolEnd
from ..settings.tables import as_table, flat
from ..tasks.registry import TASKS
from ..tasks.words import Words

AnyModel = EncoderDecoder | MaskedEncoder | LanguageModel


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportForm:
    """A model of another library that has the formulas of some placements."""

    name: str
    """The name for `--format`."""
    opened_by: str
    model: type[AnyModel]
    wirings: tuple[str, ...]
    """Placements whose formula it computes; others with the same formula fit too."""
    write: Callable[[Any, Path, Words], None]
    """The function that writes (model, folder, words). Raises UserError for a library that is not
    installed.
    """
    difference: Callable[[Any, Path, Words], float]
    """(model, folder, words) -> the largest difference of an opened folder's outputs from ours, on
    a small batch in float32."""
    left_out: tuple[str, ...] = ()
    """Weights of ours that have no place there."""
    one_table: bool = False
    """True where both languages of an encoder-decoder have one table of embeddings."""
    epsilon: float | None = None
    """The one ε of its norms, where it cannot be set."""
    activations: Mapping[str, str] = field(default_factory=dict)
    """Ours -> what its configuration calls it."""
    norm: type[nn.Module] = nn.LayerNorm
    """The class of all its norms."""
    settings: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    """Dotted keys of a model's configuration and the values that it computes; none listed: whatever
    they are. Of the keys in `_BUILT`, those that are not named here have their default."""

    def placements(self, model: AnyModel) -> list[str]:
        """Returns every registered placement that in a model of this shape has one of its
        formulas.
        """
        wanted = {_wirings(model, name) for name in self.wirings}
        return [name for name in registered() if _wirings(model, name) in wanted]


def _wirings(model: AnyModel, name: str) -> object:
    """Returns the formulas that a placement would have in each stack of `model`; None where it is
    not defined there.
    """
    stacks = [module for module in model.children() if isinstance(module, Stack)]
    try:
        return tuple(wiring(named(name)(stack.placement.stack)) for stack in stacks)
    except ValueError:
        return None


def wiring(placement: Placement) -> object:
    """Returns a key of a placement's computation from start to end, over symbols: equal where equal
    weights give equal outputs.

    How weights are drawn is no part of it. Two ways of writing one sum count as different.
    """
    start = SymbolEnd()
    finish = SymbolEnd()
    head = SymbolEnd()
    width = placement.stack.width
    started = placement.start(Symbol("x", (), width), start)
    steps = list(walk(placement, started))
    finished = placement.finish(named_parts(steps[-1].after, placement), finish)
    rows = (
        placement.input_rows(Symbol("E", (), width)),
        placement.table_rows(Symbol("E", (), width)),
    )
    output = placement.output_rows(Symbol("E", (), width), head, 7)
    norms = []
    for step in steps:
        by_site = [(each.site.kind, each.norm) for each in step.sublayers]
        norms.append([(kind, norm.uses, tuple(norm.widths.items())) for kind, norm in by_site])
    expressions = _Expressions()
    at = expressions.number((started, [step.after for step in steps], finished, rows, output))
    return at, tuple(expressions.rows), repr((norms, finish.norm.uses))


class _Expressions:
    """Each expression once, under a number that hangs on what it says alone.

    Each of several streams holds all streams before it: written out, one block of a decoder's would
    be megabytes.
    """

    def __init__(self) -> None:
        self.rows: dict[tuple[object, ...], int] = {}
        self._known: dict[int, tuple[object, int]] = {}
        """The numbers by identity, with the expression itself, so that no other one gets its
        identity.
        """

    def number(self, value: object) -> int:
        if id(value) not in self._known:
            self._known[id(value)] = value, self.rows.setdefault(self._row(value), len(self.rows))
        return self._known[id(value)][1]

    def _row(self, value: object) -> tuple[object, ...]:
        if isinstance(value, tuple | list):
            return type(value).__name__, *map(self.number, value)
        if isinstance(value, Symbol):
            parts = map(self.number, (value.arguments, value.values, value.reads))
            return value.op, value.width, value.applies_f, value.shape, value.meaning, *parts
        return (repr(value),)


def refuse(form: ExportForm, model: AnyModel) -> None:
    """Raise UserError, saying what would fit, where `form` cannot hold what `model` computes."""
    if not isinstance(model, form.model):
        raise UserError(
            f"{form.name} holds {_kind(form.model)}, and this run is {_kind(type(model))}"
        )
    name = model.config.placement
    fitting = form.placements(model)
    if name not in fitting:
        raise UserError(
            f"{form.opened_by} does not compute placement {name!r}; format {form.name} holds "
            f"{', '.join(fitting)}"
        )
    if (
        form.one_table
        and isinstance(model, EncoderDecoder)
        and model.source_embedding is not model.target_embedding
    ):
        raise UserError(
            f"{form.opened_by} has one table of embeddings for both languages, and this model has "
            'embeddings = "separate"; marian and ctranslate2 hold two'
        )
    groups = [module for module in model.modules() if isinstance(module, NormGroup)]
    norms: list[Any] = [norm for group in groups for norm in group.children()]
    other = sorted({type(norm).__name__ for norm in norms if not isinstance(norm, form.norm)})
    if other:
        raise UserError(
            f"{form.opened_by} has {form.norm.__name__} alone, and this model has "
            f"{', '.join(other)}"
        )
    epsilons = {norm.eps for norm in norms}
    if form.epsilon is not None and epsilons - {form.epsilon}:
        raise UserError(
            f"{form.opened_by} has norms with an ε of {form.epsilon:g}, and this model's is "
            f"{epsilons}"
        )
    _refuse_settings(form, model)
    activation = model.config.activation
    if activation not in form.activations:
        raise UserError(
            f"{form.opened_by} computes what we do with activation = "
            f"{' or '.join(form.activations)} alone, and this model has {activation!r}"
        )


_BUILT = ("loops", "position_encoding", "biases", "output", "logit_soft_cap", "embedding_scale")
"""Settings by which models of one placement differ, beside those of `model.attention`."""


def _refuse_settings(form: ExportForm, model: AnyModel) -> None:
    defaults = flat(as_table(type(model.config)()))
    for key, value in flat(as_table(model.config)).items():
        if key not in _BUILT and not key.startswith("attention."):
            continue
        allowed = form.settings.get(key, (defaults[key],))
        if allowed and value not in allowed:
            raise UserError(
                f"{form.opened_by} computes what we do with {key} = "
                f"{' or '.join(map(str, allowed))} alone, and this model has {value!r}"
            )


def _kind(model: type[AnyModel]) -> str:
    """Returns a class of models in words."""
    return next(
        f"{task.model_words} (task {task.name})" for task in TASKS.values() if task.model is model
    )


def norm_epsilon(model: AnyModel) -> float:
    """Returns the ε of the model's norms."""
    return next(norm.eps for norm in model.modules() if isinstance(norm, nn.LayerNorm | RMSNorm))  # type: ignore[return-value]


def stack_names(stack: Stack, at: str, layers: str, of_block: dict[str, str]) -> dict[str, str]:
    """dict[str, str] of every block: ours under `at`, theirs under `layers` with its number."""
    return {
        f"{at}.blocks.{block}.{ours}": f"{layers}.{block}.{theirs}"
        for block in range(len(stack.blocks))
        for ours, theirs in of_block.items()
    }


def weights(model: nn.Module) -> dict[str, Tensor]:
    """Returns every parameter by name, one of each that is shared; float32 copies on the CPU."""
    return {
        name: p.detach().to("cpu", torch.float32, copy=True) for name, p in model.named_parameters()
    }


def tensor_names(names: dict[str, str], known: Iterable[str]) -> dict[str, str]:
    """Returns the names of the tensors that are there; a module's name becomes those of its weight
    and its bias.
    """
    ours = set(known)
    parts = {
        f"{our}.{part}": f"{their}.{part}"
        for our, their in names.items()
        for part in ("weight", "bias")
    }
    return {our: their for our, their in (names | parts).items() if our in ours}


def renamed(tensors: Mapping[str, Tensor], names: dict[str, str]) -> dict[str, Tensor]:
    """Returns every tensor under its other name. names: ours -> theirs, of a tensor, or of a module
    with a weight and a bias.

    Raises KeyError for a tensor without one.
    """
    pairs = tensor_names(names, tensors)
    return {pairs[name]: tensor for name, tensor in tensors.items()}
