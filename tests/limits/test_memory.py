"""Models are built as long as they stay below the memory that there is, and below a number of
modules.
"""

import pytest
import torch
from torch import nn

from normscope.errors import UserError
from normscope.limits import memory
from normscope.limits.memory import bounded_building
from normscope.runs.config import load
from normscope.tasks.translation import TRANSLATION
from tiny import tiny


def test_what_fits_is_built_and_nothing_stays_behind():
    before = [len(hooks()) for hooks in registered()]
    with bounded_building("it", "make it smaller"):
        assert isinstance(nn.Linear(3, 4), nn.Module)
    assert [len(hooks()) for hooks in registered()] == before


def registered():
    module = torch.nn.modules.module
    return [
        lambda: module._global_module_registration_hooks,
        lambda: module._global_parameter_registration_hooks,
    ]


def test_weights_are_counted_before_they_are_drawn(monkeypatch):
    monkeypatch.setattr(memory, "available_bytes", lambda: 100_000)
    drawn = []

    def layers():
        while True:
            yield nn.Linear(30, 30, bias=False)  # 3,600 bytes, three times
            drawn.append(1)

    expected = r"it has 9e-06 billion weights and more, and would need over 0 GB.*; halve it"
    with pytest.raises(UserError, match=expected), bounded_building("it", "halve it"):
        list(layers())
    assert len(drawn) == 100_000 // (3 * 3600)
    with torch.device("meta"), bounded_building("it", ""):
        nn.Linear(10**5, 10**5)


def test_a_tensor_that_no_machine_has_room_for():
    expected = r"it would have a tensor larger than memory \(.*\); halve it"
    with pytest.raises(UserError, match=expected), bounded_building("it", "halve it"):
        nn.Linear(2**30, 2**28)


def test_modules_without_end(monkeypatch):
    monkeypatch.setattr(memory, "MOST_MODULES", 40)
    with (
        pytest.raises(UserError, match="it has more than 40 modules; halve it"),
        bounded_building("it", "halve it"),
    ):
        nn.Sequential(*[nn.Identity() for _ in range(50)])


def test_modules_that_take_long():
    expected = (
        "it takes more than -1 s of the processor to build even without weights, and had 1 modules "
        "by then; halve"
    )
    with (
        pytest.raises(UserError, match=expected),
        bounded_building("it", "halve it", most_seconds=-1),
    ):
        nn.Sequential(nn.Identity(), nn.Identity())


@pytest.mark.parametrize(
    "setting", ["model.width=2000000", "model.ffn_width=200000000000", "model.width=1000000000"]
)
def test_a_configuration_of_a_model_without_room_is_the_user_s_mistake(setting):
    codec = TRANSLATION.open(tiny("data.toy_pairs=10")).codec
    with pytest.raises(UserError, match=r"the model of this configuration .*; make model\.width"):
        TRANSLATION.build(load(None, [setting]), codec)
