"""What is shipped: a wheel and a source distribution with all that the package reads, and a wheel
that runs.
"""

import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import venv
import zipfile
from contextlib import suppress
from importlib.metadata import distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import normscope
from normscope import errors
from normscope.cli.main import command_line
from normscope.errors import PUBLISHED, installation

ROOT = Path(__file__).parents[1]
DATA = {
    "py.typed",
    "report/templates/style.css",
    "report/templates/comparison.html.j2",
    "report/vendor/uplot/LICENSE",
    "report/vendor/uplot/uPlot.iife.min.js",
    "report/vendor/uplot/uPlot.min.css",
    "choosing/recipes.toml",
    "choosing/optima.toml",
    "choosing/evidence.json",
    "choosing/published.toml",
    "choosing/query_key.toml",
    "data/lexicon.toml",
    "tasks/presets.toml",
    "agents/SKILL.md",
}


def copied(folder: Path) -> Path:
    """What the repository holds of the package, and some that is no part of it."""
    for file in ("pyproject.toml", "setup.py", "README.md", "LICENSE", "MANIFEST.in"):
        shutil.copy(ROOT / file, folder)
    shutil.copytree(
        ROOT / "src", folder / "src", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info")
    )
    for other in ("tests", "results"):
        (folder / other).mkdir()
        (folder / other / "test_left_out.py").touch()
    return folder


def build(folder: Path) -> Path:
    """Its wheel and its source distribution, each with the date of one moment in 2023."""
    backend = "import setuptools.build_meta as b; b.build_wheel('dist'); b.build_sdist('dist')"
    environment = os.environ | {"SOURCE_DATE_EPOCH": "1700000000"}
    command = [sys.executable, "-c", backend]
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return folder / "dist"


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(copied(tmp_path_factory.mktemp("package")))


@pytest.mark.thorough
def test_builds_of_a_tag_have_its_version_and_the_same_bytes_whatever_the_files_dates(
    tmp_path: Path,
) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    named = ["-c", "user.name=n", "-c", "user.email=e@x"]
    for words in (
        ["init", "-q"],
        ["add", "pyproject.toml"],
        [*named, "commit", "-qm", "m"],
        ["tag", "v9.8.7"],
    ):
        subprocess.run(
            ["git", *words], cwd=copied(first) if words[0] == "init" else first, check=True
        )
    shutil.copytree(first, second, copy_function=shutil.copyfile)
    contents = [
        {file.name: file.read_bytes() for file in build(folder).iterdir()}
        for folder in (first, second)
    ]
    assert contents[0] == contents[1]
    assert sorted(contents[0]) == ["normscope-9.8.7-py3-none-any.whl", "normscope-9.8.7.tar.gz"]
    with zipfile.ZipFile(first / "dist/normscope-9.8.7-py3-none-any.whl") as archive:
        assert b'\n__version__ = "9.8.7"\n' in archive.read("normscope/__init__.py")
    assert '"9.8.7"' not in (first / "src/normscope/__init__.py").read_text(encoding="utf-8")
    with tarfile.open(first / "dist/normscope-9.8.7.tar.gz") as source:
        source.extractall(tmp_path, filter="data")
    # Without the tag, the source distribution still knows what it is of.
    assert {path.name for path in build(tmp_path / "normscope-9.8.7").iterdir()} == set(contents[0])


def bare(folder: Path, wheel: Path, extra: str) -> Path:
    """Programs of an environment with the wheel, what it says that it requires, and nothing else of
    this one's.
    """
    venv.create(folder, with_pip=False, symlinks=True)
    (site,) = folder.glob("lib/python*/site-packages")
    listed = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    left = [
        Requirement(one)
        for one in [*listed["dependencies"], *listed["optional-dependencies"].get(extra, [])]
    ]
    seen: set[tuple[str, frozenset[str]]] = set()
    while left:
        one = left.pop()
        if (key := (canonicalize_name(one.name), frozenset(one.extras))) in seen:
            continue
        seen.add(key)
        found = distribution(one.name)
        for name in {file.parts[0] for file in found.files or ()} - {"..", "__pycache__"}:
            with suppress(FileExistsError):
                (site / name).symlink_to(Path(str(found.locate_file(name))))
        for more in map(Requirement, found.requires or ()):
            if more.marker is None or any(
                more.marker.evaluate({"extra": e}) for e in ("", *one.extras)
            ):
                left.append(more)
    install = [
        sys.executable,
        "-m",
        "pip",
        "--python",
        str(folder / "bin/python"),
        "install",
        "-q",
        "--no-deps",
    ]
    subprocess.run([*install, "--no-index", str(wheel)], check=True, capture_output=True)
    return folder / "bin"


