"""`normscope translate` translates lines with the model of a run."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from ...settings.files import refuse_no_run
from ..console import say
from ..shared import Average, Beam, Device, LengthPenalty, Which, as_asked, averaged_if_asked


def translate(
    run: Annotated[Path, typer.Argument(help="Run folder.")],
    beam: Beam = 5,
    length_penalty: LengthPenalty = 1.0,
    which: Which = "best",
    average: Average = None,
    device: Device = "auto",
) -> None:
    """Translate lines from standard input to standard output, in order.

    For example:

    \b
      echo "ein hund läuft ." | normscope translate runs/first
    """
    refuse_no_run(run)
    from ...decode.beam import BeamConfig
    from ...decode.translate import translate_lines
    from ...runs.trained import load_run_of
    from ...tasks.translation import TRANSLATION

    search = as_asked(BeamConfig, beam=beam, length_penalty=length_penalty)
    with averaged_if_asked(run, which, average) as (place, one, _):
        loaded = load_run_of(TRANSLATION, place, which=one, device=device)
    # Undecodable bytes become replacement characters: one bad line must not end the translation of the others.
    lines = (raw.decode("utf-8", errors="replace").rstrip("\r\n") for raw in sys.stdin.buffer)
    for number, translation in enumerate(translate_lines(loaded.model, loaded.codec, lines, search), 1):
        if translation.cut:
            say(f"note: line {number} is too long and was cut")
        sys.stdout.buffer.write(translation.detokenised.encode("utf-8") + b"\n")
        sys.stdout.buffer.flush()
