"""The loss of a model, its gradients' norms, and which weights get a gradient once others have
moved.
"""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from ...measure.passes import euclidean_norm, moved
from ...measure.unchanged import left_unchanged
from ..measured import ModelMeasurements
from ..record import Stack, Sublayer, with_measured
from ..trace.forward import main_tensor, named_in, tensors_in
from .targets import is_of_another_softmax, loss_targets, places_of_targets

# N = tokens, V = classes


class NoGradient(ValueError):
    """A forward pass of which no gradient can be taken, whatever the loss and the batch are; the
    message says why.
    """


def backward(
    model: nn.Module,
    run: Callable[[], Any],
    loss: Callable[[Any], Tensor] | None,
    measured: ModelMeasurements,
    *,
    widths: Sequence[int] = (),
    written: Sequence[Tensor] = (),
    tokens: Sequence[Tensor] = (),
    cause_of_nan: Callable[[], str] = str,
) -> tuple[ModelMeasurements, int]:
    """Adds to the measurements what one forward pass `run()` with gradients and one backward pass
    show.

    And at how many places the output says something: the tokens, or one for a sequence; 0 where
    that is not known. The model and its `.grad` stay as they are.

    loss: of the output, a mean per token in nats. Without it, what the output names `loss`, or the
    output itself where it is one number, or else a loss on random targets: the cross-entropy of the
    logits, or of the first tensor's last dimension, against classes that are drawn evenly, the same
    each time.
    widths: of the model's streams; an output of such a width is taken for hidden states and not for
    logits.
    written: tensors that `run` writes into, whose values are put back. tokens: those of the input
    that hold indices.
    cause_of_nan: gives what makes a loss that is not finite, as a clause; "" where that is not
    known.

    Raises ValueError where the pass or the loss raises, and for a loss that is not one finite
    number, or on which no trainable parameter has an influence that autograd knows of; NoGradient
    where the pass keeps autograd out, or overwrites what it needs. Frozen parameters have no
    gradient norm.
    """
    with left_unchanged(model, written), torch.enable_grad():
        output = _attempt("the forward pass", run)
        _refuse_without_autograd(model, output)
        value, is_stand_in = loss_of(output, loss)
        scores = main_tensor(output)
        logits = _logits(scores, named_in(output, "logits") is not None, widths)
        places = 0 if scores is None else scores.numel() // scores.shape[-1]
        # What only the output holds need not stand beside the gradients.
        del output
        nats = _finite(value, cause_of_nan)
        weights = {
            name: weight for name, weight in model.named_parameters() if weight.requires_grad
        }
        asked = [scores] if weights and scores is not None and scores.requires_grad else []
        gradients, found = _attempt("the backward pass", lambda: _gradients(value, weights, asked))
    norms = dict.fromkeys(weights, 0.0)
    for name, gradient in gradients.items():
        norms[name] = euclidean_norm(gradient)
    completed = replace(
        measured, loss_nats=nats, loss_is_stand_in=is_stand_in, gradient_norms=norms
    )
    at_scores = found[0] if found else None
    completed = _with_scores(completed, scores, at_scores, logits, tokens)
    if scores is None or at_scores is None or is_stand_in or completed.classes is None:
        return completed, places
    return replace(completed, targets=loss_targets(model, scores, at_scores)), places


def _with_scores(
    measured: ModelMeasurements,
    scores: Tensor | None,
    at_scores: Tensor | None,
    logits: tuple[int | None, float | None],
    tokens: Sequence[Tensor],
) -> ModelMeasurements:
    """Adds what the gradient at the scores tells of them and of the loss's targets.

    at_scores: that gradient; None where none was taken. logits: the number of classes and the
    deviation, if the scores are logits.
    """
    classes, deviation = logits
    of_softmax = scores is not None and at_scores is not None and _is_of_softmax(scores, at_scores)
    target_places = None
    if at_scores is not None and not measured.loss_is_stand_in:
        target_places = places_of_targets(at_scores, tokens)
        if not of_softmax:
            # A loss that is no function of differences of logits, such as a mean square, is no
            # cross-entropy of them.
            classes = deviation = None
    return replace(
        measured,
        classes=classes,
        labels_examples=classes is not None and _labels_examples(scores, tokens),
        logit_deviation=deviation,
        target_places=target_places,
        softmax_elsewhere=(
            not of_softmax
            and at_scores is not None
            and not measured.loss_is_stand_in
            and any(given.shape == at_scores.shape[:-1] for given in tokens)
            and is_of_another_softmax(at_scores)
        ),
        scores_are=_scores_are(scores) if of_softmax and classes is not None else "",
    )


def _labels_examples(scores: Tensor | None, tokens: Sequence[Tensor]) -> bool:
    """Tells whether there is one row of scores (B, V) for each example, and not for each token.

    A model that flattens its tokens has as many rows as tokens.
    """
    if scores is None or scores.dim() != 2:
        return False
    return all(len(scores) == len(ids_BT) for ids_BT in tokens)


WITHOUT_AUTOGRAD = (
    "the forward pass runs under torch.no_grad or inference_mode, or detaches all that it returns"
)


