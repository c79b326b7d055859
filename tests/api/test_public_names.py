"""What `import normscope` offers is documented, typed, and costs nothing until it is used."""

import ast
import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest

import forked
import normscope
from tiny import finish

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/python.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", normscope.__all__)
def test_every_name_is_documented_and_used_in_an_example(name: str) -> None:
    found = getattr(normscope, name)
    assert inspect.getdoc(found), f"{name} has no docstring"
    assert f"`normscope.{name}`" in PAGE, f"docs/python.md does not name `normscope.{name}`"
    examples = "".join(re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL))
    assert re.search(rf"\bnormscope\.{name}\b", examples), (
        f"no example of docs/python.md uses {name}"
    )


def test_type_checkers_are_told_of_every_name() -> None:
    stub = ast.parse((ROOT / "src/normscope/__init__.pyi").read_text(encoding="utf-8"))
    told = {
        alias.asname: f"{node.module}.{alias.name}"
        for node in stub.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert told == {name: f"{home}.{name}" for name, home in normscope._HOMES.items()}
    assert set(normscope.__all__) == set(normscope._HOMES) <= set(dir(normscope))


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="tarin"):
        normscope.tarin  # noqa: B018


def test_train_is_the_function_whatever_was_imported_before() -> None:
    import normscope.train

    assert inspect.isfunction(normscope.train)
    from normscope.train import RunFolder

    assert RunFolder.__module__ == "normscope.train.run_folder"


def test_modules_of_a_room_that_has_a_function_s_name_can_be_imported_as_a_name() -> None:
    """Whatever was imported before; in a process that has torch already, and imports what is ours
    anew.
    """
    code, _, err = finish(forked.call(import_anew))
    assert code == 0, err


def import_anew() -> None:
    script = """
import normscope.train.loop as loop
import normscope.compare.grid as grid
import normscope
import normscope.train.metrics
assert (loop.__name__, grid.__name__) == ("normscope.train.loop", "normscope.compare.grid")
assert normscope.train.metrics.__name__ == "normscope.train.metrics"
assert normscope.train is normscope.train and normscope.train.__name__ == "train"
assert callable(normscope.compare)
"""
    for before in (
        "pass",
        "import normscope; normscope.train",
        "import normscope.train.saving as s",
    ):
        for name in [name for name in sys.modules if name.partition(".")[0] == "normscope"]:
            del sys.modules[name]
        exec(before)
        exec(script)


def test_importing_imports_nothing_else() -> None:
    """A process of its own: this one has imported everything. It takes as long as Python takes to
    start.
    """
    says = "import sys, normscope; dir(normscope); print(*sys.modules)"
    environment = {"PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(
        [sys.executable, "-S", "-c", says],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
        timeout=240,
    )
    imported = done.stdout.split()
    assert [name for name in imported if name.split(".")[0] == "normscope"] == ["normscope"]
    assert not {"torch", "numpy", "matplotlib", "typer", "pydantic"} & set(imported)
