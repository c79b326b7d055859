"""The forms in which other libraries take our models, and the writing of a whole folder."""

from contextlib import suppress
from pathlib import Path
from typing import Any

from ..errors import UserError
from ..files import disk_errors, whole_folder
from ..model import EncoderDecoder, LanguageModel, MaskedEncoder
from ..model.placed import RMSNorm
from ..runs.trained import load_run
from ..tasks.registry import task_of
from ..tasks.words import Words
from .decoders import (
    GATE_CURVES,
    GEMMA_2,
    GPT2_ACTIVATIONS,
    LLAMA,
    OLMO_2,
    QWEN_3,
    RotaryLayout,
    gpt2,
)
from .encoders import BERT_ACTIVATIONS, NO_JUDGE, bert, m2m100, marian, roberta_prelayernorm
from .forms import AnyModel, ExportForm, refuse
from .libraries import difference, translator_difference, write_ctranslate2, writer

_RELU = {"relu": "relu"}
_ANY: tuple[Any, ...] = ()
_ROTARY: dict[str, tuple[Any, ...]] = {
    "position_encoding": ("rotary",),
    "biases": ("none",),
    "output": _ANY,
    "attention.rotary_base": _ANY,
    "attention.key_value_heads": _ANY,
    "attention.head_width": _ANY,
}
"""The settings that decoders with rotary positions share."""


def _transformers(
    name: str, architecture: str, model: type[AnyModel], wiring: str, convert: Any, **options: Any
) -> ExportForm:
    """Returns a form that transformers opens. convert: as `writer` takes it. options: further
    fields of the form.
    """
    return ExportForm(
        name=name,
        opened_by=f"transformers.{architecture}",
        model=model,
        wirings=(wiring,),
        write=writer(convert),
        difference=difference,
        **options,
    )


def _rotary(
    layout: RotaryLayout,
    wiring: str,
    settings: dict[str, tuple[Any, ...]] = _ROTARY,
    *,
    activation: str = "swiglu",
) -> ExportForm:
    """Returns a decoder with rotary positions. settings: dotted keys with their values, beside
    `_ROTARY`.
    """
    return _transformers(
        layout.model_type,
        layout.architecture,
        LanguageModel,
        wiring,
        layout,
        norm=RMSNorm,
        activations={activation: GATE_CURVES[activation]},
        settings=_ROTARY | settings,
    )


# BERT's head for masked tokens has the activation of its blocks; ours has gelu whatever they have.
_BERT = {"gelu": BERT_ACTIVATIONS["gelu"]}
_SUMS: dict[str, Any] = {"epsilon": 1e-5, "activations": _RELU}
"""The settings that both encoder-decoders of transformers share."""
_GEMMA: dict[str, tuple[Any, ...]] = {
    "output": ("tied",),
    "embedding_scale": ("root-width",),
    **dict.fromkeys(("logit_soft_cap", "attention.soft_cap"), _ANY),
    **dict.fromkeys(("attention.window_tokens", "attention.windowed_blocks"), _ANY),
}
FORMS: dict[str, ExportForm] = {
    form.name: form
    for form in (
        _transformers("bert", "BertModel", MaskedEncoder, "post-ln", bert, activations=_BERT),
        _transformers(
            "roberta-prelayernorm",
            "RobertaPreLayerNormModel",
            MaskedEncoder,
            "pre-ln",
            roberta_prelayernorm,
            left_out=NO_JUDGE,
            activations=BERT_ACTIVATIONS,
        ),
        _transformers(
            "gpt2", "GPT2LMHeadModel", LanguageModel, "pre-ln", gpt2, activations=GPT2_ACTIVATIONS
        ),
        _rotary(LLAMA, "pre-ln"),
        # The placement has the norms of queries and keys itself.
        _rotary(OLMO_2, "olmo-2", {"attention.query_key_norm": _ANY}),
        _rotary(QWEN_3, "pre-ln", {"attention.query_key_norm": ("per-head",)}),
        _rotary(GEMMA_2, "sandwich", _GEMMA, activation="geglu-tanh"),
        _transformers("marian", "MarianMTModel", EncoderDecoder, "post-ln", marian, **_SUMS),
        _transformers(
            "m2m100",
            "M2M100ForConditionalGeneration",
            EncoderDecoder,
            "pre-ln",
            m2m100,
            one_table=True,
            **_SUMS,
        ),
        ExportForm(
            name="ctranslate2",
            opened_by="ctranslate2.Translator",
            model=EncoderDecoder,
            wirings=("post-ln", "pre-ln"),
            write=write_ctranslate2,
            difference=translator_difference,
            activations=_RELU,
        ),
    )
}


def export_run(
    run: Path,
    out: Path,
    *,
    form: str | None = None,
    which: str = "best",
    average: str | None = None,
) -> tuple[ExportForm, float]:
    """Write a run's model, and its tokeniser, as another library has them; without `form` as the
    first that fits.

    average: of which checkpoints the mean is taken, as of `load_run`. Returns the form, and what
    `export` does. Raises UserError where no form fits, naming those that would, and where `out` is
    not free.
    """
    loaded = load_run(run, which=which, average=average, device="cpu")
    words = task_of(loaded.config).words(loaded.codec)
    found = chosen(form, loaded.model)
    return found, export(loaded.model, words, out, found)


def chosen(name: str | None, model: AnyModel) -> ExportForm:
    """Returns the form of that name, or without one the first that holds `model`. Raises UserError
    naming those that do.
    """
    if name is None:
        forms = [form for form in FORMS.values() if isinstance(model, form.model)]
        for form in forms:
            with suppress(UserError):
                refuse(form, model)
                return form
        known = "; ".join(f"{form.name}: {', '.join(form.placements(model))}" for form in forms)
        raise UserError(
            "no other library has a model that computes this one (placement "
            f"{model.config.placement!r}, norm {model.config.norm!r}). Formats and the placements "
            f"they hold: {known}"
        )
    if name not in FORMS:
        raise UserError(f"unknown format {name!r}; choose one of {', '.join(FORMS)}")
    refuse(FORMS[name], model)
    return FORMS[name]


def export(model: AnyModel, words: Words, out: Path, form: ExportForm) -> float:
    """Write `model` as `form` into the folder `out`, whole or not at all, and open it again to
    compare outputs.

    Returns their largest difference from ours on a small batch, in float32. Raises UserError where
    `out` exists and is not empty, where `form` cannot hold the model, and without the library that
    opens it.
    """
    refuse(form, model)
    model = model.cpu().float().eval()
    with disk_errors(f"writing {out}"), whole_folder(out) as folder:
        form.write(model, folder, words)
        return form.difference(model, folder, words)
