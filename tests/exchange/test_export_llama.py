"""Whole models of four families against transformers' own: logits, loss, every gradient, and opened
folders.
"""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from normscope.errors import UserError
from normscope.exchange import decoders as llama
from normscope.exchange.export import chosen, export
from normscope.model import DecoderConfig, LanguageModel, Layout
from normscope.runs.config import load
from normscope.tasks.loss import smoothed_cross_entropy
from normscope.tasks.words import Words
from stacks import perturbed

pytestmark = pytest.mark.sampled(one_in=6)

transformers = pytest.importorskip("transformers", reason="needs Hugging Face transformers")

VOCABULARY = 35
IDS = {"[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "[SEP]": 3, "[MASK]": 4}
LENGTHS = [5, 11, 8]
# √d is a power of two: Gemma keeps it in float32.
SIZES = ["width=16", "ffn_width=24", "heads=4", "blocks=3", "positions=32"]
FAMILIES = {
    "llama": ("llama", llama.LLAMA, ["attention.key_value_heads=2"]),
    "llama-tied": (
        "llama",
        llama.LLAMA,
        ['output="tied"', "attention.head_width=6", "attention.rotary_base=500.0"],
    ),
    "olmo-2": ("olmo-2", llama.OLMO_2, ["attention.key_value_heads=2"]),
    "qwen-3": ("qwen-3", llama.QWEN_3, ["attention.key_value_heads=1", "attention.head_width=8"]),
    "gemma-2": (
        "gemma-2",
        llama.GEMMA_2,
        ["attention.key_value_heads=2", "attention.window_tokens=4"],
    ),
}


class InFloat64(TorchFunctionMode):
    """Nothing is cast to float32: transformers computes norms, angles and weights of attention in
    it whatever it is given, which would leave seven digits to compare."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: Any = None,
    ) -> Any:
        wide = {
            name: torch.float64 if value is torch.float32 else value
            for name, value in (kwargs or {}).items()
        }
        if func is Tensor.float:
            return args[0].double()
        return func(*(torch.float64 if value is torch.float32 else value for value in args), **wide)


def model_config(preset: str, changes: list[str]) -> DecoderConfig:
    settings = [
        f'model.preset="{preset}"',
        "data.sequence_length=16",
        *(f"model.{change}" for change in (*SIZES, *changes)),
    ]
    config = load(None, settings).model
    assert isinstance(config, DecoderConfig)
    return config


def words() -> Words:
    tokens = [f"w{i}" for i in range(VOCABULARY)]
    return Words(ids=IDS, source=tokens, target=tokens, files={"tokenizer.json": "{}"})


def ours_and_theirs(family: str) -> tuple[LanguageModel, nn.Module, llama.RotaryLayout]:
    preset, layout, changes = FAMILIES[family]
    ours = perturbed(LanguageModel(model_config(preset, changes), VOCABULARY), 1).double()
    written, _ = layout(ours, IDS)
    config = transformers.AutoConfig.for_model(**written)
    theirs = (
        getattr(transformers, layout.architecture)
        ._from_config(config, attn_implementation="eager")
        .double()
    )
    names = layout.names(ours)
    stored = {names[name]: layout.stored(name, p.detach()) for name, p in ours.named_parameters()}
    missing, unexpected = theirs.load_state_dict(stored, strict=False)
    assert not unexpected
    assert set(missing) <= {"lm_head.weight"}
    return ours, theirs.eval(), layout


@pytest.fixture
def in_float64() -> Any:
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    with InFloat64():
        yield
    torch.set_default_dtype(before)


def batch(seed: int) -> tuple[Layout, Tensor]:
    layout = Layout(torch.tensor(LENGTHS))
    ids = torch.randint(
        5, VOCABULARY, (len(LENGTHS), max(LENGTHS)), generator=torch.Generator().manual_seed(seed)
    )
    return layout, ids.masked_fill(~layout.keep_BT, IDS["[PAD]"])


@pytest.mark.usefixtures("in_float64")
@pytest.mark.parametrize("family", FAMILIES)
def test_logits_loss_and_every_gradient_are_those_of_transformers(family: str) -> None:
    ours, theirs, layout = ours_and_theirs(family)
    cells, ids_BT = batch(2)
    tokens, targets = cells.pack(ids_BT), cells.pack(ids_BT.roll(-1, 1))
    logits = cells.pack(
        theirs(input_ids=ids_BT, attention_mask=cells.keep_BT.long(), use_cache=False).logits
    )
    hidden = ours(tokens, cells)
    torch.testing.assert_close(ours.logits(hidden), logits, rtol=1e-10, atol=1e-10)

    wanted = nn.functional.cross_entropy(logits, targets, reduction="sum")
    loss, _ = smoothed_cross_entropy(
        hidden, ours.output_rows(), targets, 0.0, soft_cap=ours.soft_cap
    )
    torch.testing.assert_close(loss, wanted, rtol=1e-10, atol=1e-10)
    loss.backward()
    wanted.backward()
    gradients = {name: parameter.grad for name, parameter in theirs.named_parameters()}
    for name, parameter in ours.named_parameters():
        torch.testing.assert_close(
            parameter.grad, gradients[layout.names(ours)[name]], rtol=1e-9, atol=1e-10
        )


@pytest.mark.parametrize("family", FAMILIES)
def test_an_opened_folder_gives_the_same(family: str, tmp_path: Path) -> None:
    preset, layout, changes = FAMILIES[family]
    ours = perturbed(LanguageModel(model_config(preset, changes), VOCABULARY), 1).float().eval()
    form = chosen(None, ours)
    assert form.name == layout.model_type
    difference = export(ours, words(), tmp_path / "out", form)
    assert difference < 2e-5
    opened = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "out")
    assert type(opened).__name__ == layout.architecture


@pytest.mark.parametrize(
    ("preset", "changes", "form", "message"),
    [
        (
            "llama",
            ['position_encoding="alibi"'],
            "llama",
            "position_encoding = rotary alone, and",
        ),
        ("llama", ["loops=2"], "llama", "loops = 1 alone, and this model has 2"),
        ("llama", ['biases="all"'], "llama", "biases = none alone"),
        (
            "llama",
            ["attention.soft_cap=50.0"],
            "llama",
            "attention.soft_cap = none alone, and this model has 50.0",
        ),
        ("llama", ['activation="geglu"'], "llama", "activation = swiglu alone"),
        (
            "llama",
            ['norm="layer-norm"'],
            "llama",
            "has RMSNorm alone, and this model has LayerNorm",
        ),
        ("llama", ['placement="post-ln"'], "llama", "does not compute placement 'post-ln'"),
        ("qwen-3", [], "llama", "query_key_norm = none alone"),
        ("gemma-2", ['output="untied"'], "gemma2", "output = tied alone"),
        ("gpt-2", ['output="untied"'], "gpt2", "output = tied alone"),
        ("gpt-2", ["attention.key_value_heads=2"], "gpt2", "key_value_heads = as-heads alone"),
    ],
)
def test_what_a_family_does_not_compute_is_refused(
    preset: str, changes: list[str], form: str, message: str
) -> None:
    model = LanguageModel(model_config(preset, changes), VOCABULARY)
    with pytest.raises(UserError, match=message.replace("(", r"\(")):
        chosen(form, model)
