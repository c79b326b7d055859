"""A trained model under another placement: every weight that both have, and how far the two are apart."""

# D = width

import dataclasses
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from ..errors import UserError
from ..model import Stack, renormalise, unit_vectors
from ..placement import Placement
from ..placement.printing import formula
from ..runs.trained import AnyRun
from ..tasks.registry import task_of
from .forms import AnyModel, wiring


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What another placement made of a model."""

    before: str
    after: str
    formulas: tuple[tuple[str, str], ...]
    """For each stack, before and after."""
    same_function: bool
    """True where the formulas are equal, so that equal weights give equal outputs."""
    kept: int
    """Tensors that both have."""
    new: Mapping[str, str]
    """Tensor -> where it starts."""
    dropped: tuple[str, ...]
    gains: Mapping[str, float]
    """Weight matrix -> the standard deviation that the new placement would draw it with, over that of the old one."""
    on_sphere: bool
    """True where the new placement keeps weights at length 1, and so changed them."""

    def lines(self) -> list[str]:
        """The statement, a sentence a line."""
        said = [f"{self.before} -> {self.after}: {self.kept} tensors kept as they are"]
        said += [f"formula: {old}  ->  {new}" for old, new in self.formulas]
        if self.same_function:
            said.append("both compute the same function of the same weights")
        said += [f"new: {name}, {start}" for name, start in _grouped(self.new).items()]
        said += [f"dropped: {name}" for name in _grouped(dict.fromkeys(self.dropped, ""))]
        if self.gains:
            drawn = ", ".join(f"{name} times {ratio:.4g}" for name, ratio in self.gains.items())
            said.append(
                f"initial gains: {self.after} draws {drawn} beside {self.before}. The weights stay as they are: a gain "
                "is for the first updates, which they have behind them, and scaling would change every branch F(x) "
                "that the rest of the model has learned to take"
            )
        if self.on_sphere:
            said.append(f"{self.after} keeps vectors of weights at length 1: they were put there")
        return said


def re_placed(model: AnyModel, placement: str) -> tuple[AnyModel, Change]:
    """A new model of the same sizes under `placement`, with every weight that both have.

    What only the new one has starts as its formula says, from torch's global generator where it is drawn. Norms are
    taken over by their names in the formulas, whatever they normalise there. Raises UserError where the placement is
    not known, or not defined for such a model.
    """
    try:
        config: Any = dataclasses.replace(model.config, placement=placement)
        new = type(model)(config, *model.vocabularies)
    except ValueError as error:
        raise UserError(str(error)) from error
    old_tensors, new_tensors = _tensors(model), _tensors(new)
    shared = {
        name for name, tensor in new_tensors.items() if name in old_tensors and old_tensors[name].shape == tensor.shape
    }
    started = {name: _start(tensor) for name, tensor in new_tensors.items() if name not in shared}
    with torch.no_grad():
        for name in shared:
            new_tensors[name].copy_(old_tensors[name])
        vectors = unit_vectors(new)
        renormalise(vectors)
    pairs = list(zip(_placements(model), _placements(new), strict=True))
    same = all(wiring(old) == wiring(now) for old, now in pairs) and not started and len(shared) == len(old_tensors)
    return new.train(model.training), Change(
        before=model.config.placement,
        after=placement,
        formulas=tuple((formula(type(old), old.stack), formula(type(now), now.stack)) for old, now in pairs),
        same_function=same and not vectors and _epsilons(model) == _epsilons(new),
        kept=len(shared),
        new=started,
        dropped=tuple(name for name in old_tensors if name not in shared),
        gains=_gain_ratios(model, new),
        on_sphere=bool(vectors),
    )


def stacks(model: nn.Module) -> list[Stack]:
    """Of an encoder-decoder both, the encoder first."""
    return [module for module in model.children() if isinstance(module, Stack)]


def _placements(model: nn.Module) -> list[Placement]:
    return [stack.placement for stack in stacks(model)]


def _tensors(model: nn.Module) -> dict[str, Tensor]:
    """Parameters, and numbers that follow a schedule."""
    persistent = model.state_dict().keys()
    return dict(model.named_parameters()) | {n: b for n, b in model.named_buffers() if n in persistent}


def _epsilons(model: nn.Module) -> list[float]:
    return [norm.eps for norm in model.modules() if isinstance(norm, nn.LayerNorm)]


def _start(tensor: Tensor) -> str:
    value = tensor.flatten()[0]
    return f"from {value.item():.4g}" if bool((tensor == value).all()) else "drawn"


def _gain_ratios(old: nn.Module, new: nn.Module) -> dict[str, float]:
    """Of each kind of weight matrix whose initial gain differs; the first block's, where blocks differ."""
    ratios: dict[str, float] = {}
    for before, after in zip(stacks(old), stacks(new), strict=True):
        for old_f, new_f in zip(before.sublayers(), after.sublayers(), strict=True):
            for name, _ in new_f.f.matrices():
                was, now = before.placement.gain(name, old_f.site), after.placement.gain(name, new_f.site)
                if was != now:
                    ratios.setdefault(f"{after.placement.stack.kind} {old_f.site.kind} {name}", now / was)
    return ratios


def _grouped(values: Mapping[str, str]) -> dict[str, str]:
    """Tensors of all blocks under one name, with how many there are."""
    groups: dict[tuple[str, str], int] = {}
    for name, value in values.items():
        key = re.sub(r"\.\d+\.", ".*.", name), value
        groups[key] = groups.get(key, 0) + 1
    return {f"{name} ({count})" if count > 1 else name: value for (name, value), count in groups.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """What becomes of the outputs when one model takes another's place."""

    text: str
    hidden_change: float
    """‖new - old‖ / ‖old‖ of all hidden states that leave the (last) stack."""
    nll_before: float
    """Mean negative log-likelihood of the target tokens, in nats."""
    nll_after: float
    nll_uniform: float
    """Of uniform guessing among all tokens."""

    def line(self) -> str:
        """For the user."""
        return (
            f"measured on {self.text}: hidden states change by {self.hidden_change:.3g} of their length, the loss goes "
            f"from {self.nll_before:.3f} to {self.nll_after:.3f} nats per token (uniform guessing: "
            f"{self.nll_uniform:.3f})"
        )


def effect(run: AnyRun, old: AnyModel, new: AnyModel) -> Effect:
    """On validation text of the run where its corpus can be reached and is still that of its vocabulary; otherwise on
    random tokens, which show how hidden states change and nothing of the loss."""
    text, outputs = task_of(run.config).sentences(run)
    with torch.inference_mode():
        old_hidden, old_logits, targets = outputs(old.eval())
        new_hidden, new_logits, _ = outputs(new.eval())
    return Effect(
        text=text,
        hidden_change=float((new_hidden - old_hidden).norm() / old_hidden.norm()),
        nll_before=float(functional.cross_entropy(old_logits.float(), targets)),
        nll_after=float(functional.cross_entropy(new_logits.float(), targets)),
        nll_uniform=float(torch.tensor(old_logits.shape[1]).log()),
    )
