"""An end of the program that somebody's code asks for is an error; one that the user asks for is
none.
"""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import normscope
from normscope.errors import UserError, no_end
from normscope.signals import Interrupted, Stopped


class Mine(BaseException):
    """Of a user's own."""


ENDS = (SystemExit(0), SystemExit(), SystemExit(3), SystemExit("no room"), Mine("enough"))


@pytest.mark.parametrize("end", ENDS, ids=repr)
def test_an_end_that_code_asks_for_is_an_error_of_one_line_with_its_place(
    end: BaseException,
) -> None:
    with pytest.raises(UserError) as error, no_end():
        raise end
    said = str(error.value)
    assert type(end).__name__ in said
    assert f"({Path(__file__)}, line " in said
    assert "ended the program" in said
    assert "\n" not in said
    assert error.value.__cause__ is end


@pytest.mark.parametrize(
    "error",
    [
        KeyboardInterrupt(),
        Stopped(15),
        Interrupted(2, "after update 3"),
        ValueError("mine"),
        UserError("told"),
    ],
    ids=repr,
)
def test_what_the_user_asks_for_and_every_error_stay_what_they_are(error: BaseException) -> None:
    with pytest.raises(type(error)) as raised, no_end():
        raise error
    assert raised.value is error


def test_a_generator_is_closed_within_it() -> None:
    def numbers() -> Iterator[int]:
        with no_end():
            yield 1

    made = numbers()
    assert next(made) == 1
    made.close()


class Ending(nn.Module):
    """A model whose forward asks for the end of the program, always or where gradients are
    taken.
    """

    def __init__(self, *, always: bool) -> None:
        super().__init__()
        layers = (nn.TransformerEncoderLayer(16, 2, 32, batch_first=True) for _ in range(2))
        self.layers, self.always = nn.Sequential(*layers), always

    def forward(self, x: Tensor) -> Tensor:
        if self.always or torch.is_grad_enabled():
            sys.exit(0)
        return self.layers(x)


@pytest.mark.parametrize("always", [True, False])
def test_in_python_the_model_is_as_it_was_and_the_interpreter_goes_on(always: bool) -> None:
    model = Ending(always=always).train()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    random = torch.get_rng_state()
    batch = torch.randn(2, 5, 16, generator=torch.Generator().manual_seed(0))
    with pytest.raises(UserError, match=r"ended the program: SystemExit: 0 \(.*, line \d+\)"):
        normscope.diagnose(model, batch, advise=False)
    with pytest.raises(UserError, match="ended the program: SystemExit: 0"):
        normscope.transplant(model, "peri-ln", inputs=(batch,), initialise="keep")
    assert model.training
    assert not hasattr(model, "transplanted")
    assert list(model.state_dict()) == list(before)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert torch.equal(torch.get_rng_state(), random)


def test_in_python_a_loss_that_ends_the_program_is_an_error() -> None:
    def loss(output: Tensor) -> Tensor:
        raise Mine("enough")

    model = nn.Sequential(*(nn.TransformerEncoderLayer(16, 2, 32, batch_first=True),) * 2)
    with pytest.raises(UserError, match=r"ended the program: Mine: enough \(.*, line \d+\)"):
        normscope.diagnose(model, torch.randn(2, 5, 16), loss=loss)


def write_to_a_reader_that_has_gone() -> None:
    try:
        raise BrokenPipeError
    except BrokenPipeError:
        sys.exit(1)


def test_an_output_that_nobody_reads_ends_the_program_without_a_word() -> None:
    """As a library that prints does behind `normscope doctor … | head`."""
    with pytest.raises(SystemExit), no_end():
        write_to_a_reader_that_has_gone()
