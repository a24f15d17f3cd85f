"""The short form of `make trust`'s upkeep beside writers and readers."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

# A process of its own, since it forks.
_BESIDE = """
import json, sys
sys.path[:0] = ["trust", "tests"]
import upkeep
counts, violations = upkeep.beside(6)
print(json.dumps([dict(counts), violations]))
"""


def test_upkeep_deletes_nothing_that_writers_or_readers_need() -> None:
    ran = subprocess.run(
        [sys.executable, "-c", _BESIDE], cwd=ROOT, capture_output=True, text=True, timeout=300, check=True
    )
    counts, violations = json.loads(ran.stdout)
    assert not violations, violations[0]
    assert counts["acknowledged"] > 0
