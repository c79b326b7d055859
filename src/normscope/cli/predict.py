"""`normscope predict` computes curves over depth from the formula of a placement alone."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import user_errors
from ..limits.kinds import CHART
from .help.options import described_by
from .shared import (
    Imports,
    PlacementWords,
    placement_names,
    refuse_other_picture,
    run_imports,
    write_text,
)

if TYPE_CHECKING:
    from ..api.prediction import Prediction


@described_by("api/prediction.py:predict", "theory/settings.py:ModelSetting")
def predict(
    placements: PlacementWords = None,
    *,
    stack: str,
    blocks: int,
    loops: int,
    width: int,
    ffn_width: int | None = None,
    heads: int,
    key_value_heads: int | None = None,
    query_key_norm: str,
    position_encoding: str,
    tokens: int,
    vocabulary: int,
    setting: str,
    untied: bool = False,
    activation: str,
    norm: str,
    as_json: Annotated[bool, typer.Option("--json")] = False,
    plot: Path | None = None,
    update: Annotated[str | None, typer.Option(metavar="OPTIMIZER")] = None,
    rate: float | None = None,
    imports: Imports = [],  # noqa: B006
) -> None:
    """Predict the stream and the gradients at initialisation over depth, without a model.

    The model:
        placements, stack, blocks, loops, width
        ffn_width: Inner width of the feed-forward. By default --width.
        heads, key_value_heads, query_key_norm, position_encoding, tokens, vocabulary, setting
        untied: An output projection of its own, where the setting has the embedding's rows there.
        activation, norm, imports

    The first update:
        update: Also predict how far the first update moves every block: sgd, radam, adam, adamw,
            lion, muon, or random, which follows no gradient.
        rate: The rate of that update. By default 0.001.

    What is written:
        as_json: Print JSON: for each placement q, p, streams (the same by stream) over completed
            blocks, and gradient_norm (by matrix), shares and attention (by kind of sub-layer) over
            blocks, and doubts; two stacks by their names. With --update also change.
        plot: Write the curves as SVG into this file.

    For example:

    \b
      normscope predict pre-ln post-ln --blocks 48
    """
    _refuse_other_picture(plot)
    run_imports(imports)
    values: dict[str, Any] = {
        "stack": stack,
        "blocks": blocks,
        "loops": loops,
        "width": width,
        "ffn_width": width if ffn_width is None else ffn_width,
        "heads": heads,
        **_attention(key_value_heads, query_key_norm, position_encoding),
        "tokens": tokens,
        "vocabulary": vocabulary,
        "setting": setting,
        "tied": not untied,
        "activation": activation,
        "norm": norm,
    }
    with user_errors(ValueError):
        prediction = _prediction(placements or ["pre-ln"], values, update, rate)
    _show(prediction, as_json=as_json, plot=plot)


def _refuse_other_picture(plot: Path | None) -> None:
    if plot is not None:
        refuse_other_picture("--plot", plot, CHART)


def _attention(
    key_value_heads: int | None, query_key_norm: str, position_encoding: str
) -> dict[str, Any]:
    """Returns the fields of `ModelSetting` that say what attention is made of."""
    return {
        "key_value_heads": key_value_heads,
        "query_key_norm": query_key_norm,
        "position_encoding": position_encoding,
    }


def _show(prediction: "Prediction", *, as_json: bool, plot: Path | None) -> None:
    """Writes the curves where they were asked for, and prints the prediction."""
    if plot is not None:
        write_text("--plot", plot, prediction.svg(), CHART)
    if as_json:
        typer.echo(json.dumps(prediction.to_dict()))
        return
    typer.echo(str(prediction))
    if plot is not None:
        typer.echo(f"figure: {plot}")


def _prediction(
    given: list[str], values: dict[str, Any], optimizer: str | None, rate: float | None
) -> "Prediction":
    """Names in the order given, each once; `all` for those defined for the model that theory
    follows.

    Raises ValueError without any, and where a name is one that theory does not follow.
    """
    from ..api.prediction import every_prediction, predicted, update_of
    from ..theory.predict import ModelSetting

    model = ModelSetting(**values)
    update = update_of(optimizer, rate)
    names = placement_names(given)
    if names == ["all"]:
        prediction, left_out = every_prediction(model, update)
        if left_out:
            typer.echo(
                f"left out, since theory does not follow them here: {', '.join(left_out)}", err=True
            )
        return prediction
    if not names:
        raise ValueError(
            "give the name of a placement, such as pre-ln; `normscope placements` lists them"
        )
    return predicted(names, model, update)
