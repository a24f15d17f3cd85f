"""How much memory a process had at most, for tests of what must stay bounded."""

from __future__ import annotations

from pathlib import Path


def peak_megabytes() -> int:
    """Of this process since it was started. `ru_maxrss` would begin with what the process had that started it, and so
    say nothing where that one is large."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmHWM:")).split()[1]) // 1024
