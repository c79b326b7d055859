"""Arguments of the public functions: what does not fit is told in a line, and names may be written
as others do.
"""

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import normscope
from normscope.cli.main import main

TEXT = "as text"


def layer() -> nn.Module:
    return nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)


def diagnosed(**options: Any) -> Callable[[], object]:
    return lambda: normscope.diagnose(layer(), torch.randn(2, 5, 16), advise=False, **options)


@pytest.mark.parametrize(
    ("called", "said"),
    [
        (diagnosed(wanted_placement="prelnn"), "unknown placement 'prelnn'; did you mean 'pre-ln'"),
        (
            diagnosed(optimizer="adan"),
            "optimizer must be one of adam, .* or an Optimizer, got 'adan'; did you mean 'adam'",
        ),
        (diagnosed(optimizer=torch.optim.Adam), "got the class Adam: give an instance"),
        (diagnosed(wanted_rate="1e-3"), 'wanted_rate must be a number, got "1e-3" as text'),
        (diagnosed(loss="ce"), 'loss must be a function, got "ce" as text'),
        (
            diagnosed(loss=nn.CrossEntropyLoss),
            "loss must be a function, got the class CrossEntropyLoss: give an inst",
        ),
        (diagnosed(silenced="double-final-nrom"), "no rule is called 'double-final-nrom'"),
        (diagnosed(silenced=3), "silenced must be text or a list of texts, got 3"),
        (diagnosed(tokens=True), "tokens must be a whole number, got True"),
        (
            lambda: normscope.diagnose(nn.Linear),
            "model must be a Module, got the class Linear: give an instance",
        ),
        (lambda: normscope.diagnose("gpt2"), 'model must be a Module, got "gpt2" as text'),
        (
            lambda: normscope.diagnose(layer(), 3),
            "batch must be a mapping or a list or a tensor or a function, got 3",
        ),
        (
            lambda: normscope.predict("pre-ln", blocks="12"),
            'blocks must be a whole number, got "12" as text',
        ),
        (lambda: normscope.predict(["pre-ln"]), r"placements must be text, got \['pre-ln'\]"),
        (lambda: normscope.predict("pre-ln", stack="decoders"), "did you mean 'decoder'"),
        (
            lambda: normscope.choose(blocks=12, width=64, tokens="5B"),
            'tokens must be a number, got "5B" as text',
        ),
        (lambda: normscope.compare(seeds="3"), 'seeds must be a whole number, got "3" as text'),
        (
            lambda: normscope.compare(peak_lr=["1e-3"]),
            r"peak_lr must be a number or a list of numbers, got \['1e-3'\]",
        ),
        (lambda: normscope.train({}, 3), "run must be text or a path, got 3"),
        (lambda: normscope.open_run(None), "folder must be text or a path, got None"),
        (lambda: normscope.place("pre-ln", 3, width=16), "sublayers must be a list, got 3"),
        (
            lambda: normscope.Encoder("pre-ln", width="64", blocks=2, heads=4),
            "width must be a whole number",
        ),
        (
            lambda: normscope.Decoder("pre-ln", width=64, blocks=2.5, heads=4),
            "blocks must be a whole number, got 2.5",
        ),
        (
            lambda: normscope.attach(layer(), torch.optim.Adam),
            "optimizer must be an Optimizer, got the class Adam",
        ),
        (
            lambda: normscope.schedule(torch.optim.Adam(layer().parameters()), decay="cosin"),
            "did you mean 'cosine'",
        ),
    ],
)
def test_a_wrong_argument_is_told(called: Callable[[], object], said: str) -> None:
    with pytest.raises(ValueError, match=said) as refused:
        called()
    assert "\n" not in str(refused.value)


def test_an_argument_that_there_is_not_is_told_with_the_nearest() -> None:
    with pytest.raises(TypeError, match=r"'wanted_placment'.*did you mean 'wanted_placement'"):
        normscope.diagnose(layer(), wanted_placment="pre-ln")


@pytest.mark.parametrize("name", normscope.__all__)
def test_every_public_function_and_module_is_held_to_its_signature(name: str) -> None:
    found = getattr(normscope, name)
    made = found.__init__ if isinstance(found, type) and issubclass(found, nn.Module) else found
    if inspect.isfunction(made):
        assert hasattr(made, "__wrapped__"), f"{name} is not checked"


def test_what_fits_comes_through_as_it_was() -> None:
    found = normscope.predict(
        "pre-ln", blocks=np.int64(3), width=32, update="AdamW", rate=np.float32(1e-3)
    )
    assert found["pre-ln"].change.update == "adamw"
    model = layer()
    own = torch.optim.SGD(model.parameters(), lr=0.1)
    assert (
        normscope.diagnose(model, (torch.randn(2, 5, 16),), optimizer=own).advice.wanted_rate == 0.1
    )
    blocks = nn.ModuleList(
        nn.ModuleList([nn.MultiheadAttention(16, 2, batch_first=True), _mlp()]) for _ in range(2)
    )
    assert (
        len(
            list(
                normscope.place("pre_ln", [list(one) for one in blocks], width=16).stack.sublayers()
            )
        )
        == 4
    )


def _mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 16))


def test_one_name_of_a_rule_is_one_name() -> None:
    stack = nn.TransformerEncoder(layer(), 2, norm=nn.LayerNorm(16))
    loud, silent = (
        normscope.diagnose(stack, advise=False, silenced=ids) for ids in ((), "double-final-norm")
    )
    assert [one.id for one in loud.findings if one not in silent.findings] == ["double-final-norm"]
    assert silent.silenced == ("double-final-norm",)


@pytest.mark.sampled(one_in=3)
@pytest.mark.parametrize("written", ["AdamW", "adamW", "ADAM_W"])
def test_torchs_way_to_write_an_optimiser_is_that_optimiser(
    written: str, monkeypatch, capsys, tmp_path
) -> None:
    assert (
        normscope.diagnose(layer(), torch.randn(2, 5, 16), optimizer=written).advice.optimizer
        == "adamw"
    )
    assert normscope.choose(blocks=4, width=64, optimizer=written).found.case.optimizer == "adamw"
    from normscope.runs.config import load

    (tmp_path / "own.toml").write_text(f'[optimizer]\nname = "{written}"\n')
    assert load(tmp_path / "own.toml", []).optimizer.name == "adamw"
    assert load(None, [f"optimizer.name={written}"]).optimizer.name == "adamw"
    for arguments in (
        ["choose", "pre-ln", "--blocks", "4", "--width", "64", "--optimizer", written],
        ["predict", "pre-ln", "--update", written],
    ):
        monkeypatch.setattr("sys.argv", ["normscope", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        assert not ended.value.code
        assert "adamw" in capsys.readouterr().out


def test_a_name_that_a_configuration_does_not_know_comes_with_the_nearest(tmp_path) -> None:
    from normscope.runs.config import load

    for key, value, near in (
        ("optimizer.name", "adan", "adam"),
        ("schedule.decay", "cosin", "cosine"),
    ):
        with pytest.raises(
            normscope.UserError, match=f"{key} must be one of .*did you mean '{near}'"
        ):
            load(None, [f"{key}={value}"])
