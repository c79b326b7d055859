"""Every example of the README and of docs/ is executed, in the order in which a reader meets them.

Commands run as they are printed but for the sizes below, which make them short.
"""

import gzip
import io
import json
import math
import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

import in_process
from normscope.cli.main import main
from normscope.compare import pool
from normscope.data.toy import toy_pairs
from normscope.placement import registry

ROOT = Path(__file__).parents[1]
PAGES = [
    "README.md",
    *(
        f"docs/{page}.md"
        for page in (
            "data",
            "training",
            "models",
            "run-folders",
            "gpu",
            "comparing",
            "own-placements",
            "own-models",
            "placements",
            "choosing",
            "predicting",
            "studies",
            "doctor",
            "pretraining",
            "finetuning",
            "exchange",
            "python",
            "transplant",
            "clusters",
            "agents",
        )
    ),
]
GOES_ON_FROM = {
    "docs/training.md": "docs/data.md",
    "docs/run-folders.md": "docs/training.md",
    "docs/gpu.md": "docs/training.md",
    "docs/comparing.md": "README.md",
    "docs/clusters.md": "README.md",
}
"""Whose corpus, configuration or run a page's examples use."""
LONG = ("comparing", "own-models", "own-placements", "predicting", "studies", "python")
"""Pages that take as long as all others together, and tell of what has tests of its own."""
NEEDS = {
    "docs/exchange.md": ("transformers", "ctranslate2"),
    "docs/finetuning.md": ("transformers", "accelerate"),
    "docs/python.md": ("transformers", "accelerate"),
    "docs/own-models.md": ("sklearn",),
    "docs/clusters.md": ("optuna",),
    "docs/transplant.md": ("transformers",),
}
"""Optional libraries that a page's examples are about."""
ONE_THREAD = ["--set", "train.threads=1"]
SHORT = [
    *ONE_THREAD,
    *("--set", "train.duration=4", "--set", "train.validate_every=2"),
    *("--set", "model.width=16", "--set", "model.ffn_width=16", "--set", "model.encoder_blocks=1"),
    *("--set", "model.decoder_blocks=1"),
]
SHORT_ALREADY = (
    "llama.toml",
    "masked.toml",
    "language.toml",
    "encoder.toml",
    "my_vit.py:build",
)
"""Configurations of other tasks, whose models have other sizes; as printed they take seconds."""
SMALLER = {
    "--vocabulary-size 8000": "--vocabulary-size 300",
    "--seeds 3": "--seeds 1",
    "--warmup-updates 0,200 --peak-lr 3e-4:3e-1:7": "--warmup-updates 0 --peak-lr 3e-4:3e-1:2",
}
FAILS = (
    "normscope doctor my_post_ln.py:build --rate 1e-3 --log trainer_state.json",
    "normscope doctor my_model.py:build --rate 5e-4 --html report.html",
    "normscope doctor letters.py:build --log log.jsonl",
    "normscope doctor --log bad.csv --baseline good.csv",
)
"""Commands whose exit code is 1: a finding is what they show."""
_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def read() -> set[str]:
    """The pages whose examples have run, whichever of them this process was given."""
    return set()


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A reader's working folder with parallel text in it, and the registry as it was afterwards."""
    folder = tmp_path_factory.mktemp("desk")
    for split, count in (("train", 400), ("valid", 20), ("test", 20)):
        pairs = toy_pairs(count, seed=5, split=split)
        for language, lines in (("de", [p[0] for p in pairs]), ("en", [p[1] for p in pairs])):
            text = "".join(line + "\n" for line in lines).encode()
            if split == "train":
                (folder / f"{split}.{language}.gz").write_bytes(gzip.compress(text))
            else:
                (folder / f"{split}.{language}").write_bytes(text)
    (folder / "trainer_state.json").write_text(json.dumps(_stuck_training()), encoding="utf-8")
    known = dict(registry._REGISTRY)
    yield folder
    registry._REGISTRY.clear()
    registry._REGISTRY.update(known)


