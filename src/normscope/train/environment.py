"""What a run was made on, for `environment.json`."""

import os
import platform
from pathlib import Path
from typing import Any

import torch

from ..provenance import provenance


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


def differences(before: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """What has changed since the run began that can change its bits, one line each."""
    keys = ("source_sha256", "torch", "processor", "threads", "device", "accelerator", "fast_matmul")
    return [f"{key}: {before.get(key)} -> {now[key]}" for key in keys if before and before.get(key) != now[key]]


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()
