"""What every test room shares: where the shared corpora and fixtures are, and the plain refusal to run without them."""

import gc
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Generator, Iterator
from functools import lru_cache
from pathlib import Path

import hypothesis
import pytest
import torch

import toy
import unsynced

# Tiny tensors on several threads wait for each other more than they compute, and the tests run side by side anyway.
torch.set_num_threads(1)
toy.share()
unsynced.write()

# Under `nohup` it is ignored, by every child too, and tests that send it would wait for what never ends.
signal.signal(signal.SIGHUP, signal.SIG_DFL)

# A busy machine is no failure of what is tested.
hypothesis.settings.register_profile("whatever the machine is busy with", deadline=None)
hypothesis.settings.load_profile("whatever the machine is busy with")

_CPUINFO = Path("/proc/cpuinfo")
_HALF_PRECISION = "import torch; a = torch.ones(64, 64, dtype=torch.bfloat16); a @ a"


def _half_precision_runs() -> bool:
    """Whether a product in bf16 ends: some virtual machines announce AMX and then kill who uses it."""
    return subprocess.run([sys.executable, "-c", _HALF_PRECISION], check=False, capture_output=True).returncode == 0


# Workers and commands under test inherit it, so that one process alone has to ask.
if _CPUINFO.is_file() and "amx_tile" in _CPUINFO.read_text() and "ONEDNN_MAX_CPU_ISA" not in os.environ:
    os.environ["ONEDNN_MAX_CPU_ISA"] = "DEFAULT" if _half_precision_runs() else "AVX512_CORE_FP16"

SHARED = Path(os.environ.get("NORMSCOPE_SHARED", Path(__file__).parents[2] / "shared"))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--whole", action="store_true", help="run every case of what is otherwise sampled")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "sampled(one_in): of so many cases of a test one is run, without --whole")
    config.addinivalue_line("markers", "thorough: run with --whole alone")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves out what `make test-all` alone runs; of a sampled test at least one case stays, the same in every run."""
    if config.getoption("--whole"):
        return
    kept, left_out = [], []
    cases: Counter[str] = Counter()
    for item in items:
        sampled = item.get_closest_marker("sampled")
        test = item.nodeid.partition("[")[0]
        number = cases[test]
        cases[test] += 1
        stays = item.get_closest_marker("thorough") is None and (not sampled or number % sampled.kwargs["one_in"] == 0)
        (kept if stays else left_out).append(item)
    config.hook.pytest_deselected(items=left_out)
    items[:] = kept


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """What is collected lives as long as the process: the garbage collector need not look at it again.

    Nor need it look after every 700 objects for circles among graphs, of which reference counts free nearly all.
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
        pytest.skip(f"needs the shared corpora and fixtures: no folder {SHARED} (set NORMSCOPE_SHARED)")
    return SHARED


@pytest.fixture(scope="session", autouse=True)
def _products_compared_once() -> Iterator[None]:
    """Which library multiplies matrices depends on the machine alone; each run asks anew."""
    from normscope.runs import machine

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(machine, "fast_matmul", lru_cache(machine.fast_matmul))
        yield
