"""Rotary positions that are read from a recorded pass, beside the angles that a model was built
with.
"""

from dataclasses import replace

import pytest
import torch

import normscope
from normscope.doctor.predict import _RecipeReading

transformers = pytest.importorskip("transformers")
TOKENS = torch.arange(24).view(2, 12)


def stack_of(model):
    torch.manual_seed(0)
    return normscope.diagnose(model.eval(), TOKENS, laws=False).stacks[0]


def angles_of(stack):
    every = [one for one in stack.recipe.weights.values() if one and one.kind == "attention"]
    assert every
    assert len({one.angles for one in every}) == 1
    return every[0].angles


def test_the_angles_of_llama_are_those_of_its_base():
    config = transformers.LlamaConfig(
        hidden_size=64,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        vocab_size=100,
        rope_theta=500.0,
    )
    stack = stack_of(transformers.LlamaForCausalLM(config))
    pairs = [500.0 ** (-2 * c / 16) for c in range(8)]
    assert angles_of(stack) == pytest.approx(pairs * 2, rel=1e-5)
    # What keys have in common moves weights, as it does not without them.
    turned = _RecipeReading(stack.recipe, None).stack
    without = {
        number: weights and replace(weights, angles=())
        for number, weights in stack.recipe.weights.items()
    }
    plain = _RecipeReading(replace(stack.recipe, weights=without), None).stack
    attentions = [n for n, one in enumerate(turned.applied) if one.site.kind == "attention"]
    last = attentions[-1]
    assert turned.applied[last].map.variance.mean() > plain.applied[last].map.variance.mean()


def test_features_that_are_not_turned_have_an_angle_of_0():
    config = transformers.GPTNeoXConfig(
        hidden_size=64,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        vocab_size=100,
        rotary_pct=0.25,
    )
    angles = angles_of(stack_of(transformers.GPTNeoXForCausalLM(config)))
    assert len(angles) == 16
    assert [angle > 0 for angle in angles] == [True] * 4 + [False] * 12


def test_a_model_with_learned_positions_has_none():
    config = transformers.GPT2Config(n_embd=64, n_layer=2, n_head=4, vocab_size=100, n_positions=16)
    assert angles_of(stack_of(transformers.GPT2LMHeadModel(config))) == ()
