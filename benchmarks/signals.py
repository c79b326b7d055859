"""How soon each command ends by a signal, wherever its work stands.

`python benchmarks/signals.py [--only WORDS] [--signals TERM INT] [--most 5]` starts each command on
small data, waits until its work is where the row says, sends the signal to it alone, and prints the
seconds until it and every process that it has started were gone, its exit code, and its last line.
Exits with 1 where one took longer than --most. Needs Linux, whose /proc tells who has started whom.
"""

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

_LOOK_SECONDS = 0.02
_PATIENCE_SECONDS = 300.0
_TINY = {
    "model.width": "16",
    "model.ffn_width": "16",
    "model.heads": "2",
    "model.encoder_blocks": "1",
    "model.decoder_blocks": "1",
    "data.toy_pairs": "300",
    "data.max_tokens": "512",
    "train.threads": "1",
    "train.device": '"cpu"',
    "train.duration": "100000",
    "train.validate_every": "100000",
    "train.checkpoint_every": "100000",
}
"""Settings of a training that lasts until it is stopped."""


@dataclass(frozen=True, slots=True)
class State:
    """A command, and where its work stands when the signal comes."""

    name: str
    words: list[str]
    there: Callable[[Path], bool]
    """Whether its work has come to that, by the folder that it runs in."""
    seconds: float = 0.0
    """After that, until the signal."""


def begun(folder: Path) -> bool:
    """Whether the process has been started, which it has."""
    return folder.is_dir()


def logged(folder: Path) -> bool:
    """Whether a training has logged its first update."""
    files = folder.rglob("metrics.jsonl")
    return any('"event": "update"' in file.read_text() for file in files)


def saves(folder: Path) -> bool:
    """Whether a checkpoint is being written."""
    return any(".safetensors" in file.name for file in folder.rglob("*unfinished*/*"))


def measures(folder: Path) -> bool:
    """Whether a study has kept its first piece."""
    return any(folder.rglob("pieces/**/*.json"))


def has_part(folder: Path) -> bool:
    """Whether the first part of a corpus is made."""
    return any(file.suffix != ".json" for file in folder.rglob("parts/*"))


def between(folder: Path) -> bool:
    """Whether a run of a grid has ended and another begun."""
    files = folder.rglob("metrics.jsonl")
    return any('"event": "finished"' in file.read_text() for file in files)


def tunes(folder: Path) -> bool:
    """Whether a training of a search counts its updates."""
    return any(folder.rglob("updates.txt"))


def training(**more: str) -> list[str]:
    """What trains in the folder `run`; more: settings, with two underscores for a dot."""
    settings = dict(_TINY)
    for name, value in more.items():
        settings[name.replace("__", ".")] = value
    given = [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]
    return ["train", "--run", "run", *given]


def write_texts(folder: Path) -> None:
    """Parallel text, documents, and labelled rows, of words without a meaning."""
    draw = random.Random(0)
    words = ["".join(draw.choices("abdeghiklmnorstuw", k=draw.randint(2, 9))) for _ in range(30000)]

    def lines(count: int) -> list[str]:
        return [" ".join(draw.choices(words, k=20)) + "." for _ in range(count)]

    for language in ("de", "en"):
        (folder / f"text.{language}").write_text("\n".join(lines(120_000)) + "\n")
    documents = ["\n".join(lines(8)) for _ in range(20_000)]
    (folder / "documents.txt").write_text("\n\n".join(documents) + "\n")
    (folder / "few.txt").write_text("\n\n".join(documents[:300]) + "\n")
    rows = [f"{draw.randint(0, 1)}\t{line}" for line in lines(3000)]
    (folder / "rows.tsv").write_text("label\tsentence\n" + "\n".join(rows) + "\n")


def write_runs(folder: Path) -> None:
    """A finished translation run, `translated`, and a masked-lm run, `masked`."""
    many = training(data__toy_pairs="20000", train__duration="2")
    ours("train", "--run", str(folder / "translated"), *many[3:], folder=folder)
    few = ["--train", "few.txt", "--vocabulary-size", "500"]
    ours("data", "documents", "small", *few, folder=folder)
    sizes = ["model.width=64", "model.heads=2", "model.ffn_width=64", "model.blocks=2"]
    given = ['task="masked-lm"', 'data.corpus="small"', "train.duration=2", *sizes]
    words = [word for setting in given for word in ("--set", setting)]
    ours("train", "--run", "masked", *words, folder=folder)


def ours(*words: str, folder: Path) -> None:
    """Does one of our commands to its end. Raises CalledProcessError."""
    command = [sys.executable, "-P", "-m", "normscope", *words]
    subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL)


