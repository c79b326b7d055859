"""The verb `transplant`: a model of the user's own under another placement."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from ..errors import UserError, user_errors
from .console import tell
from .help.options import described_by
from .shared import Imports, Trust, placement_names, refuse_missing_target, run_imports


@described_by()
def transplant(
    target: Annotated[str, typer.Argument(metavar="TARGET")],
    to: str,
    out: Path,
    qk_norm: Annotated[str, typer.Option(metavar="head|whole|…")] = "none",
    initialise: Literal["draw", "keep"] | None = None,
    keep: bool = False,
    stack: Annotated[list[str], typer.Option(metavar="NAME")] = [],  # noqa: B006
    settings: Annotated[list[str], typer.Option("--set", metavar="KEY=VALUE")] = [],  # noqa: B006
    seed: int = 0,
    imports: Imports = [],  # noqa: B006
    trust: Trust = False,
) -> None:
    """Put a model of your own under another placement: its blocks keep their forward, and the
    doctor proves the result.

    The exit code is 2, with the reason and the place, where the model cannot be followed.

    The placement:
        to: A placement, such as peri-ln; `normscope placements` lists them; `own`, with --qk-norm,
            leaves it.
        qk_norm: Norms on queries and keys: head for one of each head, as Qwen 3 and Gemma 3; whole
            for one over all heads, as OLMo 2; head-after for one of each head after rotary
            positions, as Hunyuan; with -rms, -layer or -unit for another than the model's.

    The model:
        target: package.module:function or file.py:function that returns a model or (model, inputs);
            a Hugging Face config.json, or a class such as GPT2Config; a folder with a checkpoint.
        settings: Change the configuration, or give the function an argument.
        seed: Seed of the weights, and of inputs for targets without any.
        stack: The residual stream that is meant, where the model has several; again for one more.
        imports, trust

    Its weights:
        initialise: Draw the weights as the placement wants them, or keep them. By default kept
            where a checkpoint was loaded or the model looks trained, which is said.
        keep: The same as --initialise keep.

    What is written:
        out: Folder to make, with the weights and the recipe.

    For example:

    \b
      normscope transplant my_model.py:build --to peri-ln --out my_model_peri
    """
    refuse_missing_target(target)
    if keep and initialise == "draw":
        raise UserError("--keep and --initialise draw: give one of them")
    if out.exists():
        raise UserError(f"--out {out}: it exists already")
    run_imports(imports)
    (name,) = placement_names([to])
    with user_errors(ValueError):
        from ..placement import beside

        name = beside(name, qk_norm)
    if trust:
        from ..targets.runs import trust_target

        trust_target(target)
    if keep:
        initialise = "keep"
    _transplanted(target, name, out, initialise, stack or None, settings, seed)


def _transplanted(
    target: str,
    placement: str,
    out: Path,
    initialise: Literal["draw", "keep"] | None,
    stack: list[str] | None,
    settings: list[str],
    seed: int,
) -> None:
    """Builds the model, puts it under the placement, and writes the folder."""
    import torch

    from ..placement import named
    from ..targets import opened
    from ..transplant.saved import save
    from ..transplant.surgery import transplant as put_under

    found = opened(target, settings, tokens=16, sequences=2, seed=seed)
    trained = "" if found.loading is None else f"{target} holds a checkpoint, which was loaded"
    torch.manual_seed(seed)
    done = put_under(
        found.model,
        named(placement),
        found.inputs,
        initialise=initialise,
        stack=stack,
        trained=trained,
    )
    save(found.model, out, target=target, settings=settings)
    tell(*done.lines())
    typer.echo(f"written: {out}; in Python: normscope.transplant(model, {str(out)!r})")
