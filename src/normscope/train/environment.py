"""What a run was made on, for `environment.json`."""

import os
import platform
from pathlib import Path
from typing import Any

import torch

from ..provenance import provenance

_BINDING = "data_fingerprint seed run vocabularies_sha256"
_MACHINE = "python torch platform processor cores threads device accelerator fast_matmul"
KEYS: frozenset[str] = frozenset(f"normscope source_sha256 commit {_MACHINE} {_BINDING}".split())
"""Of `environment.json`: what `describe` returns, and what binds the run's files together."""
OPTIONAL_KEYS: frozenset[str] = frozenset({"made_from"})


def describe(*, device: torch.device, seed: int, data_fingerprint: str, fast_matmul: bool) -> dict[str, Any]:
    """Versions, hardware, threads, data and seed: with the configuration, all that a run's numbers depend on."""
    return {
        **provenance(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "platform": platform.platform(),
        "processor": _processor(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "device": str(device),
        "accelerator": torch.cuda.get_device_name(device) if device.type == "cuda" else "",
        "fast_matmul": fast_matmul,
        "data_fingerprint": data_fingerprint,
        "seed": seed,
    }


def changes_of_machine(before: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """What has changed of the machine since the run began that can change its bits, one line each."""
    keys = ("torch", "processor", "threads", "device", "accelerator", "fast_matmul")
    return [f"{key}: {before.get(key)} -> {now[key]}" for key in keys if before.get(key) != now[key]]


def change_of_source(before: dict[str, Any], now: dict[str, Any]) -> str:
    """From which source of this package to which; empty where it is the same.

    By commits where they tell the two apart, and by hashes of the source otherwise.
    """
    if before.get("source_sha256") == now["source_sha256"]:
        return ""
    old, new = _commit(before), _commit(now)
    if old and new and old != new:
        return f"commit {old} → {new}"
    return f"SHA-256 {(before.get('source_sha256') or 'not recorded')[:12]} → {now['source_sha256'][:12]}"


def _commit(environment: dict[str, Any]) -> str:
    """The commit, abbreviated, with its mark of modified files; empty where there was none."""
    commit, _, modified = str(environment.get("commit", "")).partition(" ")
    return " ".join(filter(None, (commit[:12], modified)))


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()