def _refuse_without_autograd(model: nn.Module, output: Any) -> None:
    """Checks that autograd knows the output of a model that is trained. Raises NoGradient where it
    does not.
    """
    tensors = tensors_in(output, inside_objects=False)
    trained = any(parameter.requires_grad for parameter in model.parameters())
    if trained and not any(tensor.requires_grad for tensor in tensors):
        raise NoGradient(WITHOUT_AUTOGRAD)


def _finite(loss: Tensor, cause_of_nan: Callable[[], str]) -> float:
    """Returns a loss as a number. Raises ValueError where it is not finite, NoGradient where it is
    known what makes it so.
    """
    nats = float(loss.detach())
    if not math.isfinite(nats):
        if cause := cause_of_nan():
            raise NoGradient(f"the loss is nan, for {cause}")
        raise ValueError(f"the loss is {nats}: give a batch on which it is finite")
    return nats


def _attempt(what: str, run: Callable[[], Any]) -> Any:
    try:
        return run()
    except Exception as error:
        kind = NoGradient if "modified by an inplace operation" in str(error) else ValueError
        raise kind(f"{what} raised {type(error).__name__}: {error}") from error


def loss_of(output: Any, loss: Callable[[Any], Tensor] | None) -> tuple[Tensor, bool]:
    """Returns an output's loss as one number, and whether its targets are random, as `backward`
    says. Raises ValueError.
    """
    if loss is not None:
        value = _attempt("the loss", lambda: loss(output))
        if not isinstance(value, Tensor) or value.numel() != 1:
            what = (
                f"a tensor of shape {tuple(value.shape)}"
                if isinstance(value, Tensor)
                else type(value).__name__
            )
            raise ValueError(
                f"the loss must be a tensor with one number, the mean loss per token; it is {what}"
            )
        return value.reshape(()), False
    for own in (named_in(output, "loss"), output):
        if isinstance(own, Tensor) and own.numel() == 1 and own.is_floating_point():
            return own.reshape(()), False
    scores = main_tensor(output)
    if scores is None:
        raise ValueError(
            "the output has no tensor of two dimensions or more to take a loss of: give a loss"
        )
    scores_NV = scores.reshape(-1, scores.shape[-1]).float()
    generator = torch.Generator().manual_seed(0)
    drawn_N = torch.randint(max(2, scores_NV.shape[1]), (len(scores_NV),), generator=generator).to(
        scores.device
    )
    if scores_NV.shape[1] == 1:
        return functional.binary_cross_entropy_with_logits(scores_NV[:, 0], drawn_N.float()), True
    return functional.cross_entropy(scores_NV, drawn_N), True


def _logits(
    scores: Tensor | None, named: bool, widths: Sequence[int]
) -> tuple[int | None, float | None]:
    """Returns the number of classes and the logits' standard deviation; None for both where it is
    not clear that the scores are logits.
    """
    if scores is None or scores.shape[-1] < 2 or (scores.shape[-1] in widths and not named):
        return None, None
    return scores.shape[-1], _deviation(scores)


@torch.no_grad()
def _deviation(scores: Tensor) -> float:
    """Returns the root of the mean over tokens of the variance of a token's scores."""
    variances = []
    # A few tokens at a time, and in two sweeps while they are in the cache: torch's own variance
    # takes six times as long.
    given_NV = scores.detach().reshape(-1, scores.shape[-1])
    for some_NV in torch.split(given_NV, _TOKENS_AT_ONCE):
        wide_NV = some_NV.float()
        apart_NV = wide_NV - wide_NV.mean(1, keepdim=True)
        variances.append(torch.linalg.vector_norm(apart_NV, dim=1).square() / apart_NV.shape[1])
    return float(torch.cat(variances).mean().sqrt())


_TOKENS_AT_ONCE = 8


def _gradients(
    loss: Tensor, weights: Mapping[str, nn.Parameter], others: Sequence[Tensor]
) -> tuple[dict[str, Tensor], list[Tensor | None]]:
    """Computes the gradients of weights, by name, without those that the loss does not depend on,
    and of other tensors, with None for these.
    """
    if not weights:
        return {}, []
    if not loss.requires_grad:
        raise ValueError(
            "no trainable parameter has an influence on the loss: is it detached, or under no_grad?"
        )
    # Not `loss.backward()`, which writes to `.grad` and runs what hangs on it, such as an
    # optimiser's step.
    found: list[Tensor | None] = [
        *torch.autograd.grad(loss, [*others, *weights.values()], allow_unused=True)
    ]
    return {
        name: gradient if gradient.layout == torch.strided else gradient.to_dense()
        for name, gradient in zip(weights, found[len(others) :], strict=True)
        if gradient is not None
    }, found[: len(others)]


_SUMS_TO_ZERO = 0.4
"""The largest sum of a gradient's entries over the classes, in units of 1/√classes. Entries of
random signs sum to 1.25 such units of their sizes; those of a softmax less its target to 0, and a
usual penalty on its normaliser adds a thousandth.
"""


