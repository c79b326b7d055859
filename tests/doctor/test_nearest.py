"""The placement nearest to a formula that none has, and what is said to be other in it."""

import pytest
import torch

import normscope
from doctor.bugs import both, one_block_of
from doctor.wired import Model, Stack, patient, post, pre
from normscope.doctor.lint.nearest import nearest
from normscope.doctor.lint.structure import shape_of
from normscope.doctor.result import Finding, Health, Severity, verdict_of


def edits(build) -> list[tuple[str, str, tuple[str, ...]]]:
    looked_at = patient(build())
    found = nearest(looked_at.stacks[0], shape_of(looked_at.stacks, looked_at.stacks[0]))
    return [(found.placement.name, one.kind, one.edits) for one in found.differences]


@pytest.mark.parametrize("join", [pre, post])
def test_what_a_placement_has_differs_from_it_in_nothing(join):
    assert edits(both(join)) == []


@pytest.mark.parametrize(
    ("join", "edit"),
    [
        (lambda x, f, norm: x + 3 * f(norm(x)), "with the factor 3 on the branch"),
        (lambda x, f, norm: x - f(norm(x)), "with the factor -1 on the branch"),
        (lambda x, f, norm: 2 * x + f(norm(x)), "with the factor 2 on the skip"),
    ],
)
def test_one_edit_in_one_block_is_said(join, edit):
    found = edits(one_block_of(join, pre, others=pre, final=1))
    assert found == [("pre-ln", "attention", (edit,))]


def test_a_skip_from_another_value_is_a_norm_on_the_skip():
    looked_at = patient(Model(lambda: Stack(lambda x, f, norm: norm(x) + f(norm(x)), pre, final=1)))
    found = nearest(looked_at.stacks[0], shape_of(looked_at.stacks, looked_at.stacks[0]))
    assert any("with a norm on the s" in edit for one in found.differences for edit in one.edits)


def test_a_model_whose_sums_are_overlooked_is_not_called_healthy():
    """TimeSformer's attentions are added to tokens that are cut apart and put together anew."""
    transformers = pytest.importorskip("transformers", reason="needs Hugging Face transformers")
    sizes = {
        "hidden_size": 32,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "intermediate_size": 64,
    }
    model = transformers.TimesformerModel(
        transformers.TimesformerConfig(**sizes, image_size=32, patch_size=16, num_frames=2)
    )
    found = normscope.diagnose(model, torch.randn(2, 2, 3, 32, 32), advise=False)
    # Of a block's 13 matrices of 32 × 32 it is the 9 of both attentions and of the map behind the
    # first.
    (note,) = [one for one in found.findings if one.id == "unknown-wiring"]
    assert (
        "69 % of the entries of the blocks' matrices belong to no sub-layer whose sum"
        in note.message
    )
    assert found.verdict == Health.UNKNOWN


def test_a_model_whose_formula_is_unknown_is_not_called_healthy():
    note = Finding(id="unknown-wiring", severity=Severity.INFO, where="", message="", fix="")
    assert verdict_of([note]) == Health.UNKNOWN == "unknown wiring"
    warning = Finding(id="no-norm", severity=Severity.WARNING, where="", message="", fix="")
    assert verdict_of([warning, note]) == Health.WARNINGS
