"""The rules about wiring: each rebuilt error is found by its rule, and its right twin by none."""

import re

import pytest
import torch
from torch import nn

from doctor import bugs, bugs_blocks
from doctor.bugs import both, scaled_by, weighed
from doctor.rules import WIRING
from doctor.several_streams import SeveralStreams, by_matmul
from doctor.wired import WIDTH, Block, Model, Stack, patient, post, pre
from kinds import first_of_each
from normscope.doctor.lint.patient import Loading, Patient
from normscope.doctor.report.words import stack_words
from normscope.doctor.result import Finding

BUGS = bugs.BUGS | bugs_blocks.BUGS


def found_in(looked_at: Patient) -> list[Finding]:
    """What the rules about wiring say."""
    return [finding for rule in WIRING.values() for finding in rule.check(looked_at)]


def is_among(path: str, where: str) -> bool:
    """Whether a finding tells of a path, or of the start of one; it tells blocks by spans, as in
    blocks.[0–3, 7].f.
    """
    span = re.search(r"\[(.*?)\]", where)
    if span is None:
        return path in where
    ends = [[int(end) for end in part.split("–")] for part in span[1].split(", ")]
    numbers = [number for first, *last in ends for number in range(first, (last or [first])[0] + 1)]
    return any(is_among(path, where.replace(span[0], str(number), 1)) for number in numbers)


DEEP = (
    "DeepNorm, alpha of another depth",
    "DeepNorm, an encoder-decoder with the constants of single stacks",
)
"""They take ten times as long as others of their rule, and come last."""


@pytest.mark.parametrize(
    "name", first_of_each(lambda name: BUGS[name].rule, sorted(BUGS, key=DEEP.__contains__))
)
def test_a_rebuilt_error_is_found(name):
    bug = BUGS[name]
    found = found_in(patient(bug.build(), wanted_placement=bug.wanted_placement))
    (finding,) = (one for one in found if one.id == bug.rule and is_among(bug.where, one.where))
    assert finding.severity == bug.severity
    assert bug.said in finding.message
    # One cause, one finding: no other rule speaks of it. Norms that are left out altogether are
    # unused as well, and another one may stand in their place.
    beside = {"no-norm": {"unused-parameters"}, "unused-parameters": {"shared-norm"}}
    # A flag tells what is meant of a formula that is another placement's.
    beside["placement-flag-contradicts"] = {"misplaced-step"}
    # Notes of a constant, or of blocks unlike each other, that the step makes.
    beside["misplaced-step"] = {one.id for one in found if one.severity == "info"}
    assert {one.id for one in found} - {bug.rule} <= beside.get(bug.rule, set())


@pytest.mark.sampled(one_in=6)
@pytest.mark.parametrize(
    "right", {bug.right: name for name, bug in BUGS.items()}.items(), ids=lambda pair: pair[1]
)
def test_the_right_model_is_not_blamed(right):
    build, name = right
    assert found_in(patient(build(), wanted_placement=BUGS[name].wanted_placement)) == []


def test_streams_that_training_will_tell_apart_are_not_blamed():
    """With weights and biases of 0 mHC's streams are copies to the end, and are so no more after
    the first updates.
    """
    model = SeveralStreams(by_matmul)
    with torch.no_grad():
        for parameter in model.weights.parameters():
            parameter.zero_()
    looked_at = patient(model)
    assert looked_at.stacks[0].streams_stay_copies is False
    assert found_in(looked_at) == []
    for parameter in model.weights.parameters():
        parameter.requires_grad_(False)
    (finding,) = found_in(patient(model))
    assert finding.id == "streams-stay-copies"


def test_the_square_that_is_read_is_the_measured_one():
    model = both(pre)()
    sums: list[torch.Tensor] = []
    model.encoder.register_forward_hook(lambda module, args, output: sums.append(output))
    looked_at = patient(model)
    (finding,) = found_in(looked_at)
    # The first pass is the one that is measured.
    assert f"of mean square {float(sums[0].detach().square().mean()):.3g}," in finding.message