@pytest.mark.thorough
@pytest.mark.parametrize("extra", ["", "train"])
def test_a_bare_environment_with_what_the_wheel_requires_is_enough(
    built: Path, tmp_path: Path, extra: str
) -> None:
    (wheel,) = built.glob("*.whl")
    programs = bare(tmp_path / "bare", wheel, extra)
    (tmp_path / "my_model.py").write_text(_MODEL)

    def said(*words: str) -> tuple[int, str]:
        environment = {
            "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
            "OMP_NUM_THREADS": "1",
            "COLUMNS": "200",
        }
        done = subprocess.run(
            [str(programs / "normscope"), *words],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
        )
        return done.returncode, done.stdout + done.stderr

    status, told = said("doctor", "my_model.py:build", "--html", "page.html")
    assert (status, "post-ln, 2 blocks" in told) == (0, True), told
    assert said("predict", "pre-ln")[0] == 0
    small = ("train.duration=2", "data.max_tokens=256", "model.width=16", "model.ffn_width=16")
    status, told = said("train", *(f"--set={one}" for one in small), "--run", "run")
    if extra:
        assert (status, (tmp_path / "run/metrics.jsonl").is_file()) == (0, True), told
    else:
        assert status == 2
        assert installation("train") in told


def test_wheel_and_source_hold_what_the_package_reads_and_neither_tests_nor_results(
    built: Path,
) -> None:
    modules = {path.relative_to(ROOT / "src").as_posix() for path in (ROOT / "src").rglob("*.py")}
    lists = {"normscope_studies/paper.toml", "normscope_studies/memo.toml"}
    wanted = modules | {f"normscope/{name}" for name in DATA} | lists
    templates = {
        f"normscope/report/{folder}/{path.name}"
        for folder in ("templates", "js")
        for path in (ROOT / "src/normscope/report" / folder).iterdir()
    }
    (wheel,) = built.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    assert wanted | templates <= names
    packages = {"normscope", "normscope_studies"}
    assert {name.split("/")[0] for name in names} == packages | {
        f"normscope-{normscope.__version__}.dist-info"
    }
    (source,) = built.glob("*.tar.gz")
    with tarfile.open(source) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {f"src/{name}" for name in wanted | templates} <= names
    assert not [name for name in names if name.startswith(("tests", "results"))]


