"""A model of the user's own under another placement, and back."""

from pathlib import Path
from typing import Literal

from torch import nn
from torch.optim import Optimizer

from ..doctor.trace.forward import Inputs
from ..placement import named
from ..settings.arguments import checked
from ..targets.target import SampleSettings, sampled
from ..transplant import surgery
from ..transplant.saved import is_saved, restore


@checked
def transplant(
    model: nn.Module,
    to: str,
    *,
    inputs: Inputs | None = None,
    initialise: Literal["draw", "keep"] = "draw",
    stack: str | None = None,
    optimizer: Optimizer | None = None,
) -> nn.Module:
    """The same model, with the same sub-layers, under another placement: it is changed in place, and returned.

    to: the name of a placement, or a folder that `normscope transplant`, or `save_pretrained` of a transplanted model
    of transformers, has written: then the model gets the weights that lie there. inputs: what its forward is called
    with, by keyword (a mapping), by position (a sequence, or one tensor), or a function that runs it; without it random
    ones, as `normscope.diagnose` draws them.
    initialise: "draw" draws the sub-layers' matrices from torch's generator as the placement wants them, and puts norms
    back to where they start; "keep" leaves trained weights alone, and `model.transplanted.change` says how much the
    outputs changed, 0 where they are the same bits. stack: the name of the residual stream that is meant, where a model
    has several that are not an encoder and its decoder. optimizer: one that was made before, of the model's parameters:
    it gets what the placement adds as a group with the settings of its first one, and where weights are drawn it
    forgets its state. Without it, make the optimiser afterwards.

    Its class, signature, outputs and the names of its old parameters stay; what the placement adds to a block stands
    under `placed` in it. `model.transplanted` says what was done. Afterwards the doctor reads the model, and has to
    name the placement in every block. Raises UserError, with the reason and the place, where it does not or where the
    model cannot be followed, and then the model is as it was; ValueError for an unknown placement, or an optimizer that
    holds other parameters than the model's.
    """
    folder = Path(to) if Path(to).is_dir() and is_saved(Path(to)) else None
    if folder is None:
        named(to)
    before = {id(parameter) for parameter in model.parameters()}
    held = [one for group in optimizer.param_groups for one in group["params"]] if optimizer else []
    if any(id(one) not in before for one in held):
        raise ValueError("optimizer holds parameters that the model does not have")
    if inputs is None:
        inputs, _ = sampled(model, SampleSettings(tokens=16, sequences=2, seed=0))
    if folder is not None:
        restore(model, folder, inputs)
    else:
        surgery.transplant(model, named(to), inputs, initialise=initialise, stack=stack)
    if optimizer is not None:
        added = [one for one in model.parameters() if id(one) not in before]
        if added:
            optimizer.add_param_group({**optimizer.param_groups[0], "params": added})
        if folder is not None or initialise == "draw":
            optimizer.state.clear()
    return model


@checked
def untransplant(model: nn.Module) -> nn.Module:
    """The model with its own placement again, and the weights that it has now; what the transplant added is dropped.

    It is changed in place, and returned. Raises UserError for a model that is not transplanted.
    """
    return surgery.untransplant(model)
