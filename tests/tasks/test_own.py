"""A model of the user's own as a task: beside a loop in plain PyTorch, killed, and wrongly made."""

import math
import random
import re
import shutil
import signal
import time
from collections import Counter
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset, Sampler, TensorDataset

import forked
import in_process
import normscope
from normscope.api.comparison import _given
from normscope.compare import pool
from normscope.errors import UserError
from normscope.runs.config import load
from normscope.runs.run import train_run
from normscope.runs.trained import load_run
from normscope.settings.files import import_file
from normscope.tasks import own_batches
from normscope.tasks.own_batches import OwnBatch, source_of
from normscope.train.device import seed_data, seed_weights
from tiny import finish, result

MODEL = '''"""A model nobody ships."""

import torch
from torch import nn


class Reader(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(11, 16)
        options = {"dropout": DROPOUT, "batch_first": True, "norm_first": True}
        layer = nn.TransformerEncoderLayer(16, 2, 32, **options)
        self.encoder = nn.TransformerEncoder(layer, 2, nn.LayerNorm(16), enable_nested_tensor=False)
        self.head = nn.Linear(16, 11)

    def forward(self, x):
        return self.head(self.encoder(self.embed(x)))


def build():
    return Reader()


def batches(number):
    x = torch.randint(11, (4, 6))
    return x, (3 * x + 1) % 11


def validation():
    return [batches(number) for number in range(2)]
'''
RUN = (
    "train.duration=12",
    "train.validate_every=5",
    "train.checkpoint_every=3",
    "train.accumulation=2",
    "train.threads=1",
    'train.device="cpu"',
)
OPTIONS = [word for setting in RUN for word in ("--set", setting)]


def written(
    folder: Path, text: str = MODEL, *, dropout: float = 0.1, name: str = "my_model.py"
) -> str:
    """The factory of a file with this text."""
    (folder / name).write_text(text.replace("DROPOUT", str(dropout)))
    return f"{folder / name}:build"


def trained(factory: str, run: Path, *settings: str, say=lambda line: None) -> None:
    train_run(load(Path(factory), [*RUN, *settings]), run, say=say)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """A factory and a run of it that was left alone; not to be changed."""
    folder = tmp_path_factory.mktemp("own")
    factory = written(folder)
    trained(factory, folder / "run")
    return factory, folder / "run"


def test_a_run_computes_what_a_loop_in_plain_pytorch_does(tmp_path: Path) -> None:
    factory = written(
        tmp_path, MODEL.replace("return Reader()", "return Reader().double()"), dropout=0.0
    )
    trained(
        factory,
        tmp_path / "run",
        'optimizer.name="sgd"',
        "optimizer.peak_lr=0.3",
        "schedule.decay=constant",
    )

    import_file(Path(factory.rpartition(":")[0]))
    seed_weights(1)
    space: dict = {}
    exec((tmp_path / "my_model.py").read_text(), space)
    model = space["build"]()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.3)
    losses = []
    for update in range(12):
        optimizer.zero_grad()
        for number in (2 * update, 2 * update + 1):
            seed_data(1, number)
            x, y = space["batches"](number)
            loss = functional.cross_entropy(model(x).transpose(1, 2), y) / 2
            loss.backward()
            losses.append(float(loss.detach()))
        optimizer.step()
    events = normscope.open_run(tmp_path / "run").events
    ours = [event["loss_nats"] for event in events if event["event"] == "update"]
    # The products of single batches add up in float64, in another order.
    assert ours == pytest.approx(
        [a + b for a, b in zip(losses[::2], losses[1::2], strict=True)], rel=1e-12
    )
    for name, parameter in load_run(
        tmp_path / "run", which="last", device="cpu"
    ).model.named_parameters():
        torch.testing.assert_close(
            parameter, dict(model.named_parameters())[name], rtol=1e-11, atol=1e-13
        )


