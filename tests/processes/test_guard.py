"""A guarded process runs the code of one folder and of installed packages, and tells which."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from normscope.processes.guard import CodeRun

GUARDED = """
import sys
from normscope.processes.guard import keep_to
keep_to(*sys.argv[1:4])
sys.path.append(sys.argv[1])
import main
"""


def run(folder: Path, main: str) -> tuple[int, str, CodeRun]:
    """Run main.py of a folder in a guarded process: its exit code, its last line, what it told."""
    root, scratch = folder / "root", folder / "scratch"
    root.mkdir(exist_ok=True)
    scratch.mkdir(exist_ok=True)
    (root / "main.py").write_text(main)
    done = subprocess.run(
        [sys.executable, "-P", "-c", GUARDED, str(root), str(scratch), str(scratch / "told")],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"PYTHONDONTWRITEBYTECODE": "1"},
    )
    said = (done.stderr + done.stdout).strip().splitlines()
    return done.returncode, said[-1] if said else "", CodeRun.read(scratch / "told")


def test_files_of_the_folder_run_and_are_named_once_in_order(tmp_path: Path) -> None:
    (tmp_path / "root/parts").mkdir(parents=True)
    (tmp_path / "root/parts/__init__.py").write_text("from . import norm\n")
    (tmp_path / "root/parts/norm.py").write_text("x = 1\n")
    code, said, told = run(tmp_path, "import json, parts\nimport parts.norm\nprint('done')\n")
    assert (code, said) == (0, "done")
    root = tmp_path.resolve() / "root"
    names = ("main.py", "parts/__init__.py", "parts/norm.py")
    assert told == CodeRun(tuple(str(root / name) for name in names), ())


OUTSIDE = "open({marker!r}, 'w').close()\n"
WAYS = {
    "a folder on the path": "import sys\nsys.path.append({beside!r})\nimport outside\n",
    "a link beside it": "import linked\n",
    "a package that is a link": "import package.outside\n",
    "runpy": "import runpy\nrunpy.run_path({beside!r} + '/outside.py')\n",
    "compiled under its name": (
        "name = {beside!r} + '/outside.py'\nexec(compile(open(name).read(), name, 'exec'))\n"
    ),
    "..": (
        "import runpy, os\nos.chdir(os.path.dirname(__file__))\nrunpy.run_path('../outside.py')\n"
    ),
}


@pytest.mark.parametrize("way", WAYS)
def test_a_file_outside_is_not_run_whichever_way_it_is_imported(way: str, tmp_path: Path) -> None:
    marker = tmp_path / "ran"
    outside = tmp_path / "outside.py"
    outside.write_text(OUTSIDE.format(marker=str(marker)))
    (tmp_path / "root").mkdir()
    (tmp_path / "root/linked.py").symlink_to(outside)
    (tmp_path / "root/package").symlink_to(tmp_path)
    code, said, told = run(tmp_path, WAYS[way].format(beside=str(tmp_path)))
    assert not marker.exists()
    assert code == 1
    root = tmp_path.resolve() / "root"
    assert said == (
        f"ImportError: {outside.resolve()} was not run: it lies outside of --root {root}"
    )
    assert told.refused == (str(outside.resolve()),)


def test_the_tripwire_trips_where_nothing_guards_it(tmp_path: Path) -> None:
    marker = tmp_path / "ran"
    (tmp_path / "outside.py").write_text(OUTSIDE.format(marker=str(marker)))
    main = WAYS["a folder on the path"].format(beside=str(tmp_path))
    subprocess.run([sys.executable, "-P", "-c", main], check=True)
    assert marker.exists()


def test_what_a_file_does_without_the_refused_one_is_told_too(tmp_path: Path) -> None:
    (tmp_path / "outside.py").write_text("")
    main = (
        f"import sys\nsys.path.append({str(tmp_path)!r})\n"
        "try:\n    import outside\nexcept ImportError:\n    print('without')\n"
    )
    code, said, told = run(tmp_path, main)
    assert (code, said) == (0, "without")
    assert told.refused == (str(tmp_path.resolve() / "outside.py"),)


def test_compilers_may_run_what_they_have_written(tmp_path: Path) -> None:
    (tmp_path / "scratch").mkdir()
    (tmp_path / "scratch/kernel.py").write_text("print('kernel')\n")
    main = f"import sys\nsys.path.append({str(tmp_path / 'scratch')!r})\nimport kernel\n"
    code, said, told = run(tmp_path, main)
    assert (code, said, told.refused) == (0, "kernel", ())
    assert told.ran == (str(tmp_path.resolve() / "root/main.py"),)


def test_installed_packages_run_unnamed(tmp_path: Path) -> None:
    main = "import jinja2, numpy, dataclasses\nimport normscope.placement\nprint('done')\n"
    code, said, told = run(tmp_path, main)
    assert (code, said, told.refused) == (0, "done", ())
    assert told.ran == (str(tmp_path.resolve() / "root/main.py"),)
