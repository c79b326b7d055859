"""Paths that a program gives stay in one folder, whichever way they try to leave it."""

from pathlib import Path

import pytest

from normscope.agents.root import Root
from normscope.errors import UserError

BUILDS = "def build():\n    return 1\n"


@pytest.fixture
def root(tmp_path: Path) -> Root:
    """A folder with a file of code, beside another file that no path is to reach."""
    inside = tmp_path / "inside"
    (inside / "deeper").mkdir(parents=True)
    (inside / "my_model.py").write_text(BUILDS)
    (inside / "log.csv").write_text("step,loss\n1,2\n")
    (tmp_path / "inside-not").mkdir()
    for place in ("outside.py", "inside-not/outside.py"):
        (tmp_path / place).write_text(BUILDS)
    return Root.of(inside)


def ways_out(root: Root) -> list[str]:
    """Paths of the file outside: by .., in the middle of a path too, whole, by links to it and to
    its folder, and in a folder whose name begins as the root's.
    """
    beside = root.folder.parent
    (root.folder / "link.py").symlink_to(beside / "outside.py")
    (root.folder / "folder").symlink_to(beside)
    (root.folder / "twice.py").symlink_to("link.py")
    return [
        "../outside.py",
        "deeper/../../outside.py",
        "nowhere/../../outside.py",
        str(beside / "outside.py"),
        "link.py",
        "twice.py",
        "folder/outside.py",
        str(root.folder / "link.py"),
        "../inside-not/outside.py",
    ]


def test_no_path_gets_out_as_a_target_a_log_or_an_output(root: Root) -> None:
    for path in ways_out(root):
        for asked in (
            lambda path: root.target(f"{path}:build"),
            lambda path: root.target(path),
            lambda path: root.log("log", path),
            lambda path: root.log("log", f"{path}#run"),
            lambda path: root.inside("out", path),
        ):
            with pytest.raises(UserError, match="lies outside of") as refused:
                asked(path)
            assert "\n" not in str(refused.value)


def test_paths_inside_are_told_from_the_root_however_they_are_written(root: Root) -> None:
    for written in (
        "my_model.py",
        "./my_model.py",
        "deeper/../my_model.py",
        f"../{root.folder.name}/my_model.py",
        str(root.folder / "my_model.py"),
    ):
        assert root.target(f"{written}:build") == "my_model.py:build"
    (root.folder / "linked.py").symlink_to("my_model.py")
    assert root.target("linked.py:build") == "my_model.py:build"
    assert root.log("log", "log.csv#3") == "log.csv#3"
    assert root.inside("out", "new/folder") == "new/folder"


def test_a_root_that_is_a_link_is_the_folder_that_it_leads_to(root: Root, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(root.folder)
    assert Root.of(tmp_path / "link") == root


def test_no_file_is_taken_for_an_option_or_for_a_home(root: Root) -> None:
    for name in ("--trust", "-c", "~root"):
        (root.folder / name).mkdir()
        assert root.inside("out", f"./{name}") == str(root.folder / name)


@pytest.mark.parametrize("text", ["shutil:rmtree", "os.path:join", "my_model:build", "a b", ""])
def test_a_module_is_no_target(root: Root, text: str) -> None:
    (root.folder / "my_model.py").write_text(BUILDS)
    if text:
        with pytest.raises(UserError, match=r"give FILE\.py:FUNCTION"):
            root.target(text)
    else:
        assert root.target(text) == "."


def test_a_class_of_transformers_is_a_target_by_its_name(root: Root) -> None:
    assert root.target("GPT2Config") == "GPT2Config"


@pytest.mark.parametrize(
    "source",
    [
        "from shutil import rmtree\n",
        "from shutil import rmtree\nrmtree = rmtree\n",
        "import shutil as rmtree\n",
        "from shutil import *\n",
        "# coding: latin-1\nname = 'é'\nfrom shutil import rmtree\n",
    ],
)
def test_a_function_that_a_file_only_imports_is_not_called(root: Root, source: str) -> None:
    (root.folder / "my_model.py").write_bytes(source.encode("latin-1"))
    with pytest.raises(UserError, match="does not define 'rmtree' itself"):
        root.target("my_model.py:rmtree")


@pytest.mark.parametrize(
    "source",
    [
        "def f(): pass\n",
        "class f: pass\n",
        "f = print\n",
        "if True:\n    def f(): pass\n",
        "def f(: syntax that the command explains\n",
    ],
)
def test_a_function_that_a_file_defines_is_called(root: Root, source: str) -> None:
    (root.folder / "my_model.py").write_text(source)
    assert root.target("my_model.py:f") == "my_model.py:f"


def test_what_is_not_there_is_said(root: Root) -> None:
    with pytest.raises(UserError, match=r"target 'other\.py': no such file or folder in"):
        root.target("other.py:build")
    with pytest.raises(UserError, match=r"log 'other\.csv': no such file or folder in"):
        root.log("log", "other.csv")
    with pytest.raises(UserError, match=r"--root .*: no such folder"):
        Root.of(root.folder / "my_model.py")
    with pytest.raises(UserError, match="is no path"):
        root.inside("out", "a\0b")
