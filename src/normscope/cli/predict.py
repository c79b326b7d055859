"""`normscope predict` computes curves over depth from the formula of a placement alone."""

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import UserError
from .options import described_by
from .shared import Imports, PlacementWords, placement_names, refuse_other_picture, run_imports, write_text

if TYPE_CHECKING:
    from ..api.prediction import Prediction
    from ..theory.predict import Exponent, ModelSetting, Update

    Fitted = dict[str, Exponent]


@described_by("theory/settings.py:ModelSetting")
def predict(
    placements: PlacementWords = None,
    *,
    stack: str,
    blocks: int,
    width: int,
    ffn_width: int | None = None,
    heads: int,
    tokens: int,
    vocabulary: int,
    setting: str,
    activation: str,
    norm: str,
    with_exponents: Annotated[bool, typer.Option("--exponents")] = False,
    as_json: Annotated[bool, typer.Option("--json")] = False,
    plot: Path | None = None,
    update: Annotated[str | None, typer.Option(metavar="OPTIMIZER")] = None,
    rate: float | None = None,
    imports: Imports = [],  # noqa: B006
) -> None:
    """Predict the stream and the gradients at initialisation over depth, without a model.

    For example:

    \b
      normscope predict pre-ln post-ln --blocks 48

    ffn_width: Inner width of the feed-forward. By default --width. with_exponents: Also predict how these grow with
    depth, fitted over 64 to 1,024 blocks. as_json: Print JSON: for each placement q, p, streams (the same by stream)
    over completed blocks, and gradient_norm (by matrix), shares and attention (by kind of sub-layer) over blocks, and
    doubts; two stacks by their names. With --update also change. plot: Write the curves as SVG into this file. update:
    Also predict how far the first update moves every block: sgd, radam, adam, adamw, lion, muon, or random, which
    follows no gradient. rate: The rate of that update. By default 0.001.
    """
    from ..api.prediction import update_of
    from ..theory.predict import ModelSetting, exponents

    if plot is not None:
        refuse_other_picture("--plot", plot)
    run_imports(imports)
    values: dict[str, Any] = {"stack": stack, "blocks": blocks, "width": width, "heads": heads, "tokens": tokens}
    values |= {"vocabulary": vocabulary, "setting": setting, "activation": activation, "norm": norm}
    try:
        model = ModelSetting(ffn_width=width if ffn_width is None else ffn_width, **values)
        asked = update_of(update, rate)
        prediction = _prediction(placements or ["pre-ln"], model, asked)
        found = prediction.stacks
        fitted = {name: exponents(name, model, update=asked) for name in found} if with_exponents else {}
    except ValueError as error:
        raise UserError(str(error)) from error
    if plot is not None:
        write_text("--plot", plot, prediction.svg())
    if as_json:
        typer.echo(json.dumps(_as_data(prediction, fitted)))
        return
    for line in [str(prediction), *_exponents_table(fitted)]:
        typer.echo(line)
    if plot is not None:
        typer.echo(f"figure: {plot}")


def _prediction(given: list[str], model: "ModelSetting", update: "Update | None") -> "Prediction":
    """Names in the order given, each once; `all` for those defined for the model that theory follows.

    Raises ValueError without any, and where a name is one that theory does not follow.
    """
    from ..api.prediction import every_prediction, predicted

    names = placement_names(given)
    if names == ["all"]:
        prediction, left_out = every_prediction(model, update)
        if left_out:
            typer.echo(f"left out, since theory does not follow them here: {', '.join(left_out)}", err=True)
        return prediction
    if not names:
        raise ValueError("give the name of a placement, such as pre-ln; `normscope placements` lists them")
    return predicted(names, model, update)


def _as_data(prediction: "Prediction", fitted: "dict[str, dict[str, Fitted]]") -> dict[str, Any]:
    """What was predicted, with the exponents of each stack."""
    data = prediction.to_dict()
    for name, stacks in fitted.items():
        for stack, quantities in stacks.items():
            values = {what: one.exponent if math.isfinite(one.exponent) else None for what, one in quantities.items()}
            (data[name] if len(stacks) == 1 else data[name][stack])["exponents"] = values
    return data


def _exponents_table(found: "dict[str, dict[str, Fitted]]") -> list[str]:
    if not found:
        return []
    from ..api.prediction import number_table
    from ..theory.predict import CHANGE, CHANGE_DEPTHS, DEPTHS, QUANTITIES

    shown = dict(QUANTITIES)
    if any(CHANGE in quantities for stacks in found.values() for quantities in stacks.values()):
        shown[CHANGE] = f"E‖δy‖² of the output by one update, {CHANGE_DEPTHS[0]} to {CHANGE_DEPTHS[-1]} blocks"
    lines = ["", f"exponent of depth, infinitely wide, fitted over {DEPTHS[0]} to {DEPTHS[-1]:,} blocks"]
    lines += [f"  {name}: {what}" for name, what in shown.items()]
    rows = []
    for name, stacks in found.items():
        for stack, quantities in stacks.items():
            label = f"{name} ({stack})" if len(stacks) > 1 else name
            values = [quantities[what].exponent for what in shown]
            # A curve of zeros has none; -0.00 reads like an error.
            cells = [
                f"{value + 0.0:.2f}".replace("-0.00", "0.00") if math.isfinite(value) else "none" for value in values
            ]
            rows.append((label, cells))
    return [*lines, *number_table(list(shown), rows, cell=14)]