@pytest.mark.parametrize("placement", ["own", pytest.param("peri-ln", marks=pytest.mark.thorough)])
@pytest.mark.parametrize("kills", [3, pytest.param(25, marks=pytest.mark.thorough)])
def test_a_run_killed_at_random_updates_ends_in_the_undisturbed_bytes(
    whole: tuple[str, Path], tmp_path: Path, kills: int, placement: str
) -> None:
    factory, undisturbed = whole
    placed = f"model.placement={placement}"
    if placement != "own":
        undisturbed = tmp_path / "undisturbed"
        trained(factory, undisturbed, placed)
    run, drawn = tmp_path / "run", random.Random(5)
    for number in range(kills):
        if number % 3 == 2:
            shutil.rmtree(run, ignore_errors=True)  # begun again, so that kills come early too
        process = forked.start("train", factory, "--run", str(run), *OPTIONS, "--set", placed)
        lines = drawn.randrange(1, 14)
        while process.poll() is None and not _has(run / "metrics.jsonl", lines):
            time.sleep(0.002)
        if process.poll() is None:
            forked.os.kill(process.pid, signal.SIGKILL)
        process.wait(60)
    assert (
        finish(forked.start("train", factory, "--run", str(run), *OPTIONS, "--set", placed))[0] == 0
    )
    assert result(run, 12) == result(undisturbed, 12)


def _has(file: Path, lines: int) -> bool:
    return file.exists() and file.read_bytes().count(b"\n") >= lines


def test_a_file_that_the_models_file_imports_is_held_to_what_it_was(tmp_path: Path) -> None:
    (tmp_path / "beside_it.py").write_text("SCALE = 1.0\n")
    factory = written(tmp_path, "from beside_it import SCALE\n" + MODEL)
    trained(factory, tmp_path / "run", "train.duration=3")
    (tmp_path / "beside_it.py").write_text("SCALE = 2.0\n")
    with pytest.raises(UserError, match=r"my_model.py was edited, or a file that it imports,"):
        trained(factory, tmp_path / "run", "train.duration=6")
    code, _, said = finish(forked.start("evaluate", str(tmp_path / "run"), "--trust"))
    assert (code, "or what it imports (beside_it.py)" in said) == (2, True), said


def test_a_file_that_was_edited_is_told(tmp_path: Path) -> None:
    factory = written(tmp_path)
    trained(factory, tmp_path / "run", "train.duration=3")
    written(tmp_path, MODEL + "\n# another line\n")
    with pytest.raises(UserError, match=r"my_model.py was edited, or .* since the run .* began"):
        trained(factory, tmp_path / "run", "train.duration=6")
    code, _, said = finish(forked.start("evaluate", str(tmp_path / "run"), "--trust"))
    assert (code, "is not as it was when the run began" in said) == (2, True), said


def test_other_data_are_told(tmp_path: Path) -> None:
    (tmp_path / "numbers.txt").write_text("1 2 3 4")
    read = "torch.tensor([int(n) for n in (PATH / 'numbers.txt').read_text().split()])"
    text = MODEL.replace("torch.randint(11, (4, 6))", f"{read}.expand(4, 4)").replace(
        "import torch\n",
        "from pathlib import Path\n\nimport torch\n\nPATH = Path(__file__).parent\n",
        1,
    )
    factory = written(tmp_path, text)
    trained(factory, tmp_path / "run", "train.duration=3")
    (tmp_path / "numbers.txt").write_text("1 2 3 5")
    process = forked.start(
        "train", factory, "--run", str(tmp_path / "run"), *OPTIONS, "--set", "train.duration=6"
    )
    code, _, said = finish(process)
    assert (code, said.count("error: ")) == (2, 1), said
    assert "is not the one the run" in said


