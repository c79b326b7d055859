"""Whatever a transplant is refused for, the model is afterwards as it was: names, classes, values,
hooks, what is trained, modes, and its configuration.
"""

import copy
import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hypothesis
import pytest
import torch
from hypothesis import strategies
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

import normscope
from normscope.cli.main import main
from normscope.transplant import surgery, weights
from normscope.transplant.recipe import GUARD, RECIPE
from normscope.transplant.saved import RECIPE_FILE, WEIGHTS, save
from transplant.hand_written import GPT, WIDTH, Block, PostBlock, ids, perturb
from transplant.test_transformers import opened


def described(model: nn.Module) -> dict[str, Any]:
    """All of a model that a transplant may touch; tensors by their bits."""
    found: dict[str, Any] = {
        "weights": {name: one.clone() for name, one in model.state_dict().items()},
        "trained": {name: one.requires_grad for name, one in model.named_parameters()},
        "gradients": {name: one.grad for name, one in model.named_parameters()},
        "config": getattr(model, "config", None),
        "told": copy.deepcopy(vars(getattr(model, "config", nn.Module()))),
    }
    for name, module in model.named_modules():
        held = vars(module).keys() - {"_compiled_call_impl"}
        hooks = {key: list(value) for key, value in vars(module).items() if key.endswith("_hooks")}
        tables = {key: list(vars(module)[key]) for key in ("_parameters", "_buffers", "_modules")}
        found[f"module {name}"] = (type(module), sorted(held), module.training, hooks, tables)
    return found


def assert_same(before: dict[str, Any], after: dict[str, Any]) -> None:
    assert before.keys() == after.keys()
    for key, value in before.items():
        if key in ("weights", "gradients"):
            assert value.keys() == after[key].keys()
            assert [n for n in value if not _equal(value[n], after[key][n])] == []
        elif key == "config":
            assert after[key] is value
        elif key != "told":
            assert after[key] == value, key
    assert before["told"].keys() == after["told"].keys()


def _equal(one: Tensor | None, other: Tensor | None) -> bool:
    return one is other or (one is not None and other is not None and torch.equal(one, other))


def outcome(model: nn.Module, to: str, inputs: Any, **asked: Any) -> str | None:
    """Why it was refused, after it has been seen that the model is as it was; None where it was
    not.
    """
    before, state = described(model), torch.get_rng_state()
    try:
        normscope.transplant(model, to, inputs=inputs, **asked)
    except normscope.UserError as refusal:
        said = str(refusal)
    else:
        return None
    assert_same(before, described(model))
    assert torch.equal(torch.get_rng_state(), state)
    assert "\n" not in said
    return said


def refused(model: nn.Module, to: str, inputs: Any, **asked: Any) -> str:
    said = outcome(model, to, inputs, **asked)
    assert said is not None
    return said


def hooked(model: nn.Module) -> nn.Module:
    """With all that a model of somebody's may have."""
    model.train()
    model.blocks[1].eval()
    model.blocks[0].ln_1.weight.requires_grad_(False)
    model.blocks[0].register_forward_hook(lambda module, args, output: None)
    model.head.register_full_backward_hook(lambda module, into, out: None)
    model.table.weight.grad = torch.ones_like(model.table.weight)
    model.register_buffer("passes", torch.zeros(()))
    return model


class Failing(GPT):
    """Counts its passes in a buffer, and raises in one of them."""

    at = 10**9
    error: type[BaseException] = RuntimeError

    def __init__(self, style: type[nn.Module] = Block) -> None:
        super().__init__(style, final=style is Block, blocks=2)
        self.seen: list[int] = []

    def forward(self, tokens: Tensor) -> Tensor:
        if "passes" in dict(self.named_buffers()):
            self.passes += 1
        # A list of the class is nothing that a pass of ours puts back.
        COUNTED.append(1)
        if len(COUNTED) == self.at:
            raise self.error("no more memory\nin this pass")
        return super().forward(tokens)


COUNTED: list[int] = []


@pytest.mark.parametrize("error", [RuntimeError, KeyError, SystemExit])
@pytest.mark.parametrize("initialise", ["draw", "keep"])
def test_a_model_that_raises_in_any_of_its_passes_is_as_it_was(
    error: type[BaseException], initialise: str
) -> None:
    def tried(at: int) -> str | None:
        COUNTED.clear()
        model = hooked(Failing(PostBlock))
        model.at, model.error = at, error
        return outcome(model, "peri-ln", ids(), initialise=initialise)

    assert tried(10**9) is None
    passes = len(COUNTED)
    told = [tried(at) for at in range(1, passes + 1)]
    assert passes >= 8
    # Of a training a model may ask for more than the batch, and is let through.
    assert sum(said is None for said in told) <= 1 + (error is not SystemExit)
    assert all(error.__name__ in said for said in told if said is not None)


