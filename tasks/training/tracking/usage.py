"""What the machine is doing, under the names that MLflow's page of system metrics shows. Imports no torch."""

import sys
from typing import Any

import psutil

MEGABYTE = 1_000_000


class Usage:
    """CPU, memory and, where torch sees one, GPU of this node. CPU use is since the last call."""

    def __init__(self) -> None:
        self._process = psutil.Process()
        psutil.cpu_percent()  # the first value means nothing

    def metrics(self) -> dict[str, float]:
        memory = psutil.virtual_memory()
        found = {
            "system/cpu_utilization_percentage": psutil.cpu_percent(),
            "system/system_memory_usage_megabytes": memory.used / MEGABYTE,
            "system/system_memory_usage_percentage": memory.percent,
            "system/process_memory_usage_megabytes": self._process.memory_info().rss / MEGABYTE,
        }
        return found | _gpus(sys.modules.get("torch"))


def _gpus(torch: Any) -> dict[str, float]:
    if torch is None or not torch.cuda.is_available():
        return {}
    found: dict[str, float] = {}
    for number in range(torch.cuda.device_count()):
        free, total = torch.cuda.mem_get_info(number)
        found[f"system/gpu_{number}_memory_usage_megabytes"] = (total - free) / MEGABYTE
        found[f"system/gpu_{number}_memory_usage_percentage"] = 100 * (1 - free / total)
        try:
            found[f"system/gpu_{number}_utilization_percentage"] = float(torch.cuda.utilization(number))
        except (ImportError, RuntimeError):  # NVIDIA's management library is not there
            continue
    return found
