"""A model of the caller's: diagnosed, on inputs of the caller's or drawn ones, and put under
another placement.
"""

from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from ..doctor.diagnose import Diagnosis, diagnose as diagnosed
from ..doctor.lint.patient import Loading
from ..doctor.trace.forward import Inputs
from ..errors import UserError
from ..optim.optimizers import OptimizerName
from ..placement import beside, named
from ..prove.learning import can_learn
from ..settings.validation import checked
from ..targets.target import (
    SampleSettings,
    own_loss,
    sampled,
    wanted_placement as configured_placement,
)
from ..transplant import surgery
from ..transplant.saved import is_saved, restore


@checked
def diagnose(
    model: nn.Module,
    batch: Inputs | None = None,
    *,
    loss: Callable[..., Tensor] | None = None,
    optimizer: OptimizerName | torch.optim.Optimizer = "adam",
    wanted_rate: float | None = None,
    wanted_warmup_updates: int | None = None,
    batch_tokens: float | None = None,
    loading: Loading | None = None,
    wanted_placement: str | None = None,
    clip_norm: float | None = None,
    scheduler: LRScheduler | None = None,
    silenced: str | Collection[str] = (),
    target: str = "",
    advise: bool = True,
    laws: bool = True,
    learn: bool = False,
    watch: Callable[[str, int, int], None] = lambda stage, done, total: None,
    tokens: int = 128,
    sequences: int = 4,
    seed: int = 0,
) -> Diagnosis:
    """Says what a model is, what is wrong with it, and its usual learning rate, before its first
    update.

    What is examined:
        model: any module of torch's.
        batch: what its forward is called with, by keyword (a mapping), by position (a sequence, or
            one tensor), or a function that runs it and returns its output. Without it, random
            inputs are drawn, as `normscope doctor` draws them: for models of known libraries, and
            others that take ids alone.
        tokens: how many each sequence of random inputs has.
        sequences: how many the random inputs are.
        seed: what random inputs are drawn from.
        loss: maps the output, or output and batch, to the mean loss per token in nats; without it
            the output's own `loss`, or one on random targets.
        loading: of a checkpoint; None for initial weights.
        wanted_placement: what the model is meant to be, such as pre-ln; without it, what its
            configuration says.

    The training you plan:
        optimizer: a name in `normscope.optim.OPTIMIZERS`, or an instance, whose groups are linted
            too.
        wanted_rate: a peak rate to judge; without it, that of an optimiser's instance.
        wanted_warmup_updates: of the warm-up that rises to it, 0 for none.
        batch_tokens: of one update, over all devices and accumulation; None for three that are
            usual.
        scheduler: one of torch's over `optimizer`, stepped once an update: its first rates are
            judged, and tell rate and warm-up where these are not given.
        clip_norm: what the gradient's norm is clipped to.

    What is asked:
        advise: whether its usual learning rate is looked up.
        laws: whether a copy of it is tried.
        learn: whether a copy is trained for half a minute on a small task, beside a model of ours
            that learns it.
        silenced: the id of a rule to leave out, or several.

    What is told:
        target: the name that the answer has for it.
        watch: told of each stage as it begins, with how many of its parts are done and how many it
            has.

    Where weights are infinite or NaN, 0 is looked at in their place, and no other rule is asked.

    The model and random states stay bit for bit. Raises ValueError for a model or a loss that
    cannot be looked at, and for an unknown optimiser, placement or rule.
    """
    batch, loss = _batch_and_loss(model, batch, loss, tokens, sequences, seed)
    return diagnosed(
        model,
        batch,
        loss=loss,
        optimizer=optimizer,
        wanted_rate=wanted_rate,
        wanted_warmup_updates=wanted_warmup_updates,
        batch_tokens=batch_tokens,
        loading=loading,
        wanted_placement=_name_of(wanted_placement) or configured_placement(model),
        clip_norm=clip_norm,
        scheduler=scheduler,
        silenced=(silenced,) if isinstance(silenced, str) else silenced,
        target=target,
        advise=advise,
        laws=laws,
        learn=can_learn if learn else None,
        watch=watch,
    )


def _batch_and_loss(
    model: nn.Module,
    batch: Inputs | None,
    loss: Callable[..., Tensor] | None,
    tokens: int,
    sequences: int,
    seed: int,
) -> tuple[Inputs, Callable[..., Tensor] | None]:
    """Returns what was given, or random inputs and their loss; without a loss, what the model
    computes itself from inputs that have labels, and None for others.

    Raises ValueError where no inputs can be drawn.
    """
    if batch is None:
        drawing = SampleSettings(tokens=tokens, sequences=sequences, seed=seed)
        try:
            batch, drawn_loss = sampled(model, drawing)
        except UserError as error:
            raise ValueError(str(error)) from error
        loss = loss or drawn_loss
    return batch, loss or own_loss(model, batch)