def _stuck_training() -> dict[str, Any]:
    """Returns what transformers' Trainer keeps of a training whose loss falls over its first
    updates alone.
    """
    noise = Random(1)
    logged = []
    for step in range(10, 3010, 10):
        loss = 6.1 + 1.5 * math.exp(-step / 15) + noise.gauss(0, 0.03)
        gradient = abs(noise.gauss(0.4, 0.05))
        logged.append({"step": step, "loss": loss, "learning_rate": 1e-3, "grad_norm": gradient})
    return {"log_history": logged, "global_step": 3000, "max_steps": 3000}


def _blocks(page: str) -> list[tuple[str, str]]:
    return _BLOCK.findall((ROOT / page).read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, marks=[pytest.mark.thorough] if Path(page).stem in LONG else [])
        for page in PAGES
    ],
)
def test_examples_run(
    page: str,
    desk: Path,
    read: set[str],
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    for library in NEEDS.get(page, ()):
        pytest.importorskip(library)
    monkeypatch.chdir(desk)
    monkeypatch.syspath_prepend(desk)
    # The pool's processes have tests of their own.
    monkeypatch.setattr(pool, "run_cells", in_process.run_cells)
    monkeypatch.setenv("COLUMNS", "80")
    _read(page, desk, read, monkeypatch)
    # Where a line is broken, the terminal's library leaves the space before it.
    said = re.sub(" +$", "", capfd.readouterr().out, flags=re.MULTILINE)
    for language, text in _blocks(page) if page == "README.md" else ():
        assert language != "text" or text in said, text


def _read(page: str, desk: Path, read: set[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Run the examples of a page, unless they have run, after those of the page that it goes on
    from.
    """
    if page in read:
        return
    if page in GOES_ON_FROM:
        _read(GOES_ON_FROM[page], desk, read, monkeypatch)
    ran = 0
    names: dict[str, object] = {"__name__": "example"}  # a reader goes on in the same session
    for language, text in _blocks(page):
        named = re.match(r"# (\w+\.(?:toml|py))(, continued)?\n", text)
        if named:
            file = desk / named[1]
            before = file.read_text(encoding="utf-8") + "\n\n" if named[2] else ""
            file.write_text(before + text, encoding="utf-8")
        if language == "python" and not named:
            exec(compile(text, page, "exec"), names)
        elif language == "console":
            for command in re.sub(r"\\\n\s*", "", text).splitlines():
                _run(command.removeprefix("$ "), monkeypatch)
        else:
            continue
        ran += 1
    assert ran, f"{page} has no example that runs"
    read.add(page)


def _run(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run one `normscope …` or `echo … | normscope …` in this process and expect success."""
    typed, pipe, verb = command.rpartition(" | ")
    for printed, smaller in SMALLER.items():
        verb = verb.replace(printed, smaller)
    words = shlex.split(verb)
    assert words[0] == "normscope", command
    if words[1] in ("train", "compare"):
        words += ONE_THREAD if words[2] in SHORT_ALREADY else SHORT
    if pipe:
        text = " ".join(shlex.split(typed)[1:]) + "\n"
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
    monkeypatch.setattr(sys, "argv", words)
    with pytest.raises(SystemExit) as stopped:
        main()
    assert stopped.value.code in ((1,) if command in FAILS else (0, None)), command


def merged(table: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    """Sections that both have hold the keys of both."""
    both = {key: merged(table[key], other[key]) for key in table.keys() & other.keys()}
    return table | other | both


def test_the_configuration_of_the_training_page_is_every_default() -> None:
    """The tables of docs/training.md name every key with its default."""
    import tomllib

    from normscope.settings.tables import to_toml
    from normscope.tasks.translation import TranslationRunConfig

    page = (ROOT / "docs/training.md").read_text(encoding="utf-8")
    printed: dict[str, object] = {}
    for section, cells in re.findall(r"^\| (`[\w.]+`|\(top\)) \| (.*) \|$", page, re.MULTILINE):
        table = tomllib.loads("\n".join(re.findall(r"`([^`]+)`", cells)))
        for name in reversed(section.strip("`").split(".") if section != "(top)" else []):
            table = {name: table}
        printed = merged(printed, table)
    assert printed == tomllib.loads(to_toml(TranslationRunConfig()))
