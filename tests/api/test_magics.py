"""The magics of notebooks, in a shell that is as simple as can be, and in IPython where that is
installed.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import normscope
from normscope.api import comparison
from normscope.errors import UserError


class Shell:
    """What a notebook's shell has of names and magics."""

    def __init__(self) -> None:
        self.user_ns: dict[str, object] = {}
        self.magics: dict[tuple[str, str], Callable[..., Any]] = {}

    def register_magic_function(
        self, function: Callable[..., Any], magic_kind: str, magic_name: str
    ) -> None:
        self.magics[magic_kind, magic_name] = function

    def run_line_magic(self, name: str, line: str) -> Any:
        return self.magics["line", name](line)

    def run_cell_magic(self, name: str, line: str, cell: str) -> Any:
        return self.magics["cell", name](line, cell)


@pytest.fixture(params=["simple", "IPython"])
def shell(request: pytest.FixtureRequest) -> Any:
    if request.param == "simple":
        made: Any = Shell()
    else:
        reason = "needs IPython, whose magics these are"
        made = pytest.importorskip(
            "IPython.core.interactiveshell", reason=reason
        ).InteractiveShell()
    normscope.load_ipython_extension(made)
    return made


def test_the_doctor_looks_at_the_model_of_that_name(shell: Any) -> None:
    layers = [
        nn.TransformerEncoderLayer(16, 2, 32, batch_first=True, norm_first=True) for _ in range(2)
    ]
    shell.user_ns |= {"model": nn.Sequential(*layers), "batch": torch.randn(2, 5, 16)}
    found = shell.run_line_magic("doctor", "model, batch, advise=False")
    assert [stack.placement for stack in found.stacks] == ["pre-ln"]
    assert "missing-final-norm" in found._repr_html_()
    with pytest.raises(UserError, match="%doctor takes a model"):
        shell.run_line_magic("doctor", "")


def test_a_cell_is_the_configuration_that_is_compared(
    shell: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[Any, Any]] = []
    monkeypatch.setattr(comparison, "compare", lambda config, **more: asked.append((config, more)))
    shell.user_ns["folder"] = Path("runs")
    shell.run_cell_magic("compare", 'placements="pre-ln", out=folder', "[train]\nduration = 4\n")
    shell.run_cell_magic("compare", "", "")
    assert asked == [
        ({"train": {"duration": 4}}, {"placements": "pre-ln", "out": Path("runs")}),
        ({}, {}),
    ]
    with pytest.raises(UserError, match="is no TOML"):
        shell.run_cell_magic("compare", "", "duration: 4")