def test_a_report_runs_no_code_of_the_user_s(whole: tuple[str, Path], tmp_path: Path) -> None:
    _, run = whole
    file = Path(whole[0].rpartition(":")[0])
    before = file.read_text()
    file.write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    try:
        for words in (("report", run, "--out", tmp_path / "report"), ("doctor", run)):
            code, out, err = finish(forked.start(*map(str, words)))
            assert "Traceback" not in err + out
            assert code == (2 if words[0] == "doctor" else 0), err
        assert not (tmp_path / "ran").exists()
    finally:
        file.write_text(before)
    page = (tmp_path / "report" / "report.html").read_text()
    assert "as the model&#39;s own code has it" in page
    assert f"that of {file.name}:build" in page
    for one in ("report.html", "results.json"):
        assert str(file) not in (tmp_path / "report" / one).read_text()
    # Every target is drawn from eleven with the same share.
    assert normscope.compare_runs(run).page.unigram_loss_nats == pytest.approx(
        math.log(11), abs=0.3
    )


@pytest.mark.thorough
def test_a_comparison_trains_the_model_of_a_file_over_rates_and_warm_ups(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool, "run_cells", in_process.run_cells)
    done = normscope.compare(
        written(tmp_path),
        out=tmp_path / "out",
        placements=["own", "peri-ln"],
        peak_lr=[1e-3, 1e-2],
        warmup_updates=[0, 4],
        train__duration=6,
        train__validate_every=3,
    )
    assert not done.problems
    wanted = product(("Own", "Peri-LN"), (0, 4), (1e-3, 1e-2))
    assert {(row["placement"], row["warmup_updates"], row["peak_lr"]) for row in done.table} == set(
        wanted
    )
    assert {row["status"] for row in done.table} == {"finished"}
    # What the file builds is Pre-LN, which the paper speaks of; of Peri-LN it says nothing.
    assert " Own (Pre-LN)" in done.page.conclusion[1]
    assert "Pre-LN, which was not compared" not in done.page.conclusion[1]
    assert done.page.conclusion[1].endswith("; of Peri-LN it says nothing.")
    costs = {name: words for name, words in done.page.what if name.startswith("Cost of ")}
    # Gains and shifts of width 16 of a norm more on each of four sub-layers, and of one on the
    # embedding.
    own, more = sum(p.numel() for p in as_built().parameters()), 5 * 2 * 16
    assert costs["Cost of Own"].startswith(f"{own:,} parameters")
    assert costs["Cost of Peri-LN"].startswith(f"{own + more:,} parameters")
    assert float(re.search(r"([\d.]+) times the memory", costs["Cost of Peri-LN"])[1]) > 1


def test_a_configuration_in_python_leaves_its_defaults_to_the_comparison(tmp_path: Path) -> None:
    given = _given(load(Path(written(tmp_path)), ["optimizer.peak_lr=0.5"]))
    assert "optimizer.peak_lr" in given.places
    assert not given.places.keys() & {
        "model.placement",
        "optimizer.name",
        "schedule.warmup_updates",
    }


def as_built() -> nn.Module:
    space: dict = {}
    exec(MODEL.replace("DROPOUT", "0.1"), space)
    return space["build"]()


def test_a_transplanted_model_trains_on_exactly_and_is_what_the_doctor_says(tmp_path: Path) -> None:
    factory, placed = written(tmp_path), "model.placement=peri-ln"
    trained(factory, tmp_path / "whole", placed)
    trained(factory, tmp_path / "stopped", placed, "train.duration=10")
    trained(factory, tmp_path / "stopped", placed)
    assert result(tmp_path / "stopped", 12) == result(tmp_path / "whole", 12)
    model = load_run(tmp_path / "whole", device="cpu").model
    found = normscope.diagnose(model, torch.arange(8).view(2, 4), advise=False).stacks[0]
    assert {sublayer.placement for sublayer in found.sublayers} == {"peri-ln"}


def test_a_model_that_cannot_be_transplanted_is_told(tmp_path: Path) -> None:
    text = MODEL.replace("self.encoder(self.embed(x))", "self.embed(x)")
    with pytest.raises(
        UserError, match=r"my_model.py: its model cannot be given the placement peri-ln: "
    ):
        trained(written(tmp_path, text), tmp_path / "run", "model.placement=peri-ln")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("export", "RUN", "OUT"), "a run of task own has no tokens of ours to export"),
        (("generate", "RUN"), "is a run of task own; this needs one of task language-model"),
    ],
)
def test_what_needs_a_model_of_ours_says_so(
    whole: tuple[str, Path], tmp_path: Path, words: tuple[str, ...], message: str
) -> None:
    names = {"RUN": str(whole[1]), "OUT": str(tmp_path / "out")}
    code, _, said = finish(forked.start(*(names.get(word, word) for word in words), "--trust"))
    assert (code, said.count("error: "), message in said) == (2, 1, True), said


