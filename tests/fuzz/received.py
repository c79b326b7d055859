"""What came from elsewhere, or that a kill may have cut: comparisons, logs, placements, columns."""

import json
import random
import shutil
import sys
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any
from unittest.mock import patch

from fuzz.mutations import of_bytes, of_json, of_toml
from fuzz.ours import change_sealed, sealed
from fuzz.texts import lines
from normscope.cli.display import whole
from normscope.compare.compare import opened, report
from normscope.compare.grid import Grid, write_configs
from normscope.compare.manifest import Manifest, _AboutCorpus, write_manifest
from normscope.compare.state import CellState
from normscope.data.sources import arrow_files, texts_in
from normscope.errors import UserError
from normscope.history.explain import explain, page
from normscope.limits.kinds import sealed_lines
from normscope.placement import registry
from normscope.report.comparison.page import summary_lines
from normscope.runs.config import load
from normscope.runs.run import train_run
from normscope.runs.trained import SCORES
from normscope.settings import files
from normscope.settings.files import given_config, import_file, run_named
from normscope.targets.logs import history_at
from normscope.theory.predict import ModelSetting, predict
from normscope.train import metrics
from tiny import MY_PLACEMENT, SETTINGS, resealed

PYTHON_LIKE = (
    b"lambda",
    b"x",
    b"0",
    b"None",
    b"[]",
    b"self",
    b"norm",
    b"1e400",
    b"x @ x",
    b"{}",
    b"return",
    b"'a'",
    b"...",
)


_MEASURED = ("train.duration=3", "train.validate_every=1", "train.monitor_every=1")
_COST = {"parameters": 9_000, "memory_bytes": 1e6, "flops": 2e6, "seconds": 0.25}


def make_received(folder: Path) -> None:
    """A comparison of two runs, with scores, costs, and measurements over depth."""
    base = load(None, [*SETTINGS, *_MEASURED])
    arms = (("pre-ln", 0), ("post-ln", 2))
    cells = list(
        Grid(placements_and_warmups=arms, peak_lrs=(1e-3,), optimizers=("adam",), seeds=1).cells(
            base, folder
        )
    )
    for cell in cells:
        train_run(cell.config, cell.folder.path)
        scores = {"run": "", "update": 3, "split": "test", "bleu": 31.25, "bleu_tokenised": 30.5}
        cell.evaluation_file("test").write_text(SCORES.text(scores))
    write_configs(cells)
    corpus = _AboutCorpus("0123abcd", 4.25, [("sentence pairs", "30")])
    names = tuple(cell.name for cell in cells)
    manifest = Manifest(
        title="One",
        corpus=corpus,
        commands=("normscope compare",),
        cells=names,
        failed={names[1]: "no room"},
        costs={"pre-ln": _COST, "post-ln": _COST},
    )
    write_manifest(folder, manifest)


def make_received_run(folder: Path) -> None:
    """A run by itself, with measurements over depth."""
    train_run(load(None, [*SETTINGS, *_MEASURED]), folder / "run")


def change_sealed_json(data: bytes, draw: random.Random) -> bytes:
    """As `of_json`, by somebody who knows of the seal."""
    file = Path(f"/tmp/{draw.random()}")
    changed = of_json(data, draw)
    try:
        if not isinstance(json.loads(changed), dict):
            return changed
        file.write_bytes(changed)
        resealed(file)
        return file.read_bytes()
    except (ValueError, RecursionError):
        return changed
    finally:
        file.unlink(missing_ok=True)


def change_sealed_toml(data: bytes, draw: random.Random) -> bytes:
    """As `of_toml`, by somebody who knows of the seal."""
    above = data.decode().rpartition("# SHA-256")[0]
    return sealed_lines(of_toml(above.encode(), draw).decode("utf-8", "replace")).encode(
        "utf-8", "replace"
    )