def test_a_stream_that_ends_at_1_by_its_start_alone_is_told_apart_from_a_normed_one():
    model = Model(lambda: Stack(pre, pre, first=1))
    with torch.no_grad():
        for block in model.encoder.blocks:
            for weight in block.f.parameters():
                weight.mul_(0.01)
    (finding,) = found_in(patient(model))
    assert finding.id == "missing-final-norm"
    assert "of mean square 1, as a norm would give, and nothing keeps it" in finding.message
    assert "where a norm gives 1" not in finding.message


def test_a_stack_whose_output_nothing_reads_is_judged_too():
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(WIDTH, 2, 32, batch_first=True, norm_first=True)
    model = nn.Sequential(
        nn.Embedding(24, WIDTH), nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
    )
    (finding,) = found_in(patient(model))
    assert (finding.id, finding.where) == ("missing-final-norm", "1.layers")
    assert "the model returns a stream of mean square" in finding.message


def test_a_constant_of_no_placement_is_worth_knowing_only():
    (finding,) = found_in(patient(both(weighed(1.31), blocks=3)()))
    assert (finding.id, finding.severity) == ("wrong-constants", "info")
    assert "of no registered placement at any depth" in finding.message
    assert f"DeepNorm has {6**0.25:.4g}" in finding.message


@pytest.mark.parametrize("shared", [True, False])
def test_blocks_that_are_run_several_times_have_no_constants_of_as_many_blocks(shared):
    """1/(2√3) is right for 3 blocks in 2 loops, and wrong for 6 blocks, for which it is Depth-µP's
    of 12.
    """

    def join(x, f, norm):
        return x + f(norm(x)) / (2 * 3**0.5)

    blocks = [Block((join, join)) for _ in range(3 if shared else 6)]
    looked_at = patient(Model(lambda: Stack(blocks=blocks * 2 if shared else blocks, final=1)))
    assert ("wrong-constants" in [finding.id for finding in found_in(looked_at)]) is not shared


@pytest.mark.thorough
def test_a_scaled_branch_is_the_same_constant():
    bug = both(lambda x, f, norm: norm(x + f(x) / 2.8284), blocks=12)
    (finding,) = found_in(patient(bug()))
    assert "DeepNorm's in a single stack of 32 blocks" in finding.message


def test_sublayers_counted_from_two():
    (finding,) = found_in(patient(scaled_by(lambda block, sublayer: 2 * block + sublayer + 2)()))
    assert "of sub-layers counted one by one from 2" in finding.message


