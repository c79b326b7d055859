"""The verbs that take a trained run: score it, use it, give it to other libraries."""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..errors import UserError
from ..limits import kinds
from .console import note, shown_text, tell
from .help.options import described_by
from .shared import Imports, Trust, as_asked, open_trained, refuse_no_place, refuse_unwritable

if TYPE_CHECKING:
    from ..tasks.protocol import Evaluation

_TRANSLATE = "cli/trained.py:translate"
"""The function that describes the options that several verbs of a trained run share."""
_Checkpoint = Annotated[str, typer.Option("--checkpoint")]
_Average = Annotated[str | None, typer.Option(metavar="N|UPDATES")]


@described_by(_TRANSLATE)
def evaluate(
    run: Annotated[Path, typer.Argument()],
    split: str = "valid",
    text: Path | None = None,
    layout: str = "paragraphs",
    language: str = "en",
    beam: Annotated[int | None, typer.Option(show_default=False)] = None,
    length_penalty: Annotated[float | None, typer.Option(show_default=False)] = None,
    which: _Checkpoint = "best",
    average: _Average = None,
    device: str = "auto",
    as_json: Annotated[bool, typer.Option("--json")] = False,
    save: Path | None = None,
    output: Path | None = None,
    imports: Imports = [],  # noqa: B006
    trust: Trust = False,
) -> None:
    """Score a run on a split of its corpus.

    A translation run gets sacreBLEU with its signature and tokenised BLEU4; a masked-lm or
    language-model run gets its losses and perplexities, and the latter also on any file of text.

    What is scored:
        split: Split of the run's corpus, such as valid or test.
        text: Score a language model on this file of text instead; plain, .gz or .xz.
        layout: Of --text: paragraphs (a blank line between documents) or wikitext.
        language: Of --text: whose sentences are distinguished in a paragraph.

    The checkpoint:
        imports, trust

    The search for a translation:
        beam: Number of hypotheses that the search keeps; 1 is greedy search; 5 where it is not
            given.
        length_penalty: Exponent in score = sum of log-probabilities / length ** length_penalty, the
            end token counted; 1 where it is not given.

    What is written:
        as_json: Print the scores as JSON.
        save: Write the scores as JSON into this file.
        output: Write the translations into this file, one on each line.

    For example:

    \b
      normscope evaluate runs/first --split test --save scores.json
    """
    _refuse_places(save, output)
    open_trained(run, imports, trust)
    from ..runs.trained import evaluate_run, evaluate_text

    given = {"beam": beam, "length_penalty": length_penalty}
    search = {name: value for name, value in given.items() if value is not None}
    if text is not None:
        _refuse_of_text(search, output)
        done = evaluate_text(
            run, text, layout=layout, language=language, which=which, average=average, device=device
        )
    else:
        done = evaluate_run(
            run,
            split,
            which=which,
            average=average,
            device=device,
            search=search,
            translations=output is not None,
            say=note,
        )
    _report(done, save=save, output=output, as_json=as_json)


def _refuse_places(save: Path | None, output: Path | None) -> None:
    """Checks, before they are made, that scores and translations can be written. Raises UserError
    where they cannot.
    """
    if save is not None:
        refuse_unwritable("--save", save, kinds.SCORES)
    if output is not None:
        refuse_no_place("--output", output, kinds.TEXT)


def _refuse_of_text(search: Mapping[str, float], output: Path | None) -> None:
    """Refuses options of a translation beside --text. Raises UserError."""
    if search or output is not None:
        raise UserError(
            "--text is for language models, which have no beam and write no translations; leave "
            "those out"
        )


def _report(done: "Evaluation", *, save: Path | None, output: Path | None, as_json: bool) -> None:
    """Writes scores and translations where they were asked for, and prints the scores."""
    import json

    from ..files import disk_errors, write_over
    from ..provenance import provenance
    from ..runs.trained import SCORES

    values = {**done.settings, **done.scores, **provenance()}
    with disk_errors("writing the scores and translations"):
        if output is not None:
            write_over(output, "".join(line + "\n" for line in done.translations), kinds.TEXT)
        if save is not None:
            write_over(save, SCORES.text(values), SCORES.kind)
    if as_json:
        typer.echo(json.dumps(values))
    else:
        tell(*done.lines())