def _is_of_softmax(scores: Tensor, gradient: Tensor) -> bool:
    """Tells whether a loss is one of the softmax of scores: its gradient sums to 0 over the scores
    of each token, or the scores are log-probabilities.
    """
    given = scores.detach().reshape(-1, scores.shape[-1])
    # What does not hold of the first token's does not hold of all.
    if all(float(some.float().logsumexp(-1).abs().max()) < 1e-3 for some in (given[:1], given)):
        return True
    rows = gradient.detach().reshape(given.shape).float()
    sums, sizes = rows.sum(1), torch.linalg.vector_norm(rows, 1, dim=1)
    return float(sums.norm()) <= _SUMS_TO_ZERO * float(sizes.norm()) / math.sqrt(rows.shape[1])


def _scores_are(scores: Tensor | None) -> Literal["", "probabilities", "cut"]:
    """Returns what scores are that a loss takes for logits though they are none: rows that sum to
    1, or numbers cut off at 0.
    """
    if scores is None or scores.shape[-1] < 3:
        return ""
    given = scores.detach().float()
    # What is so of the first token's need not be looked for in all.
    if any(bool((some < 0).any()) for some in (given.reshape(-1, given.shape[-1])[:1], given)):
        return ""
    if float((given.sum(-1) - 1).abs().max()) < 1e-3:
        return "probabilities"
    return "cut" if 0.1 < float((given == 0).double().mean()) < 1 else ""


ROUNDS = 3
"""Behind a head of zeros a gate of zero opens in the second update, and the matrix of zeros behind
it in the third.
"""
_STEP = 1e-3
"""The change of a weight in each step: that of an update of Adam at a usual rate."""


def with_opening(
    stacks: Sequence[Stack],
    measured: ModelMeasurements,
    model: nn.Module,
    run: Callable[[], Any],
    loss: Callable[[Any], Tensor] | None,
    written: Sequence[Tensor] = (),
) -> tuple[tuple[Stack, ...], ModelMeasurements]:
    """Adds `opening` and `reaches_loss` where no parameter of a whole sub-layer gets a gradient;
    returns stacks and measurements unchanged elsewhere.

    run: the forward pass. loss: as in `backward`. written: tensors that the pass writes into. One
    forward and backward pass, and one for each update that is looked at; the model is left as it
    was, bit by bit.
    """
    sublayers = [sublayer.measured for stack in stacks for sublayer in stack.sublayers]
    shut = _shut([one.parameters for one in sublayers], measured.gradient_norms)
    if not shut:
        return tuple(stacks), measured
    weights = {name: weight for name, weight in model.named_parameters() if weight.requires_grad}
    with left_unchanged(model, written), torch.enable_grad():
        gradients, heard = _gradients_heard(run(), loss, weights)
        opened = _opened(
            lambda: _gradients_heard(run(), loss, weights)[0], weights, gradients, shut
        )

    def reaches_loss(sublayer: Sublayer) -> bool:
        outputs = sublayer.measured.outputs
        return not outputs or any(heard[place] for place in outputs)

    found = [
        with_measured(stack, [{"reaches_loss": reaches_loss(one)} for one in stack.sublayers])
        for stack in stacks
    ]
    return tuple(found), replace(measured, opening=frozenset(opened))


def _shut(sublayers: Collection[Sequence[str]], norms: Mapping[str, float]) -> list[list[str]]:
    """Returns the trained parameters of each sub-layer none of which gets a gradient, where
    anything gets one.
    """
    if not any(norms.values()):
        return []
    trained = [[name for name in names if name in norms] for names in sublayers]
    return [names for names in trained if names and not any(norms[name] for name in names)]


def _opened(
    again: Callable[[], Mapping[str, Tensor]],
    weights: Mapping[str, nn.Parameter],
    gradients: Mapping[str, Tensor],
    shut: Sequence[Sequence[str]],
) -> set[str]:
    """Move what gets a gradient, look who else gets one then, and move that too, until every
    sub-layer has opened.
    """
    direction = {name: -gradient.sgn() for name, gradient in gradients.items()}
    opened: set[str] = set()
    for _ in range(ROUNDS):
        with moved(weights, direction, _STEP):
            new = {
                name: -gradient.sgn() for name, gradient in again().items() if name not in direction
            }
        opened |= new.keys()
        direction |= new
        if not new or all(opened.intersection(names) for names in shut):
            break
    return opened


def _gradients_heard(
    output: Any, loss: Callable[[Any], Tensor] | None, weights: Mapping[str, nn.Parameter]
) -> tuple[dict[str, Tensor], tuple[bool, ...]]:
    """Returns gradients other than 0 by name, and of every tensor of the output whether the loss
    depends on it.
    """
    value, _ = loss_of(output, loss)
    tensors = list(tensors_in(output, inside_objects=False))
    asked = [tensor for tensor in tensors if tensor.requires_grad]
    gradients, found = _gradients(value, weights, asked)
    reached = {
        id(tensor) for tensor, gradient in zip(asked, found, strict=True) if gradient is not None
    }
    gradients = {name: gradient for name, gradient in gradients.items() if bool(gradient.any())}
    return gradients, tuple(id(tensor) in reached for tensor in tensors)
