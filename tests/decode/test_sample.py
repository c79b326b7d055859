"""Text from a language model: greedy text token for token as transformers gives it, and what is
drawn from.
"""

from collections import Counter
from typing import Any

import pytest
import torch

from normscope.decode.search import SamplingConfig, _drawn, positions_left, sample
from normscope.exchange import decoders as llama
from normscope.model import DecoderConfig, LanguageModel
from normscope.runs.config import load
from stacks import perturbed

VOCABULARY, END = 35, 3
IDS = {"[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "[SEP]": END, "[MASK]": 4}
FAMILIES = {
    "llama": llama.LLAMA,
    "olmo-2": llama.OLMO_2,
    "qwen-3": llama.QWEN_3,
    "gemma-2": llama.GEMMA_2,
}


def model_of(preset: str, **changes: Any) -> LanguageModel:
    sizes = {"width": 16, "ffn_width": 24, "heads": 4, "blocks": 3, "positions": 64}
    settings = [f"model.{name}={value}" for name, value in (sizes | changes).items()]
    config = load(None, [f'model.preset="{preset}"', "data.sequence_length=16", *settings]).model
    assert isinstance(config, DecoderConfig)
    torch.manual_seed(3)
    return perturbed(LanguageModel(config, VOCABULARY), 1).float().eval()


@pytest.mark.sampled(one_in=3)
@pytest.mark.parametrize("family", FAMILIES)
def test_the_likeliest_text_is_that_of_transformers_token_for_token(family: str) -> None:
    transformers = pytest.importorskip("transformers", reason="needs Hugging Face transformers")
    changes = (
        {"attention.window_tokens": 4} if family == "gemma-2" else {"attention.key_value_heads": 2}
    )
    ours, layout = model_of(family, **changes), FAMILIES[family]
    written, tensors = layout(ours, IDS)
    config = transformers.AutoConfig.for_model(**written)
    theirs = (
        getattr(transformers, layout.architecture)
        ._from_config(config, attn_implementation="eager")
        .eval()
    )
    theirs.load_state_dict(tensors, strict=False)
    prompt = [END, 7, 20, 9, 9, 30]
    given = torch.tensor([prompt])
    wanted = theirs.generate(
        given,
        attention_mask=torch.ones_like(given),
        do_sample=False,
        max_new_tokens=40,
        pad_token_id=0,
    )[0, len(prompt) :].tolist()
    (text,) = sample(ours, prompt, SamplingConfig(tokens=40, temperature=0), end=END)
    assert text == (wanted[: wanted.index(END)] if END in wanted else wanted)
    assert len(set(text)) > 1


def test_equal_seeds_give_equal_texts_and_others_others() -> None:
    model = model_of("llama")
    first, again, other = (
        sample(model, [END, 5], SamplingConfig(tokens=12, samples=3, seed=seed), end=END)
        for seed in (1, 1, 2)
    )
    assert first == again != other
    assert len(first) == 3
    assert all(END not in text and len(text) <= 12 for text in first)


def test_tokens_are_drawn_with_their_probabilities() -> None:
    logits = torch.tensor([0.5, 0.25, 0.15, 0.1]).log()
    many = logits.expand(40_000, 4)

    def shares(**changes: Any) -> list[float]:
        drawn = _drawn(many, SamplingConfig(**changes), torch.Generator().manual_seed(1))
        counts = Counter(drawn.tolist())
        return [counts[i] / len(many) for i in range(4)]

    assert shares() == pytest.approx([0.5, 0.25, 0.15, 0.1], abs=0.01)
    assert shares(top_k=2) == pytest.approx([2 / 3, 1 / 3, 0, 0], abs=0.01)
    # The first two have 0.75; the third is needed for 0.8.
    assert shares(top_p=0.8) == pytest.approx([0.5 / 0.9, 0.25 / 0.9, 0.15 / 0.9, 0], abs=0.01)
    assert shares(top_p=0.4) == [1, 0, 0, 0]
    assert shares(temperature=0) == [1, 0, 0, 0]
    squared = [0.25, 0.0625, 0.0225, 0.01]
    assert shares(temperature=0.5) == pytest.approx([p / sum(squared) for p in squared], abs=0.01)


def test_a_model_with_learned_positions_ends_with_them() -> None:
    model = model_of("gpt-2", positions=16)
    config = SamplingConfig(tokens=100, temperature=0)
    (text,) = sample(model, [END, 5, 6, 7], config, end=VOCABULARY)
    assert len(text) == 12
    with pytest.raises(ValueError, match="1 to 15 tokens, got 16"):
        sample(model, [5] * 16, config, end=END)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"tokens": 0}, "tokens must be at least 1"),
        ({"samples": 0}, "samples must be at least 1"),
        ({"temperature": -1.0}, "temperature must be 0 or more"),
        ({"top_k": 0}, "top_k must be at least 1"),
        ({"top_p": 0.0}, "top_p must lie above 0"),
    ],
)
def test_values_that_mean_nothing_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        SamplingConfig(**changes)


def test_a_model_with_learned_positions_says_how_many_are_left() -> None:
    learned, rotary = model_of("gpt-2", positions=32), model_of("llama", positions=32)
    assert positions_left(learned, [END, 7]) == 30
    (text,) = sample(learned, [END, 7], SamplingConfig(tokens=200), end=-1)
    assert len(text) == 30
    (text,) = sample(rotary, [END, 7], SamplingConfig(tokens=50), end=-1)
    assert positions_left(rotary, [END, 7]) > len(text) == 50
