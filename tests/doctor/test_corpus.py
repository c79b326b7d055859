"""Foreign models, as they are and with every class and module renamed: the same stacks, all of them
right.
"""

import pytest
import torch

from doctor.corpus import CORPUS, FURTHER, Case
from doctor.corpus_newer import NEWER
from doctor.corpus_x_transformers import X_TRANSFORMERS
from doctor.looked import EVERY, scrambled_model, stacks_of
from normscope.doctor import Stack, find_stacks
from normscope.doctor.diagnose import diagnose
from normscope.doctor.report.words import placement_words, summary

pytestmark = pytest.mark.sampled(one_in=12)


def assert_known(found: list[Stack], case: Case) -> None:
    assert len(found) == len(case.stacks)
    for stack, known in zip(found, case.stacks, strict=True):
        early = [s for s in stack.sublayers if s.block == 0]
        inside = [s for s in stack.sublayers if s.block]
        size, ones = len(known.kinds), (1.0,) * len(known.kinds)
        names = known.truth if known.named is None else [known.named] * size * known.blocks
        assert [s.kind for s in early] == list(case.before)
        assert [s.kind for s in inside] == list(known.kinds) * known.blocks
        assert [s.block for s in inside] == [
            b for b in range(1, known.blocks + 1) for _ in known.kinds
        ]
        assert [s.placement for s in inside] == names
        sure = [known.confidence if name or known.scaled else "unsure" for name in names[:size]]
        assert [s.confidence for s in inside] == list(known.confidences or sure) * known.blocks
        assert [s.scaled_placement for s in inside] == [
            "" if name else known.scaled for name in names
        ]
        assert stack.scaled_placement == ("" if stack.placement else known.scaled)
        assert [s.skip_scale for s in inside] == pytest.approx([known.skip] * size * known.blocks)
        assert [s.branch_scale for s in inside] == pytest.approx(
            list(known.branches or ones) * known.blocks
        )
        assert {s.parallel for s in inside} == {known.parallel}
        assert (stack.blocks, stack.norm, stack.final_norm) == (
            known.blocks,
            known.norm,
            known.final_norm,
        )
        assert stack.placement in names
        assert stack.norm_epsilon == (known.epsilon and pytest.approx(known.epsilon, rel=0.1))


@pytest.mark.sampled(one_in=36)
@pytest.mark.parametrize("name", EVERY)
def test_every_model_with_scrambled_names(name):
    found = stacks_of(name)
    assert_known(found, EVERY[name])
    paths = dict(scrambled_model(name).named_modules())
    assert all(s.name in paths for stack in found for s in stack.sublayers)


@pytest.mark.parametrize("name", ["bart", "gpt-neox", "gemma-2", "wav2vec2"])
def test_models_with_their_own_names(name):
    assert_known(find_stacks(CORPUS[name].build(), CORPUS[name].inputs()), CORPUS[name])


HALF = ["bert", "t5", "mbart", "gemma-2", "vit"]


@pytest.mark.parametrize("name", HALF)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_weights_in_half_precision(name, dtype):
    """Where float16 is guarded by clamping, as in T5 and mBART, the stream goes on through it."""
    case = (CORPUS | FURTHER)[name]
    inputs = {key: x.to(dtype) if x.is_floating_point() else x for key, x in case.inputs().items()}
    found = find_stacks(case.build().to(dtype), inputs)
    assert [len(stack.sublayers) - len(case.before) for stack in found] == [
        len(known.truth) for known in case.stacks
    ]
    for stack, known in zip(found, case.stacks, strict=True):
        assert (stack.placement, stack.norm, stack.final_norm) == (
            known.placement,
            known.norm,
            known.final_norm,
        )
        assert {s.placement for s in stack.sublayers if s.block} == {known.placement}


@pytest.mark.parametrize("whole", [True, False])
def test_compiled_models_are_looked_at_uncompiled(whole):
    model = X_TRANSFORMERS["use_rmsnorm"].build()
    if whole:
        model = torch.compile(model, backend="eager")
    else:
        model.compile(backend="eager")
    assert_known(
        find_stacks(model, X_TRANSFORMERS["use_rmsnorm"].inputs()), X_TRANSFORMERS["use_rmsnorm"]
    )


def test_the_report_names_modules_and_formulas():
    (stack,) = find_stacks(CORPUS["gpt2"].build(), CORPUS["gpt2"].inputs())
    assert stack.name == "transformer.h"
    assert [s.name for s in stack.sublayers[:2]] == ["transformer.h.0.attn", "transformer.h.0.mlp"]
    assert str(stack.sublayers[-1].formula) == "x ← x + feed_forward(norm(x))"


@pytest.mark.parametrize(
    ("name", "formula", "said", "summed_up"),
    [
        (
            "granite, another multiplier",
            "x ← x + 0.3 · attention(norm(x))",
            "pre-ln × 0.300",
            "pre-ln × scale",
        ),
        ("granite", "x ← x + 0.22 · attention(norm(x))", "granite", "granite"),
        ("dinov2", "x ← trained · attention(norm(x)) + x", "layer-scale", "layer-scale"),
        ("beit", "x ← trained · attention(norm(x)) + x", "layer-scale", "layer-scale"),
    ],
)
def test_scaled_branches_are_named_by_what_they_scale_where_no_placement_is_known(
    name, formula, said, summed_up
):
    diagnosis = diagnose(NEWER[name].build(), NEWER[name].inputs(), advise=False)
    (stack,) = diagnosis.stacks
    first = stack.sublayers[0]
    assert (str(first.formula), placement_words(first)) == (formula, said)
    assert summary(diagnosis).startswith(f"{summed_up}, 3 blocks, ")