def test_gates_that_start_closed_go_without_norms():
    class Gated(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = both(lambda x, f, norm: x + self.gain * f(x))()
            self.gain = nn.Parameter(torch.full((WIDTH,), 1e-3))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.inner(x)

    (finding,) = (one for one in found_in(patient(Gated())) if one.id == "no-norm")
    assert (finding.severity, "its branches starting closed" in finding.message) == ("info", True)


def test_the_flag_is_believed_where_it_is_right():
    for join, name in [
        (pre, "pre-ln"),
        (pre, "gpt2"),
        (post, "post-ln"),
        (post, "ds-init"),
        (pre, "not-registered"),
    ]:
        assert found_in(patient(both(join, final=int(join is pre))(), wanted_placement=name)) == []


def trained(model: nn.Module) -> nn.Module:
    """A few updates at a high rate, after which every gain and shift that is used has moved."""
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    tokens = torch.randint(24, (4, 7), generator=torch.Generator().manual_seed(2))
    for _ in range(5):
        optimizer.zero_grad()
        nn.functional.cross_entropy(
            model(tokens).flatten(0, 1), tokens.roll(1, 1).flatten()
        ).backward()
        optimizer.step()
    return model


def loaded(model: nn.Module, checkpoint: nn.Module) -> Loading:
    keys = model.load_state_dict(checkpoint.state_dict(), strict=False)
    return Loading(missing=tuple(keys.missing_keys), unexpected=tuple(keys.unexpected_keys))


def test_a_post_ln_checkpoint_in_a_pre_ln_model():
    model = both(pre, final=1)()
    loading = loaded(model, trained(both(post)()))
    by_id = {finding.id: finding for finding in found_in(patient(model, loading=loading))}
    assert set(by_id) == {"checkpoint-tensors", "untrained-norm"}
    assert (
        by_id["checkpoint-tensors"].where
        == "encoder.final_norm.0.weight, encoder.final_norm.0.bias"
    )
    assert (by_id["untrained-norm"].where, by_id["untrained-norm"].severity) == (
        "encoder.final_norm.0",
        "error",
    )
    assert (
        "while the 8 other norms of width 16 have been trained" in by_id["untrained-norm"].message
    )


def test_an_untrained_norm_shows_without_a_word_from_the_loader():
    model = both(pre, final=1)()
    loaded(model, trained(both(post)()))
    (finding,) = found_in(patient(model))
    assert finding.id == "untrained-norm"


def test_a_pre_ln_checkpoint_in_a_post_ln_model():
    model = both(post)()
    loading = loaded(model, trained(both(pre, final=1)()))
    (finding,) = found_in(patient(model, loading=loading))
    assert (finding.id, finding.where) == (
        "checkpoint-tensors",
        "encoder.final_norm.0.weight, encoder.final_norm.0.bias",
    )
    assert "the model lacks" in finding.message


def test_weights_of_a_block_that_the_checkpoint_lacks():
    model = both(pre, blocks=4, final=1)()
    loading = loaded(model, trained(both(pre, blocks=3, final=1)()))
    found = [
        one for one in found_in(patient(model, loading=loading)) if one.id == "checkpoint-tensors"
    ]
    assert [one.severity for one in found] == ["error", "error"]
    assert "encoder.blocks.3.f.0.query.weight" in found[1].where
    assert "lacks 12 weights" in found[1].message


def test_a_head_that_the_checkpoint_lacks_is_no_matter():
    model = trained(both(pre, final=1)())
    loading = Loading(
        missing=("projection.weight",), unexpected=("classifier.weight", "lm_head.bias")
    )
    assert found_in(patient(model, loading=loading)) == []


def test_models_fresh_or_trained_have_no_untrained_norm():
    for model in (both(pre, final=1)(), trained(both(pre, final=1)()), trained(both(post)())):
        assert found_in(patient(model)) == []


def test_an_expert_that_no_token_goes_to_is_no_skipped_block():
    class Routed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.router = nn.Linear(WIDTH, 3)
            self.experts = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(3))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.experts[1](x).relu() * self.router(x).softmax(-1)[..., 1:2]

    model = both(pre, final=1)()
    for block in model.encoder.blocks:
        block.f[1] = Routed()
    looked_at = patient(model)
    assert any("experts.0.weight" in name for name in looked_at.observed.unused_parameters)
    assert found_in(looked_at) == []


def test_a_single_block():
    assert found_in(patient(both(post, blocks=1)())) == []
    # A placement without a final norm coincides with Pre-LN here.
    (finding,) = found_in(patient(both(pre, blocks=1)()))
    assert (finding.id, "GPT-2" in finding.message or "Pre-LN ends" in finding.message) == (
        "missing-final-norm",
        True,
    )


@pytest.mark.parametrize(
    "join",
    [
        lambda x, f, norm: torch.lerp(x, f(norm(x)), 0.5),
        lambda x, f, norm: torch.where(x > 0, x, f(norm(x))),
    ],
)
def test_sums_in_other_words_are_not_called_lost(join):
    """What is not seen as a sum cuts a stream, but the skip is there."""
    found = found_in(patient(Model(lambda: Stack(join, pre, final=1))))
    assert [finding for finding in found if finding.id == "lost-residual"] == []


class InTurn(bugs_blocks.Looped):
    """All blocks one after the other, three times."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in [*self.blocks] * 3:
            x = block(x)
        return self.norm(x)


def test_blocks_that_are_applied_several_times():
    """Named once, as what they are, and not as so many pairs of blocks."""
    looked_at = patient(Model(lambda: InTurn(1, 1)))
    assert "2 blocks, each applied 3 times" in stack_words(looked_at.stacks[0])
    (found,) = (finding for finding in found_in(looked_at) if finding.id == "shared-blocks")
    assert found.message == "2 blocks applied 3 times in turn with the same weights, 6 in all"