@described_by(_TRANSLATE)
def generate(
    run: Annotated[Path, typer.Argument()],
    prompt: str = "",
    tokens: int = 200,
    samples: int = 1,
    temperature: float = 1.0,
    top_k: Annotated[int | None, typer.Option(show_default=False)] = None,
    top_p: float = 1.0,
    seed: int = 1,
    which: _Checkpoint = "best",
    average: _Average = None,
    device: str = "auto",
    imports: Imports = [],  # noqa: B006
    trust: Trust = False,
) -> None:
    """Write text with the model of a language-model run.

    What is written:
        prompt: The text to go on with; without it a new document begins.
        tokens: Number of new tokens, at most.
        samples: Number of texts.

    How a token is drawn:
        temperature: Logits are divided by it; 0 takes the likeliest token every time.
        top_k: Draw from so many of the likeliest tokens; from all where it is not given.
        top_p: Draw from the likeliest tokens that together have this probability.
        seed: Of what is drawn: equal seeds give equal texts.

    The checkpoint:
        imports, trust

    For example:

    \b
      normscope generate runs/first --prompt "The history of" --tokens 50
    """
    # What the shell gave as bytes that are no UTF-8 stands in the word as halves of characters.
    prompt = _text("--prompt", prompt.encode("utf-8", "surrogateescape"))
    open_trained(run, imports, trust)
    from ..data.documents.tokeniser import SEP
    from ..decode.search import SamplingConfig, positions_left, sample
    from ..report.words import counted
    from ..runs.trained import load_run
    from ..tasks.language_model import LANGUAGE_MODEL

    loaded = load_run(run, of_task=LANGUAGE_MODEL, which=which, average=average, device=device)
    end = loaded.codec.ids[SEP]
    # Every document of the training stands behind an end of the one before.
    ids = [end, *loaded.codec.encode_many([prompt])[0]]
    config = as_asked(
        SamplingConfig,
        tokens=tokens,
        samples=samples,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        seed=seed,
    )
    texts = as_asked(sample, loaded.model, ids, config, end=end)
    _print_texts([loaded.codec.decode([*ids, *text]) for text in texts])
    room = positions_left(loaded.model, ids)
    if room < tokens and any(len(text) == room for text in texts):
        note(
            f"note: ended after {counted(room, 'new token')}, as the model has no more positions "
            f"(--tokens {tokens})"
        )


def _print_texts(texts: Sequence[str]) -> None:
    """Prints texts, with a line of dashes between them."""
    for number, text in enumerate(texts):
        if number:
            typer.echo("---")
        typer.echo(shown_text(text.strip()))


@described_by()
def translate(
    run: Annotated[Path, typer.Argument()],
    beam: int = 5,
    length_penalty: float = 1.0,
    which: _Checkpoint = "best",
    average: _Average = None,
    device: str = "auto",
    imports: Imports = [],  # noqa: B006
    trust: Trust = False,
) -> None:
    """Translate lines from standard input to standard output, in order.

    The search:
        beam: Number of hypotheses that the search keeps; 1 is greedy search.
        length_penalty: Exponent in score = sum of log-probabilities / length ** length_penalty, the
            end token counted.

    The checkpoint:
        run: Run folder.
        which: Checkpoint: best (lowest validation loss), last, or the number of an update.
        average: Take the mean of the weights of several checkpoints instead: of the last N, or of
            those of these updates, separated by commas.
        device: Device: auto, cpu, cuda or cuda:N.
        imports, trust

    For example:

    \b
      echo "ein hund läuft ." | normscope translate runs/first
    """
    open_trained(run, imports, trust)
    from ..decode.search import BeamConfig
    from ..decode.translate import translate_lines
    from ..runs.trained import load_run
    from ..tasks.translation import TRANSLATION

    search = as_asked(BeamConfig, beam=beam, length_penalty=length_penalty)
    loaded = load_run(run, of_task=TRANSLATION, which=which, average=average, device=device)
    lines = (
        _text(f"line {n} of the input", raw).rstrip("\r\n")
        for n, raw in enumerate(sys.stdin.buffer, 1)
    )
    for number, translation in enumerate(
        translate_lines(loaded.model, loaded.codec, lines, search), 1
    ):
        if translation.cut:
            note(f"note: line {number} is too long and was cut")
        said = shown_text(translation.detokenised)
        sys.stdout.buffer.write(said.encode("utf-8") + b"\n")
        sys.stdout.buffer.flush()


def _text(what: str, raw: bytes) -> str:
    """Decodes bytes as UTF-8. Raises UserError for bytes that are none: what stood in their place
    would be taken for text.
    """
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UserError(
            f"{what} is not UTF-8, from its byte {error.start + 1} on: convert the text first, as "
            "with iconv -f latin1 -t utf-8"
        ) from error


@described_by(_TRANSLATE)
def export(
    run: Annotated[Path, typer.Argument()],
    out: Annotated[Path, typer.Argument()],
    form: Annotated[str | None, typer.Option("--format")] = None,
    which: _Checkpoint = "best",
    average: _Average = None,
    imports: Imports = [],  # noqa: B006
    trust: Trust = False,
) -> None:
    """Write a run's model and tokeniser as Hugging Face transformers or CTranslate2 open them.

    What is written:
        out: Folder to make.
        form: bert, roberta-prelayernorm, gpt2, llama, olmo2, qwen3, gemma2, marian, m2m100 or
            ctranslate2; without it, the first that fits.

    The checkpoint:
        imports, trust

    For example:

    \b
      normscope export runs/first exported --format marian
    """
    open_trained(run, imports, trust)
    from ..exchange.export import export_run

    made, difference = export_run(run, out, form=form, which=which, average=average)
    left_out = f"; without {', '.join(made.left_out)}" if made.left_out else ""
    opened = f"{made.name}, opened by {made.opened_by}"
    tell(f"{out}: {opened}; its outputs differ from ours by at most {difference:.2g}{left_out}")