def _name_of(placement: str | None) -> str | None:
    """Returns the name that a placement is registered by. Raises ValueError for an unknown one."""
    return named(placement).name if placement else None


@checked
def transplant(
    model: nn.Module,
    to: str | Path,
    *,
    inputs: Inputs | None = None,
    qk_norm: str = "none",
    initialise: Literal["draw", "keep"] | None = None,
    stack: str | Sequence[str] | None = None,
    optimizer: Optimizer | None = None,
) -> nn.Module:
    """The same model, with the same sub-layers, under another placement: it is changed in place,
    and returned.

    The placement:
        to: the name of a placement, or a folder that `normscope transplant`, or `save_pretrained`
            of a transplanted model of transformers, has written: then the model gets the weights
            that lie there. `own` leaves it.
        qk_norm: norms on queries and keys: head, as Qwen 3 has them, whole, as OLMo 2, head-after,
            behind rotary positions as Hunyuan, or another, as head-layer; they may stand behind the
            name too, as peri-ln+qk-norm.

    The model:
        model: a model of torch's, whatever its sub-layers.
        inputs: what its forward is called with, by keyword (a mapping), by position (a sequence, or
            one tensor), or a function that runs it; without it random ones, as `normscope.diagnose`
            draws them.
        stack: the name of the residual stream that is meant, where a model has several that are not
            an encoder and its decoder, or a list of names.

    Its weights:
        initialise: "draw" draws the plain matrices of attention and feed-forward from torch's
            generator as the placement wants them, and puts norms back to where they start, but for
            what is frozen; "keep" leaves all weights alone, and `model.transplanted.change` says
            how much the outputs changed, 0 where they are the same bits. Without it, a model that
            shows a sign of having been trained keeps its weights, and others are drawn;
            `model.transplanted.reason` says why.
        optimizer: one that was made before, of the model's parameters: it gets what the placement
            adds as a group with the settings of its first one, and where weights are drawn it
            forgets its state. Without it, make the optimiser afterwards.

    Its class, signature, outputs and the names of its old parameters stay; what the placement adds
    to a block stands under `placed` in it. `model.transplanted` says what was done. Afterwards the
    doctor reads the model, and has to name the placement in every block. Raises UserError, with the
    reason and the place, where it does not or where the model cannot be followed, and then the
    model is as it was; ValueError for an unknown placement, or an optimizer that holds other
    parameters than the model's.
    """
    folder, name = _folder_or_name(str(to), qk_norm)
    before = {id(parameter) for parameter in model.parameters()}
    if optimizer is not None:
        _refuse_others(optimizer, before)
    if inputs is None:
        inputs, _ = sampled(model, SampleSettings(tokens=16, sequences=2, seed=0))
    if folder is not None:
        restore(model, folder, inputs)
    else:
        known = bool(optimizer and optimizer.state)
        surgery.transplant(
            model,
            named(name),
            inputs,
            initialise=initialise,
            stack=stack,
            trained="its optimizer has taken steps" if known else "",
        )
    if optimizer is not None:
        done: Any = model.transplanted
        _take_up(optimizer, [one for one in model.parameters() if id(one) not in before])
        if folder is not None or done.initialise == "draw":
            optimizer.state.clear()
    return model


def _folder_or_name(to: str, qk_norm: str) -> tuple[Path | None, str]:
    """Returns the folder of a transplanted model that is named, if any, or the placement's name.
    Raises ValueError for an unknown one, and for norms beside a folder.
    """
    if not (Path(to).is_dir() and is_saved(Path(to))):
        return None, beside(to, qk_norm)
    if qk_norm != "none":
        raise ValueError(f"qk_norm={qk_norm!r} beside the folder {to}, which says what it holds")
    return Path(to), to


def _refuse_others(optimizer: Optimizer, known: Collection[int]) -> None:
    """Raise ValueError where an optimiser holds other parameters than these, by their `id`."""
    held = [one for group in optimizer.param_groups for one in group["params"]]
    if any(id(one) not in known for one in held):
        raise ValueError("optimizer holds parameters that the model does not have")


def _take_up(optimizer: Optimizer, added: list[nn.Parameter]) -> None:
    """Adds the parameters that the placement added to an optimiser, with the settings of its first
    group.
    """
    if added:
        optimizer.add_param_group({**optimizer.param_groups[0], "params": added})


@checked
def untransplant(model: nn.Module) -> nn.Module:
    """Returns the model with its own placement again, and the weights that it has now; what the
    transplant added is dropped.

    It is changed in place, and returned. Raises UserError for a model that is not transplanted.
    """
    return surgery.untransplant(model)