_AT_THE_ENDS = (0, 1, -1, 1e100, -1e100, 1e-320, 2**53, 1.5, 0.1 + 0.2)
"""Numbers that a log may hold, and some that it must not, by the quantity."""
_FURTHER_LINES: tuple[dict[str, Any], ...] = (
    {"event": "update", "update": 1},
    {"event": "update", "update": 2**53, "nll_nats": 1e100, "lr": 1e100, "gradient_norm": 1e100},
    {"event": "validation", "update": 3, "nll_nats": -1e100},
    {"event": "validation", "update": 2**53, "nll_nats": 1e-320, "bleu": 1e100},
    {"event": "non-finite", "update": 2, "reason": "\x1b[2J\0"},
    {"event": "decided", "update": 3, "validations": 0},
    {"event": "finished", "update": 0},
    {"event": "of a later version", "update": 3, "much": {"more": [[]]}},
    {"event": "missing", "update": 3},
    {"event": "initialisation", "update": 0, "gradient_norms": {"h.0.w": 1e100, "a.h.7.b": 0}},
    {"event": "initialisation", "update": 0, "gradient_norms": {"\x1b$x$&.h.4.w": 1e-320}},
    {"event": "monitor", "update": 3, "normscope/\x1b&/block_9/a/gradient_norm": 1e100},
)


def change_sealed_events(data: bytes, draw: random.Random) -> bytes:
    """Lines left out, doubled, moved, put in, or with another number, by somebody who seals all."""
    lines = [line[: -metrics._SEAL_LENGTH] + b"}" for line in data.splitlines()]
    for _ in range(draw.choice((1, 1, 2, 4))):
        at, other = (draw.randrange(len(lines)) for _ in range(2))
        kind = draw.randrange(6)
        if kind == 0 and len(lines) > 1:
            del lines[at]
        elif kind == 1:
            lines.insert(at, lines[other])
        elif kind == 2:
            lines[at:] = lines[at + 1 :] + lines[at : at + 1]
        elif kind == 3:
            lines.insert(at, json.dumps(draw.choice(_FURTHER_LINES)).encode())
        elif kind == 4:
            lines = [*lines[:-1], json.dumps(draw.choice(_FURTHER_LINES)).encode()]
        else:
            event = json.loads(lines[at])
            name = draw.choice([*event, "gradient_norms"])
            event[name] = draw.choice(_AT_THE_ENDS)
            lines[at] = json.dumps(event).encode()
    return sealed(line.decode("utf-8", "replace") for line in lines).encode()


def change_sealed_log(data: bytes, draw: random.Random) -> bytes:
    """Either of an event or of the events."""
    if draw.randrange(2):
        return change_sealed_events(data, draw)
    return change_sealed(data, draw)


def read_received(folder: Path, changed: Path) -> Any:
    """What `normscope compare` does to know how far its runs are, and what `normscope report`
    does.
    """
    states = [CellState(cell) for cell in opened(folder)[0]]
    for state in states:
        state.read_new_events()
    return whole(states), _reported(folder)


def read_received_run(folder: Path, changed: Path) -> Any:
    """What `normscope report` does with a run by itself, and what Python shows of it."""
    from normscope.api.runs import Run

    title = _reported(folder / "run")
    Run(folder / "run")._repr_html_()
    return title


def _reported(folder: Path) -> str:
    """The title of a report whose every file can be read."""
    out = folder / "out"
    shutil.rmtree(out, ignore_errors=True)
    page, file = report([folder], out)
    assert "\x1b" not in file.read_text(encoding="utf-8")
    for picture in out.glob("*.svg"):
        ET.fromstring(picture.read_bytes())
    json.loads((out / "results.json").read_text(encoding="utf-8"), parse_constant=_no_number)
    assert all(map(str.isprintable, summary_lines(page, "")))
    return page.title


def _no_number(name: str) -> float:
    raise AssertionError(f"{name} stands in results.json, which JSON does not have")


def make_placements(folder: Path) -> None:
    """Of one's own, alone and named by a configuration."""
    (folder / "half.py").write_text(MY_PLACEMENT)
    (folder / "whole.py").write_text(
        MY_PLACEMENT.replace("half-ln", "whole-ln").replace("0.5 * x", "x")
    )
    (folder / "own.toml").write_text(
        'imports = ["half.py"]\n[model]\nplacement = "half-ln"\nwidth = 16\nheads = 2\n'
    )