@hypothesis.given(
    at=strategies.integers(1, 12),
    placement=strategies.sampled_from(["pre-ln", "deepnorm", "rezero", "mhc", "attn-res"]),
    initialise=strategies.sampled_from(["draw", "keep", None]),
    style=strategies.sampled_from([Block, PostBlock]),
)
def test_so_it_is_whatever_was_to_become_of_it(
    at: int, placement: str, initialise: str | None, style: type[nn.Module]
) -> None:
    COUNTED.clear()
    model = hooked(Failing(style))
    model.at = at
    before = described(model)
    if outcome(model, placement, ids(), initialise=initialise) is None:
        normscope.untransplant(model)
        after = described(model)
        # Drawn weights stay; all else is taken back.
        before["weights"] = after["weights"] = {}
        assert_same(before, after)


def test_a_pass_that_writes_into_its_weights_is_undone() -> None:
    """As RWKV rescales them in evaluation."""

    class Rescaled(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            with torch.no_grad():
                self.weight.mul_(0.5)
            return super().forward(x)

    model = GPT(blocks=2)
    model.head = Rescaled(WIDTH, 17)
    before = described(model)
    normscope.transplant(model, "post-ln", inputs=ids())
    assert torch.equal(model.head.weight, before["weights"]["head.weight"])
    refused(normscope.untransplant(model), "sub-ln", ids())


@pytest.mark.parametrize("placement", ["post-ln", "peri-ln", "deepnorm"])
def test_a_batch_that_gives_nan_proves_nothing(placement: str) -> None:
    model = nn.Sequential(*[Block() for _ in range(2)], nn.LayerNorm(WIDTH))
    x = torch.randn(2, 7, WIDTH)
    x[0, 3] = torch.nan
    # NaN times a weight of 0 is NaN: the whole sequence is lost.
    assert "Sequential gives NaN on this batch, in 224 of 448 entries" in refused(
        model, placement, x
    )


def test_weights_that_are_drawn_to_nan_are_taken_back(monkeypatch: pytest.MonkeyPatch) -> None:
    fill = weights.fill

    def filled(weight: Tensor, *given: Any) -> None:
        fill(weight, *given)
        weight[0, 0] = torch.nan

    monkeypatch.setattr(weights, "fill", filled)
    said = refused(hooked(GPT(blocks=2)), "post-ln", ids(), initialise="draw")
    assert "gives NaN on this batch" in said


def test_weights_that_cannot_be_drawn_are_taken_back(monkeypatch: pytest.MonkeyPatch) -> None:
    fill, drawn = weights.fill, []

    def filled(weight: Tensor, *given: Any) -> None:
        drawn.append(weight)
        if len(drawn) == 7:
            raise NotImplementedError("normal_ of this dtype")
        fill(weight, *given)

    monkeypatch.setattr(weights, "fill", filled)
    said = refused(hooked(GPT(blocks=2)), "post-ln", ids(), initialise="draw")
    assert "its weights cannot be drawn (NotImplementedError: normal_ of this dtype)" in said


@pytest.mark.parametrize("failing", ["prove", "draw", "note", "readers", "seats"])
def test_every_stage_is_taken_back(failing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    stage = getattr(surgery, failing)

    def broken(*given: Any, **named_ones: Any) -> Any:
        stage(*given, **named_ones)
        raise normscope.UserError("too late")

    model = hooked(GPT(PostBlock, final=False, blocks=2))
    normscope.untransplant(normscope.transplant(copy.deepcopy(model), "peri-ln", inputs=ids()))
    monkeypatch.setattr(surgery, failing, broken)
    assert refused(model, "peri-ln", ids(), initialise="draw") == "too late"


def damaged(folder: Path, change: Callable[[dict[str, Tensor]], Any]) -> None:
    found = load_file(folder / WEIGHTS)
    save_file(change(found) or found, folder / WEIGHTS)


def without(name: str) -> Callable[[dict[str, Tensor]], Any]:
    return lambda found: {key: value for key, value in found.items() if key != name}


def with_recipe(**changes: Any) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        file = folder / RECIPE_FILE
        table = {**json.loads(file.read_text()), **changes}
        file.write_text(json.dumps({k: v for k, v in table.items() if v != "gone"}))

    return change


GAIN = "blocks.0.placed.attention.norms.after.weight"
FOLDERS: dict[str, tuple[Callable[[Path], Any], str]] = {
    "no weights": (
        lambda folder: (folder / WEIGHTS).unlink(),
        "model.safetensors cannot be loaded",
    ),
    "cut": (
        lambda folder: (folder / WEIGHTS).write_bytes((folder / WEIGHTS).read_bytes()[:-100]),
        "model.safetensors cannot be loaded",
    ),
    "empty": (lambda folder: (folder / WEIGHTS).write_bytes(b""), "cannot be loaded"),
    "one is missing": (lambda folder: damaged(folder, without(GAIN)), f"the file lacks {GAIN}"),
    "one is more": (
        lambda folder: damaged(folder, lambda found: found.update(strange=torch.ones(3))),
        "the file holds strange, which the model does not have",
    ),
    "another shape": (
        lambda folder: damaged(folder, lambda found: found.update({GAIN: torch.ones(8)})),
        f"has another {GAIN}, which is (8,) there and (32,) in the model",
    ),
    "whole numbers": (
        lambda folder: damaged(
            folder, lambda found: found.update({GAIN: torch.ones(32, dtype=torch.int64)})
        ),
        f"has another {GAIN}, which is (32,) of int64 there",
    ),
    "a number for a placement": (with_recipe(placement=5), "placement must be a name, got 5"),
    "no such placement": (with_recipe(placement="pre-lm"), "did you mean 'pre-ln'"),
    "a word for initialise": (with_recipe(initialise="x"), "initialise must be draw or keep"),
    "numbers for stacks": (with_recipe(stack=[1]), "stack must be a name, a list of names or null"),
    "no name for stacks": (with_recipe(stack=[]), "stack must be a name, a list of names or null"),
    "a list of other stacks": (with_recipe(stack=["one"]), "there is no stack 'one'"),
    "no initialise": (with_recipe(initialise="gone"), "it lacks initialise"),
    "another stack": (with_recipe(stack="one"), "there is no stack 'one'"),
    "no table": (lambda folder: (folder / RECIPE_FILE).write_text("[]"), "it lacks placement"),
    "no JSON": (lambda folder: (folder / RECIPE_FILE).write_text("{"), "cannot read"),
}


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("saved") / "peri"
    save(perturb(normscope.transplant(GPT(blocks=2), "peri-ln", inputs=ids())), folder)
    return folder


@pytest.mark.parametrize("kind", FOLDERS)
def test_a_folder_that_is_refused_leaves_the_model_alone(
    kind: str, written: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "given"
    shutil.copytree(written, folder)
    change, said = FOLDERS[kind]
    change(folder)
    model = hooked(GPT(blocks=2))
    del model._buffers["passes"]
    assert said in refused(model, str(folder), ids())


def test_a_folder_of_another_model_leaves_it_alone(written: Path) -> None:
    assert "which the model does not have and " in refused(GPT(blocks=1), str(written), ids())
    model, batch = opened("llama")
    assert "its weights cannot be loaded" in refused(model, str(written), batch)


def test_the_whole_folder_is_put_in(written: Path) -> None:
    """What the others are compared with."""
    model = hooked(GPT(blocks=2))
    del model._buffers["passes"]
    normscope.transplant(model, str(written), inputs=ids())
    found = load_file(written / WEIGHTS)
    assert all(torch.equal(model.state_dict()[name], one) for name, one in found.items())
    assert model.transplanted.lines()[-1] == f"weights are those of {written}"


@pytest.mark.parametrize("name", ["llama", "t5"])
def test_a_configuration_is_left_alone_too(name: str) -> None:
    model, batch = opened(name)
    refused(model, "sub-ln", batch)
    refused(model, "post-ln", {key: value * 0 + 10**6 for key, value in batch.items()})
    other = copy.deepcopy(model)
    shared = model.config
    other.config = shared
    normscope.transplant(model, "post-ln", inputs=batch)
    assert {RECIPE, GUARD} <= vars(model.config).keys()
    assert not {RECIPE, GUARD} & vars(shared).keys()
    normscope.untransplant(model)
    assert vars(model.config).keys() == vars(shared).keys()


FACTORY = """
import sys
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self, how):
        super().__init__()
        layer = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True)
        self.body = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.how, self.count = how, [0]

    def forward(self, x):
        COUNT.append(1)
        if self.how == "later" and len(COUNT) == 3:
            raise IndexError("out of\\nrange")
        if self.how == "exit":
            sys.exit(0)
        return self.body(x)

COUNT = []

def build(how=""):
    x = torch.randn(2, 7, 32)
    return Model(how), x * float("nan") if how == "bad" else x
"""


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("later", "Model cannot be looked at: the forward pass raised IndexError: out of range"),
        (
            "bad",
            "Model gives NaN on this batch, in 448 of 448 entries: nothing can be proven on it",
        ),
        ("exit", "code that NormScope ran ended the program: SystemExit: 0"),
    ],
)
def test_the_verb_ends_with_2_one_line_and_no_folder(
    how: str,
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own_model.py").write_text(FACTORY)
    words = ["transplant", "own_model.py:build", "--to", "pre-ln", "--out", "o"]
    monkeypatch.setattr(sys, "argv", ["normscope", *words, "--set", f"how={how}"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    printed = capsys.readouterr().err
    assert said in " ".join(printed.split())
    assert "Traceback" not in printed
    assert not (tmp_path / "o").exists()
