"""Change the source in small ways and see whether a test fails: `make mutants`, or `make mutants
MUTANTS=2000`.

    python tests/mutants.py COUNT [ROOM ...]

mutmut makes the mutants, finds for each function the tests that reach it, and runs those in a
forked process for each mutant, the fastest first. This script draws the sample: the same for the
same source, of every room alike, a smaller one the beginning of a larger one. Verdicts are kept in
`mutants/`, so that a run that was stopped goes on, and one that is repeated runs what is new, and
again what survived tests that have changed since; `mutants/survivors.md` shows the score of each
room and each survivor as a difference.

Where rooms are named, the tests of these alone run; those of all are to run once before the first
mutant does. They may find less than all would, and a call with other rooms begins anew.

Text is not counted: a string with a blank in it, changed or left out, which is for people; and what
is raised.
"""

import ast
import os
import random
import sys
from collections import defaultdict
from collections.abc import Iterator
from itertools import chain, islice
from pathlib import Path

import hypothesis
import libcst
from mutmut import __main__ as mutmut
from mutmut.configuration import config
from mutmut.mutation.data import SourceFileMutationData
from mutmut.mutation.diff_apply import get_diff_for_mutant, read_functions_from_index
from mutmut.stats import status_by_exit_code

SEED = 1
FOUND = ("killed", "timeout", "segfault")
REPORT = Path("mutants/survivors.md")
ABOUT = {
    "tests/cli/test_predict.py": "theory",
    "tests/model/test_initialisation.py": "placement",
    "tests/runs/test_claiming.py": "train",
}
"""Rooms of the tests that lie in another one's folder."""


def narrow(rooms: list[str]) -> None:
    """Change and test the files of those rooms alone."""
    settings = config()
    settings.only_mutate = [files for files in settings.only_mutate if files.split("/")[2] in rooms]
    settings.pytest_add_cli_args_test_selection = [
        tests
        for tests in settings.pytest_add_cli_args_test_selection
        if ABOUT.get(tests, tests.split("/")[1]) in rooms
    ]


def generated() -> dict[str, SourceFileMutationData]:
    """Write the mutants of every file that has changed; the file of every mutant, by the mutant's
    name.
    """
    Path("mutants").mkdir(exist_ok=True)
    mutmut.copy_src_dir()
    mutmut.copy_also_copy_files()
    mutmut.setup_source_paths()
    mutmut.create_mutants(1)
    found, _ = mutmut.collect_source_file_mutation_data(mutant_names=())
    return {name: file for file, name, _ in found}


def forget_survivors(files: dict[str, SourceFileMutationData]) -> None:
    """Take back the verdicts on mutants that no test failed for, where a test has changed since."""
    changed = max(test.stat().st_mtime for test in Path("tests").rglob("*.py"))
    if not REPORT.is_file() or REPORT.stat().st_mtime > changed:
        return
    for file in {id(file): file for file in files.values()}.values():
        codes = file.exit_code_by_key
        codes |= {
            name: None for name, code in codes.items() if status_by_exit_code[code] not in FOUND
        }
        file.save()


def room(name: str) -> str:
    """The second word of `normscope.theory.kernels.x_relu__mutmut_3`."""
    return name.split(".")[1]


def in_drawn_order(files: dict[str, SourceFileMutationData], rooms: list[str]) -> Iterator[str]:
    """All mutants of those rooms that are no text, one of each room in turn."""
    shuffled = {}
    for one in rooms:
        shuffled[one] = sorted(name for name in files if room(name) == one)
        random.Random(f"{SEED} {one}").shuffle(shuffled[one])
    turns = sorted((place, one, name) for one in rooms for place, name in enumerate(shuffled[one]))
    return (name for _, _, name in turns if not is_text(name, files[name].path))


def is_text(name: str, path: Path) -> bool:
    """Whether the mutant differs in words for people alone."""
    functions = read_functions_from_index(name, path)
    assert functions is not None, f"{path} has no index of its mutants; delete the folder mutants"
    before, after = (
        ast.dump(_Wordless().visit(ast.parse(libcst.Module([f]).code.strip()))) for f in functions
    )
    return before == after


class _Wordless(ast.NodeTransformer):
    """Takes out what people read: strings with a blank, such that none at all is the same, and what
    is raised.
    """

    def visit_Constant(self, node: ast.Constant) -> ast.Constant:
        return ast.Constant(None) if isinstance(node.value, str) and " " in node.value else node

    def visit_Raise(self, node: ast.Raise) -> ast.Raise:
        return ast.Raise()


def report(names: list[str], files: dict[str, SourceFileMutationData]) -> str:
    """The score of each room, and every mutant that no test failed for."""
    scores, survivors = defaultdict(list), []
    for name in names:
        status = status_by_exit_code[files[name].exit_code_by_key[name]]
        scores[room(name)].append(status)
        if status not in (*FOUND, "not checked"):
            survivors += [
                f"## {name}: {status}",
                "",
                "```diff",
                get_diff_for_mutant(name, path=files[name].path),
                "```",
                "",
            ]
    lines = ["| room | mutants | killed | share |", "| --- | --- | --- | --- |"]
    for one, statuses in [*scores.items(), ("all", list(chain(*scores.values())))]:
        checked = [status for status in statuses if status != "not checked"]
        killed = sum(status in FOUND for status in checked)
        lines.append(f"| {one} | {len(checked)} | {killed} | {killed / max(1, len(checked)):.1%} |")
    return "\n".join([*lines, "", *survivors])


def main(count: int, rooms: list[str]) -> None:
    # The tests run from a copy of theirs, beside which no shared folder lies.
    os.environ.setdefault("NORMSCOPE_SHARED", str(Path("../shared").resolve()))
    # One process runs the tests several times, each time with new objects of their classes; what is
    # registered later inherits it.
    once = hypothesis.HealthCheck.differing_executors
    hypothesis.settings.register_profile("repeated", suppress_health_check=[once])
    hypothesis.settings.load_profile("repeated")
    if rooms:
        narrow(rooms)
    files = generated()
    forget_survivors(files)
    chosen = list(
        islice(in_drawn_order(files, rooms or sorted({room(name) for name in files})), count)
    )
    left = [name for name in chosen if files[name].exit_code_by_key[name] is None]
    print(f"{len(files)} mutants, {len(chosen)} drawn, {len(left)} of these without a verdict")
    try:
        if left:
            mutmut._run(left, max_children=1)
    finally:
        for file in {id(file): file for file in files.values()}.values():
            file.load()
        REPORT.write_text(report(chosen, files))
        print(f"survivors: {REPORT}")


if __name__ == "__main__":
    # Processes that tests start would run this file anew, under another folder, if it could be
    # found.
    del sys.modules["__main__"].__file__
    main(int(sys.argv[1]), sys.argv[2:])
