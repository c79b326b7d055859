"""Norms on queries and keys beside a placement: names, formulas, models and what theory says."""

import copy
import pickle
from typing import Literal

import pytest
import torch
from torch import Tensor

from normscope.model import AttentionConfig, DecoderConfig, LanguageModel, Layout
from normscope.placement import StackShape, beside, named, parted, registered
from normscope.placement.reading import read


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("pre-ln+qk-norm", "pre-ln+qk-norm"),
        ("Pre_LN+QK_norm-head", "pre-ln+qk-norm"),
        ("preln+qk-norm-layer-whole", "pre-ln+qk-norm-whole-layer"),
        ("own+qk-norm-unit", "own+qk-norm-unit"),
        ("own+qk-norm-after-head", "own+qk-norm-after"),
        ("pre-ln+qk-norm-before", "pre-ln+qk-norm"),
        ("peri-ln+qk-norm-rms-norm", "peri-ln+qk-norm-rms"),
    ],
)
def test_a_name_says_placement_and_norms_however_it_is_written(written: str, name: str) -> None:
    assert named(written).name == name
    assert named(name) is named(written)
    plain, norm = parted(named(written))
    assert norm is not None
    assert f"{plain.name}+{norm.name}" == name
    assert name not in registered()


def test_words_beside_a_placement_name_the_same() -> None:
    assert beside("Peri-LN", "none") == "peri-ln"
    assert beside("own", "head") == "own+qk-norm"
    assert beside("post-ln", "whole") == "post-ln+qk-norm-whole"


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("pre-ln+qk-norm-heads", "say head .* or whole"),
        ("pre-ln+qk-norm-head-whole", "say head .* or whole"),
        ("pre-ln+qk-norm-rms-unit", "say head .* or whole"),
        ("pre-ln+qk-norm-whole-after", "after rotary positions each head is normalised on its own"),
        ("pre-ln+qk-norm-before-after", "say head .* or whole"),
        ("own+qk-norm-rotated", "after where it is to stand after"),
        ("pre-lm+qk-norm", "did you mean 'pre-ln'"),
        ("qk-norm", r"go with a placement, as pre-ln\+qk-norm"),
    ],
)
def test_what_is_no_such_norm_is_refused_with_what_is(name: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        named(name)


def test_norms_are_not_put_beside_norms() -> None:
    with pytest.raises(ValueError, match="has norms on queries and keys already"):
        beside("pre-ln+qk-norm", "whole")
    shape = StackShape(kind="decoder", width=32, heads=4, decoder_blocks=2)
    with pytest.raises(ValueError, match="olmo-2 norms queries and keys by itself"):
        read(named("olmo-2+qk-norm")(shape))
    with pytest.raises(ValueError, match=r"is for a model of your own.*pre-ln\+qk-norm-whole"):
        named("pre-ln+qk-norm-unit")(shape)


def test_every_placement_that_has_none_can_have_them() -> None:
    for name, placement in registered().items():
        decoder = "encoder-only" not in placement.models
        shape = StackShape(
            kind="decoder" if decoder else "encoder",
            width=32,
            heads=4,
            key_value_heads=2 if name != "ngpt" else 0,
            encoder_blocks=0 if placement.models == ("decoder-only",) else 4,
            decoder_blocks=4 if decoder else 0,
        )
        plain = read(placement(shape)).blocks
        if any("query" in one.used_places for block in plain for one in block):
            continue
        for block, before in zip(read(named(f"{name}+qk-norm")(shape)).blocks, plain, strict=True):
            for one, old in zip(block, before, strict=True):
                added = {} if one.site.kind == "feed_forward" else {"queries": 8, "keys": 8}
                assert one.norm.widths == {**old.norm.widths, **added}, name


def decoder(placement: str, query_key_norm: Literal["none", "per-head", "whole"]) -> LanguageModel:
    config = DecoderConfig(
        placement=placement,
        width=32,
        ffn_width=64,
        heads=4,
        blocks=2,
        positions=8,
        norm="rms-norm",
        position_encoding="rotary",
        dropout=0.0,
        attention=AttentionConfig(query_key_norm=query_key_norm, key_value_heads=2),
    )
    torch.manual_seed(0)
    return LanguageModel(config, vocabulary=11).eval()


@pytest.mark.parametrize(("words", "setting"), [("", "per-head"), ("-whole", "whole")])
def test_the_formula_is_the_model_that_the_setting_makes(words: str, setting: str) -> None:
    by_formula = decoder(f"pre-ln+qk-norm{words}", "none")
    by_setting = decoder("pre-ln", setting)
    layout = Layout(torch.tensor([7, 5]), torch.device("cpu"))
    tokens = torch.randint(11, (12,), generator=torch.Generator().manual_seed(1))

    def logits(model: LanguageModel) -> Tensor:
        return model(tokens, layout)

    assert torch.equal(logits(by_formula), logits(by_setting))
    assert not torch.equal(logits(by_formula), logits(decoder("pre-ln", "none")))
    for again in (copy.deepcopy(by_formula), pickle.loads(pickle.dumps(by_formula))):
        assert torch.equal(logits(again), logits(by_setting))
