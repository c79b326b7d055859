"""Foreign models after a look at them: outputs, hooks, flags, buffers, modes and attributes, and
the generators.
"""

import random
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten

from doctor.corpus_x_transformers import X_TRANSFORMERS
from doctor.looked import EVERY
from normscope.doctor.identify.stacks import streams_in

pytestmark = pytest.mark.sampled(one_in=12)

HIDDEN = {"output_hidden_states": True}
OF_ONE_CLASS = ("default", "encoder-decoder", "rotary_pos_emb", "rel_pos_bias", "layer_dropout")
"""x-transformers' options are all of one class; these have tables and random numbers of their
own.
"""
LOOKED_AT = [
    n
    for n in EVERY
    if n.removeprefix("x-transformers: ") not in X_TRANSFORMERS.keys() - set(OF_ONE_CLASS)
]


def held(container: Any) -> Any:
    """What a container or a plain object holds, down to what can only be told apart by identity."""
    if isinstance(container, dict):
        return {key: held(value) for key, value in container.items()}
    if isinstance(container, set):
        return frozenset(container)
    if isinstance(container, list | tuple):
        return [held(value) for value in container]
    return id(container)


def state(model: nn.Module) -> list[Any]:
    """All attributes and tables of every module, hooks among them, and what configurations hold."""
    objects = [
        value
        for module in model.modules()
        for value in vars(module).values()
        if hasattr(value, "to_dict")
    ]
    return [
        *(held(vars(module)) for module in model.modules()),
        *(held(vars(value)) for value in objects),
    ]


def tensors(model: nn.Module) -> dict[str, Tensor]:
    return {
        name: value.clone() for name, value in [*model.named_parameters(), *model.named_buffers()]
    }


def generators() -> list[Any]:
    return [torch.get_rng_state().tolist(), str(np.random.get_state()), random.getstate()]


@pytest.mark.parametrize("name", LOOKED_AT)
def test_a_look_leaves_no_trace(name):
    """transformers puts hooks on when hidden states are first asked for: here, while the doctor
    looks.
    """
    case = EVERY[name]
    model = case.build()
    asked = {**case.inputs(), **(HIDDEN if hasattr(model, "config") else {})}
    copy = case.build()
    copy.load_state_dict(model.state_dict())
    before, values, drawn = state(model), tensors(model), generators()

    streams_in(model, lambda m: m(**asked))

    assert generators() == drawn
    assert state(model) == before
    assert tensors(model).keys() == values.keys()
    assert all(torch.equal(value, values[name]) for name, value in tensors(model).items())
    with torch.no_grad():
        (found, how), (expected, of_copy) = (tree_flatten(m.eval()(**asked)) for m in (model, copy))
    assert how == of_copy
    assert all(
        torch.equal(a, b) for a, b in zip(found, expected, strict=True) if isinstance(a, Tensor)
    )