def states(inputs: Path) -> list[State]:
    """Every row of the table. inputs: the folder of what `write_texts` and `write_runs` write."""
    parallel = ["--train", str(inputs / "text.de"), str(inputs / "text.en")]
    prepare = ["data", "prepare", "corpus", "--languages", "de", "en", *parallel]
    documents = ["data", "documents", "corpus", "--train", str(inputs / "documents.txt")]
    two = ["--processes", "2"]
    rows = str(inputs / "rows.tsv")
    finetune = [
        "finetune",
        str(inputs / "masked"),
        "--train",
        rows,
        "--dev",
        rows,
        "--out",
        "tuned",
    ]
    long = training(data__toy_pairs="40000", data__max_tokens="40", train__validate_every="1",
                    model__width="128", model__ffn_width="512")  # fmt: skip
    bleu = training(data__toy_pairs="4000", train__validate_every="1",
                    translation__bleu_sentences="1000", translation__bleu_beam="30")  # fmt: skip
    large = training(model__width="512", model__ffn_width="2048", train__checkpoint_every="1",
                     model__encoder_blocks="4", model__decoder_blocks="4")  # fmt: skip
    evaluate = ["evaluate", str(inputs / "translated"), "--beam", "30"]
    rescue = ["study", "rescue", "--out", "study"]
    compare = ["compare", "--placements", "pre-ln,post-ln", "--out", "grid", *training()[3:]]
    short = training(train__duration="2")[3:]
    grid = ["compare", "--placements", "pre-ln,post-ln", "--seeds", "40", "--out", "grid", *short]
    moved = ["transplant", "gpt2", "--to", "peri-ln", "--out", "moved"]
    return [
        State("train, imports", training(), begun, 1.0),
        State("train, updates", training(), logged, 0.5),
        State("train, a validation", long, logged, 1.0),
        State("train, the search for BLEU", bleu, logged, 2.0),
        State("train, a checkpoint", large, saves),
        State("compare, updates", compare, logged, 1.0),
        State("compare, between runs", grid, between, 0.1),
        State("study rescue, imports of its processes", rescue, begun, 6.0),
        State("study rescue, trainings", rescue, measures, 3.0),
        State("data prepare, reading", [*prepare, *two], begun, 4.0),
        State("data prepare, tokenising", [*prepare, *two], has_part, 0.5),
        State("data prepare, tokenising, one process", prepare, has_part, 0.5),
        State("data prepare, encoding", [*prepare, *two], has_part, 12.0),
        State("data documents, reading", [*documents, *two], begun, 4.0),
        State("data documents, sentences", [*documents, *two], has_part, 0.5),
        State("data documents, later", [*documents, *two], has_part, 5.0),
        State("finetune, imports", finetune, begun, 5.0),
        State("finetune, updates", finetune, tunes, 1.0),
        State("evaluate, translating", evaluate, begun, 8.0),
        State("transplant, imports", moved, begun, 1.5),
        State("transplant, a proof", moved, begun, 7.0),
        State("study lemmas, measuring", ["study", "lemmas", "--out", "study"], begun, 8.0),
        State("doctor, imports", ["doctor", "gpt2"], begun, 1.5),
        State("doctor, a diagnosis", ["doctor", "gpt2"], begun, 7.0),
    ]


@dataclass(frozen=True, slots=True)
class Ended:
    """How a command has ended."""

    seconds: float | None
    """From the signal until all of its processes were gone; None where it ended before."""
    code: int
    line: str


def ended(state: State, number: int, folder: Path) -> Ended:
    """Starts a command in an empty folder, and sends it the signal when its work is there."""
    said = folder.with_suffix(".said")
    with said.open("wb") as file:
        command = [sys.executable, "-P", "-m", "normscope", *state.words]
        process = subprocess.Popen(
            command, cwd=folder, stdout=file, stderr=file, start_new_session=True
        )
    while process.poll() is None and not state.there(folder):
        time.sleep(_LOOK_SECONDS)
    time.sleep(state.seconds)
    seconds = None
    if process.poll() is None:
        family = [process.pid, *below(process.pid)]
        sent = time.monotonic()
        process.send_signal(number)
        while any(map(lives, family)) and time.monotonic() - sent < _PATIENCE_SECONDS:
            time.sleep(_LOOK_SECONDS)
            process.poll()  # waits for it where it has ended
        seconds = time.monotonic() - sent
        for one in filter(lives, family):
            os.kill(one, signal.SIGKILL)
    lines = said.read_text(errors="replace").replace("\r", "\n").split("\n")
    last = [line.strip() for line in lines if line.strip()]
    return Ended(seconds, process.wait(), last[-1] if last else "")


def below(process: int) -> list[int]:
    """Returns the processes that a process has started, and those that these have."""
    found: list[int] = []
    for file in Path(f"/proc/{process}/task").glob("*/children"):
        try:
            children = [int(word) for word in file.read_text().split()]
        except OSError:
            continue
        for child in children:
            found += [child, *below(child)]
    return found


def lives(process: int) -> bool:
    """Whether a process is there, and no zombie that somebody else is to wait for."""
    try:
        stat = Path(f"/proc/{process}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] not in "ZX"


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="part of the names of states")
    parser.add_argument("--signals", nargs="+", default=["TERM", "INT"])
    parser.add_argument("--most", type=float, default=5.0, help="seconds")
    asked = parser.parse_args()
    too_long = 0
    with tempfile.TemporaryDirectory() as name:
        inputs = Path(name) / "inputs"
        inputs.mkdir()
        write_texts(inputs)
        write_runs(inputs)
        print("| where | signal | seconds | exit code | last line |\n|---|---|---|---|---|")
        for at, state in enumerate(states(inputs)):
            if asked.only not in state.name:
                continue
            for word in asked.signals:
                folder = Path(name) / f"{at}-{word}"
                folder.mkdir()
                end = ended(state, signal.Signals[f"SIG{word}"], folder)
                too_long += end.seconds is not None and end.seconds > asked.most
                took = "ended before" if end.seconds is None else f"{end.seconds:.1f}"
                row = [state.name, f"SIG{word}", took, str(end.code), end.line]
                print("|", " | ".join(row), "|", flush=True)
    sys.exit(1 if too_long else 0)


if __name__ == "__main__":
    main()
