"""What the product answers, recorded to be compared across a refactoring.

    python tests/golden record OUT [PART…] [--tree WORKTREE]
    python tests/golden compare OLD NEW [PART…]
    python tests/golden list [PART…]

PART is `predict`, or `studies:figure-6`, or `doctor:gpt*`; without one it is all. A recording is a
folder of JSON and text files, in which nothing stands that changes with the clock, the folder or
the source's hash. `--tree` names the worktree whose package and whose tests' models are recorded,
this one without it.
"""

import argparse
import os
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parents[1]
SETTLED = {
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "COLUMNS": "80",
    "LINES": "40",
    "TERM": "dumb",
    "NO_COLOR": "1",
    "TZ": "UTC",
    "HF_HUB_OFFLINE": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "PYTHONWARNINGS": "ignore",
    # Some virtual machines announce AMX and then kill who uses it.
    "ONEDNN_MAX_CPU_ISA": "AVX512_CORE_FP16",
}
"""What answers may depend on in the environment."""


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="golden", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("verb", choices=["record", "compare", "list"])
    parser.add_argument("words", nargs="*")
    parser.add_argument("--tree", type=Path, default=HERE.parent)
    given = parser.parse_intermixed_args()
    folders = {"record": 1, "compare": 2, "list": 0}[given.verb]
    if len(given.words) < folders:
        parser.error(f"{given.verb} takes {folders} folder(s)")
    paths, parts = [Path(word).resolve() for word in given.words[:folders]], given.words[folders:]
    tree = given.tree.resolve()
    _settle(tree)
    # The tree's own models come first; this package may be in another tree.
    sys.path[:1] = [str(tree / "src"), str(tree / "tests")]
    sys.path.append(str(HERE))
    from golden import comparing, recording

    if given.verb == "compare":
        return comparing.compare(*paths, parts)
    if given.verb == "list":
        print(
            "\n".join(
                f"{part}:{name}"
                for part, names in recording.chosen(tree, parts).items()
                for name in names
            )
        )
        return 0
    return recording.record(tree, paths[0], parts)


def _settle(tree: Path) -> None:
    """Begin anew in the settled environment, where this is not it: libraries read theirs when they
    are imported.
    """
    wanted = SETTLED | {"PYTHONPATH": str(tree / "src")}
    wanted["NORMSCOPE_SHARED"] = os.environ.get("NORMSCOPE_SHARED", str(tree.parent / "shared"))
    if any(os.environ.get(name) != value for name, value in wanted.items()):
        os.execve(sys.executable, [sys.executable, *sys.argv], os.environ | wanted)


if __name__ == "__main__":
    sys.exit(main())