@pytest.mark.thorough
def test_an_installed_wheel_runs(built: Path, tmp_path: Path) -> None:
    (wheel,) = built.glob("*.whl")
    install = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--no-deps",
        "--no-index",
        "--quiet",
        "--no-compile",
    ]
    subprocess.run(
        [*install, "--target", str(tmp_path / "site"), str(wheel)], check=True, capture_output=True
    )
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environment |= {"PYTHONPATH": str(tmp_path / "site")}

    def normscope_says(*arguments: str) -> str:
        program = tmp_path / "site/bin/normscope"
        done = subprocess.run(
            [sys.executable, str(program), *arguments],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    where = "import normscope; print(normscope.__file__)"
    found = subprocess.run(
        [sys.executable, "-c", where], env=environment, capture_output=True, text=True, check=True
    )
    assert found.stdout.startswith(str(tmp_path / "site"))
    assert "Train and compare:" in normscope_says("--help")
    assert "\npre-ln " in normscope_says("predict", "pre-ln")


_FROM_AN_INDEX = re.compile(r"""pip3? install(?: +[^\s`]+)*? +['"]?normscope(?![\w./-])""")


def test_nobody_is_told_to_install_from_an_index_what_is_not_there() -> None:
    """Whoever registers a name that a text has users install runs code on their machines."""
    for told in (
        "pip install normscope",
        "pip install . normscope",
        "pip install -U 'normscope[train]'",
    ):
        assert _FROM_AN_INDEX.search(told)
    for told in (
        "pip install . ./normscope",
        "pip install '.[train]'",
        "pip install git+https://x/normscope.git",
    ):
        assert not _FROM_AN_INDEX.search(told)
    kinds = (".py", ".md", ".toml", ".j2", ".js", ".json", ".yml", ".ipynb", ".lock", ".cff", "")
    places = ["src", "docs", "benchmarks", "results", "tests"]
    files = [file for place in places for file in (ROOT / place).rglob("*")] + list(ROOT.glob("*"))
    texts = [
        file
        for file in files
        if file.is_file() and file.suffix in kinds and not file.name.startswith(".")
    ]
    telling = [
        file.relative_to(ROOT).as_posix()
        for file in texts
        if _FROM_AN_INDEX.search(file.read_text(encoding="utf-8", errors="replace"))
    ]
    assert PUBLISHED or telling == ["src/normscope/errors.py", "tests/test_package.py"]


def test_the_way_to_install_an_extra_is_written_in_one_place() -> None:
    extras = re.findall(
        r"^(\w+) = \[",
        (ROOT / "pyproject.toml").read_text().partition("optional-dependencies]")[2],
        re.M,
    )
    assert "huggingface" in extras
    wrong = "'.[" if PUBLISHED else "'normscope["
    written = [*(ROOT / "src").rglob("*.py"), *(ROOT / "docs").rglob("*.md"), ROOT / "README.md"]
    code = ROOT / "src/normscope/errors.py"
    assert [
        path
        for path in written
        if path != code and f"pip install {wrong}" in path.read_text("utf-8")
    ] == []
    asked = {
        name
        for path in written
        for name in re.findall(r"installation\('(\w+)'\)", path.read_text("utf-8"))
    }
    assert {"huggingface", "lightning", "ctranslate2", "lion"} <= asked <= set(extras)
    assert ("clone" in installation("lion")) != PUBLISHED


_MODEL = """
import torch


def build():
    layers = [torch.nn.TransformerEncoderLayer(16, 2, 32, batch_first=True) for _ in range(2)]
    return torch.nn.Sequential(*layers), (torch.randn(2, 5, 16),)


def model_alone():
    return build()[0]


def batches():
    return [(torch.randn(2, 5, 16), torch.randn(2, 5, 16))]


def loss(model, batch):
    return (model(batch[0]) - batch[1]).square().mean()
"""
_WITHOUT = """
import sys


class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {libraries}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)


sys.meta_path.insert(0, Absent())
"""
_LOOKING = """
from contextlib import suppress

import torch

import normscope
from normscope.cli.main import command_line

layer = torch.nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
model = torch.nn.TransformerEncoder(layer, 2)
inputs = torch.randn(2, 5, 16)
normscope.transplant(model, "pre-ln", inputs=inputs)
print(repr(normscope.diagnose(model, inputs)))
doctor = ["doctor", "{file}:build"]
with_batches = ["doctor", "{file}:model_alone"]
told = (["placements"], ["predict", "pre-ln"], ["choose", "--blocks", "12"])
for words in (*told, doctor, with_batches, ["--help"]):
    with suppress(SystemExit):
        command_line(*words[:1])(words)
    print("came through:", words[0])
try:
    normscope.compare
except normscope.UserError as error:
    print("refused:", error)
"""


def proposed(text: str) -> list[str]:
    """The verbs of the commands that stand in lines of their own."""
    return re.findall(r"^  normscope (\w+)", text, re.M)


def test_where_all_is_installed_the_demonstration_comes_first(
    capsys: pytest.CaptureFixture[str],
) -> None:
    pytest.importorskip("sacremoses")
    with pytest.raises(SystemExit) as ended:
        command_line()([])
    assert ended.value.code == 0
    verbs = ["demo", "doctor", "predict", "placements", "choose", "compare"]
    assert proposed(capsys.readouterr().out) == verbs


def test_the_extra_for_hugging_face_brings_what_its_trainer_asks_for() -> None:
    """By transformers' own table of what it needs."""
    table = pytest.importorskip("transformers.dependency_versions_table")
    listed = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    brought = [Requirement(one) for one in listed["optional-dependencies"]["huggingface"]]
    wanted = Requirement(table.deps["accelerate"]).specifier
    (least,) = [
        one.version
        for requirement in brought
        if requirement.name == "accelerate"
        for one in requirement.specifier
    ]
    assert wanted.contains(least)
    locked = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    assert re.search(r"^accelerate==", locked, re.M)


def test_what_looks_at_models_needs_nothing_of_what_trains_them(tmp_path: Path) -> None:
    """The libraries of the extra are made absent in one interpreter, which looks at a model in
    every way there is.
    """
    listed = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    libraries = {re.split(r"\W", one)[0] for one in listed["optional-dependencies"]["train"]}
    assert not libraries & {re.split(r"\W", one)[0] for one in listed["dependencies"]}
    assert libraries == errors._OF_TRAINING, "the table of the message is the extra's list"
    (tmp_path / "sitecustomize.py").write_text(_WITHOUT.format(libraries=libraries))
    file = tmp_path / "my_model.py"
    file.write_text(_MODEL)
    paths = os.pathsep.join([str(tmp_path), str(ROOT / "src")])

    def ran(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, *words]
        environment = os.environ | {"PYTHONPATH": paths}
        return subprocess.run(
            command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False
        )

    looked = ran("-c", _LOOKING.format(file=file))
    assert looked.returncode == 0, looked.stderr
    came = re.findall("came through: (.*)", looked.stdout)
    assert came == ["placements", "predict", "choose", "doctor", "doctor", "--help"]
    assert "refused: compare: this takes tokenizers" in looked.stdout
    newcomer = ran("-m", "normscope")
    assert newcomer.returncode == 0, newcomer.stderr
    works, sign, more = newcomer.stdout.partition("takes more libraries")
    assert proposed(works) == ["doctor", "predict", "placements", "choose"]
    assert sign
    assert proposed(more) == ["demo", "compare"]
    assert installation("train") in " ".join(more.split())
    for words in (
        ["demo"],
        ["data", "prepare", "corpus", "--train", "a", "b", "--languages", "de", "en"],
    ):
        refused = ran("-m", "normscope", *words)
        assert (refused.returncode, refused.stdout) == (2, "")
        assert installation("train") in " ".join(refused.stderr.split())
        assert "Traceback" not in refused.stderr
