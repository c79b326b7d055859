"""The choice of a task: by what it is given and what it answers."""

from collections.abc import Mapping

import torch
from torch import Tensor

from ..doctor.laws.given import named_inputs
from ..doctor.laws.trial import Untried
from ..doctor.learned import Learner
from .asking import LearningTask
from .copying import copying
from .filling import filling
from .labelling import labelling, picturing
from .translating import translating

_NO_TOKENS = ("mask", "labels", "position", "type", "segment")
"""In the names of whole numbers that are no tokens."""


def task_for(of: Learner) -> LearningTask:
    """Returns the task. Raises Untried for models that none is known for."""
    if callable(of.inputs):
        raise Untried("the model is run by a function of yours, which takes no other inputs")
    classes = of.seen.classes
    if classes is None:
        raise Untried("the output is not known to be logits")
    names = named_inputs(of.model, of.inputs)
    tokens = _token_names(names)
    pictures = [name for name, given in names.items() if _is_picture(given)]
    crosses = any(one.kind == "cross_attention" for stack in of.stacks for one in stack.sublayers)
    if of.seen.labels_examples:
        if len(tokens) == 1 and not pictures:
            return labelling(of, tokens[0], classes)
        if len(pictures) == 1 and not tokens:
            return picturing(of, pictures[0], classes)
    elif crosses and tokens and not pictures:
        return translating(of, tokens, classes)
    elif len(tokens) == 1 and not crosses and not pictures:
        return (copying if names_next(of) else filling)(of, tokens[0], classes)
    raise Untried("no task is known for what it is given and what it answers")


def names_next(of: Learner) -> bool:
    """Returns whether a model is to name the next token, as its attention or its loss says."""
    return not of.seen.labels_examples and (of.is_causal or of.seen.predicts_next)


def _token_names(names: Mapping[str, Tensor]) -> list[str]:
    return [name for name, given in names.items() if _holds_tokens(name, given)]


def _holds_tokens(name: str, given: Tensor) -> bool:
    if given.dtype not in (torch.int64, torch.int32) or given.ndim != 2:
        return False
    return not any(part in name for part in _NO_TOKENS)


def _is_picture(given: Tensor) -> bool:
    return given.is_floating_point() and given.ndim == 4
