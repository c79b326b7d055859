"""What a diagnosis measures, against the same quantities computed from the formula, in float64."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.multiprocessing.reductions import StorageWeakRef
from torch.nn import functional

from doctor.corpus import CORPUS
from normscope.doctor.measured import SublayerMeasurements
from normscope.doctor.observe.examine import examined
from normscope.doctor.record import Stack
from normscope.doctor.trace.forward import main_tensor, tensors_in

WIDTH, TOKENS, CLASSES = 12, 5, 7
Step = tuple[Tensor, Tensor, Tensor, Tensor]
"""The stream, the branch as it is added, the scaled skip, and the sum."""


class Written(nn.Module):
    """Two blocks of a formula that notes each step: `join(x, block)` returns the stream after
    it.
    """

    def __init__(self, join: Callable[["Written", Any, int], Any], *, head: bool = True) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.join, self.steps = join, []
        self.branches = nn.ModuleList(
            nn.Sequential(nn.Linear(WIDTH, 20), nn.GELU(), nn.Linear(20, WIDTH)) for _ in range(4)
        )
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in range(4))
        for norm in self.norms:
            nn.init.uniform_(norm.weight, 0.5, 2)
        self.head = nn.Linear(WIDTH, CLASSES) if head else nn.Identity()
        self.double()

    def forward(self, x: Tensor) -> Tensor:
        self.steps.clear()
        for block in (0, 2):
            x = self.join(self, x, block)
        return self.head(x[0] if isinstance(x, tuple) else x)

    def note(self, stream: Tensor, branch: Tensor, skip: Tensor, together: Tensor) -> Tensor:
        self.steps.append((stream, branch, skip, together))
        return together


def pre(model: Written, x: Tensor, block: int) -> Tensor:
    for n in (block, block + 1):
        f = 0.3 * model.branches[n](model.norms[n](x))
        x = model.note(x, f, x, x + f)
    return x


def post_scaled(model: Written, x: Tensor, block: int) -> Tensor:
    for n in (block, block + 1):
        f = model.branches[n](x)
        x = model.norms[n](model.note(x, f, 1.7 * x, x * 1.7 + f))
    return x


def parallel(model: Written, x: Tensor, block: int) -> Tensor:
    one, other = (model.branches[n](model.norms[n](x)) for n in (block, block + 1))
    together = one + other + x
    model.note(x, one, x, together)
    return model.note(x, other, x, together)


def bottom_to_top(model: Written, x: Tensor, block: int) -> Tensor:
    f = model.branches[block](x)
    a = model.norms[block](model.note(x, f, x, x + f))
    f = model.branches[block + 1](a)
    return model.norms[block + 1](model.note(a, f, x + a, x + a + f))


def two_sums(model: Written, x: Any, block: int) -> tuple[Tensor, Tensor]:
    stream, total = (x, x) if isinstance(x, Tensor) else x
    for n in (block, block + 1):
        f = model.branches[n](stream)
        total = total + f
        stream = model.norms[n](model.note(stream, f, stream, stream + f))
    return (
        (stream, total) if block == 0 else (stream + functional.layer_norm(total, (WIDTH,)), total)
    )


def moving(model: Written, x: Tensor, block: int) -> Tensor:
    for n in (block, block + 1):
        f = functional.layer_norm(model.branches[n](x), (WIDTH,))
        after = x + 0.1 * (f - x)
        x = functional.layer_norm(model.note(x, 0.1 * f, 0.9 * x, after), (WIDTH,))
    return x


def square(x: Tensor) -> float:
    return float(x.square().mean())


def cosines(x_BTD: Tensor) -> float:
    """By the definition: every pair of different tokens."""
    unit_BTD = x_BTD / x_BTD.norm(dim=-1, keepdim=True)
    pairs_BTT = unit_BTD @ unit_BTD.transpose(1, 2)
    return float(pairs_BTT[:, ~torch.eye(x_BTD.shape[1], dtype=torch.bool)].mean())


def agrees(seen: SublayerMeasurements, step: Step) -> None:
    stream, branch, skip, together = (part.detach() for part in step)
    expected = {
        "stream_square": square(stream),
        "branch_square": square(branch),
        "sum_square": square(together),
        "correlation": cosines(stream),
        "share": square(branch) / (square(branch) + square(skip)),
    }
    assert {name: getattr(seen, name) for name in expected} == pytest.approx(expected, rel=1e-11)


def of_stack(stack: Stack) -> list[SublayerMeasurements]:
    return [sublayer.measured for sublayer in stack.sublayers]


def batch() -> Tensor:
    return torch.randn(3, TOKENS, WIDTH, generator=torch.Generator().manual_seed(1)).double() + 0.4


@pytest.mark.parametrize("join", [pre, post_scaled, parallel, bottom_to_top, two_sums, moving])
def test_every_sublayer_is_measured_where_it_is_added(join):
    model = Written(join)
    targets = torch.randint(CLASSES, (3, TOKENS), generator=torch.Generator().manual_seed(2))

    def loss(logits: Tensor) -> Tensor:
        return functional.cross_entropy(logits.flatten(0, 1), targets.flatten())

    (stack,), seen = examined(model, batch(), loss)
    expected = loss(model(batch()))
    expected.backward()

    assert len(stack.sublayers) == len(model.steps) == 4
    for n, (sublayer, step) in enumerate(zip(of_stack(stack), model.steps, strict=True)):
        agrees(sublayer, step)
        own = dict(model.branches[n].named_parameters())
        assert set(sublayer.parameters) == {f"branches.{n}.{name}" for name in own}
        assert sublayer.matrices == (f"branches.{n}.0.weight", f"branches.{n}.2.weight")
        gradients = torch.cat([own[name].grad.flatten() for name in ("0.weight", "2.weight")])
        assert sublayer.gradient_norm == pytest.approx(float(gradients.norm()), rel=1e-11)
        assert sublayer.reaches_output
    assert stack.source_square == pytest.approx(square(batch()), rel=1e-12)
    assert seen.loss_nats == pytest.approx(float(expected.detach()), rel=1e-12)
    assert not seen.loss_is_stand_in
    assert seen.gradient_norms == pytest.approx(
        {
            name: float(p.grad.norm()) if p.grad is not None else 0.0
            for name, p in model.named_parameters()
        },
        rel=1e-11,
    )


def test_of_one_sequence_and_of_single_tokens():
    packed = batch()[0]
    (stack, *_), _ = examined(Written(pre), packed)
    assert stack.sublayers[0].measured.correlation == pytest.approx(
        cosines(packed[None]), rel=1e-11
    )
    (stack, *_), _ = examined(Written(pre), batch()[:, :1])
    assert {sublayer.correlation for sublayer in of_stack(stack)} == {None}


def test_the_end_is_behind_the_last_norm_and_its_gain():
    model = Written(post_scaled, head=False)
    (stack, *_), seen = examined(model, batch())
    assert stack.end_square == pytest.approx(square(model(batch()).detach()), rel=1e-12)
    # An output as wide as the stream is no logits.
    assert (seen.classes, seen.logit_deviation) == (None, None)


def test_a_stand_in_for_the_loss_and_the_logits():
    model = Written(pre)
    _, seen = examined(model, batch())
    logits = model(batch()).detach()
    about_mean = logits - logits.mean(-1, keepdim=True)
    assert seen.classes == CLASSES
    assert seen.logit_deviation == pytest.approx(float(about_mean.square().mean().sqrt()), rel=1e-6)
    assert seen.loss_is_stand_in
    # Classes that are drawn evenly cost ln V and more: between the best class for every token and
    # the worst one.
    surprise = -logits.log_softmax(-1)
    assert float(surprise.amin(-1).mean()) < seen.loss_nats < float(surprise.amax(-1).mean())
    assert examined(model, batch())[1] == seen


class WithLoss(Written):
    def forward(self, x: Tensor) -> dict[str, Any]:
        logits = super().forward(x)
        return {"cache": object(), "loss": logits.square().mean(), "logits": logits}


def test_the_models_own_loss_comes_before_a_stand_in_and_after_one_that_is_given():
    model = WithLoss(pre)
    own, given = (
        examined(model, batch())[1],
        examined(model, batch(), lambda out: out["loss"] * 3)[1],
    )
    # A mean square of logits is no loss of classes.
    assert (own.loss_is_stand_in, own.classes) == (False, None)
    assert own.loss_nats == pytest.approx(float(model(batch())["loss"].detach()), rel=1e-12)
    assert given.loss_nats == pytest.approx(3 * own.loss_nats, rel=1e-12)
    assert given.gradient_norms == pytest.approx(
        {name: 3 * norm for name, norm in own.gradient_norms.items()}
    )


def test_frozen_parameters_have_no_gradient_norm():
    model = Written(pre)
    model.branches[1].requires_grad_(False)
    model.head.bias.requires_grad_(False)
    (stack, *_), seen = examined(model, batch())
    norms = [sublayer.gradient_norm for sublayer in of_stack(stack)]
    assert [norm is None for norm in norms] == [False, True, False, False]
    assert set(seen.gradient_norms) == {
        name for name, p in model.named_parameters() if p.requires_grad
    }
    model.requires_grad_(False)
    assert examined(model, batch())[1].gradient_norms == {}


class Unread(Written):
    """The stream goes nowhere: the head reads the input."""

    def forward(self, x: Tensor) -> Tensor:
        super().forward(x)
        return self.head(x)


def test_a_stream_that_nothing_reads_is_told():
    (stack, *_), _ = examined(Unread(pre), batch())
    assert {sublayer.reaches_output for sublayer in of_stack(stack)} == {False}
    assert {sublayer.gradient_norm for sublayer in of_stack(stack)} == {0.0}


class Shared(Written):
    """All four branches begin with one matrix, whose weight is made when it is used."""

    def __init__(self, join: Any) -> None:
        super().__init__(join)
        for branch in self.branches:
            branch[0] = self.branches[0][0]
        nn.utils.parametrizations.weight_norm(self.branches[0][0])


def test_what_branches_share_is_named_in_each_and_what_weights_are_made_from_is_found():
    model = Shared(pre)
    (stack, *_), _ = examined(model, batch())
    shared = {name for name, _ in model.named_parameters() if name.startswith("branches.0.0")}
    assert len(shared) == 3
    for n, sublayer in enumerate(of_stack(stack)):
        assert set(sublayer.parameters) == shared | {
            f"branches.{n}.2.weight",
            f"branches.{n}.2.bias",
        }


def test_a_matrix_that_is_made_of_others_has_their_gradients_together():
    """With W = g v / ‖v‖ row by row and g = ‖v‖, ‖∂L/∂g‖² + ‖∂L/∂v‖² = ‖∂L/∂W‖²: along v, and
    across it.
    """
    norms = []
    for parametrised in (False, True):
        model = Written(pre)
        for branch in model.branches if parametrised else ():
            nn.utils.parametrizations.weight_norm(branch[0])
        (stack, *_), _ = examined(model, batch())
        assert len(stack.sublayers[0].measured.matrices) == 2 + parametrised
        norms.append([sublayer.gradient_norm for sublayer in of_stack(stack)])
    assert norms[1] == pytest.approx(norms[0], rel=1e-11)


def test_tables_and_gains_inside_a_branch_are_no_matrices():
    """T5's first attention looks up a table of relative positions; OLMo-2's queries and keys pass
    norms with gains.
    """
    for name, others in [("t5", "relative_attention_bias"), ("olmo-2", "norm")]:
        (stack, *_), _ = examined(CORPUS[name].build(), CORPUS[name].inputs())
        first = stack.sublayers[0].measured
        assert len(first.matrices) == 4
        left_out = set(first.parameters) - set(first.matrices)
        assert left_out
        assert all(others in parameter for parameter in left_out)


@pytest.mark.sampled(one_in=3)
@pytest.mark.parametrize("name", ["bert", "t5", "gpt-neox", "swin-v2", "wav2vec2, stable"])
def test_the_order_is_that_of_the_found_stacks_and_parameters_are_those_of_the_named_modules(name):
    model = CORPUS[name].build()
    stacks, _ = examined(model, CORPUS[name].inputs())
    used = []
    for stack in stacks:
        for sublayer in stack.sublayers:
            measured = sublayer.measured
            own = [p for p in measured.parameters if p.startswith(sublayer.name)]
            assert len(own) >= len(measured.parameters) - 1
            assert measured.share > 0
            used += own
    # No parameter of a module that computes one branch belongs to another branch.
    assert len(used) == len(set(used))
    matrices = {
        n
        for n, p in model.named_parameters()
        if p.ndim == 2 and (".layers." in n or ".layer." in n)
    }
    assert matrices <= set(used) | {n for n in matrices if "downsample" in n}


def test_what_was_recorded_is_gone_before_the_backward_pass():
    class Watched(Written):
        def forward(self, x: Tensor) -> Tensor:
            out = super().forward(x)
            kept.append(
                [StorageWeakRef(part.untyped_storage()) for step in self.steps for part in step[1:]]
            )
            self.steps.clear()
            return out

    def loss(out: Tensor) -> Tensor:
        first, second = kept
        assert all(part.expired() for part in first)
        assert not all(part.expired() for part in second)
        return out.square().mean()

    kept: list[list[StorageWeakRef]] = []
    examined(Watched(post_scaled), batch(), loss)
    assert len(kept) == 2


@pytest.mark.parametrize(
    ("loss", "message"),
    [
        (
            lambda out: out.mean() * float("nan"),
            "the loss is nan: give a batch on which it is finite",
        ),
        (lambda out: out.detach().mean(), "no trainable parameter has an influence on the loss"),
        (lambda out: out.mean(-1), r"it is a tensor of shape \(3, 5\)"),
        (lambda out: 3.0, "it is float"),
        (lambda out: out["loss"], "the loss raised"),
    ],
)
def test_unusable_losses(loss, message):
    with pytest.raises(ValueError, match=message) as error:
        examined(Written(pre), batch(), loss)
    assert "\n" not in str(error.value)


def test_tensors_of_an_output():
    class Cache:
        def __init__(self) -> None:
            self.keys = torch.zeros(1)

    hidden, logits = torch.zeros(2, 3), torch.zeros(2, 4)
    output = {"hidden": (hidden,), "logits": logits, "cache": [Cache()]}
    assert [t.shape for t in tensors_in(output)] == [(2, 3), (2, 4), (1,)]
    assert [t.shape for t in tensors_in(output, inside_objects=False)] == [(2, 3), (2, 4)]
    assert main_tensor(output) is logits
    assert main_tensor((torch.zeros(2, 3, dtype=torch.long), torch.zeros(()), hidden)) is hidden
    assert main_tensor(torch.zeros(())) is None
