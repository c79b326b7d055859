"""What every test room shares: where the shared corpora and fixtures are, and the plain refusal to
run without them.
"""

import gc
import os
import signal
import subprocess
import sys
from collections.abc import Generator, Iterator
from functools import lru_cache
from pathlib import Path
from zlib import crc32

import hypothesis
import pytest
import torch

import forked
import toy
import unsynced

# Tiny tensors on several threads wait for each other more than they compute, and the tests run side
# by side anyway.
torch.set_num_threads(1)
toy.share()
unsynced.write()

# Under `nohup` it is ignored, by every child too, and tests that send it would wait for what never
# ends.
signal.signal(signal.SIGHUP, signal.SIG_DFL)

# A busy machine is no failure of what is tested.
hypothesis.settings.register_profile("whole", deadline=None)
hypothesis.settings.register_profile("sample", deadline=None, max_examples=25)

_CPUINFO = Path("/proc/cpuinfo")
_HALF_PRECISION = "import torch; a = torch.ones(64, 64, dtype=torch.bfloat16); a @ a"


def _half_precision_runs() -> bool:
    """Whether a product in bf16 ends: some virtual machines announce AMX and then kill who uses
    it.
    """
    return (
        subprocess.run(
            [sys.executable, "-c", _HALF_PRECISION], check=False, capture_output=True
        ).returncode
        == 0
    )


# Workers and commands under test inherit it, so that one process alone has to ask.
if (
    _CPUINFO.is_file()
    and "amx_tile" in _CPUINFO.read_text()
    and "ONEDNN_MAX_CPU_ISA" not in os.environ
):
    os.environ["ONEDNN_MAX_CPU_ISA"] = "DEFAULT" if _half_precision_runs() else "AVX512_CORE_FP16"

PLACEMENTS_ONE_IN = 11
"""Of the cases of a test over the registry; no multiple of the two to four cases that some have of
each placement.
"""
SHARED = Path(os.environ.get("NORMSCOPE_SHARED", Path(__file__).parents[2] / "shared"))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--whole", action="store_true", help="run every case of what is otherwise sampled"
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "sampled(one_in): of so many cases of a test one is run, without --whole"
    )
    config.addinivalue_line("markers", "thorough: run with --whole alone")
    hypothesis.settings.load_profile("whole" if config.getoption("--whole") else "sample")
    if config.getoption("numprocesses", None):
        # While the workers collect; each would start one of its own, which takes a dozen seconds of
        # a core.
        forked.serve()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves out what `make test-all` alone runs; of a sampled test at least one case stays, the
    same in every run.

    Tests over the whole registry are sampled too, each at placements of its own, so that all of
    them together take every placement many times.
    """
    if config.getoption("--whole"):
        return
    tests: dict[str, list[pytest.Item]] = {}
    for item in items:
        tests.setdefault(item.nodeid.partition("[")[0], []).append(item)
    kept = set()
    for test, cases in tests.items():
        sampled = cases[0].get_closest_marker("sampled")
        one_in, first = sampled.kwargs["one_in"] if sampled else 1, 0
        if not sampled and _over_the_registry(cases):
            # By these bits of the hash the 25 such tests of models and placements take each of the
            # eleven shares.
            share = (crc32(test.rpartition("/")[2].encode()) >> 23) % PLACEMENTS_ONE_IN
            one_in, first = PLACEMENTS_ONE_IN, share
        kept |= {
            item for item in cases[first::one_in] if item.get_closest_marker("thorough") is None
        }
    config.hook.pytest_deselected(items=[item for item in items if item not in kept])
    items[:] = [item for item in items if item in kept]


def _over_the_registry(cases: list[pytest.Item]) -> bool:
    """Whether a test has cases of nearly every placement."""
    if len(cases) < 40:
        return False
    from normscope.placement import registered

    values = {v for case in cases for v in case.callspec.params.values() if isinstance(v, str)}  # type: ignore[attr-defined]
    return len(values & registered().keys()) >= 0.9 * len(registered())


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """What is collected lives as long as the process: the garbage collector need not look at it
    again.

    Nor need it look after every 700 objects for circles among graphs, of which reference counts
    free nearly all.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(50_000)
        gc.enable()


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of shared corpora and fixtures; skips the test where it is absent."""
    if not SHARED.is_dir():
        pytest.skip(
            f"needs the shared corpora and fixtures: no folder {SHARED} (set NORMSCOPE_SHARED)"
        )
    return SHARED


@pytest.fixture
def stride(request: pytest.FixtureRequest) -> int:
    """By how many bytes of a file a test that changes each in turn moves on."""
    return 1 if request.config.getoption("--whole") else 7


@pytest.fixture(scope="session", autouse=True)
def _products_compared_once() -> Iterator[None]:
    """Which library multiplies matrices depends on the machine alone; each run asks anew."""
    from normscope.runs import machine

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(machine, "fast_matmul", lru_cache(machine.fast_matmul))
        yield
