"""A configuration made by hand refuses a name that is none, whichever of its fields holds it."""

import dataclasses
import typing

import pytest

from normscope.model import DecoderConfig, EncoderConfig, ModelConfig, StackConfig
from normscope.optim import AdaptiveConfig, OptimizerConfig, ScheduleConfig
from normscope.tasks.registry import TASKS
from normscope.train import TrainConfig

CONFIGS = [
    *(ModelConfig, EncoderConfig, DecoderConfig, StackConfig),
    *(ScheduleConfig, AdaptiveConfig, OptimizerConfig, TrainConfig),
    *(task.config for task in TASKS.values()),
]


def names_in(hint: object) -> list[str]:
    """The names of every `Literal` within a type."""
    if typing.get_origin(hint) is typing.Literal:
        return list(typing.get_args(hint))
    return [name for part in typing.get_args(hint) for name in names_in(part)]


FIELDS = [
    (config, name, names_in(hint))
    for config in CONFIGS
    for name, hint in typing.get_type_hints(config).items()
    if typing.get_origin(hint) is not typing.ClassVar and names_in(hint)
]


def made(config: type, **values: object) -> object:
    """With any value for a section that has no default: names are looked at first."""
    needed = {
        f.name: None
        for f in dataclasses.fields(config)
        if f.default is f.default_factory is dataclasses.MISSING
    }
    return config(**needed | values)


@pytest.mark.parametrize(
    ("config", "name", "names"), FIELDS, ids=lambda value: getattr(value, "__name__", str(value))
)
def test_a_name_that_is_none_is_refused_and_those_allowed_are_told(config, name, names):
    with pytest.raises(ValueError, match=rf"{name} must be .*{names[-1]}.*, got 'cosin'"):
        made(config, **{name: "cosin"})


def test_the_nearest_name_is_told():
    with pytest.raises(ValueError, match="did you mean 'cosine'"):
        ScheduleConfig(decay="cosin")


def test_numbers_stand_where_a_type_allows_them():
    assert TrainConfig(threads=2).threads == 2
    assert StackConfig(norm_epsilon=1e-6).norm_epsilon == 1e-6


def test_there_are_fields_to_look_at():
    assert len(FIELDS) >= 10