def change_python(data: bytes, draw: random.Random) -> bytes:
    """Bytes, or a word by another one."""
    if draw.randrange(4) == 0:
        return of_bytes(data, draw)
    words = data.split(b" ")
    words[draw.randrange(len(words))] = draw.choice(PYTHON_LIKE)
    return b" ".join(words)


def read_placements(folder: Path, changed: Path) -> Any:
    """As `--import` and a configuration with imports do, then `normscope predict`; what was
    registered goes again.
    """
    modules = set(sys.modules)
    known = (registry._REGISTRY, registry._STAND_INS, files._RAN)
    with (
        patch.dict(known[0]),
        patch.dict(known[1]),
        patch.dict(known[2]),
        patch.object(files, "_SAID", set()),
    ):
        try:
            if changed.suffix == ".toml":
                config = given_config(changed)
                table = dict(config.table)
                if table.get("imports") == ["half.py"]:
                    table["imports"] = [str(folder / "half.py")]
                run_named(table, source=str(changed))
                return load(changed).model.placement
            import_file(changed)
            name = "half-ln" if changed.stem == "half" else "whole-ln"
            try:
                registry.named(name)
            except ValueError as error:  # told to the user by the command line
                raise UserError(str(error)) from error
            try:  # the command line tells the user
                return list(
                    predict(name, ModelSetting(blocks=2, width=16, ffn_width=16, heads=2, tokens=4))
                )
            except ValueError as error:
                raise UserError(str(error)) from error
        finally:
            for module in set(sys.modules) - modules:
                if module.startswith("normscope_user_"):
                    del sys.modules[module]


def make_logs(folder: Path) -> None:
    """TensorBoard's event file, and W&B's datastore."""
    from torch.utils.tensorboard import SummaryWriter

    from adapters.test_wandb_datastore import datastore, history

    with SummaryWriter(str(folder / "board")) as writer:
        for at in range(1, 31):
            writer.add_scalar("train/loss", 4.0 / at, at)
            writer.add_scalar("train/learning_rate", 1e-3, at, new_style=True)
    (folder / "store").mkdir()
    (folder / "store" / "run-x.wandb").write_bytes(
        datastore([history(at, typed=at % 2 == 0) for at in range(1, 31)])
    )


def change_datastore(data: bytes, draw: random.Random) -> bytes:
    """Bytes, or a record changed by somebody who writes its checksum."""
    from adapters.test_wandb_datastore import datastore, history

    if draw.randrange(3) == 0:
        return of_bytes(data, draw)
    records = [history(at, typed=at % 2 == 0) for at in range(1, 31)]
    at = draw.randrange(len(records))
    records[at] = of_bytes(records[at], draw)
    return datastore(records)


def read_logs(folder: Path, changed: Path) -> Any:
    return page(explain(history_at(changed)))


def make_columns(folder: Path) -> None:
    """Files of records, and a dataset as `datasets` saves it."""
    import pyarrow
    from pyarrow import parquet

    table = pyarrow.table({"text": [*lines(40, 1), None], "label": [*range(40), None]})
    parquet.write_table(table, folder / "texts.parquet", row_group_size=10)
    (folder / "saved").mkdir()
    for file in (folder / "texts.arrow", folder / "saved" / "data-0.arrow"):
        with pyarrow.ipc.new_stream(file, table.schema) as stream:
            stream.write_table(table)
    state = {
        "_data_files": [{"filename": "data-0.arrow"}],
        "_fingerprint": "0",
        "_indices_data_files": None,
    }
    (folder / "saved" / "state.json").write_text(json.dumps(state))
    rows = [{"text": line, "meta": {"source": "here"}} for line in lines(40, 2)]
    (folder / "texts.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def read_columns(folder: Path, changed: Path) -> Any:
    path = changed.parent if changed.name == "state.json" else changed
    return sum(len(text) for _, text in texts_in(path, "text")), path.is_dir() and arrow_files(path)