WRONG = {
    "nothing": ("x = 1", "there is no function batches()"),
    "no build": (MODEL.replace("def build", "def make"), "there is no function build()"),
    "no module": (
        MODEL.replace("return Reader()", "return 3"),
        "build() returned an object of class int",
    ),
    "both": (
        MODEL.replace("return Reader()", "return Reader(), batches"),
        "build() returned an object of class tuple, and must return a torch.nn.Module alone; the "
        "batches are for",
    ),
    "raises": (
        MODEL.replace("return Reader()", "return Missing()"),
        "build() raised NameError: name 'Missing'",
    ),
    "in a batch": (MODEL.replace("randint(11,", "randint(0,"), "validation() raised RuntimeError"),
    "floats": (
        MODEL.replace("(3 * x + 1) % 11", "x.double()"),
        "must give logits, with a last dimension more than",
    ),
    "a triple": (
        MODEL.replace("return x, (3", "return x, x, (3"),
        "a batch is an object of class tuple; without loss",
    ),
    "a mapping": (
        MODEL.replace("return x, (3 * x + 1) % 11", "return {'x': x}"),
        "the model gave an object of class Tensor without a loss for a batch of x",
    ),
    "keywords": (
        MODEL.replace("return x, (3 * x + 1) % 11", "return {'ids': x}"),
        "the model raised TypeError",
    ),
    "a vector": (
        MODEL + "def loss(model, batch): return model(batch[0])[0, 0]",
        "loss() returned a tensor of shape (11,), and must be one number",
    ),
    "no number": (
        MODEL + "def loss(model, batch): return 0.5",
        "loss() returned an object of class float",
    ),
    "no function": (MODEL + "loss = 3", "loss is an object of class int, and must be a function"),
    "endless": (MODEL + "def validation(): return batches", "validation() must have an end"),
    "empty": (MODEL + "def validation(): return []", "validation() returned a list of 0"),
    "a generator": (MODEL + "def batches():\n    yield 1", "can be gone through once alone"),
    "a class": (
        MODEL + "def batches(): return object()",
        "it must return a DataLoader, a list of batches",
    ),
    "a group": (
        MODEL + "def groups(model): return [{'params': [], 'lr': 1}]",
        "a group is a dict of params",
    ),
    "no groups": (MODEL + "def groups(model): return None", "groups() returned None"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_file_is_told_in_one_line(tmp_path: Path, name: str) -> None:
    text, message = WRONG[name]
    with pytest.raises(UserError) as error:
        trained(written(tmp_path, text), tmp_path / "run")
    assert message in str(error.value)
    assert str(tmp_path / "my_model.py") in str(error.value)


def test_what_is_not_written_as_a_factory_is_refused() -> None:
    with pytest.raises(UserError, match=r"factory is written FILE\.py:FUNCTION, got 'mine:build'"):
        load(None, ["task=own", "model.factory=mine:build"])


def test_a_placement_of_a_model_of_ones_own_is_none_of_ours(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="placement 'own' is that of a model of your own"):
        train_run(load(None, ["task=language-model", "model.placement=own"]), tmp_path / "run")


class Letters(Dataset):
    def __len__(self) -> int:
        return 10

    def __getitem__(self, place: int) -> Tensor:
        return torch.tensor([place, int(torch.randint(1000, ()))])


def rows(source: own_batches._Loaded, numbers: range, seed: int) -> list[list[list[int]]]:
    return [source.batch(number, seed).tolist() for number in numbers]


@pytest.mark.parametrize("shuffled", [True, False])
def test_a_data_loader_gives_every_item_once_an_epoch_whatever_is_asked_for_first(
    shuffled: bool,
) -> None:
    loader = DataLoader(Letters(), batch_size=4, shuffle=shuffled, generator=torch.Generator())
    source = source_of(loader, "batches")
    assert isinstance(source, own_batches._Loaded)
    assert (source.count, source.exact) == (3, True)
    batches = rows(source, range(9), 1)
    for epoch in range(3):
        places = [place for batch in batches[3 * epoch : 3 * epoch + 3] for place, _ in batch]
        assert Counter(places) == Counter(range(10))
        assert (places == list(range(10))) is not shuffled
    assert (batches[:3] == batches[3:6]) is False
    assert rows(own_batches._Loaded(loader), range(8, -1, -1), 1) == batches[::-1]
    assert (rows(source, range(9), 2) == batches) is False


class Turning(Sampler):
    """An order that nobody can ask for twice."""

    def __init__(self) -> None:
        self.asked = 0

    def __iter__(self) -> Iterator[int]:
        self.asked += 1
        return iter([(place + self.asked) % 10 for place in range(10)])

    def __len__(self) -> int:
        return 10


def test_an_order_that_cannot_be_drawn_again_is_told() -> None:
    assert not own_batches._Loaded(DataLoader(Letters(), batch_size=5, sampler=Turning())).exact
    assert own_batches._Loaded(DataLoader(Letters(), batch_size=None)).batch(12, 1)[0] == 2


def test_what_can_only_be_gone_through_is_gone_through_again() -> None:
    class Stream:
        def __iter__(self) -> Iterator[int]:
            return iter("abc")

    source = source_of(Stream(), "batches")
    assert isinstance(source, own_batches._Passed)
    assert not source.exact
    assert "".join(source.batch(number, 1) for number in (0, 1, 2, 3, 7, 2, 4)) == "abcabcb"


def test_a_stream_without_order_is_told_at_the_start(tmp_path: Path) -> None:
    text = MODEL.replace("def batches(number):", "def one():").replace(
        "batches(number)", "one()"
    ) + (
        "\nclass Stream:\n    def __iter__(self):\n        while True:\n            yield one()\n"
        "\ndef batches():\n    return Stream()\n"
    )
    said: list[str] = []
    trained(written(tmp_path, text), tmp_path / "run", "train.duration=3", say=said.append)
    assert any("have no order that is known" in line for line in said)
    assert not any("nothing is held out" in line for line in said)


def test_a_function_that_nothing_calls_is_told(tmp_path: Path) -> None:
    said: list[str] = []
    factory = written(tmp_path, f"{MODEL}\n\ndef metrics(found):\n    raise RuntimeError\n")
    trained(factory, tmp_path / "run", "train.duration=1", say=said.append)
    assert any("has a metrics() that is not called" in line for line in said)


def test_without_a_validation_the_first_batches_stand_in_and_it_is_told(tmp_path: Path) -> None:
    said: list[str] = []
    factory = written(tmp_path, MODEL[: MODEL.index("def validation")])
    trained(factory, tmp_path / "run", "train.duration=3", say=said.append)
    assert any(
        "the first 8 batches of the training, and nothing is held out" in line for line in said
    )


def test_groups_of_the_file_have_rates_and_decays_of_their_own(tmp_path: Path) -> None:
    text = MODEL + (
        "\n"
        "def groups(model):\n"
        "    return [{'params': model.head.parameters(), 'lr_factor': 0.0}, {'params': "
        "[model.embed.weight], 'weight_decay': 0.5}]\n"
    )
    trained(written(tmp_path, text), tmp_path / "run", "train.duration=3", "optimizer.peak_lr=0.01")
    seed_weights(1)
    space: dict = {}
    exec((tmp_path / "my_model.py").read_text(), space)
    before = space["build"]()
    after: nn.Module = load_run(tmp_path / "run", which="last", device="cpu").model
    moved = {
        name: not torch.equal(p, dict(before.named_parameters())[name])
        for name, p in after.named_parameters()
    }
    assert not moved["head.weight"]
    assert not moved["head.bias"]
    assert moved["embed.weight"]
    assert moved["encoder.layers.0.linear1.weight"]


def test_a_parameter_in_two_groups_is_refused(tmp_path: Path) -> None:
    text = (
        MODEL + "\n"
        "def groups(model):\n"
        "    return [{'params': model.parameters()}, {'params': [model.head.bias]}]\n"
    )
    with pytest.raises(UserError, match=r"head\.bias is in two groups"):
        trained(written(tmp_path, text), tmp_path / "run")


def test_targets_are_labels_that_count() -> None:
    labels = torch.tensor([[1, -100, 2], [0, 3, -100]])
    assert OwnBatch.of({"input_ids": labels, "labels": labels}).targets == 4
    assert OwnBatch.of((torch.zeros(5, 2), torch.zeros(5, 3))).targets == 15
    assert OwnBatch.of({"pixels": torch.zeros(7, 2)}).targets == 7
    assert own_batches._Listed([3]).batch(5, 1) == 3


def test_a_model_of_transformers_trains_on_a_data_loader_of_mappings(tmp_path: Path) -> None:
    pytest.importorskip(
        "transformers", reason="needs Hugging Face transformers (the `bench` extra)"
    )
    text = """
import torch
from torch.utils.data import DataLoader
from transformers import LlamaConfig, LlamaForCausalLM

ROWS = [{"input_ids": row, "labels": row} for row in torch.arange(240).view(40, 6) % 17]


def build():
    sizes = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 2}
    config = LlamaConfig(vocab_size=17, max_position_embeddings=16, **sizes, **heads)
    return LlamaForCausalLM(config)


def batches():
    return DataLoader(ROWS[:32], batch_size=8, shuffle=True)


def validation():
    return DataLoader(ROWS[32:], batch_size=8)
"""
    trained(
        written(tmp_path, text),
        tmp_path / "run",
        "train.duration=4 epochs",
        "optimizer.peak_lr=0.02",
    )
    events = normscope.open_run(tmp_path / "run").events
    assert [event["epoch"] for event in events if event["event"] == "update"][-1] == 4
    losses = [event["nll_nats"] for event in events if event["event"] == "validation"]
    # A row's next number is the last one's plus one: soon learned.
    assert losses[-1] < 0.9 * math.log(17)


def test_a_loss_of_ones_own_has_the_untrained_model_as_its_baseline(tmp_path: Path) -> None:
    text = MODEL + "\ndef loss(model, batch):\n    return (model(batch[0]) ** 2).mean() + 3\n"
    trained(written(tmp_path, text), tmp_path / "run", "train.duration=3")
    assert 3 < normscope.compare_runs(tmp_path / "run").page.unigram_loss_nats < 4


def test_a_tensor_data_set_of_pairs_is_a_pair() -> None:
    source = source_of(
        DataLoader(TensorDataset(torch.arange(6), torch.arange(6)), batch_size=3), "batches"
    )
    assert OwnBatch.of(source.batch(1, 1)).targets == 3


def test_of_several_rates_a_run_that_cannot_learn_is_stopped(tmp_path: Path) -> None:
    """That at a rate of next to nothing ends before its time, and the other one learns."""
    grid = ("--placements", "own", "--warmup-updates", "0", "--peak-lr", "1e-9,3e-2")
    rates = (*grid, "--stop-when", "decided", "--processes", "1")
    words = (
        "compare",
        written(tmp_path, dropout=0.0),
        *rates,
        "--out",
        str(tmp_path / "out"),
        *OPTIONS,
    )
    code, out, err = finish(
        forked.start(*words, "--set", "train.validate_every=2", "--set", "train.duration=24")
    )
    assert code == 0, err
    runs = [normscope.open_run(run) for run in sorted((tmp_path / "out" / "runs").iterdir())]
    ends = {run.config.optimizer.peak_lr: run.events[-1] for run in runs}
    assert len(ends) == 2
    assert ends[1e-9]["event"] == "decided"
    assert ends[1e-9]["update"] < 24
    assert ends[3e-2]["event"] == "finished"
    assert "best" in " ".join(out.split())
